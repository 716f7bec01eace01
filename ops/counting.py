"""Counting and comparing samples: weighted counts, histograms, covariance and correlation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.arithmetic import clip, sqrt
from numbagrad.ops.conversion import astype, conj, imag, real
from numbagrad.ops.diagonals import diag
from numbagrad.ops.folding import sum_axes
from numbagrad.ops.gathering import getitem
from numbagrad.ops.joining import concatenate
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.products import matmul
from numbagrad.ops.registry import stands_for
from numbagrad.ops.statistics import average

# ----- Counts -----


@primitive(linear=True, name="bincount")
def _bincount(weights, *, places, minlength):
    return np.bincount(places, weights, minlength).astype(weights.dtype, copy=False)


@_bincount.vjp("weights")
def _(g, places):
    return getitem(g, places)


@stands_for(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on occurs, or the sum of the weights there. Gradients flow to the weights.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.bincount([0, 1, 1], weights=[0.5, 1.0, 2.0])
    tensor([0.5, 3. ])
    """
    places = as_tensor(x, "x")._data
    if weights is None:
        return wrap(np.bincount(places, None, minlength))
    weights = as_tensor(weights, "weights")
    if weights._layout.kind == "c":
        raise TypeError(f"bincount: weights of {weights.dtype} cannot be cast to float64 safely")
    checked = np.bincount(places, weights._data, minlength)
    if not weights.requires_grad:
        return wrap(checked)
    return _bincount(astype(weights, np.float64), places=places, minlength=minlength)


@stands_for(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """Counts, or sums of weights, in bins. Gradients flow to the weights.

    Parameters
    ----------
    a : array_like
        Which bin each falls into has no gradient.
    bins : int, sequence or str, optional
    range : (float, float), optional
    density : bool, optional
        Give a density, whose integral is 1.
    weights : array_like, optional

    Returns
    -------
    (Tensor, Tensor)
        The histogram and the edges of the bins.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.histogram([1.0, 2.0, 1.0], bins=[0, 1, 2, 3])
    (tensor([0, 2, 1]), tensor([0, 1, 2, 3]))
    """
    x, edges_wanted = as_tensor(a, "a")._data, bins._data if isinstance(bins, Tensor) else bins
    w = None if weights is None else as_tensor(weights, "weights")
    if w is None or not w.requires_grad:
        made = np.histogram(x, edges_wanted, range, density, None if w is None else w._data)
        return wrap(made[0]), wrap(made[1])
    _, edges = np.histogram(x, edges_wanted, range, weights=w._data)
    counts = _weighted_counts(x.reshape(-1), edges, w.reshape(-1))
    return (counts / np.diff(edges) / counts.sum() if density else counts), wrap(edges)


def _weighted_counts(x: np.ndarray, edges: np.ndarray, weights: Tensor) -> Tensor:
    inside = (x >= edges[0]) & (x <= edges[-1])
    bins = np.minimum(np.searchsorted(edges, x[inside], "right") - 1, edges.size - 2)
    return _sums_in(getitem(weights, inside), bins, edges.size - 1)


def _sums_in(weights: Tensor, bins: np.ndarray, count: int) -> Tensor:
    if weights._layout.kind == "c":
        return _sums_in(real(weights), bins, count) + _sums_in(imag(weights), bins, count) * 1j
    return _bincount(weights, places=bins, minlength=count)


# ----- Covariance -----


@stands_for(np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Tensor:
    """Covariance matrix of variables.

    Parameters
    ----------
    m : array_like
        One row per variable, or one column if `rowvar` is False.
    y : array_like, optional
        More variables.
    rowvar, bias : bool, optional
    ddof : int, optional
        Take from the count; by default 1, or 0 with `bias`.
    fweights, aweights : array_like, optional
        How often each observation occurred, and how much it counts. Gradients flow to `aweights`.
    dtype : dtype, optional

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.cov([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    x = _variables(m, y, rowvar, dtype)
    w = _observation_weights(fweights, aweights, x.shape[1])
    if x.shape[0] == 0:
        return wrap(np.empty((0, 0), x.dtype))
    ddof = (0 if bias else 1) if ddof is None else ddof
    mean, total = average(x, axis=1, weights=w, returned=True)
    count = x.shape[1] - ddof if w is None else _degrees(w, aweights, total[0], ddof)
    if (count._data if isinstance(count, Tensor) else count) <= 0:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=2)
        count = 0.0
    centred = x - mean.reshape(-1, 1)
    other = centred if w is None else centred * w
    made = matmul(centred, conj(other).mT) / count
    return made[0, 0] if made.shape == (1, 1) else made


def _variables(m: Any, y: Any, rowvar: bool, dtype: Any) -> Tensor:
    """The variables as rows, in floating point."""
    parts = [as_tensor(v, name) for v, name in ((m, "m"), (y, "y")) if v is not None]
    for part, name in zip(parts, ("m", "y"), strict=False):
        if part.ndim > 2:
            raise ValueError(f"{name} has more than 2 dimensions")
    dtype = np.result_type(*[p.dtype for p in parts], np.float64) if dtype is None else np.dtype(dtype)
    rows = []
    for nr, part in enumerate(parts):
        part = astype(part, dtype)
        wide = part.reshape(1, -1) if part.ndim < 2 else part
        turned = not rowvar and (part.ndim == 2 if nr == 0 else wide.shape[0] != 1)
        rows.append(wide.mT if turned else wide)
    return concatenate(rows) if len(rows) > 1 else rows[0]


def _observation_weights(fweights: Any, aweights: Any, count: int) -> Tensor | None:
    w = None
    for given, name in ((fweights, "fweights"), (aweights, "aweights")):
        if given is None:
            continue
        one = as_tensor(given, name)
        if name == "fweights" and not np.all(one._data == np.around(one._data)):
            raise TypeError("fweights must be integer")
        if one.ndim > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if one.shape[0] != count:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if (one._data < 0).any():
            raise ValueError(f"{name} cannot be negative")
        one = one if one._layout.kind == "f" else astype(one, np.float64)
        w = one if w is None else w * one
    return w


def _degrees(w: Tensor, aweights: Any, total: Tensor, ddof: int) -> Any:
    if ddof == 0:
        return total
    if aweights is None:
        return total - ddof
    return total - ddof * sum_axes(w * as_tensor(aweights, "aweights"), axes=(0,), keepdims=False) / total


@stands_for(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Tensor:
    """Correlation coefficients of variables.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.corrcoef([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    spread = sqrt(real(diag(c)))
    c = c / spread.reshape(-1, 1) / spread
    if c._layout.kind != "c":
        return clip(c, -1, 1)
    return astype(clip(real(c), -1, 1), c.dtype) + astype(clip(imag(c), -1, 1), c.dtype) * 1j


__all__ = ["bincount", "corrcoef", "cov", "histogram"]
