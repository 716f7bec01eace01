"""Reductions: what takes axes away. Sum and mean, which all gradients need, come from `folding`; products, the largest
and the smallest, places and truths are said here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.layout import code_of, kind_of
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.jit import rows
from numbagrad.jit.expr import s, symbol
from numbagrad.jit.reduce import POSITION, Fold, RowProgram, Stage
from numbagrad.ops.conversion import astype, conj
from numbagrad.ops.cumulative import METHODS as CUMULATIVE
from numbagrad.ops.cumulative import cumprod, cumsum, diff, others, trapezoid
from numbagrad.ops.folding import (
    Axes,
    Unset,
    axes_of,
    count_of,
    fold,
    folding,
    kept_shape,
    mask_of,
    masked,
    mean,
    refuse_out,
    run,
    spread,
    sum,
)
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import OPS, stands_for
from numbagrad.ops.shape import reshape, transpose
from numbagrad.ops.softmax import METHODS as SOFTMAX
from numbagrad.ops.softmax import log_softmax, logsumexp, softmax
from numbagrad.ops.statistics import METHODS as STATISTICS
from numbagrad.ops.statistics import average, nanmean, nanstd, nanvar, std, var

# ----- Product -----

PROD = folding("prod", "prod")


@primitive(name="prod", wide="rules", casts="single")
def _prod(x, *, axes, keepdims):
    return fold(PROD, np.prod, x, axes, keepdims)


@_prod.vjp("x")
def _(g, x, x_shape, axes, keepdims):
    wide, factors = spread(g, shape=x_shape, axes=axes, keepdims=keepdims), _product_of_others(conj(x), axes)
    if grad_enabled() or wide.dtype != factors.dtype or code_of(wide.dtype) < 0 or not factors._layout.dense:
        return wide * factors
    # The factors are nobody else's.
    OPS["multiply"].map([wide._data, factors._data], x_shape, wide.dtype, out=[factors._data])
    return factors


def _product_of_others(x: Tensor, axes: Axes) -> Tensor:
    """For each item the product of all others of its row."""
    if len(axes) == 1:
        return others(x, axis=axes[0])
    if axes == tuple(range(x.ndim)):
        return reshape(others(reshape(x, (-1,)), axis=0), x.shape)
    kept = [i for i in range(x.ndim) if i not in axes]
    order = (*kept, *axes)
    turned = transpose(x, order)
    row = count_of(x.shape, axes)
    flat = reshape(turned, (*(x.shape[i] for i in kept), row))
    return transpose(reshape(others(flat, axis=len(kept)), turned.shape), tuple(np.argsort(order)))


@stands_for(np.prod)
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = Unset,
    initial: Any = Unset,
    where: Any = Unset,
) -> Tensor:
    """Product over axes. Its gradient is right where items are zero.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to multiply over; None for all.
    dtype : dtype, optional
        Convert to this first. Default: the dtype of `a`, but at least the platform's int for integers and booleans.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axes, with length 1.
    initial : array_like, optional
        A further factor.
    where : array_like of bool, optional
        Multiply these only.

    Returns
    -------
    Tensor
        1 where nothing was multiplied.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([2.0, 0.0, 5.0], requires_grad=True)
    >>> ng.prod(x).backward()
    >>> x.grad
    tensor([ 0., 10.,  0.])
    """
    refuse_out(out, "prod")
    x = as_tensor(a, "a")
    x = masked(x if dtype is None else astype(x, dtype), where, 1, "prod")
    result = _prod(x, axes=axes_of(axis, x.ndim), keepdims=keepdims is not Unset and bool(keepdims))
    return result if initial is Unset else result * initial


# ----- The largest and the smallest -----

_x, _g, _top = map(symbol, ("x", "g", "top"))
# A nan is the largest and the smallest of its row, and the items that are it have the gradient.
_IS_TOP = s.logical_or(s.equal(_x, _top), s.not_equal(_x, _x))
_COUNT = Fold("count", "sum", s.where(_IS_TOP, 1, 0))
SHARE = RowProgram(
    "extreme_backward",
    ("x",),
    (
        Stage((_COUNT,), after=(("share", _g / symbol("count")),)),
        Stage(stores=(("out", s.where(_IS_TOP, symbol("share"), 0)),)),
    ),
    rows=("g", "top"),
)
MEAN_OF_TOPS = RowProgram(
    "mean_of_extremes",
    ("x", "h"),
    (
        Stage(
            (_COUNT, Fold("total", "sum", s.where(_IS_TOP, symbol("h"), 0))),
            after=(("mean", symbol("total") / symbol("count")),),
        ),
    ),
    ("mean",),
    rows=("top",),
)


def _extreme(name: str, function: Callable[..., Any]) -> Any:
    program = folding(name, name)

    @primitive(name=name)
    def op(x, *, axes, keepdims):
        return fold(program, function, x, axes, keepdims)

    @op.vjp("x")
    def _(g, x, out, axes, keepdims):
        return _share(g, x, out, axes=axes, keepdims=keepdims)

    return op


@primitive(name="extreme_backward")
def _share(h, x, top, *, axes, keepdims):
    """The gradient of each row's extreme, in even shares to the items that are it."""
    return run(SHARE, [x], axes, per_row=[h, top])[0]


