"""Statistics: variances, standard deviations, averages, and the length of a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.layout import is_half
from numbagrad.engine.tensor import Tensor
from numbagrad.jit.expr import s, symbol
from numbagrad.jit.reduce import Fold, RowProgram, Stage
from numbagrad.ops.conversion import conj, real
from numbagrad.ops.elementwise import elementwise
from numbagrad.ops.folding import (
    Axes,
    Unset,
    axes_of,
    count_of,
    inexact,
    mask_of,
    masked,
    mean,
    mean_axes,
    refuse_out,
    run,
    sum,
    sum_axes,
    with_axes,
)
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for

_x, _total, _count, _divisor = map(symbol, ("x", "total", "count", "divisor"))
_MEAN = Stage((Fold("total", "sum", _x),), after=(("mean", _total / _count),))
_AWAY = _x - symbol("mean")
_SQUARES = Fold("squares", "sum", _AWAY * _AWAY)


def _spread_program(name: str, result: Any) -> RowProgram:
    return RowProgram(
        name,
        ("x",),
        (_MEAN, Stage((_SQUARES,), after=(("result", result),))),
        ("result",),
        numbers=("count", "divisor"),
    )


VAR = _spread_program("var", symbol("squares") / _divisor)
STD = _spread_program("std", s.sqrt(symbol("squares") / _divisor))
VAR_PULL = RowProgram(
    "var_backward",
    ("x",),
    (
        Stage(_MEAN.folds, after=(*_MEAN.after, ("scale", symbol("g") * 2 / _divisor))),
        Stage(stores=(("out", symbol("scale") * _AWAY),)),
    ),
    rows=("g",),
    numbers=("count", "divisor"),
)


def _divisors(shape: tuple[int, ...], axes: Axes, ddof: float) -> tuple[float, float]:
    count = count_of(shape, axes)
    return count, count - ddof if count > ddof else 0.0


# ----- Variance -----


@primitive(name="var")
def _var(x, *, axes, keepdims, ddof):
    """Mean of the squared distances from the mean; of nothing it is nan."""
    return run(VAR, [x], axes, keepdims, numbers=_divisors(x.shape, axes, ddof))[0]


@_var.vjp("x")
def _(g, x, axes, keepdims, ddof):
    return _pull_var(g, x, axes=axes, keepdims=keepdims, ddof=ddof)


@primitive(name="var_backward")
def _pull_var(h, x, *, axes, keepdims, ddof):
    """h times twice the distance of each item from the mean, over the divisor."""
    return run(VAR_PULL, [x], axes, per_row=[h], numbers=_divisors(x.shape, axes, ddof))[0]


@_pull_var.vjp("h")
def _(g, x, axes, keepdims, ddof):
    return sum_axes(g * _from_mean(x, axes), axes=axes, keepdims=keepdims) * _twice_over(x.shape, axes, ddof)


@_pull_var.vjp("x")
def _(g, h, x_shape, axes, ddof):
    # The distances sum up to nothing, so g counts only in its own distance from its mean.
    return _from_mean(g, axes) * (with_axes(h, x_shape, axes) * _twice_over(x_shape, axes, ddof))


def _twice_over(shape: tuple[int, ...], axes: Axes, ddof: float) -> float:
    _, divisor = _divisors(shape, axes, ddof)
    return 2 / divisor if divisor else float("inf")


def _from_mean(x: Tensor, axes: Axes) -> Tensor:
    return x - mean_axes(x, axes=axes, keepdims=True)


def _options(out: Any, keepdims: Any, ddof: Any, correction: Any, op: str) -> tuple[bool, float]:
    """Whether to keep the axes, and what the count is lessened by."""
    refuse_out(out, op)
    if correction is not Unset:
        if ddof != 0:
            raise ValueError(f"{op}: ddof and correction can't be provided simultaneously, they mean the same")
        ddof = correction
    return keepdims is not Unset and bool(keepdims), ddof


def _var_of(x: Tensor, axes: Axes, keep: bool, ddof: float, where: Any, center: Any) -> Tensor:
    """The variance of a part of the items, or about a given mean, or of complex numbers."""
    chosen = np.broadcast_to(True, x.shape) if where is Unset else mask_of(where, x.shape, "var")
    count = np.sum(chosen, axis=axes, keepdims=True)
    if center is Unset:
        total = sum_axes(masked(x, chosen, 0, "var"), axes=axes, keepdims=True)
        center = total / np.asarray(count, x.dtype)
    away = masked(x - center, chosen, 0, "var")
    squares = away * away if x.dtype.kind != "c" else real(away * conj(away))
    divisor = np.maximum(count - ddof, 0) if keep else np.maximum(np.squeeze(count, axes) - ddof, 0)
    return sum_axes(squares, axes=axes, keepdims=keep) / divisor.astype(squares.dtype)


@stands_for(np.var)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = Unset,
    *,
    where: Any = Unset,
    mean: Any = Unset,
    correction: float = Unset,
) -> Tensor:
    """Variance over axes: the mean of the squared distances from the mean.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to average over; None for all.
    dtype : dtype, optional
        Convert to this first. Default: the dtype of `a`, float64 for integers and booleans.
    out : None
        Not supported.
    ddof : float, optional
        Divide by the count less this. PyTorch's default is 1, NumPy's 0.
    keepdims : bool, optional
        Keep the axes, with length 1.
    where : array_like of bool, optional
        Use these only.
    mean : array_like, optional
        The mean, if it is known, with the axes kept.
    correction : float, optional
        The array API's name of `ddof`.

    Returns
    -------
    Tensor
        nan where the count is not larger than `ddof`; no warning is given.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.var([1.0, 2.0, 3.0, 4.0])
    tensor(1.25)
    """
    keep, ddof = _options(out, keepdims, ddof, correction, "var")
    x = inexact(as_tensor(a, "a"), dtype)
    axes = axes_of(axis, x.ndim)
    if where is Unset and mean is Unset and x._layout.kind == "f":
        return _var(x, axes=axes, keepdims=keep, ddof=ddof)
    return _var_of(x, axes, keep, ddof, where, mean)


# ----- Standard deviation -----


@elementwise(sample=((-2, 2), (0.5, 2)))
def _over_or_zero(g, y):
    """g / y, but 0 where y is 0."""
    zero = s.equal(y, 0)
    z = s.where(zero, 0, g / y)
    return z, (s.where(zero, 0, 1 / y), s.where(zero, 0, -z / y))


@primitive(name="std")
def _std(x, *, axes, keepdims, ddof):
    """Root of the variance; of nothing it is nan."""
    return run(STD, [x], axes, keepdims, numbers=_divisors(x.shape, axes, ddof))[0]


@_std.vjp("x")
def _(g, x, out, axes, keepdims, ddof):
    return _pull_var(_over_or_zero(g * 0.5, out), x, axes=axes, keepdims=keepdims, ddof=ddof)


@primitive(name="root_or_zero", wide="all")
def _root(x):
    """The square root, with gradient 0 at 0."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(x)


