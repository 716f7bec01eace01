"""Order statistics and table look-up: median, quantiles, linear interpolation. Gradients flow through sorting."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.arithmetic import where
from numbagrad.ops.autocast import in_single
from numbagrad.ops.conversion import astype
from numbagrad.ops.folding import Unset, axes_of, refuse_out
from numbagrad.ops.indexing import take, take_along_axis
from numbagrad.ops.joining import concatenate
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import expand_dims, moveaxis, reshape
from numbagrad.ops.sorting import sort


def _between_parameters(alpha: float, beta: float) -> Callable[[Any, Any], Any]:
    """Hyndman's and Fan's continuous definitions: the place among `n` sorted values."""
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


_CONTINUOUS: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda n, q: (n - 1) * q,
    "hazen": _between_parameters(0.5, 0.5),
    "interpolated_inverted_cdf": _between_parameters(0, 1),
    "median_unbiased": _between_parameters(1 / 3, 1 / 3),
    "normal_unbiased": _between_parameters(3 / 8, 3 / 8),
    "weibull": _between_parameters(0, 0),
}
"""method -> place among the sorted values; between two of them the result moves with the quantile."""

_STEPPING: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "averaged_inverted_cdf": lambda n, q: _split(n * q - 1, lambda w: np.where(w == 0, 0.5, 1.0)),
    "closest_observation": lambda n, q: (_closest(n * q - 1.5), 0.0),
    "higher": lambda n, q: (np.ceil((n - 1) * q), 0.0),
    "inverted_cdf": lambda n, q: (np.ceil(n * q - 1), 0.0),
    "lower": lambda n, q: (np.floor((n - 1) * q), 0.0),
    "midpoint": lambda n, q: _split((n - 1) * q, lambda w: np.where(w > 0, 0.5, 0.0)),
    "nearest": lambda n, q: (np.rint((n - 1) * q), 0.0),
}
"""method -> index below and weight of the next value, both fixed between jumps."""

_METHODS = sorted({*_CONTINUOUS, *_STEPPING})


def _split(at: Any, weight: Callable[[Any], Any]) -> tuple[Any, Any]:
    below = np.floor(at)
    return below, weight(at - below)


def _closest(at: Any) -> Any:
    below = np.floor(at)
    return np.where((at == below) & (below % 2 == 1), below, below + 1)


@stands_for(np.quantile)
@in_single
def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Tensor:
    """Quantiles over some axes. Each gradient goes to the one or two values that a quantile lies between.

    Parameters
    ----------
    a : array_like
    q : array_like
        From 0 to 1. Its axes come first in the result. Gradients flow to it where the result moves with it.
    axis : int or tuple of int, optional
        Default: all axes.
    method : str, optional
        What to take between two values, by NumPy's names: "linear", "lower", "higher", "nearest", "midpoint",
        "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen",
        "weibull", "median_unbiased" or "normal_unbiased".
    keepdims : bool, optional
    weights : array_like, optional
        How much each value counts, for method "inverted_cdf". No gradient flows to them: between jumps it is 0.

    Returns
    -------
    Tensor
        nan where a nan is among the values.

    Raises
    ------
    ValueError
        If `q` leaves [0, 1], nothing is there to choose from, or no method has that name.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.quantile([1.0, 2.0, 4.0], [0.5, 0.75])
    tensor([2., 3.])
    """
    refuse_out(out, "quantile")
    return _quantile(_real(a), _fractions(q, 1), axis, method, keepdims, weights, False)


def _fractions(q: Any, top: int) -> Tensor:
    """`q` as a Tensor from 0 to 1, when it came from 0 to `top`."""
    q = as_tensor(q, "q")
    q = q if q._layout.kind == "f" else astype(q, np.float64)
    if not ((q._data >= 0) & (q._data <= top)).all():
        name = "Quantiles" if top == 1 else "Percentiles"
        raise ValueError(f"{name} must be in the range [0, {top}], got {q._data}")
    return q if top == 1 else q / top


def _real(a: Any) -> Tensor:
    x = as_tensor(a, "a")
    if x._layout.kind == "c":
        raise TypeError("a must be an array of real numbers")
    return x


def _quantile(a: Any, q: Tensor, axis: Any, method: str, keepdims: Any, weights: Any, skip: bool) -> Tensor:
    """Quantiles; `skip` leaves nan out."""
    if method not in _METHODS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {', '.join(_METHODS)}")
    x = as_tensor(a, "a")
    axes = axes_of(axis, x.ndim)
    rows = sort(_as_rows(x, axes), axis=-1)
    if rows.shape[-1] == 0:
        raise ValueError(f"quantile: no values along axis {axis} of an array of shape {x.shape}")
    flat = reshape(q, (-1,))
    if weights is not None:
        picked = _of_weights(x, rows, flat, axes, weights, method, skip)
    else:
        picked = _of_counts(rows, flat, method, skip)
    picked = moveaxis(picked, -1, 0)
    picked = reshape(picked, q.shape + picked.shape[1:])
    kept = tuple(q.ndim + axis for axis in axes)
    return expand_dims(picked, kept) if keepdims and keepdims is not Unset else picked


def _of_counts(rows: Tensor, q: Tensor, method: str, skip: bool) -> Tensor:
    """The quantiles of sorted rows, along their last axis."""
    count: Any = rows.shape[-1]
    if skip and np.isnan(rows._data).any():
        count = (count - np.isnan(rows._data).sum(-1, keepdims=True)).astype(float)
        if not count.all():
            warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=4)
    below, weight = _place_of(count, q, method)
    return _between(rows, below, weight, count)


def _place_of(count: Any, q: Tensor, method: str) -> tuple[np.ndarray, Any]:
    """Index below, and weight of the next value (which moves with `q`)."""
    if method in _STEPPING:
        below, weight = _STEPPING[method](count, q._data)
        return np.asarray(below), np.broadcast_to(weight, np.shape(below))
    at = _CONTINUOUS[method](count, q)
    below = np.floor(at._data)
    return below, at - below


def _of_weights(x: Tensor, rows: Tensor, q: Tensor, axes: Any, weights: Any, method: str, skip: bool) -> Tensor:
    """NumPy finds the rank, on integers in the order of the values."""
    if method != "inverted_cdf":
        raise ValueError("Only method 'inverted_cdf' supports weights. Got: " + method + ".")
    w = as_tensor(weights, "weights")
    if w.shape != x.shape:
        w = wrap(_spread_weights(w._data, x.shape, axes))
    values = _as_rows(wrap(x._data), axes)._data
    ranks = np.argsort(np.argsort(values, axis=-1, kind="stable"), axis=-1).astype(float)
    ranks[np.isnan(values)] = np.nan
    find = np.nanquantile if skip else np.quantile
    found = find(ranks, q._data, axis=-1, method=method, weights=_as_rows(w, axes)._data)
    found = np.moveaxis(found, 0, -1)
    places = np.where(np.isnan(found), rows.shape[-1] - 1, found).astype(np.intp)
    return take_along_axis(rows, places, axis=-1)


def _spread_weights(w: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    if w.shape != tuple(shape[axis] for axis in axes):
        raise TypeError(f"weights of shape {w.shape} fit neither shape {shape} nor its axes {axes}")
    return np.broadcast_to(w.reshape([n if i in axes else 1 for i, n in enumerate(shape)]), shape)


def _as_rows(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The axes together at the end."""
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    count = int(np.prod([x.shape[axis] for axis in axes]))
    return reshape(x.transpose(*rest, *axes), (*(x.shape[axis] for axis in rest), count))


