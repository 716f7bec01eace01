"""Exponentials and logarithms, and the smooth steps made of them."""

import math

import numpy as np

from numbagrad.jit.expr import s
from numbagrad.ops.elementwise import elementwise

LN2, LN10 = math.log(2), math.log(10)


@elementwise(numpy=np.exp)
def exp(x):
    """e to the power x."""
    y = s.exp(x)
    return y, (y,)


@elementwise(numpy=np.exp2)
def exp2(x):
    """2 to the power x."""
    y = s.exp2(x)
    return y, (LN2 * y,)


@elementwise(numpy=np.expm1)
def expm1(x):
    """exp(x) - 1, accurate near zero."""
    y = s.expm1(x)
    return y, (y + 1,)


@elementwise(numpy=np.log, sample=(0.2, 3))
def log(x):
    """Natural logarithm."""
    return s.log(x), (1 / x,)


@elementwise(numpy=np.log2, sample=(0.2, 3))
def log2(x):
    """Logarithm to base 2."""
    return s.log2(x), (1 / (LN2 * x),)


@elementwise(numpy=np.log10, sample=(0.2, 3))
def log10(x):
    """Logarithm to base 10."""
    return s.log10(x), (1 / (LN10 * x),)


@elementwise(numpy=np.log1p, sample=(-0.5, 2))
def log1p(x):
    """log(1 + x), accurate near zero."""
    return s.log1p(x), (1 / (1 + x),)


@elementwise(sample=(0.2, 3))
def log1mexp(x):
    """log(1 - exp(-x)) for x > 0, accurate for small and for large x."""
    # Maechler, "Accurately computing log(1 - exp(-|a|))", 2012: the better form changes at log 2.
    y = s.where(x < LN2, s.log(-s.expm1(-x)), s.log1p(-s.exp(-x)))
    return y, (1 / s.expm1(x),)


def _weight(x, total):
    """exp(x - total): the share of x in a log-sum; all of it where x is the total, be it infinite."""
    return s.where(s.equal(x, total), 1, s.exp(x - total))


@elementwise(numpy=np.logaddexp)
def logaddexp(x, y):
    """log(exp(x) + exp(y)) without overflow."""
    z = s.logaddexp(x, y)
    return z, (_weight(x, z), _weight(y, z))


@elementwise(numpy=np.logaddexp2)
def logaddexp2(x, y):
    """log2(2**x + 2**y) without overflow."""
    larger, distance = s.where(x > y, x, y), s.absolute(x - y)
    z = s.where(s.equal(x, y), x + 1, larger + s.log1p(s.exp2(-distance)) * (1 / LN2))
    return z, tuple(s.where(s.equal(v, z), 1, s.exp2(v - z)) for v in (x, y))


@elementwise(sample=(-4, 4))
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    y = s.sigmoid(x)
    return y, (y * (1 - y),)


@elementwise(sample=(-4, 4))
def softplus(x):
    """log(1 + exp(x)) without overflow."""
    return s.softplus(x), (s.sigmoid(x),)


@elementwise(sample=(-4, 4))
def log_sigmoid(x):
    """log(sigmoid(x)) without overflow."""
    return s.log_sigmoid(x), (s.sigmoid(-x),)


for _op in (sigmoid, log1mexp):
    _op.real_only = True

__all__ = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1mexp",
    "log1p",
    "log2",
    "log10",
    "log_sigmoid",
    "logaddexp",
    "logaddexp2",
    "sigmoid",
    "softplus",
]
