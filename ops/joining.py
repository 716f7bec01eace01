"""Joining and splitting: concatenate, stack and what is built from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for


@primitive(linear=True, name="stack")
def _stack(*xs, axis, dtype):
    return np.stack(xs, axis, dtype=dtype)


@_stack.vjp("xs")
def _(g, i, axis):
    from numbagrad.ops.indexing import getitem

    return getitem(g, (slice(None),) * axis + (i,))


@stands_for(np.stack)
def stack(arrays: Any, axis: int = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Join tensors of one shape along a new axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.stack([ng.tensor([1.0, 2.0]), ng.tensor([3.0, 4.0])], axis=1)
    tensor([[1., 3.],
            [2., 4.]])
    """
    tensors = [as_tensor(a, "arrays") for a in arrays]
    if not tensors:
        raise ValueError("stack: need at least one array to stack")
    shapes = {t.shape for t in tensors}
    if len(shapes) > 1:
        raise ValueError(f"stack: all arrays must have the same shape, got {', '.join(map(str, sorted(shapes)))}")
    return _stack(*tensors, axis=normalize_axis_index(axis, tensors[0].ndim + 1), dtype=dtype)


METHODS: dict[str, Callable[..., Any]] = {}

__all__ = ["stack"]