@_share.vjp("h")
def _(g, x, top, axes, keepdims):
    return _mean_of_tops(g, x, top, axes=axes, keepdims=keepdims)


@primitive(name="mean_of_extremes")
def _mean_of_tops(h, x, top, *, axes, keepdims):
    """The mean of h over the items that are the extreme of their row."""
    return run(MEAN_OF_TOPS, [x, h], axes, keepdims, per_row=[top])[0]


@_mean_of_tops.vjp("h")
def _(g, x, top, axes, keepdims):
    return _share(g, x, top, axes=axes, keepdims=keepdims)


def _flat() -> None:
    """Which items are the extreme does not change with small steps."""


for _op in (_share, _mean_of_tops):
    _op.vjp("x")(_flat)
    _op.vjp("top")(_flat)

_max, _min = _extreme("max", np.max), _extreme("min", np.min)


def _extreme_of(op: Any, pair: str, a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Tensor:
    """What `max` and `min` have in common; `pair` is the op that compares two."""
    name = op.name
    refuse_out(out, name)
    x = as_tensor(a, "a")
    axes, keep = axes_of(axis, x.ndim), keepdims is not Unset and bool(keepdims)
    if where is not Unset and where is not True:
        if initial is Unset:
            raise ValueError(f"{name} with where needs initial, the result where nothing is left")
        x = masked(x, where, _nothing(x.dtype, name), name)
    if count_of(x.shape, axes) == 0:
        return _of_nothing(name, x, axes, keep, initial)
    result = op(x, axes=axes, keepdims=keep)
    return result if initial is Unset else OPS[pair](result, initial)


def _nothing(dtype: np.dtype, name: str) -> Any:
    """A value that no other beats less."""
    if kind_of(dtype) in "fc":
        return -math.inf if name == "max" else math.inf
    if dtype.kind == "b":
        return name == "min"
    return np.iinfo(dtype).min if name == "max" else np.iinfo(dtype).max


def _of_nothing(name: str, x: Tensor, axes: Axes, keep: bool, initial: Any) -> Tensor:
    if initial is Unset:
        raise ValueError(f"{name}: zero-size array of shape {x.shape} has no {name}; pass initial, or check its size")
    shape = kept_shape(x.shape, axes) if keep else tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return wrap(np.full(shape, initial, x.dtype))


@stands_for(np.max, np.amax)
def max(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = Unset, initial: Any = Unset, where: Any = Unset
) -> Tensor:
    """The largest item over axes. Equal ones share the gradient evenly; nan is larger than all numbers.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to look along; None for all.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axes, with length 1.
    initial : array_like, optional
        A further item of each row.
    where : array_like of bool, optional
        Look at these only; needs `initial`.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If there is nothing to look at, and no `initial`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 3.0, 3.0], requires_grad=True)
    >>> ng.max(x).backward()
    >>> x.grad
    tensor([0. , 0.5, 0.5])
    """
    return _extreme_of(_max, "maximum", a, axis, out, keepdims, initial, where)


@stands_for(np.min, np.amin)
def min(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = Unset, initial: Any = Unset, where: Any = Unset
) -> Tensor:
    """The smallest item over axes. Equal ones share the gradient evenly; nan is smaller than all numbers.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to look along; None for all.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axes, with length 1.
    initial : array_like, optional
        A further item of each row.
    where : array_like of bool, optional
        Look at these only; needs `initial`.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If there is nothing to look at, and no `initial`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.min(ng.tensor([[1.0, 3.0], [4.0, 2.0]]), axis=1)
    tensor([1., 2.])
    """
    return _extreme_of(_min, "minimum", a, axis, out, keepdims, initial, where)


@stands_for(np.ptp)
def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = Unset) -> Tensor:
    """The largest item less the smallest.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to look along; None for all.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axes, with length 1.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ptp([1.0, 4.0, 2.0])
    tensor(3.)
    """
    refuse_out(out, "ptp")
    x = as_tensor(a, "a")
    return max(x, axis=axis, keepdims=keepdims) - min(x, axis=axis, keepdims=keepdims)


