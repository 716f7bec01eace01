"""Borders around tensors: `pad` in all of NumPy's modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.layout import kind_of
from numbagrad.engine.tensor import Tensor
from numbagrad.ops import arithmetic, reductions
from numbagrad.ops.conversion import astype, clone
from numbagrad.ops.einsum import tensordot
from numbagrad.ops.folding import mean
from numbagrad.ops.gathering import getitem, zeros
from numbagrad.ops.joining import concatenate
from numbagrad.ops.operands import as_tensor, holds_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.quantiles import median
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import broadcast_to, moveaxis

Widths = tuple[tuple[int, int], ...]

_SETTINGS: dict[str, set[str]] = {
    "constant": {"constant_values"},
    "edge": set(),
    "empty": set(),
    "linear_ramp": {"end_values"},
    "maximum": {"stat_length"},
    "mean": {"stat_length"},
    "median": {"stat_length"},
    "minimum": {"stat_length"},
    "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"},
    "wrap": set(),
}
"""What each mode takes."""


@stands_for(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Tensor:
    """Put a border around.

    Parameters
    ----------
    array : array_like
    pad_width : int, or (before, after), or one pair per axis
        Width of the border; a dict gives it for some axes.
    mode : str, optional
        "constant", "edge", "empty", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric" or
        "wrap". "empty" borders are zeros here.
    constant_values, end_values : number or Tensor, optional
        For modes "constant" and "linear_ramp"; as `pad_width`, they may differ from side to side. Gradients flow to
        them.
    stat_length : int, optional
        For the modes that are statistics: how many values from the edge they are of; by default all.
    reflect_type : {"even", "odd"}, optional
        For modes "reflect" and "symmetric".

    Returns
    -------
    Tensor

    Raises
    ------
    NotImplementedError
        For a function as mode, which writes into an array.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.pad(ng.tensor([1.0, 2.0]), (1, 2))
    tensor([0., 1., 2., 0., 0.])
    >>> ng.pad(ng.tensor([1.0, 2.0, 3.0]), 2, mode="reflect")
    tensor([3., 2., 1., 2., 3., 2., 1.])
    """
    x = as_tensor(array, "array")
    _check_mode(mode, kwargs)
    widths = _pad_widths(pad_width, x.ndim)
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, kwargs.get("constant_values", 0))
    if mode == "linear_ramp":
        return _pad_by_axis(x, widths, _pairs(kwargs.get("end_values", 0), x.ndim), _ramp)
    if mode in _STATISTICS:
        return _pad_statistic(x, widths, mode, kwargs.get("stat_length"))
    if any(n == 0 and any(w) for n, w in zip(x.shape, widths, strict=True)):
        raise ValueError(f"can't extend empty axis of shape {x.shape} using modes other than 'constant' or 'empty'")
    if kwargs.get("reflect_type", "even") == "odd":
        return _pad_odd(x, widths, mode)
    return _pad_with_elements(x, widths, mode)


def _check_mode(mode: Any, given: dict[str, Any]) -> None:
    if callable(mode):
        raise NotImplementedError("pad: a function as mode writes into an array, so it has no gradient; name a mode")
    if mode not in _SETTINGS:
        raise ValueError(f"mode {mode!r} is not supported; the modes are {', '.join(_SETTINGS)}")
    unknown = set(given) - _SETTINGS[mode]
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {unknown}")
    if given.get("reflect_type", "even") not in ("even", "odd"):
        raise ValueError(f"pad: reflect_type must be 'even' or 'odd', got {given['reflect_type']!r}")


def _pad_widths(pad_width: Any, ndim: int) -> Widths:
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


# ----- Constants and elements -----


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


def _pad_constant(x: Tensor, widths: Widths, values: Any) -> Tensor:
    if not holds_tensor(values):
        return _pad(x, pad_width=widths, values=values)
    return _pad_by_axis(x, widths, _pairs(values, x.ndim), _fill)


def _pad_with_elements(x: Tensor, widths: Widths, mode: str) -> Tensor:
    """NumPy pads one axis after the other, so each is a gather of its own."""
    out = x
    for axis, (width, n) in enumerate(zip(widths, x.shape, strict=True)):
        if any(width):
            places = np.pad(np.arange(n), width, mode)
            out = getitem(out, (slice(None),) * axis + (places,))
    return clone(out) if out is x else out


def _pad_odd(x: Tensor, widths: Widths, mode: str) -> Tensor:
    """Odd reflections are linear: along each axis a matrix, which is what becomes of the unit vectors."""
    out = x if x._layout.kind in "fc" else astype(x, np.float64)
    for axis, (width, n) in enumerate(zip(widths, x.shape, strict=True)):
        if any(width):
            matrix = np.pad(np.eye(n, dtype=out.dtype), (width, (0, 0)), mode, reflect_type="odd")
            out = moveaxis(tensordot(matrix, out, axes=([1], [axis])), 0, axis)
    return clone(out) if out is x else astype(out, x.dtype)


# ----- Borders made of values -----


def _pairs(values: Any, ndim: int) -> list[tuple[Tensor, Tensor]]:
    """Two values for each axis."""
    wide = broadcast_to(as_tensor(values, "values"), (ndim, 2))
    return [(wide[i, 0], wide[i, 1]) for i in range(ndim)]


def _pad_by_axis(x: Tensor, widths: Widths, values: list[Any], border: Callable[..., Tensor]) -> Tensor:
    """``border(edge, value, width, axis)`` on both sides of each axis; the right one is turned round."""
    out = x
    for axis, ((lo, hi), pair) in enumerate(zip(widths, values, strict=True)):
        if not lo and not hi:
            continue
        first, last = _part(out, axis, 0, 1), _part(out, axis, out.shape[axis] - 1, out.shape[axis])
        left = astype(border(first, pair[0], lo, axis), x.dtype)
        right = astype(border(last, pair[1], hi, axis), x.dtype)
        out = concatenate([left, out, _turned(right, axis)], axis=axis)
    return clone(out) if out is x else out


def _part(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return getitem(x, (slice(None),) * axis + (slice(start, stop),))


def _turned(x: Tensor, axis: int) -> Tensor:
    return getitem(x, (slice(None),) * axis + (slice(None, None, -1),))


def _wide(x: Tensor, axis: int, width: int) -> tuple[int, ...]:
    return (*x.shape[:axis], width, *x.shape[axis + 1 :])


def _fill(edge: Tensor, value: Tensor, width: int, axis: int) -> Tensor:
    return broadcast_to(value, _wide(edge, axis, width))


def _ramp(edge: Tensor, value: Tensor, width: int, axis: int) -> Tensor:
    steps = np.arange(width).reshape((-1,) + (1,) * (edge.ndim - 1 - axis)) / max(width, 1)
    made = value + (edge - value) * steps
    return made if edge._layout.kind in "fc" else arithmetic.floor(made)


_STATISTICS: dict[str, Callable[..., Tensor]] = {
    "maximum": lambda x, axis: reductions.max(x, axis=axis, keepdims=True),
    "mean": lambda x, axis: mean(x, axis=axis, keepdims=True),
    "median": lambda x, axis: median(x, axis=axis, keepdims=True),
    "minimum": lambda x, axis: reductions.min(x, axis=axis, keepdims=True),
}


def _pad_statistic(x: Tensor, widths: Widths, mode: str, stat_length: Any) -> Tensor:
    lengths = [(None, None)] * x.ndim if stat_length is None else _pad_widths(stat_length, x.ndim)
    out = x
    for axis, ((lo, hi), (before, after)) in enumerate(zip(widths, lengths, strict=True)):
        if not lo and not hi:
            continue
        n = x.shape[axis]
        before, after = (n if k is None else min(k, n) for k in (before, after))
        if 0 in (before, after) and mode in ("maximum", "minimum"):
            raise ValueError("stat_length of 0 yields no value for padding")
        left = _statistic(_part(out, axis, 0, before), axis, mode, lo, x.dtype)
        right = _statistic(_part(out, axis, n - after, n), axis, mode, hi, x.dtype)
        out = concatenate([left, out, right], axis=axis)
    return clone(out) if out is x else out


def _statistic(x: Tensor, axis: int, mode: str, width: int, dtype: np.dtype) -> Tensor:
    value = _STATISTICS[mode](x, axis)
    value = value if kind_of(dtype) in "fc" else arithmetic.rint(value)
    return broadcast_to(astype(value, dtype), _wide(value, axis, width))


__all__ = ["pad"]
