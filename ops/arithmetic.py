"""Arithmetic: the operators, powers and roots, rounding, the smaller and the larger of two, and choosing."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.jit.expr import s
from numbagrad.ops.elementwise import elementwise
from numbagrad.ops.operands import NUMBERS, as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import NUMPY, stands_for

# ----- operators -----


@elementwise(numpy=np.add)
def add(x, y):
    """x + y."""
    return s.add(x, y), (1, 1)


@elementwise(numpy=np.subtract)
def subtract(x, y):
    """x - y."""
    return s.subtract(x, y), (1, -1)


@elementwise(numpy=np.multiply)
def multiply(x, y):
    """x * y."""
    return s.multiply(x, y), (y, x)


@elementwise(numpy=np.divide, sample=((-2, 2), (0.5, 2)))
def divide(x, y):
    """x / y."""
    z = s.divide(x, y)
    return z, (1 / y, -z / y)


@elementwise(numpy=np.negative)
def negative(x):
    """-x."""
    return s.negative(x), (-1,)


@elementwise(numpy=np.remainder, sample=((-7.9, 7.9), (2.1, 2.9)), name="mod")
def remainder(x, y):
    """Remainder with the sign of the divisor, as Python's ``%``."""
    return s.mod(x, y), (1, -s.floor(x / y))


@elementwise(numpy=np.fmod, sample=((-7.9, 7.9), (2.1, 2.9)))
def fmod(x, y):
    """Remainder with the sign of the dividend, as in C."""
    return s.fmod(x, y), (1, -s.trunc(x / y))


# ----- powers and roots -----


@elementwise(numpy=np.power, sample=((0.3, 2), (-2, 2)))
def power(x, y):
    """x to the power y."""
    z = s.power(x, y)
    # x**0 is the constant 1, and 0**y is the constant 0 for y > 0.
    by_x = s.where(s.equal(y, 0), 0, y * s.power(x, y - 1))
    by_y = s.where(s.logical_and(s.equal(x, 0), y >= 0), 0, z * s.log(x))
    return z, (by_x, by_y)


@elementwise(numpy=np.square)
def square(x):
    """x * x."""
    return x * x, (2 * x,)


@elementwise(numpy=np.sqrt, sample=(0.2, 3))
def sqrt(x):
    """Square root."""
    y = s.sqrt(x)
    return y, (0.5 / y,)


@elementwise(numpy=np.cbrt, sample=(0.2, 3))
def cbrt(x):
    """Cube root."""
    y = s.cbrt(x)
    return y, (1 / (3 * (y * y)),)


@elementwise(numpy=np.reciprocal, sample=(0.5, 2))
def reciprocal(x):
    """1 / x."""
    y = 1 / x
    return y, (-(y * y),)


@elementwise(numpy=np.hypot)
def hypot(x, y):
    """sqrt(x**2 + y**2) without overflow."""
    r = s.hypot(x, y)
    origin = s.equal(r, 0)
    return r, (s.where(origin, 0, x / r), s.where(origin, 0, y / r))


# ----- signs -----


def _sign(x):
    """1, -1, or x itself where it is 0 or nan."""
    return s.where(x > 0, 1, s.where(x < 0, -1, x))


@elementwise(sample=(0.1, 2), name="absolute")
def absolute_real(x):
    """|x| of real numbers."""
    return s.absolute(x), (_sign(x),)


@elementwise(numpy=np.sign, sample=(0.1, 2), name="sign")
def sign_real(x):
    """-1, 0 or 1."""
    return _sign(x), (None,)


@elementwise(numpy=np.copysign, sample=((0.1, 2), (-2, -0.1)))
def copysign(x, y):
    """x with the sign of y."""
    z = s.copysign(x, y)
    # The derivative by x is 1 or -1; 0 where x is 0, as in torch.
    return z, (s.where(s.equal(x, 0), 0, s.where(s.equal(z, x), 1, -1)), None)


# ----- the larger, the smaller, bounds -----


