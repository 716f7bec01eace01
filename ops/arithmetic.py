"""Arithmetic: the operators, powers, roots, and the smaller and the larger of two."""

import numpy as np

from numbagrad.jit.expr import s
from numbagrad.ops.elementwise import elementwise


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
