"""Arranging: reverse, shift, turn, repeat and pad."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.jit import memory
from numbagrad.ops.conversion import clone
from numbagrad.ops.folding import sum_axes
from numbagrad.ops.gathering import getitem, zeros
from numbagrad.ops.operands import as_tensor, holds_tensor
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


@primitive(name="pad")
def _pad(x, *, pad_width, values):
    if not (isinstance(values, int) and values == 0):
        return np.pad(x, pad_width, constant_values=values)
    # np.pad takes ten times as long for small arrays.
    out = zeros(tuple(lo + n + hi for n, (lo, hi) in zip(x.shape, pad_width, strict=True)), x.dtype)
    out[_inner(pad_width, x.shape)] = x
    return out


def _inner(pad_width: tuple[tuple[int, int], ...], shape: tuple[int, ...]) -> Any:
    return tuple(slice(lo, lo + n) for (lo, _), n in zip(pad_width, shape, strict=True)) or ...


@_pad.vjp("x")
def _(g, x_shape, pad_width):
    return getitem(g, _inner(pad_width, x_shape))


@_pad.jvp
def _(node, tangents):
    return _pad(tangents[0], pad_width=node.statics.settings["pad_width"], values=0)


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


@stands_for(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Tensor:
    """Put a border around.

    Parameters
    ----------
    array : array_like
    pad_width : int, or (before, after), or one pair per axis
        Width of the border; a dict gives it for some axes.
    mode : {"constant", "edge", "reflect", "symmetric", "wrap", "empty"}, optional
        "empty" borders are zeros here.
    constant_values : number, optional
        For mode "constant"; as `pad_width`, it may differ from side to side.
    reflect_type : {"even"}, optional
        For modes "reflect" and "symmetric".

    Returns
    -------
    Tensor

    Raises
    ------
    NotImplementedError
        For NumPy's other modes: their borders are not copies of elements.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.pad(ng.tensor([1.0, 2.0]), (1, 2))
    tensor([0., 1., 2., 0., 0.])
    >>> ng.pad(ng.tensor([1.0, 2.0, 3.0]), 2, mode="reflect")
    tensor([3., 2., 1., 2., 3., 2., 1.])
    """
    x = as_tensor(array, "array")
    if mode not in _PAD_SETTINGS:
        raise NotImplementedError(
            f"pad: mode {mode!r} has no gradient here; the modes are {', '.join(_PAD_SETTINGS)}. "
            "Build the border yourself and join it with concatenate"
        )
    unknown = set(kwargs) - _PAD_SETTINGS[mode]
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {unknown}")
    widths = _pad_widths(pad_width, x.ndim)
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, kwargs.get("constant_values", 0))
    if kwargs.get("reflect_type", "even") != "even":
        raise NotImplementedError("pad: reflect_type is 'odd', but only 'even' has a gradient here")
    return _pad_with_elements(x, widths, mode)


_PAD_SETTINGS: dict[str, set[str]] = {
    "constant": {"constant_values"},
    "empty": set(),
    "edge": set(),
    "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"},
    "wrap": set(),
}


def _pad_widths(pad_width: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    if isinstance(pad_width, dict):
        given = {normalize_axis_index(axis, ndim): w for axis, w in pad_width.items()}
        return tuple(_pad_widths(given.get(axis, 0), 1)[0] for axis in range(ndim))
    if type(pad_width) is int and pad_width >= 0:
        return ((pad_width, pad_width),) * ndim
    widths = np.asarray(pad_width)
    if widths.dtype.kind not in "iu":
        raise TypeError(f"pad: `pad_width` must be of integral type, got {pad_width!r}")
    if (widths < 0).any():
        raise ValueError(f"pad: index can't contain negative values, got pad_width {pad_width!r}")
    try:
        return tuple((int(lo), int(hi)) for lo, hi in np.broadcast_to(widths, (ndim, 2)))
    except ValueError:
        raise ValueError(f"pad: pad_width {pad_width!r} does not give a pair for each of the {ndim} axes") from None


def _pad_constant(x: Tensor, widths: tuple[tuple[int, int], ...], values: Any) -> Tensor:
    if isinstance(values, Tensor) and not values.requires_grad:
        values = values._data
    if holds_tensor(values):
        raise NotImplementedError(
            "pad: constant_values with a gradient are not supported; build the border with broadcast_to and join it "
            "with concatenate"
        )
    return _pad(x, pad_width=widths, values=values)


def _pad_with_elements(x: Tensor, widths: tuple[tuple[int, int], ...], mode: str) -> Tensor:
    """NumPy pads one axis after the other, so each is a gather of its own."""
    out = x
    for axis, (width, n) in enumerate(zip(widths, x.shape, strict=True)):
        if any(width):
            places = np.pad(np.arange(n), width, mode)
            out = getitem(out, (slice(None),) * axis + (places,))
    return clone(out) if out is x else out


METHODS: dict[str, Callable[..., Any]] = {"repeat": repeat}

__all__ = ["flip", "fliplr", "flipud", "pad", "repeat", "resize", "roll", "rot90", "tile"]