@elementwise(numpy=np.maximum)
def maximum(x, y):
    """The larger of two; nan if either is nan. Equal arguments share the gradient evenly."""
    z = s.where(s.logical_or(x >= y, s.not_equal(x, x)), x, y)
    tie = s.equal(x, y)
    return z, (s.where(tie, 0.5, s.where(x < y, 0, 1)), s.where(tie, 0.5, s.where(x > y, 0, 1)))


@elementwise(numpy=np.minimum)
def minimum(x, y):
    """The smaller of two; nan if either is nan. Equal arguments share the gradient evenly."""
    z = s.where(s.logical_or(x <= y, s.not_equal(x, x)), x, y)
    tie = s.equal(x, y)
    return z, (s.where(tie, 0.5, s.where(x > y, 0, 1)), s.where(tie, 0.5, s.where(x < y, 0, 1)))


@elementwise(numpy=np.fmax)
def fmax(x, y):
    """The larger of two, the number if one is nan. Equal arguments: the first has the gradient, as in torch."""
    first = s.logical_or(x >= y, s.not_equal(y, y))
    return s.where(first, x, y), (s.where(first, 1, 0), s.where(first, 0, 1))


@elementwise(numpy=np.fmin)
def fmin(x, y):
    """The smaller of two, the number if one is nan. Equal arguments: the first has the gradient, as in torch."""
    first = s.logical_or(x <= y, s.not_equal(y, y))
    return s.where(first, x, y), (s.where(first, 1, 0), s.where(first, 0, 1))


@elementwise(sample=((-2, 2), (-1.1, -0.9), (0.9, 1.1)))
def clip_between(x, low, high):
    """x kept between low and high. The gradient is 1 at the bounds, as in torch."""
    above = s.where(x < low, low, x)
    inside = s.logical_and(x >= low, x <= high)
    by_low = s.where(s.logical_and(x < low, low < high), 1, 0)
    by_high = s.where(s.logical_or(x > high, high < low), 1, 0)
    return s.where(above > high, high, above), (s.where(inside, 1, 0), by_low, by_high)


@elementwise(sample=((-2, 2), (-1.1, -0.9)))
def clip_below(x, low):
    """x, but at least low."""
    return s.where(x < low, low, x), (s.where(x >= low, 1, 0), s.where(x < low, 1, 0))


@elementwise(sample=((-2, 2), (0.9, 1.1)))
def clip_above(x, high):
    """x, but at most high."""
    return s.where(x > high, high, x), (s.where(x <= high, 1, 0), s.where(x > high, 1, 0))


