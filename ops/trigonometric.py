"""Trigonometric and hyperbolic functions, and their inverses."""

import math
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.jit.expr import s
from numbagrad.ops import arithmetic
from numbagrad.ops.conversion import conj
from numbagrad.ops.elementwise import elementwise
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import NUMPY, stands_for

PI = math.pi


@elementwise(numpy=np.sin)
def sin(x):
    """Sine."""
    return s.sin(x), (s.cos(x),)


@elementwise(numpy=np.cos)
def cos(x):
    """Cosine."""
    return s.cos(x), (-s.sin(x),)


@elementwise(numpy=np.tan, sample=(-1.2, 1.2))
def tan(x):
    """Tangent."""
    y = s.tan(x)
    return y, (1 + y * y,)


@elementwise(numpy=np.arcsin, sample=(-0.9, 0.9))
def arcsin(x):
    """Inverse sine."""
    return s.arcsin(x), (1 / s.sqrt((1 - x) * (1 + x)),)


@elementwise(numpy=np.arccos, sample=(-0.9, 0.9))
def arccos(x):
    """Inverse cosine."""
    return s.arccos(x), (-1 / s.sqrt((1 - x) * (1 + x)),)


@elementwise(numpy=np.arctan)
def arctan(x):
    """Inverse tangent."""
    return s.arctan(x), (1 / (1 + x * x),)


@elementwise(numpy=np.arctan2, sample=(0.2, 2))
def arctan2(y, x):
    """Angle of the point (x, y). At the origin the gradient is 0."""
    # Divided twice by the radius, because its square may overflow.
    r = s.hypot(x, y)
    origin = s.equal(r, 0)
    return s.arctan2(y, x), (s.where(origin, 0, x / r / r), s.where(origin, 0, -y / r / r))


@elementwise(numpy=np.sinh)
def sinh(x):
    """Hyperbolic sine."""
    return s.sinh(x), (s.cosh(x),)


@elementwise(numpy=np.cosh)
def cosh(x):
    """Hyperbolic cosine."""
    return s.cosh(x), (s.sinh(x),)


@elementwise(numpy=np.tanh, sample=(-3, 3))
def tanh(x):
    """Hyperbolic tangent."""
    y = s.tanh(x)
    return y, (1 - y * y,)


@elementwise(numpy=np.arcsinh, name="arcsinh")
def arcsinh_real(x):
    """Inverse hyperbolic sine."""
    # hypot, because x * x may overflow.
    return s.arcsinh(x), (1 / s.hypot(x, 1),)


@primitive(name="arcsinh_complex")
def _arcsinh_complex(z):
    return np.arcsinh(z)


@_arcsinh_complex.vjp("z")
def _(g, z):
    return g / conj(arithmetic.sqrt(1 + z * z))


@stands_for(np.arcsinh)
def arcsinh(x: Any) -> Tensor:
    """Inverse hyperbolic sine.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.arcsinh([0.0, 1j])
    tensor([0.+0.j        , 0.+1.57079633j])
    """
    x = as_tensor(x, "x")
    return _arcsinh_complex(x) if x.dtype.kind == "c" else arcsinh_real(x)


@elementwise(numpy=np.arccosh, sample=(1.2, 3))
def arccosh(x):
    """Inverse hyperbolic cosine."""
    return s.arccosh(x), (1 / (s.sqrt(x - 1) * s.sqrt(x + 1)),)


@elementwise(numpy=np.arctanh, sample=(-0.9, 0.9))
def arctanh(x):
    """Inverse hyperbolic tangent."""
    return s.arctanh(x), (1 / ((1 - x) * (1 + x)),)


@elementwise(numpy=np.deg2rad)
def deg2rad(x):
    """Degrees to radians."""
    return x * (PI / 180), (PI / 180,)


@elementwise(numpy=np.rad2deg)
def rad2deg(x):
    """Radians to degrees."""
    return x * (180 / PI), (180 / PI,)


@elementwise(numpy=np.sinc, sample=(0.2, 2))
def sinc(x):
    """sin(pi x) / (pi x), and 1 at 0."""
    zero = s.equal(x, 0)
    t = PI * s.where(zero, 1, x)
    y = s.where(zero, 1, s.sin(t) / t)
    # Near 0 the quotient cancels: a series, which has the right derivatives there too.
    z = (PI * x) * (PI * x)
    series = -PI * (PI * x) * (1 / 3 - z * (1 / 30 - z * (1 / 840 - z * (1 / 45360 - z / 3991680))))
    near = s.absolute(x) < 0.06
    far = s.where(near, 1, x)
    return y, (s.where(near, series, (s.cos(PI * far) - s.sin(PI * far) / (PI * far)) / far),)


radians, degrees = deg2rad, rad2deg
NUMPY[np.radians], NUMPY[np.degrees] = deg2rad, rad2deg

__all__ = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "rad2deg",
    "radians",
    "sin",
    "sinc",
    "sinh",
    "tan",
    "tanh",
]
