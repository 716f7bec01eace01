"""Cumulative sums and products, differences, and the recurrences that gradients of products are.

Nothing divides by an input: the gradient of a product is right with any number of zeros, takes time in proportion to
its length, and is made of ops of its own kind, so that it can be differentiated to any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.jit import scan
from numbagrad.ops.conversion import astype, conj
from numbagrad.ops.folding import Unset, refuse_out
from numbagrad.ops.joining import concatenate
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import broadcast_to, ravel

# A walk goes along `axis`, from its end if `reverse`; "before" means visited earlier.


@primitive(linear=True, name="cumsum")
def sums(x, *, axis, reverse):
    """The sum of each item and those before it."""
    return scan.cumulative("sum", x, axis, reverse)


@sums.vjp("x")
def _(g, axis, reverse):
    return sums(g, axis=axis, reverse=not reverse)


@primitive(name="cumprod", wide="rules")
def products(x, *, axis, reverse):
    """The product of each item and those before it."""
    return scan.cumulative("prod", x, axis, reverse)


@products.vjp("x")
def _(g, x, axis, reverse):
    return _pull_products(x, g, axis, reverse)


@primitive(name="products_before", wide="rules")
def products_before(x, *, axis, reverse):
    """The product of the items before each, without itself."""
    return scan.cumulative("prod", x, axis, reverse, exclusive=True)


@products_before.vjp("x")
def _(g, x, axis, reverse):
    return _pull_before(x, g, axis, reverse)


@primitive(name="products_of_others", wide="all")
def others(x, *, axis):
    """The product of all other items: of those before each times those behind it."""
    return scan.others(x, axis)


@others.vjp("x")
def _(g, x, axis):
    before, behind = (products_before(x, axis=axis, reverse=reverse) for reverse in (False, True))
    return _pull_before(x, g * conj(behind), axis, False) + _pull_before(x, g * conj(before), axis, True)


def _pull_before(x: Tensor, g: Tensor, axis: int, reverse: bool) -> Tensor:
    """The gradient of `products_before`."""
    return _pull_products(x, shift(g, axis=axis, reverse=not reverse), axis, reverse)


def _pull_products(x: Tensor, g: Tensor, axis: int, reverse: bool) -> Tensor:
    """The gradient of the products: for each item, what lies before it times what lies behind it, summed up by g."""
    x = conj(x)
    behind = recurrence(x, g, axis=axis, reverse=not reverse, lag=True)
    return products_before(x, axis=axis, reverse=reverse) * behind


@primitive(name="recurrence", wide="rules")
def recurrence(a, b, *, axis, reverse, lag):
    """b of each item plus a (of the item before, if `lag`) times the result of the item before."""
    return scan.recurrence(a, b, axis, reverse, lag)


@recurrence.vjp("a")
def _(g, a, out, axis, reverse, lag):
    pulled = recurrence(conj(a), g, axis=axis, reverse=not reverse, lag=not lag)
    if lag:
        return shift(pulled, axis=axis, reverse=not reverse) * conj(out)
    return pulled * conj(shift(out, axis=axis, reverse=reverse))


@recurrence.vjp("b")
def _(g, a, axis, reverse, lag):
    return recurrence(conj(a), g, axis=axis, reverse=not reverse, lag=not lag)


@primitive(linear=True)
def shift(x, *, axis, reverse):
    """The item before each; 0 for the first."""
    out = np.zeros(x.shape, x.dtype)
    to, of = np.moveaxis(out, axis, 0), np.moveaxis(x, axis, 0)
    if reverse:
        to[:-1] = of[1:]
    else:
        to[1:] = of[:-1]
    return out


@shift.vjp("x")
def _(g, axis, reverse):
    return shift(g, axis=axis, reverse=not reverse)


# ----- For users -----


def _walk(a: Any, axis: Any, dtype: Any, out: Any, op: str) -> tuple[Tensor, int]:
    """The operand in its dtype and the number of the axis; without an axis the flat operand."""
    refuse_out(out, op)
    x = as_tensor(a, "a")
    if dtype is None and x.dtype.kind in "biu":
        dtype = np.add.reduce(np.empty(0, x.dtype)).dtype
    x = x if dtype is None else astype(x, dtype)
    if axis is None or (x.ndim == 0 and axis in (0, -1)):
        return ravel(x), 0
    return x, np.lib.array_utils.normalize_axis_index(axis, x.ndim)


@stands_for(np.cumsum)
def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
    """Cumulative sum along an axis.

    Parameters
    ----------
    a : array_like
    axis : int, optional
        None for that of the flat array.
    dtype : dtype, optional
        Convert to this first. Default: the dtype of `a`, but at least the platform's int for integers and booleans.
    out : None
        Not supported.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.cumsum([1.0, 2.0, 3.0])
    tensor([1., 3., 6.])
    """
    x, number = _walk(a, axis, dtype, out, "cumsum")
    return sums(x, axis=number, reverse=False)


@stands_for(np.cumprod)
def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
    """Cumulative product along an axis. Its gradient is right where items are zero.

    Parameters
    ----------
    a : array_like
    axis : int, optional
        None for that of the flat array.
    dtype : dtype, optional
        Convert to this first. Default: the dtype of `a`, but at least the platform's int for integers and booleans.
    out : None
        Not supported.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([2.0, 0.0, 3.0], requires_grad=True)
    >>> ng.cumprod(x).sum().backward()
    >>> x.grad
    tensor([1., 8., 0.])
    """
    x, number = _walk(a, axis, dtype, out, "cumprod")
    return products(x, axis=number, reverse=False)


@primitive(linear=True, name="diff")
def _steps(x, *, axis):
    with np.errstate(all="ignore"):
        return np.diff(x, axis=axis)


@_steps.vjp("x")
def _(g, x_shape, axis):
    return _steps_transposed(g, axis=axis)


@primitive(linear=True, name="diff_transposed")
def _steps_transposed(x, *, axis):
    """Each number is taken from its left end and added to its right one."""
    out = np.zeros((*x.shape[:axis], x.shape[axis] + 1, *x.shape[axis + 1 :]), x.dtype)
    to, of = np.moveaxis(out, axis, 0), np.moveaxis(x, axis, 0)
    with np.errstate(all="ignore"):
        to[1:] += of
        to[:-1] -= of
    return out


@_steps_transposed.vjp("x")
def _(g, axis):
    return _steps(g, axis=axis)


@stands_for(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = Unset, append: Any = Unset) -> Tensor:
    """Differences of neighbours along an axis, taken `n` times.

    Parameters
    ----------
    a : array_like
    n : int, optional
        How often.
    axis : int, optional
    prepend, append : array_like, optional
        Joined to `a` along the axis first; numbers are stretched.

    Returns
    -------
    Tensor
        Shorter by `n` along the axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.diff([1.0, 4.0, 9.0, 16.0])
    tensor([3., 5., 7.])
    """
    x = as_tensor(a, "a")
    if n < 0:
        raise ValueError(f"diff: order must be non-negative but got {n}")
    if n == 0:
        return x
    if x.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    number = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    ends = [_end(e, x, number) for e in (prepend, append)]
    if any(e is not None for e in ends):
        x = concatenate([e for e in (ends[0], x, ends[1]) if e is not None], axis=number)
    for _ in range(min(n, x.shape[number])):
        x = _steps(x, axis=number) if x.dtype != bool else as_tensor(np.diff(x._data, axis=number))
    return x


def _end(value: Any, x: Tensor, axis: int) -> Tensor | None:
    if value is Unset:
        return None
    end = as_tensor(value, "prepend and append")
    return broadcast_to(end, (*x.shape[:axis], 1, *x.shape[axis + 1 :])) if end.ndim == 0 else end


@stands_for(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """Integral along an axis by the trapezoidal rule.

    Parameters
    ----------
    y : array_like
        Values of the integrand.
    x : array_like, optional
        Where they were taken; None for points `dx` apart.
    dx : float, optional
    axis : int, optional

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.trapezoid([1.0, 2.0, 3.0])
    tensor(4.)
    """
    from numbagrad.ops.folding import sum_axes
    from numbagrad.ops.shape import reshape

    y = as_tensor(y, "y")
    number = np.lib.array_utils.normalize_axis_index(axis, y.ndim)
    if x is not None:
        steps = as_tensor(x, "x")
        dx = diff(steps, axis=number if steps.ndim > 1 else -1)
        if steps.ndim == 1:
            dx = reshape(dx, (-1, *[1] * (y.ndim - 1 - number)))
    # The mean of two neighbours is the right one less half of the step to it.
    right = _without_first(y, number)
    return sum_axes(dx * (right - _steps(y, axis=number) * 0.5), axes=(number,), keepdims=False)


def _without_first(y: Tensor, axis: int) -> Tensor:
    return y[(slice(None),) * axis + (slice(1, None),)]  # type: ignore[index]


METHODS: dict[str, Callable[..., Any]] = {"cumsum": cumsum, "cumprod": cumprod}
__all__ = ["cumprod", "cumsum", "diff", "trapezoid"]
