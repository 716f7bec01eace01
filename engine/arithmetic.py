"""What the engine needs of arithmetic, handed in by `numbagrad.ops`: the engine itself knows no op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Arithmetic:
    """The few functions on tensors that the sweep uses."""

    add: Callable[[Any, Any], Any]
    """Sum of two tensors, recorded when grad mode is on."""
    add_into: Callable[[Any, Any], None]
    """Add the second tensor into the memory of the first."""
    stack: Callable[[list[Any]], Any]
    """Stack tensors along a new first axis."""
    fit: Callable[[Any, Any], Any]
    """Sum a gradient over what broadcasting added and cast it, so that it has a given layout."""
    rebase: Callable[[Any, Any], Any]
    """Give the first tensor, whose memory was written, the history of the second."""
    transposed_jvp: Callable[[Any, Any, Any], Any]
    """Forward mode of a node from its backward."""

    over_entries: Callable[[Any, Any], Any]
    """Call a function of a list of tensors for all entries along their first axis at once; None where it cannot."""

    @staticmethod
    def owns_memory(array: np.ndarray) -> bool:
        """Whether nobody else can hold the memory of a freshly made `array`."""
        return array.base is None

    @staticmethod
    def copy(array: np.ndarray) -> np.ndarray:
        """A C-contiguous copy."""
        return array.copy(order="C")


arithmetic = Arithmetic()


def provide(**functions: Callable[..., Any]) -> None:
    """Hand the engine its arithmetic; unknown names are refused."""
    for name, function in functions.items():
        if name not in Arithmetic.__annotations__ and name not in ("owns_memory", "copy"):
            raise TypeError(f"the engine needs {', '.join(Arithmetic.__annotations__)}, not {name!r}")
        setattr(arithmetic, name, function)
