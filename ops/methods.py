"""What Tensor can do: operators, methods and attributes, attached from tables. The engine's Tensor has none itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.arithmetic import provide
from numbagrad.engine.tensor import Tensor
from numbagrad.jit import memory
from numbagrad.ops import arithmetic, logic

_OPERAND_TYPES = (Tensor, np.ndarray, np.generic, int, float, complex, list, tuple)


def _infix(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operator's method: other types get their turn."""

    def method(self: Tensor, other: Any) -> Any:
        if isinstance(other, _OPERAND_TYPES):
            return function(self, other)
        return NotImplemented

    return method


OPERATORS: dict[str, Callable[..., Any]] = {
    "__add__": arithmetic.add.fast,
    "__radd__": arithmetic.add.fast,
    "__sub__": arithmetic.subtract.fast,
    "__rsub__": arithmetic.subtract.reflected,
    "__mul__": arithmetic.multiply.fast,
    "__rmul__": arithmetic.multiply.fast,
    "__truediv__": arithmetic.divide.fast,
    "__rtruediv__": arithmetic.divide.reflected,
    "__neg__": arithmetic.negative.fast,
    "__eq__": _infix(logic.equal),
    "__ne__": _infix(logic.not_equal),
    "__lt__": _infix(logic.less),
    "__le__": _infix(logic.less_equal),
    "__gt__": _infix(logic.greater),
    "__ge__": _infix(logic.greater_equal),
}


def attach(table: dict[str, Any]) -> None:
    """Put the entries of `table` on Tensor."""
    for name, value in table.items():
        setattr(Tensor, name, value)


def _add_into(total: Tensor, grad: Tensor) -> None:
    np.add(total._data, grad._data, out=total._data, casting="same_kind")


attach(OPERATORS)
Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
provide(add=arithmetic.add.fast, add_into=_add_into, owns_memory=memory.owns_memory)