@_root.vjp("x")
def _(g, out):
    return _over_or_zero(g * 0.5, out)


@stands_for(np.std)
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = Unset,
    *,
    where: Any = Unset,
    mean: Any = Unset,
    correction: float = Unset,
) -> Tensor:
    """Standard deviation over axes: the root of the variance. Its gradient is 0 where all items are equal.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to average over; None for all.
    dtype : dtype, optional
        Convert to this first. Default: the dtype of `a`, float64 for integers and booleans.
    out : None
        Not supported.
    ddof : float, optional
        Divide by the count less this. PyTorch's default is 1, NumPy's 0.
    keepdims : bool, optional
        Keep the axes, with length 1.
    where : array_like of bool, optional
        Use these only.
    mean : array_like, optional
        The mean, if it is known, with the axes kept.
    correction : float, optional
        The array API's name of `ddof`.

    Returns
    -------
    Tensor
        nan where the count is not larger than `ddof`; no warning is given.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.std([1.0, 3.0])
    tensor(1.)
    """
    keep, ddof = _options(out, keepdims, ddof, correction, "std")
    x = inexact(as_tensor(a, "a"), dtype)
    axes = axes_of(axis, x.ndim)
    if where is Unset and mean is Unset and x._layout.kind == "f":
        return _std(x, axes=axes, keepdims=keep, ddof=ddof)
    return _root(_var_of(x, axes, keep, ddof, where, mean))


