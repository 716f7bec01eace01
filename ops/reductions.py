"""Reductions: what takes axes away."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for


def normalized(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that `axis` means, as a sorted tuple of numbers from 0 on."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple):
        return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(axis, ndim)))
    return (np.lib.array_utils.normalize_axis_index(axis, ndim),)


@primitive(linear=True, name="sum")
def _sum(x, *, axes, keepdims):
    return np.sum(x, axis=axes, keepdims=keepdims)


@_sum.vjp("x")
def _(g, x_shape, axes, keepdims):
    return _spread(g, shape=x_shape, axes=axes, keepdims=keepdims)


@primitive(linear=True, name="spread")
def _spread(x, *, shape, axes, keepdims):
    if not keepdims:
        x = np.expand_dims(x, axes)
    return np.broadcast_to(x, shape)


@_spread.vjp("x")
def _(g, axes, keepdims):
    return _sum(g, axes=axes, keepdims=keepdims)


@stands_for(np.sum)
def sum(x: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Sum over axes.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.sum(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    tensor([4., 6.])
    """
    x = as_tensor(x)
    return _sum(x, axes=normalized(axis, x.ndim), keepdims=bool(keepdims))


METHODS = {"sum": sum}
__all__ = ["sum"]
