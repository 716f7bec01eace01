"""Comparison and logic: results are booleans, and no gradient flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.layout import is_half
from numbagrad.engine.node import batching
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.batching import batching_rules
from numbagrad.ops.operands import operand
from numbagrad.ops.registry import NUMPY, register


class Flat:
    """A function of arrays through which no gradient flows: NumPy computes it, the result is a leaf."""

    def __init__(self, function: Callable[..., Any], name: str | None = None, wide: bool = False) -> None:
        self.name = name or function.__name__
        self.numpy = function
        self.wide = wide
        self.params = ("x", "y")[: function.nin] if isinstance(function, np.ufunc) else ("x", "y")
        """Names of the operands, where they are broadcast."""
        self.broadcasts = isinstance(function, np.ufunc) or function is np.isclose
        self.__name__ = self.__qualname__ = self.name
        self.__doc__ = f"{_first_line(function)}\n\nNo gradient flows through it. See :func:`numpy.{self.name}`."
        NUMPY[function] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if batching and self.broadcasts and not kwargs and len(args) == len(self.params):
            out = batching_rules().elementwise(self, args)
            if out is not None:
                return out
        plain = [_plain(a, self.name) for a in args]
        if self.wide:
            plain = [a.astype(np.float32) if isinstance(a, np.ndarray) and is_half(a.dtype) else a for a in plain]
        result = self.numpy(*plain, **{k: _plain(v, k) if isinstance(v, Tensor) else v for k, v in kwargs.items()})
        if isinstance(result, tuple):
            return tuple(wrap(np.asarray(r)) for r in result)
        return wrap(np.asarray(result))

    @property
    def fast(self) -> Callable[..., Any]:
        """The callable itself, as the other ops have it."""
        return self.__call__

    def __repr__(self) -> str:
        return f"<flat {self.name}>"


def _plain(value: Any, name: str) -> Any:
    if value is None or isinstance(value, (str, slice)):
        return value
    value = operand(value, name)
    return value._data if isinstance(value, Tensor) else value


def _first_line(function: Callable[..., Any]) -> str:
    lines = [line.strip() for line in (function.__doc__ or "").splitlines()]
    return next((line for line in lines if line and "(" not in line), function.__name__)


def _declare(*functions: Callable[..., Any]) -> list[Flat]:
    return [register(Flat(f)) for f in functions]


equal, not_equal, less, less_equal, greater, greater_equal = _declare(
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal
)
logical_and, logical_or, logical_xor, logical_not = _declare(
    np.logical_and, np.logical_or, np.logical_xor, np.logical_not
)
isfinite, isinf, isnan, signbit = _declare(np.isfinite, np.isinf, np.isnan, np.signbit)
bitwise_and, bitwise_or, bitwise_xor, invert = _declare(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert)
left_shift, right_shift, floor_divide = _declare(np.left_shift, np.right_shift, np.floor_divide)
isclose, allclose, array_equal = _declare(np.isclose, np.allclose, np.array_equal)

__all__ = [
    "allclose",
    "array_equal",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "invert",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "right_shift",
    "signbit",
]
