"""Arranging: reverse, shift, turn and repeat."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.jit import memory
from numbagrad.ops.folding import sum_axes
from numbagrad.ops.gathering import getitem
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import Shape, ravel, reshape, swapaxes

_REVERSED = slice(None, None, -1)


# ----- Primitives -----


@primitive(linear=True, name="roll")
def _roll(x, *, shift, axis):
    return np.roll(x, shift, axis)


@_roll.vjp("x")
def _(g, shift, axis):
    back = tuple(-s for s in shift) if isinstance(shift, tuple) else -shift
    return _roll(g, shift=back, axis=axis)


# ----- Order along axes -----


@stands_for(np.flip)
def flip(m: Any, axis: Shape | None = None) -> Tensor:
    """Reverse the order along some axes, or along all. A view.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.flip(ng.tensor([1.0, 2.0, 3.0]))
    tensor([3., 2., 1.])
    """
    x = as_tensor(m, "m")
    axes = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim)
    return getitem(x, tuple(_REVERSED if i in axes else slice(None) for i in range(x.ndim)))


@stands_for(np.flipud)
def flipud(m: Any) -> Tensor:
    """Reverse the order along the first axis. A view.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.flipud(ng.tensor([[1.0], [2.0]]))
    tensor([[2.],
            [1.]])
    """
    return getitem(_of_ndim(m, 1, "flipud"), _REVERSED)


@stands_for(np.fliplr)
def fliplr(m: Any) -> Tensor:
    """Reverse the order along the second axis. A view.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.fliplr(ng.tensor([[1.0, 2.0]]))
    tensor([[2., 1.]])
    """
    return getitem(_of_ndim(m, 2, "fliplr"), (slice(None), _REVERSED))


def _of_ndim(value: Any, ndim: int, op: str) -> Tensor:
    x = as_tensor(value, "m")
    if x.ndim < ndim:
        raise ValueError(f"{op}: the tensor must be at least {ndim}-dimensional, got shape {x.shape}")
    return x


@stands_for(np.roll)
def roll(a: Any, shift: Any, axis: Shape | None = None) -> Tensor:
    """Shift elements along axes; what leaves at the end comes in at the start.

    Parameters
    ----------
    a : array_like
    shift : int or tuple of int
        By how many places, for each axis.
    axis : int or tuple of int, optional
        By default the flattened elements are shifted.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.roll(ng.tensor([1.0, 2.0, 3.0]), 1)
    tensor([3., 1., 2.])
    """
    x = as_tensor(a, "a")
    shifts = tuple(map(operator.index, np.ravel(shift))) if np.ndim(shift) else operator.index(shift)
    return _roll(x, shift=shifts, axis=axis)


@stands_for(np.rot90)
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """Turn by `k` right angles in the plane of two axes, from the first towards the second. A view.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.rot90(ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[2., 4.],
            [1., 3.]])
    """
    x = _of_ndim(m, 2, "rot90")
    if len(axes) != 2 or len(set(normalize_axis_tuple(axes, x.ndim, allow_duplicate=True))) != 2:
        raise ValueError(f"rot90: axes must be two different axes, got {axes} for shape {x.shape}")
    if k % 2 == 0:
        return flip(x, axes) if k % 4 else getitem(x, ...)
    turned = swapaxes(x, *axes)
    return flip(turned, axes[0] if k % 4 == 1 else axes[1])


# ----- Repeating -----


@stands_for(np.repeat)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    """Repeat each element, as NumPy does (what torch calls repeat is `tile`).

    Parameters
    ----------
    a : array_like
    repeats : int or array of int
        How often, for all or for each position along the axis.
    axis : int, optional
        By default the flattened elements are repeated.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.repeat(ng.tensor([1.0, 2.0]), [1, 3])
    tensor([1., 2., 2., 2.])
    """
    x = as_tensor(a, "a")
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalize_axis_index(axis, max(x.ndim, 1))
    counts = np.asarray(repeats._data if isinstance(repeats, Tensor) else repeats)
    if counts.size == 1 and x.ndim and counts.dtype.kind in "iu" and counts.item() >= 0:
        return _repeat_all(x, times=counts.item(), axis=axis)
    places = np.repeat(np.arange(x.shape[axis]), counts)
    return getitem(x, (slice(None),) * axis + (places,))


@primitive(linear=True, name="repeat")
def _repeat_all(x, *, times, axis):
    """Each item so often, along one axis."""
    before, length, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    out = memory.empty((*before, length * times, *after), x.dtype)
    out.reshape(*before, length, times, *after)[...] = x.reshape(*before, length, 1, *after)
    return out


@_repeat_all.vjp("x")
def _(g, x_shape, times, axis):
    # The gradient is a sum instead of a scatter.
    return sum_axes(reshape(g, (*x_shape[: axis + 1], times, *x_shape[axis + 1 :])), axes=(axis + 1,), keepdims=False)


@stands_for(np.tile)
def tile(A: Any, reps: Any) -> Tensor:
    """Put copies of the whole tensor next to each other.

    Parameters
    ----------
    A : array_like
    reps : int or tuple of int
        How many copies along each axis.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tile(ng.tensor([1.0, 2.0]), 2)
    tensor([1., 2., 1., 2.])
    """
    x = as_tensor(A, "A")
    times = tuple(map(operator.index, np.ravel(reps)))
    if any(t < 0 for t in times):
        raise ValueError(f"tile: reps cannot be negative, got {reps}")
    ndim = max(x.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    shape = (1,) * (ndim - x.ndim) + x.shape
    return _tile_all(reshape(x, shape), times=times)


@primitive(linear=True, name="tile")
def _tile_all(x, *, times):
    """Copies of an array along each of its axes."""
    out = memory.empty(tuple([t * n for t, n in zip(times, x.shape, strict=True)]), x.dtype)
    out.reshape(_paired(times, x.shape))[...] = x.reshape(_paired((1,) * x.ndim, x.shape))
    return out


@_tile_all.vjp("x")
def _(g, x_shape, times):
    copies = tuple(2 * k for k, n in enumerate(times) if n != 1)
    return reshape(sum_axes(reshape(g, _paired(times, x_shape)), axes=copies, keepdims=False), x_shape)


def _paired(times: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Each axis split into copies and items."""
    return tuple([n for pair in zip(times, shape, strict=True) for n in pair])


@stands_for(np.resize)
def resize(a: Any, new_shape: Shape) -> Tensor:
    """The elements in another shape, from the start again as often as needed.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.resize(ng.tensor([1.0, 2.0, 3.0]), (2, 2))
    tensor([[1., 2.],
            [3., 1.]])
    """
    x = ravel(as_tensor(a, "a"))
    places = np.resize(np.arange(x.size), new_shape)
    if x.size == 0:
        return wrap(np.zeros(places.shape, x.dtype))
    return getitem(x, places)


METHODS: dict[str, Callable[..., Any]] = {"repeat": repeat}

__all__ = ["flip", "fliplr", "flipud", "repeat", "resize", "roll", "rot90", "tile"]
