"""Bodies of vector mathematics: trigonometric functions and their inverses."""

from __future__ import annotations

from numbagrad.jit.intrinsics import bits, fabs, fcopysign, fma, from_bits, iadd, iand, ixor, poly, shl
from numbagrad.jit.vmath_rare import beyond_cos, beyond_fmod, beyond_sin, beyond_tan
from numbagrad.jit.vmath_tables import COS, SIN, TAN
from numbagrad.jit.vmath_words import IS_FLOAT32, WHOLE, Bits, Both, Real, vector

TWO_OVER_PI = 0.6366197723675814
# π/2 in parts so short that their products with n are exact (Cody and Waite).
PI_HALF_0 = Both(1.5703125, 0.0)
PI_HALF_1 = Both(0.0004837512969970703, 1.5707963267341256)
PI_HALF_2 = Both(7.549533620476723e-08, 6.077100506303966e-11)
PI_HALF_3 = Both(2.563344151594519e-12, 2.0222662487959506e-21)
WIDTH = Both(32, 64)
SIGN = Both(-(1 << 31), -(1 << 63))


def _split_angle(x: Real) -> tuple[Bits, Real, Real]:
    """n as last bits, and r = x - n π/2 with what rounding took from it."""
    shifted = fma(x, TWO_OVER_PI, WHOLE)
    n = shifted - WHOLE
    if IS_FLOAT32:
        x = fma(n, -PI_HALF_0, x)
    exact = fma(n, -PI_HALF_1, x)
    near = fma(n, -PI_HALF_2, exact)
    low = fma(n, -PI_HALF_3, fma(n, -PI_HALF_2, exact - near))
    r = near + low
    return bits(shifted), r, (near - r) + low


def _wave(n: Bits, r: Real, low: Real) -> Real:
    """sin(n π/2 + r + low)"""
    z = r * r
    sine = r + fma(r * z, poly(z, SIN), low)
    half = 0.5 * z
    near = 1.0 - half
    cosine = near + fma(z * z, poly(z, COS), ((1.0 - near) - half) - r * low)
    y = cosine if iand(n, 1) != 0 else sine
    return from_bits(ixor(bits(y), iand(shl(n, WIDTH - 2), SIGN)))


@vector
def sin(x: Real) -> Real:
    n, r, low = _split_angle(x)
    return beyond_sin(x, x, _wave(n, r, low))


@vector
def cos(x: Real) -> Real:
    n, r, low = _split_angle(x)
    return beyond_cos(x, x, _wave(iadd(n, 1), r, low))


@vector
def tan(x: Real) -> Real:
    n, r, low = _split_angle(x)
    z = r * r
    bend = fma(r * z, poly(z, TAN), fma(z, low, low))
    t = r + bend
    odd = iand(n, 1) != 0
    y = (-1.0 if odd else t) / (t if odd else 1.0)
    if IS_FLOAT32:
        # What rounding took from t, where t was divided by; elsewhere it is too small to count.
        y = fma(((r - t) + bend) * y, y, y)
    return beyond_tan(x, x, y)
