"""Error functions and the activations of neural networks."""

import math

import numpy as np

from numbagrad.jit.expr import s
from numbagrad.ops.elementwise import elementwise

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
ROOT_HALF = math.sqrt(0.5)
NORMAL = 1 / math.sqrt(2 * math.pi)


@elementwise()
def erf(x):
    """Error function."""
    return s.erf(x), (TWO_OVER_ROOT_PI * s.exp(-(x * x)),)


@elementwise()
def erfc(x):
    """1 - erf(x), accurate where that is small."""
    return s.erfc(x), (-TWO_OVER_ROOT_PI * s.exp(-(x * x)),)


@elementwise(sample=((0.1, 2),))
def relu(x):
    """x where it is positive, else 0. The gradient at 0 is 0."""
    return s.where(x <= 0, 0, x), (s.where(x > 0, 1, 0),)


@elementwise(sample=((0.1, 2), (0.1, 0.5)))
def leaky_relu(x, slope):
    """x where it is positive, else slope * x."""
    return s.where(x > 0, x, slope * x), (s.where(x > 0, 1, slope), s.where(x > 0, 0, x))


@elementwise(sample=((0.1, 2), (0.5, 1.5)))
def elu(x, alpha):
    """x where it is positive, else alpha * (exp(x) - 1)."""
    negative = s.where(x > 0, 0, x)
    return s.where(x > 0, x, alpha * s.expm1(negative)), (
        s.where(x > 0, 1, alpha * s.exp(negative)),
        s.where(x > 0, 0, s.expm1(negative)),
    )


@elementwise(sample=(-3, 3))
def gelu(x):
    """x times the normal distribution function of x."""
    cdf = 0.5 * (1 + s.erf(ROOT_HALF * x))
    return x * cdf, (cdf + x * (NORMAL * s.exp(-0.5 * (x * x))),)


@elementwise(sample=(-3, 3))
def silu(x):
    """x * sigmoid(x), also known as swish."""
    y = s.sigmoid(x)
    return x * y, (y * (1 + x * (1 - y)),)


@elementwise(numpy=np.heaviside, sample=((0.1, 2), (-1, 1)))
def heaviside(x, at_zero):
    """0 for negative x, 1 for positive x, `at_zero` at 0."""
    y = s.where(x > 0, 1, s.where(x < 0, 0, s.where(s.equal(x, 0), at_zero, x)))
    return y, (None, s.where(s.equal(x, 0), 1, 0))


for _op in (relu, leaky_relu, elu, gelu, silu):
    _op.real_only = True

__all__ = [
    "elu",
    "erf",
    "erfc",
    "gelu",
    "heaviside",
    "leaky_relu",
    "relu",
    "silu",
]