# ----- The length of a vector -----


def _length_program(name: str, item: Any, result: Any, first: tuple[Stage, ...] = ()) -> RowProgram:
    return RowProgram(
        name, ("x",), (*first, Stage((Fold("squares", "sum", item * item),), after=(("result", result),))), ("result",)
    )


_ROOT = s.sqrt(symbol("squares"))
LENGTH = _length_program("euclidean_norm", _x, _ROOT)
_SCALED = Stage(
    (Fold("largest", "max", s.absolute(_x)),), after=(("unit", s.where(symbol("largest") > 0, symbol("largest"), 1)),)
)
LENGTH_SCALED = _length_program("euclidean_norm_scaled", _x / symbol("unit"), _ROOT * symbol("unit"), (_SCALED,))


@primitive(name="euclidean_norm", wide="all")
def _length(x, *, axes, keepdims):
    """Root of the sum of squares, of numbers however large or small."""
    if x.dtype.kind == "c":
        x = np.abs(x)
    out = run(LENGTH, [x], axes, keepdims)[0]
    # Squares overflow and underflow long before the length does. Then the row is measured by its largest item.
    info = np.finfo(np.float32 if is_half(x.dtype) else x.dtype)
    low, high = np.sqrt(info.tiny) / info.eps, np.sqrt(info.max)
    if out.size and not (out.min() > low and out.max() < high):
        out = np.where((out > low) & (out < high), out, run(LENGTH_SCALED, [x], axes, keepdims)[0])
        return _mend_infinite(out, x, axes, keepdims)
    return out


def _mend_infinite(out: np.ndarray, x: np.ndarray, axes: Axes, keepdims: bool) -> np.ndarray:
    """A row with an infinite item, and no nan, is infinitely long; inf / inf made it nan."""
    infinite = np.isinf(x).any(axis=axes, keepdims=keepdims) & ~np.isnan(x).any(axis=axes, keepdims=keepdims)
    return np.where(infinite, np.asarray(np.inf, out.dtype), out)


@_length.vjp("x")
def _(g, x, out, axes):
    return x * with_axes(_over_or_zero(g, out), x.shape, axes)


