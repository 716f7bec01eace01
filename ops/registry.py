"""The op table: every op by name, and what its declaration says beyond the mathematics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

OPS: dict[str, Any] = {}
"""Name -> op, in the order of declaration."""

NUMPY: dict[Callable[..., Any], Callable[..., Any]] = {}
"""NumPy function -> the function of ours that stands in for it when a Tensor is among its arguments."""


@dataclass(frozen=True)
class Sampling:
    """Where tests and benchmarks take the arguments of an op from.

    `ranges` has one (low, high) per argument, or one for all. `special` lists values worth asking at (kinks are told
    apart by `docs/kinks.md`); `order` is how often the op can be differentiated in tests.
    """

    ranges: Sequence[tuple[float, float]] = ((-2.0, 2.0),)
    special: Sequence[tuple[float, ...]] = field(default_factory=tuple)
    order: int = 2

    def of(self, argument: int) -> tuple[float, float]:
        """Range of one argument."""
        return self.ranges[argument if len(self.ranges) > 1 else 0]


def register(op: Any) -> Any:
    """Enter an op; a name can be taken once."""
    if op.name in OPS:
        raise ValueError(f"an op named {op.name!r} exists already")
    OPS[op.name] = op
    return op


def stands_for(*numpy_functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function takes over for these NumPy functions."""

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        for one in numpy_functions:
            NUMPY[one] = function
        return function

    return note


def every_op(kind: type | None = None) -> Iterator[Any]:
    """All ops (of one kind)."""
    return (op for op in OPS.values() if kind is None or isinstance(op, kind))