def _between(rows: Tensor, below: np.ndarray, weight: Any, count: Any) -> Tensor:
    """``rows[below]`` and the next, mixed; places outside are those of the ends."""
    last = np.maximum(count - 1, 0)
    inside = (below >= 0) & (below < last)
    low, high = (np.clip(below + step, 0, last).astype(np.intp) for step in (0, 1))
    dtype = rows._data.real.dtype if rows._layout.kind in "fc" else np.dtype(np.float64)
    weight = where(inside, weight, 0.0)
    weight = astype(weight, dtype) if isinstance(weight, Tensor) else np.asarray(weight, dtype)
    first, second = _picked(rows, low), _picked(rows, high)
    # A weight of zero must not touch the next value, which may be infinite.
    near = second - (second - first) * (1 - weight)
    mixed = where(weight == 0, first, where(weight < 0.5, first + (second - first) * weight, near))
    if isinstance(count, np.ndarray):
        return mixed
    end = rows[..., -1:]
    return where(end != end, end, mixed)


def _picked(rows: Tensor, places: np.ndarray) -> Tensor:
    if places.ndim == 1:
        return take(rows, places, axis=-1)
    return take_along_axis(rows, places, axis=-1)


@stands_for(np.percentile)
def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Tensor:
    """`quantile` with `q` from 0 to 100.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.percentile([1.0, 2.0, 4.0], 50)
    tensor(2.)
    """
    refuse_out(out, "percentile")
    return quantile(a, _fractions(q, 100), axis, None, False, method, keepdims, weights=weights)