# ----- Places -----


def _place(name: str, kind: str) -> RowProgram:
    """Where the extreme of a row is: the least position of an item that is it."""
    first = s.where(_IS_TOP, symbol(POSITION), math.inf)
    return RowProgram(name, ("x",), (Stage((Fold("top", kind, _x),)), Stage((Fold("at", "min", first),))), ("at",))


_PLACES = {"argmax": (_place("argmax", "max"), np.argmax), "argmin": (_place("argmin", "min"), np.argmin)}


def _place_of(name: str, a: Any, axis: Any, out: Any, keepdims: Any) -> Tensor:
    refuse_out(out, name)
    x = as_tensor(a, "a")._data
    program, function = _PLACES[name]
    keep = keepdims is not Unset and bool(keepdims)
    if axis is not None and 0 < x.size < 2**24 and x.ndim > 1 and rows.runs_natively(x):
        number = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
        # NumPy is fast along the last axis only.
        if number < x.ndim - 1:
            return wrap(run(program, [x], (number,), keep)[0].astype(np.intp))
    return wrap(np.asarray(function(x, axis=axis, keepdims=keep)))


@stands_for(np.argmax)
def argmax(a: Any, axis: int | None = None, out: None = None, *, keepdims: bool = Unset) -> Tensor:
    """Where the largest item is: its first position along an axis, or in the flat array.

    Parameters
    ----------
    a : array_like
    axis : int, optional
        None for the flat array.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axis, with length 1.

    Returns
    -------
    Tensor
        Of integers, without gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.argmax(ng.tensor([1.0, 3.0, 3.0]))
    tensor(1)
    """
    return _place_of("argmax", a, axis, out, keepdims)


@stands_for(np.argmin)
def argmin(a: Any, axis: int | None = None, out: None = None, *, keepdims: bool = Unset) -> Tensor:
    """Where the smallest item is: its first position along an axis, or in the flat array.

    Parameters
    ----------
    a : array_like
    axis : int, optional
        None for the flat array.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axis, with length 1.

    Returns
    -------
    Tensor
        Of integers, without gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.argmin(ng.tensor([[1.0, 3.0], [3.0, 2.0]]), axis=1)
    tensor([0, 1])
    """
    return _place_of("argmin", a, axis, out, keepdims)


# ----- Truths -----


def _truth(function: Callable[..., Any], a: Any, axis: Any, out: Any, keepdims: Any, where: Any = Unset) -> Tensor:
    refuse_out(out, function.__name__)
    x = as_tensor(a, "a")._data
    options = {} if where is Unset else {"where": mask_of(where, x.shape, function.__name__)}
    keep = keepdims is not Unset and bool(keepdims)
    return wrap(np.asarray(function(x, axis=axis, keepdims=keep, **options)))


@stands_for(np.any)
def any(a: Any, axis: Any = None, out: None = None, keepdims: bool = Unset, *, where: Any = Unset) -> Tensor:
    """Whether any item is true (not zero).

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to look along; None for all.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axes, with length 1.
    where : array_like of bool, optional
        Look at these only.

    Returns
    -------
    Tensor
        Of booleans, without gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.any(ng.tensor([0.0, 2.0]))
    tensor(True)
    """
    return _truth(np.any, a, axis, out, keepdims, where)