@stands_for(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Tensor:
    """Keep values between bounds. The gradient is 1 at the bounds; it flows to the bounds where they are taken.

    Parameters
    ----------
    a : array_like
    a_min, a_max : array_like, optional
        Bounds, broadcast against `a`; None for none. `min` and `max` are NumPy's other names for them.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.clip([-2.0, 0.5, 3.0], 0.0, 1.0)
    tensor([0. , 0.5, 1. ])
    """
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if low is None and high is None:
        return positive(a)
    if high is None:
        return clip_below(a, low)
    return clip_above(a, high) if low is None else clip_between(a, low, high)


# ----- choosing -----


@elementwise(conditions=("condition",), name="where")
def choose_by(condition, x, y):
    """x where the condition holds, else y."""
    return s.where(condition, x, y), (None, s.where(condition, 1, 0), s.where(condition, 0, 1))


@stands_for(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Take from `x` where `condition` holds, else from `y`; with `condition` alone, where it holds.

    The branch that is not taken gets exactly zero gradient: no nan or inf comes from it, here or further back.

    Parameters
    ----------
    condition : array_like of bool
    x, y : array_like, optional
        Broadcast against `condition` and each other.

    Returns
    -------
    Tensor, or tuple of Tensor
        With `condition` alone: one index tensor per axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([-1.0, 4.0], requires_grad=True)
    >>> ng.where(x > 0, ng.sqrt(x), 0.0).sum().backward()
    >>> x.grad
    tensor([0.  , 0.25])
    """
    if x is None and y is None:
        return tuple(wrap(i) for i in np.nonzero(as_tensor(condition)._data))
    if x is None or y is None:
        raise ValueError("where: either both or neither of x and y should be given")
    return choose_by(as_tensor(condition), x, y)


# ----- rounding: flat almost everywhere, the gradient is zero -----


@elementwise(numpy=np.floor, sample=(0.1, 0.9))
def floor(x):
    """Largest integer below or equal."""
    return s.floor(x), (None,)


@elementwise(numpy=np.ceil, sample=(0.1, 0.9))
def ceil(x):
    """Smallest integer above or equal."""
    return s.ceil(x), (None,)


@elementwise(numpy=np.trunc, sample=(0.1, 0.9))
def trunc(x):
    """Integer part."""
    return s.trunc(x), (None,)


@elementwise(numpy=np.rint, sample=(0.1, 0.4))
def rint(x):
    """Nearest integer, halves to even."""
    return s.rint(x), (None,)


@primitive(name="round_decimals", wide="all")
def _round_decimals(x, *, decimals):
    return np.round(x, decimals)


@_round_decimals.vjp("x")
def _(g):
    return multiply(where(g == 0, 0.0, 0.0), 1.0)


@stands_for(np.round, np.around)
def round(a: Any, decimals: int = 0) -> Tensor:
    """Round to some decimals, halves to even; the gradient is zero.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.round([1.234, 5.678], 1)
    tensor([1.2, 5.7])
    """
    a = as_tensor(a)
    return rint(a) if decimals == 0 and a._layout.kind == "f" else _round_decimals(a, decimals=decimals)


# ----- faces of several ops -----


def positive(x: Any) -> Tensor:
    """+x: a copy.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.positive(ng.tensor([1.0, -2.0]))
    tensor([ 1., -2.])
    """
    from numbagrad.ops.conversion import clone

    return clone(x)


@stands_for(np.absolute, np.fabs)
def absolute(x: Any) -> Tensor:
    """Absolute value; the gradient at 0 is 0. Of a complex number the modulus.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.absolute([-1.5, 2.0])
    tensor([1.5, 2. ])
    """
    x = as_tensor(x)
    if x.dtype.kind == "c":
        return _modulus(x)
    return absolute_real(x) if x._layout.kind == "f" else wrap(np.abs(x._data))


@stands_for(np.sign)
def sign(x: Any) -> Tensor:
    """-1, 0 or 1, with the gradient 0. Of a complex number its direction ``x / abs(x)``, which has one.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.sign([-1.5, 0.0, 2.0])
    tensor([-1.,  0.,  1.])
    """
    x = as_tensor(x)
    if x.dtype.kind != "c":
        return sign_real(x)
    length = _modulus(x)
    at_zero = length == 0
    return where(at_zero, 0.0, x / where(at_zero, 1.0, length))


@primitive(name="modulus")
def _modulus(z):
    return np.abs(z)


@_modulus.vjp("z")
def _(g, z, out):
    # Direction of z, and 0 at the origin.
    at_zero = out == 0
    return where(at_zero, 0.0, g / where(at_zero, 1.0, out)) * z


def _power_operator(x: Any, y: Any) -> Tensor:
    """``x ** y``, with NumPy's short cuts for small exponents."""
    if type(y) in NUMBERS:
        shortcut = _SHORTCUTS.get(y) if not isinstance(y, complex) else None
        if shortcut is not None and x._layout.kind in "fc":
            return shortcut(x)
        if type(y) is int and x._layout.kind == "f":
            return power.fast(x, float(y))
    return power.fast(x, y)


_SHORTCUTS = {2: square.fast, 1: positive, -1: reciprocal.fast, 0.5: sqrt.fast}

NUMPY[np.positive] = positive
abs = absolute
true_divide = divide
mod = remainder

__all__ = [
    "abs",
    "absolute",
    "add",
    "cbrt",
    "ceil",
    "clip",
    "copysign",
    "divide",
    "floor",
    "fmax",
    "fmin",
    "fmod",
    "hypot",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "positive",
    "power",
    "reciprocal",
    "remainder",
    "rint",
    "round",
    "sign",
    "sqrt",
    "square",
    "subtract",
    "true_divide",
    "trunc",
    "where",
]
