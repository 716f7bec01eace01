"""Pointwise functions that are made of other ops: parts of a number, conversions, and the reciprocal functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from numbagrad.engine.layout import is_bfloat16
from numbagrad.engine.tensor import Tensor
from numbagrad.ops import arithmetic, trigonometric
from numbagrad.ops.arithmetic import where
from numbagrad.ops.conversion import astype, clone, imag, real
from numbagrad.ops.logic import floor_divide
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for

# ----- Powers and remainders -----


@stands_for(np.float_power)
def float_power(x1: Any, x2: Any) -> Tensor:
    """`power` in double precision, real or complex.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.float_power([2, 4], -1)
    tensor([0.5 , 0.25])
    """
    x1, x2 = as_tensor(x1, "x1"), as_tensor(x2, "x2")
    dtype = np.result_type(x1.dtype, x2.dtype, np.float64)
    return arithmetic.power(astype(x1, dtype), astype(x2, dtype))


@stands_for(np.divmod)
def divmod(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Quotient, rounded down and without gradient, and remainder.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.divmod([7.5, -7.0], 2.0)
    (tensor([ 3., -4.]), tensor([1.5, 1. ]))
    """
    x1, x2 = as_tensor(x1, "x1"), as_tensor(x2, "x2")
    return floor_divide(x1, x2), arithmetic.remainder(x1, x2)


# ----- Parts of a number -----


@primitive(name="modf")
def _modf(x):
    return np.modf(x)


@_modf.vjp("x")
def _(g):
    return g[0]


@stands_for(np.modf)
def modf(x: Any) -> tuple[Tensor, Tensor]:
    """Fractional and whole part, both with the sign of `x`. The gradient flows through the fraction.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.modf([1.25, -1.25])
    (tensor([ 0.25, -0.25]), tensor([ 1., -1.]))
    """
    return _modf(as_tensor(x, "x"))


@primitive(linear=True, name="ldexp")
def _ldexp(x, *, exponent):
    return np.ldexp(x, exponent)


@_ldexp.vjp("x")
def _(g, exponent):
    return _ldexp(g, exponent=exponent)


@stands_for(np.ldexp)
def ldexp(x1: Any, x2: Any) -> Tensor:
    """``x1 * 2**x2`` for whole `x2`, which has no gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ldexp([1.0, 3.0], [4, -1])
    tensor([16. ,  1.5])
    """
    return _ldexp(as_tensor(x1, "x1"), exponent=as_tensor(x2, "x2")._data)


@stands_for(np.frexp)
def frexp(x: Any) -> tuple[Tensor, Tensor]:
    """Mantissa, from 0.5 up to 1 with the sign of `x`, and power of two, which has no gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.frexp([1.0, -6.0])
    (tensor([ 0.5 , -0.75]), tensor([1, 3], dtype=int32))
    """
    x = as_tensor(x, "x")
    _, exponent = np.frexp(x._data)
    return _ldexp(x, exponent=-exponent), as_tensor(exponent)


@primitive(name="nextafter")
def _nextafter(x, y):
    return np.nextafter(x, y)


@_nextafter.vjp("x")
def _(g):
    return g


@_nextafter.vjp("y")
def _(g):
    return g * 0


@stands_for(np.nextafter)
def nextafter(x1: Any, x2: Any) -> Tensor:
    """The next number after `x1` on the way to `x2`. Its gradient is that of `x1`, and 0 for `x2`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nextafter(1.0, 2.0) > 1.0
    tensor(True)
    """
    return _nextafter(as_tensor(x1, "x1"), as_tensor(x2, "x2"))


@stands_for(np.fix)
def fix(x: Any, out: None = None) -> Tensor:
    """Round towards zero; the gradient is 0.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.fix([-1.7, 1.7])
    tensor([-1.,  1.])
    """
    if out is not None:
        raise TypeError("fix: out= is not supported, results are new Tensors; write y[...] = fix(x) instead")
    return arithmetic.trunc(as_tensor(x, "x"))


# ----- Not a number, not finite, not complex -----