@in_single
def _median(a: Any, axis: Any, keepdims: Any, skip: bool) -> Tensor:
    """The middle, also of complex numbers, which are ordered by their real parts first."""
    return _quantile(a, as_tensor(0.5), axis, "midpoint", keepdims, None, skip)


@stands_for(np.median)
def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Tensor:
    """Median over some axes; the mean of the middle two of an even number. Their gradient is shared evenly.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.median([3.0, 1.0, 2.0, 10.0])
    tensor(2.5)
    """
    refuse_out(out, "median")
    return _median(a, axis, keepdims, False)


@stands_for(np.nanquantile)
@in_single
def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = Unset,
    *,
    weights: Any = None,
) -> Tensor:
    """`quantile` of the values that are not nan; nan where there is none.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanquantile([1.0, ng.nan, 3.0], 0.5)
    tensor(2.)
    """
    refuse_out(out, "nanquantile")
    return _quantile(_real(a), _fractions(q, 1), axis, method, keepdims, weights, True)


@stands_for(np.nanpercentile)
def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = Unset,
    *,
    weights: Any = None,
) -> Tensor:
    """`percentile` of the values that are not nan; nan where there is none.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanpercentile([1.0, ng.nan, 3.0], 50)
    tensor(2.)
    """
    refuse_out(out, "nanpercentile")
    return nanquantile(a, _fractions(q, 100), axis, None, False, method, keepdims, weights=weights)


@stands_for(np.nanmedian)
def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: Any = Unset
) -> Tensor:
    """`median` of the values that are not nan; nan where there is none.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanmedian([1.0, ng.nan, 3.0, 4.0])
    tensor(3.)
    """
    refuse_out(out, "nanmedian")
    return _median(a, axis, keepdims, True)


@stands_for(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tensor:
    """Linear interpolation in a table; beyond its ends the end values hold.

    Parameters
    ----------
    x : array_like
        Where to look up.
    xp : array_like
        Increasing places of the table, one axis.
    fp : array_like
        Values there.
    left, right : float, optional
        Values beyond the ends. Default: the first and the last of `fp`.
    period : float, optional
        The table repeats itself; `xp` need not increase, and `left` and `right` are not used.

    Returns
    -------
    Tensor
        Of the shape of `x`. Gradients flow to `x`, `xp` and `fp`.

    Raises
    ------
    ValueError
        If `xp` and `fp` are not of one equal axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.interp([0.5, 9.0], [0.0, 1.0], [10.0, 20.0])
    tensor([15., 20.])
    """
    x, xp, fp = as_tensor(x, "x"), as_tensor(xp, "xp"), as_tensor(fp, "fp")
    if xp.ndim != 1 or fp.shape != xp.shape or not xp.size:
        raise ValueError(f"interp: xp and fp must have one equal axis that is not empty, got {xp.shape} and {fp.shape}")
    if period is not None:
        x, xp, fp = _periodic(x, xp, fp, period)
        left = right = None
    if xp.size == 1:
        inside = fp[0] + x * 0.0
    else:
        at = np.clip(np.searchsorted(xp._data, x._data, side="right") - 1, 0, xp.size - 2)
        x0, x1, y0, y1 = xp[at], xp[at + 1], fp[at], fp[at + 1]
        inside = y0 + (y1 - y0) / (x1 - x0) * (x - x0)
    below = where(x < xp[0], fp[0] if left is None else left, inside)
    return where(x > xp[-1], fp[-1] if right is None else right, below)


def _periodic(x: Tensor, xp: Tensor, fp: Tensor, period: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Places within one period, in order, and the table with its ends repeated."""
    if period == 0:
        raise ValueError("period must be a non-zero value")
    period = abs(period)
    x, xp = x % period, xp % period
    order = np.argsort(xp._data)
    xp, fp = xp[order], fp[order]
    return x, concatenate([xp[-1:] - period, xp, xp[:1] + period]), concatenate([fp[-1:], fp, fp[:1]])


__all__ = ["interp", "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]
