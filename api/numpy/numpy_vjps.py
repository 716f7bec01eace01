"""`autograd.numpy.numpy_vjps`: helpers for rules of one's own."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.arithmetic import where
from numbagrad.ops.operands import sum_to


def unbroadcast(x: Any, target_meta: Any, broadcast_idx: int = 0) -> Any:
    """Sum a gradient over what broadcasting added, to the shape that `target_meta` begins with."""
    shape = target_meta[0]
    if isinstance(x, Tensor):
        return sum_to(x, shape)
    extra = np.ndim(x) - len(shape)
    x = np.sum(x, axis=tuple(range(broadcast_idx, broadcast_idx + extra)))
    axes = tuple(i for i, n in enumerate(shape) if n == 1)
    return np.sum(x, axis=axes, keepdims=True) if axes else x


def unbroadcast_f(target: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`f`, whose result is summed to the shape of `target`."""
    meta = (np.shape(target), np.ndim(target))
    return lambda g: unbroadcast(f(g), meta)


def replace_zero(x: Any, val: Any) -> Any:
    """`x` with zeros replaced."""
    return where(x != 0, x, val) if isinstance(x, Tensor) else np.where(x, x, val)


__all__ = ["replace_zero", "unbroadcast", "unbroadcast_f"]