@stands_for(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """Numbers in place of nan and the infinities. No gradient flows to what was replaced.

    Parameters
    ----------
    x : array_like
    copy : bool, optional
        False writes into `x` itself.
    nan, posinf, neginf : number or array_like, optional
        What to put; by default 0, the largest and the smallest number of the dtype.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nan_to_num([ng.nan, 2.0, ng.inf], posinf=9.0)
    tensor([0., 2., 9.])
    """
    x = as_tensor(x, "x")
    made = _numbers(x, nan, posinf, neginf)
    if copy:
        return made
    x[...] = made
    return x


def _numbers(x: Tensor, nan: Any, posinf: Any, neginf: Any) -> Tensor:
    if x._layout.kind == "c":
        return _complex_of(_numbers(real(x), nan, posinf, neginf), _numbers(imag(x), nan, posinf, neginf), x.dtype)
    if x._layout.kind != "f":
        return clone(x)
    largest = (2 - 2.0**-7) * 2.0**127 if is_bfloat16(x.dtype) else np.finfo(x.dtype).max
    places = (
        (np.isnan(x._data), nan),
        (np.isposinf(x._data), largest if posinf is None else posinf),
        (np.isneginf(x._data), -largest if neginf is None else neginf),
    )
    made = x
    for mask, value in places:
        if mask.any():
            made = where(mask, value if isinstance(value, Tensor) else np.asarray(value, x.dtype), made)
    return clone(x) if made is x else made


def _complex_of(re: Tensor, im: Tensor, dtype: np.dtype) -> Tensor:
    return astype(re, dtype) + astype(im, dtype) * 1j


@stands_for(np.real_if_close)
def real_if_close(a: Any, tol: float = 100) -> Tensor:
    """The real part, if all imaginary parts are close to zero; else the tensor itself.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.real_if_close([2.1 + 4e-15j, 5.2 + 3e-16j])
    tensor([2.1, 5.2])
    """
    x = as_tensor(a, "a")
    return real(x) if x._layout.kind == "c" and not np.iscomplexobj(np.real_if_close(x._data, tol)) else x


@stands_for(np.angle)
def angle(z: Any, deg: bool = False) -> Tensor:
    """Angle of complex numbers from the positive real axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.angle([1.0, 1j, -1.0], deg=True)
    tensor([  0.,  90., 180.])
    """
    z = as_tensor(z, "z")
    found = trigonometric.arctan2(imag(z), real(z))
    return trigonometric.rad2deg(found) if deg else found


# ----- Bessel function -----


@primitive(name="bessel_i")
def _bessel_i(x, *, order):
    if order == 0:
        return np.i0(x)
    return _scipy_iv(order, x)


@_bessel_i.vjp("x")
def _(g, x, order):
    return g * (_bessel_i(x, order=abs(order - 1)) + _bessel_i(x, order=order + 1)) * 0.5


@_bessel_i.jvp
def _(node, tangents):
    x, order = node.saved[0], node.statics.settings["order"]
    slope = (_bessel_i(x, order=abs(order - 1)) + _bessel_i(x, order=order + 1)) * 0.5
    return tangents[0] * slope


def _scipy_iv(order: int, x: np.ndarray) -> np.ndarray:
    try:
        from scipy.special import iv
    except ImportError:
        raise ImportError("the derivative of i0 needs SciPy: pip install numbagrad[scipy]") from None
    return iv(order, x).astype(x.dtype)


@stands_for(np.i0)
def i0(x: Any) -> Tensor:
    """Modified Bessel function of the first kind, order 0.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.i0(0.0)
    tensor(1.)
    """
    x = as_tensor(x, "x")
    if x._layout.kind == "c":
        raise TypeError("i0 not supported for complex values")
    return _bessel_i(x if x._layout.kind == "f" else astype(x, np.float64), order=0)


# ----- Reciprocal functions, as MyGrad names them -----


def _inverse_of(name: str, function: Any, what: str, at: float) -> Any:
    """1 / function(x)."""

    def op(x: Any) -> Tensor:
        return 1.0 / function(x)

    return _documented(op, name, what, at, 1 / getattr(math, name_of(function))(at))


def _of_inverse(name: str, function: Any, what: str, at: float) -> Any:
    """function(1 / x)."""

    def op(x: Any) -> Tensor:
        return function(1.0 / as_tensor(x, "x"))

    plain = name_of(function).replace("arc", "a")
    return _documented(op, name, what, at, getattr(math, plain)(1 / at))


def name_of(function: Any) -> str:
    """The name of an op, or of its fast path."""
    return getattr(function, "name", None) or function.__name__


def _documented(op: Any, name: str, what: str, at: float, value: float) -> Any:
    op.__name__ = op.__qualname__ = name
    op.__doc__ = (
        f"{what}\n\nExamples\n--------\n>>> import numbagrad as ng\n"
        f">>> round(ng.{name}({at}).item(), 6)\n{round(value, 6)}\n"
    )
    return op


sec = _inverse_of("sec", trigonometric.cos, "Secant, 1 / cos(x).", 0.5)
csc = _inverse_of("csc", trigonometric.sin, "Cosecant, 1 / sin(x).", 0.5)
cot = _inverse_of("cot", trigonometric.tan, "Cotangent, 1 / tan(x).", 0.5)
sech = _inverse_of("sech", trigonometric.cosh, "Hyperbolic secant, 1 / cosh(x).", 0.5)
csch = _inverse_of("csch", trigonometric.sinh, "Hyperbolic cosecant, 1 / sinh(x).", 0.5)
coth = _inverse_of("coth", trigonometric.tanh, "Hyperbolic cotangent, 1 / tanh(x).", 0.5)
arcsec = _of_inverse("arcsec", trigonometric.arccos, "Inverse secant, for abs(x) >= 1.", 2.0)
arccsc = _of_inverse("arccsc", trigonometric.arcsin, "Inverse cosecant, for abs(x) >= 1.", 2.0)
arccsch = _of_inverse("arccsch", trigonometric.arcsinh, "Inverse hyperbolic cosecant.", 2.0)
arccoth = _of_inverse("arccoth", trigonometric.arctanh, "Inverse hyperbolic cotangent, for abs(x) >= 1.", 2.0)


def arccot(x: Any) -> Tensor:
    """Inverse cotangent: pi/2 at 0, odd elsewhere.

    Examples
    --------
    >>> import numbagrad as ng
    >>> round(ng.arccot(2.0).item(), 6)
    0.463648
    """
    x = as_tensor(x, "x")
    # arctan(1/x) without its division: on each side a constant minus arctan(x).
    return where(x._data < 0, -math.pi / 2, math.pi / 2) - trigonometric.arctan(x)


__all__ = [
    "angle",
    "arccot",
    "arccoth",
    "arccsc",
    "arccsch",
    "arcsec",
    "cot",
    "coth",
    "csc",
    "csch",
    "divmod",
    "fix",
    "float_power",
    "frexp",
    "i0",
    "ldexp",
    "modf",
    "nan_to_num",
    "nextafter",
    "real_if_close",
    "sec",
    "sech",
]