@stands_for(np.all)
def all(a: Any, axis: Any = None, out: None = None, keepdims: bool = Unset, *, where: Any = Unset) -> Tensor:
    """Whether all items are true (not zero).

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to look along; None for all.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axes, with length 1.
    where : array_like of bool, optional
        Look at these only.

    Returns
    -------
    Tensor
        Of booleans, without gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.all(ng.tensor([0.0, 2.0]))
    tensor(False)
    """
    return _truth(np.all, a, axis, out, keepdims, where)


@stands_for(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """How many items are not zero.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to count over; None for all.
    keepdims : bool, optional
        Keep the axes, with length 1.

    Returns
    -------
    Tensor
        Of integers, without gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.count_nonzero([0.0, 2.0, 3.0])
    tensor(2)
    """
    return _truth(np.count_nonzero, a, axis, None, keepdims)


# ----- Without nan -----


def _numbers(a: Any) -> tuple[Tensor, np.ndarray]:
    """The operand, and where it is not nan."""
    x = as_tensor(a, "a")
    return x, ~np.isnan(x._data) if x._layout.kind in "fc" else np.broadcast_to(True, x.shape)


@stands_for(np.nansum)
def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = Unset,
    initial: Any = Unset,
    where: Any = Unset,
) -> Tensor:
    """Sum of the items that are not nan. Arguments as for `sum`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nansum([1.0, ng.nan, 2.0])
    tensor(3.)
    """
    x, numbers = _numbers(a)
    return sum(masked(x, numbers, 0, "nansum"), axis, dtype, out, keepdims, initial, where)


@stands_for(np.nanprod)
def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = Unset,
    initial: Any = Unset,
    where: Any = Unset,
) -> Tensor:
    """Product of the items that are not nan. Arguments as for `prod`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanprod([3.0, ng.nan, 2.0])
    tensor(6.)
    """
    x, numbers = _numbers(a)
    return prod(masked(x, numbers, 1, "nanprod"), axis, dtype, out, keepdims, initial, where)


def _extreme_number(
    function: Callable[..., Tensor], a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any
) -> Tensor:
    """The extreme of what is not nan; nan where nothing is left."""
    x, numbers = _numbers(a)
    name = function.__name__
    result = function(masked(x, numbers, _nothing(x.dtype, name), f"nan{name}"), axis, out, keepdims, initial, where)
    axes = axes_of(axis, x.ndim)
    empty = ~np.any(numbers, axis=axes, keepdims=keepdims is not Unset and bool(keepdims))
    if initial is not Unset or not np.any(empty):
        return result
    return OPS["where"](wrap(np.asarray(empty)), math.nan, result)


@stands_for(np.nanmax)
def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = Unset, initial: Any = Unset, where: Any = Unset
) -> Tensor:
    """The largest item that is not nan; nan, without a warning, where all are. Arguments as for `max`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanmax([1.0, ng.nan, 2.0])
    tensor(2.)
    """
    return _extreme_number(max, a, axis, out, keepdims, initial, where)


@stands_for(np.nanmin)
def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = Unset, initial: Any = Unset, where: Any = Unset
) -> Tensor:
    """The smallest item that is not nan; nan, without a warning, where all are. Arguments as for `min`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanmin([1.0, ng.nan, 2.0])
    tensor(1.)
    """
    return _extreme_number(min, a, axis, out, keepdims, initial, where)


amax, amin = max, min

METHODS: dict[str, Callable[..., Any]] = {
    "sum": sum,
    "mean": mean,
    "prod": prod,
    "max": max,
    "min": min,
    "amax": max,
    "amin": min,
    "argmax": argmax,
    "argmin": argmin,
    "any": any,
    "all": all,
    "nansum": nansum,
    "nanmean": nanmean,
    "count_nonzero": count_nonzero,
    **CUMULATIVE,
    **SOFTMAX,
    **STATISTICS,
}
__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "average",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "diff",
    "log_softmax",
    "logsumexp",
    "max",
    "mean",
    "min",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "ptp",
    "softmax",
    "std",
    "sum",
    "trapezoid",
    "var",
]
