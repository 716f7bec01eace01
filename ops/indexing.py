"""Indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.primitive import primitive


@primitive(linear=True, view=True, name="getitem")
def _slice(x, *, index):
    return x[index]


@_slice.vjp("x")
def _(g, x_shape, index):
    return _place(g, shape=x_shape, index=index)


@primitive(linear=True, name="place_at")
def _place(g, *, shape, index):
    out = np.zeros(shape, g.dtype)
    out[index] = g
    return out


@_place.vjp("g")
def _(g, index):
    return _slice(g, index=index)


def getitem(x: Tensor, index: Any) -> Tensor:
    """``x[index]``."""
    return _slice(x, index=index)


METHODS: dict[str, Callable[..., Any]] = {"__getitem__": getitem}

__all__: list[str] = []
