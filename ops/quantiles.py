"""Order statistics and table look-up: median, quantiles, linear interpolation. Gradients flow through sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.arithmetic import where
from numbagrad.ops.autocast import in_single
from numbagrad.ops.folding import axes_of, refuse_out
from numbagrad.ops.indexing import take
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import expand_dims, moveaxis, reshape
from numbagrad.ops.sorting import sort

_PLACES = {
    "linear": lambda at: (np.floor(at), at - np.floor(at)),
    "lower": lambda at: (np.floor(at), np.zeros_like(at)),
    "higher": lambda at: (np.ceil(at), np.zeros_like(at)),
    "nearest": lambda at: (np.rint(at), np.zeros_like(at)),
    "midpoint": lambda at: (np.floor(at), np.where(at > np.floor(at), 0.5, 0.0)),
}
"""method -> index below and weight of the next value, for a place among the sorted values."""


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
) -> Tensor:
    """Quantiles over some axes. Each gradient goes to the one or two values that a quantile lies between.

    Parameters
    ----------
    a : array_like
    q : array_like
        From 0 to 1; no gradient flows to it. Its axes come first in the result.
    axis : int or tuple of int, optional
        Default: all axes.
    method : {"linear", "lower", "higher", "nearest", "midpoint"}, optional
        What to take between two values.
    keepdims : bool, optional

    Returns
    -------
    Tensor
        nan where a nan is among the values.

    Raises
    ------
    ValueError
        If `q` leaves [0, 1], or nothing is there to choose from.
    NotImplementedError
        For NumPy's other methods.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.quantile([1.0, 2.0, 4.0], [0.5, 0.75])
    tensor([2., 3.])
    """
    refuse_out(out, "quantile")
    if method not in _PLACES:
        raise NotImplementedError(f"quantile: method {method!r} is not here yet, only {', '.join(_PLACES)}")
    x, q = as_tensor(a), np.asarray(q.detach() if isinstance(q, Tensor) else q, float)
    if not ((q >= 0) & (q <= 1)).all():
        raise ValueError(f"Quantiles must be in the range [0, 1], got {q}")
    axes = axes_of(axis, x.ndim)
    rows = sort(_as_rows(x, axes), axis=-1)
    if rows.shape[-1] == 0:
        raise ValueError(f"quantile: no values along axis {axis} of an array of shape {x.shape}")
    below, weight = _PLACES[method](q * (rows.shape[-1] - 1))
    picked = moveaxis(_between(rows, below.astype(int), weight.astype(rows.dtype, copy=False)), -1, 0)
    picked = reshape(picked, q.shape + picked.shape[1:])
    kept = tuple(q.ndim + axis for axis in axes)
    return expand_dims(picked, kept) if keepdims else picked


def _as_rows(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The axes together at the end."""
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    return (
        reshape(x.transpose(*rest, *axes), (*(x.shape[axis] for axis in rest), -1)) if x.size else _empty_rows(x, axes)
    )


def _empty_rows(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    count = int(np.prod([x.shape[axis] for axis in axes]))
    return reshape(x.transpose(*rest, *axes), (*(x.shape[axis] for axis in rest), count))


def _between(rows: Tensor, below: np.ndarray, weight: np.ndarray) -> Tensor:
    below, weight = below.reshape(-1), weight.reshape(-1)
    low = take(rows, below, axis=-1)
    high = take(rows, np.minimum(below + 1, rows.shape[-1] - 1), axis=-1)
    last = rows[..., -1:]
    # A weight of zero must not touch the next value, which may be infinite.
    mixed = where(weight == 0, low, low + (high - low) * weight)
    return where(last != last, last, mixed)


@stands_for(np.percentile)
def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """`quantile` with `q` from 0 to 100.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.percentile([1.0, 2.0, 4.0], 50)
    tensor(2.)
    """
    q = np.asarray(q.detach() if isinstance(q, Tensor) else q, float)
    if not ((q >= 0) & (q <= 100)).all():
        raise ValueError(f"Percentiles must be in the range [0, 100], got {q}")
    return quantile(a, q / 100, axis, out, overwrite_input, method, keepdims)


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
    return quantile(a, 0.5, axis, method="midpoint", keepdims=keepdims)


@stands_for(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: None = None) -> Tensor:
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

    Returns
    -------
    Tensor
        Of the shape of `x`. Gradients flow to `x`, `xp` and `fp`.

    Raises
    ------
    ValueError
        If `xp` and `fp` are not of one equal axis.
    NotImplementedError
        For `period`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.interp([0.5, 9.0], [0.0, 1.0], [10.0, 20.0])
    tensor([15., 20.])
    """
    if period is not None:
        raise NotImplementedError("interp: period is not here yet; reduce x and extend the table instead")
    x, xp, fp = as_tensor(x), as_tensor(xp), as_tensor(fp)
    if xp.ndim != 1 or fp.shape != xp.shape or not xp.size:
        raise ValueError(f"interp: xp and fp must have one equal axis that is not empty, got {xp.shape} and {fp.shape}")
    if xp.size == 1:
        inside = fp[0] + x * 0.0
    else:
        at = np.clip(np.searchsorted(xp._data, x._data, side="right") - 1, 0, xp.size - 2)
        x0, x1, y0, y1 = xp[at], xp[at + 1], fp[at], fp[at + 1]
        inside = y0 + (y1 - y0) / (x1 - x0) * (x - x0)
    below = where(x < xp[0], fp[0] if left is None else left, inside)
    return where(x > xp[-1], fp[-1] if right is None else right, below)


__all__ = ["interp", "median", "percentile", "quantile"]