def euclidean_norm(a: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Euclidean length over axes, however large or small the numbers. Its gradient is 0 at zero."""
    x = inexact(as_tensor(a, "a"))
    return _length(x, axes=axes_of(axis, x.ndim), keepdims=bool(keepdims))


# ----- Averages -----


@stands_for(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = Unset) -> Any:
    """Weighted mean over axes.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to average over; None for all.
    weights : array_like, optional
        Of the shape of `a`, or of that of the axes averaged over. Default: all equal.
    returned : bool, optional
        Return the sum of the weights too.
    keepdims : bool, optional
        Keep the axes, with length 1.

    Returns
    -------
    Tensor, or tuple of two Tensors

    Raises
    ------
    ZeroDivisionError
        If weights add up to zero.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.average([1.0, 5.0], weights=[3.0, 1.0])
    tensor(2.)
    """
    from numbagrad.ops.shape import broadcast_to

    x = inexact(as_tensor(a, "a"))
    axes, keep = axes_of(axis, x.ndim), keepdims is not Unset and bool(keepdims)
    if weights is None:
        result = mean(x, axis=axes, keepdims=keep)
        total = as_tensor(np.asarray(count_of(x.shape, axes), result.dtype))
    else:
        w = _weights(inexact(as_tensor(weights, "weights")), x, axis, axes)
        total = sum(w, axis=axes, keepdims=keep)
        if np.any(total._data == 0):
            raise ZeroDivisionError("average: weights sum to zero, can't be normalized")
        result = sum(x * w, axis=axes, keepdims=keep) / total
    return (result, broadcast_to(total, result.shape)) if returned else result


def _weights(w: Tensor, x: Tensor, axis: Any, axes: Axes) -> Tensor:
    """The weights in the shape of `x`."""
    from numbagrad.ops.shape import broadcast_to, reshape, transpose

    if w.shape == x.shape:
        return w
    if axis is None:
        raise TypeError(f"average: axis must be specified when shapes of a and weights differ: {x.shape} and {w.shape}")
    given = axis if isinstance(axis, tuple) else (axis,)
    order = [n % x.ndim for n in given]
    if w.shape != tuple(x.shape[n] for n in order):
        raise ValueError(
            f"average: shape of weights {w.shape} must be consistent with shape of a {x.shape} along axis {axis}"
        )
    turned = transpose(w, tuple(np.argsort(order)))
    return broadcast_to(reshape(turned, tuple(n if i in axes else 1 for i, n in enumerate(x.shape))), x.shape)


# ----- Without nan -----


def _numbers(a: Any, dtype: Any, where: Any, op: str) -> tuple[Tensor, np.ndarray]:
    """The operand, and where it is not nan and not masked."""
    x = inexact(as_tensor(a, "a"), dtype)
    numbers = ~np.isnan(x._data)
    return x, numbers if where is Unset else numbers & mask_of(where, x.shape, op)


@stands_for(np.nanmean)
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = Unset, *, where: Any = Unset
) -> Tensor:
    """Mean of the items that are not nan; nan, without a warning, where all are. Arguments as for `mean`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanmean([1.0, ng.nan, 2.0])
    tensor(1.5)
    """
    refuse_out(out, "nanmean")
    x, numbers = _numbers(a, dtype, where, "nanmean")
    return mean(x, axis=axis, keepdims=keepdims, where=numbers)


@stands_for(np.nanvar)
def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = Unset,
    *,
    where: Any = Unset,
    mean: Any = Unset,
    correction: float = Unset,
) -> Tensor:
    """Variance of the items that are not nan. Arguments as for `var`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanvar([1.0, ng.nan, 3.0])
    tensor(1.)
    """
    keep, ddof = _options(out, keepdims, ddof, correction, "nanvar")
    x, numbers = _numbers(a, dtype, where, "nanvar")
    return _var_of_numbers(x, axes_of(axis, x.ndim), keep, ddof, numbers, mean)


def _var_of_numbers(x: Tensor, axes: Axes, keep: bool, ddof: float, numbers: np.ndarray, center: Any) -> Tensor:
    """NumPy gives nan, not inf, where fewer numbers are left than `ddof` takes away."""
    from numbagrad.ops.arithmetic import where

    result = _var_of(x, axes, keep, ddof, numbers, center)
    few = np.sum(numbers, axis=axes, keepdims=keep) <= ddof
    return where(few, float("nan"), result) if np.any(few) else result


@stands_for(np.nanstd)
def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = Unset,
    *,
    where: Any = Unset,
    mean: Any = Unset,
    correction: float = Unset,
) -> Tensor:
    """Standard deviation of the items that are not nan. Arguments as for `std`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nanstd([1.0, ng.nan, 3.0])
    tensor(1.)
    """
    keep, ddof = _options(out, keepdims, ddof, correction, "nanstd")
    x, numbers = _numbers(a, dtype, where, "nanstd")
    return _root(_var_of_numbers(x, axes_of(axis, x.ndim), keep, ddof, numbers, mean))


METHODS: dict[str, Callable[..., Any]] = {"var": var, "std": std}
__all__ = ["average", "nanmean", "nanstd", "nanvar", "std", "var"]
