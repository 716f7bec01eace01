"""Bodies of vector mathematics: trigonometric functions and their inverses."""

from __future__ import annotations

from numbagrad.jit.intrinsics import (
    bits,
    either,
    fabs,
    fcopysign,
    fma,
    from_bits,
    fsqrt,
    iadd,
    iand,
    ior,
    ixor,
    lost,
    nearest,
    poly,
    shl,
    shr,
)
from numbagrad.jit.vmath_rare import beyond_cos, beyond_fmod, beyond_sin, beyond_tan
from numbagrad.jit.vmath_tables import ARCSIN, ARCTAN, CBRT, COS, SIN, SINC, TAN
from numbagrad.jit.vmath_words import INF, IS_FLOAT32, SMALLEST_NORMAL, WHOLE, Bits, Both, Real, vector

TWO_OVER_PI = 0.6366197723675814
# π/2 in parts so short that their products with n are exact (Cody and Waite).
PI_HALF_0 = Both(1.5703125, 0.0)
PI_HALF_1 = Both(0.0004837512969970703, 1.5707963267341256)
PI_HALF_2 = Both(7.549533620476723e-08, 6.077100506303966e-11)
PI_HALF_3 = Both(2.563344151594519e-12, 2.0222662487959506e-21)
WIDTH = Both(32, 64)
SIGN = Both(-(1 << 31), -(1 << 63))


def _split_angle(x: Real) -> tuple[Bits, Real, Real]:
    """n as last bits, and x - n π/2 = r - lost."""
    shifted = fma(x, TWO_OVER_PI, WHOLE)
    n = shifted - WHOLE
    if IS_FLOAT32:
        x = fma(n, -PI_HALF_0, x)
    exact = fma(n, -PI_HALF_1, x)
    near = fma(n, -PI_HALF_2, exact)
    rest = fma(n, PI_HALF_3, fma(n, PI_HALF_2, near - exact))
    r = near - rest
    return bits(shifted), r, rest - (near - r)


def _wave(n: Bits, r: Real, lost: Real) -> Real:
    """sin(n π/2 + r - lost)"""
    z = r * r
    # Differences, not sums, keep the sign of zero.
    sine = r - fma(r * z, poly(z, SIN), lost)
    half = 0.5 * z
    near = 1.0 - half
    cosine = near + fma(z * z, poly(z, COS), fma(r, lost, (1.0 - near) - half))
    y = cosine if iand(n, 1) != 0 else sine
    return from_bits(ixor(bits(y), iand(shl(n, WIDTH - 2), SIGN)))


@vector
def sin(x: Real) -> Real:
    n, r, lost = _split_angle(x)
    return beyond_sin(x, x, _wave(n, r, lost))


@vector
def cos(x: Real) -> Real:
    n, r, lost = _split_angle(x)
    return beyond_cos(x, x, _wave(iadd(n, 1), r, lost))


@vector
def tan(x: Real) -> Real:
    n, r, lost = _split_angle(x)
    z = r * r
    bend = fma(r * z, poly(z, TAN), fma(z, lost, lost))
    t = r - bend
    odd = iand(n, 1) != 0
    y = (-1.0 if odd else t) / (t if odd else 1.0)
    if IS_FLOAT32:
        # What rounding took from t and from the quotient, where t was divided by.
        y = y + y * (fma(y, t, 1.0) + y * ((r - t) - bend)) if odd else y
    return beyond_tan(x, x, y)


# ----- Inverse functions -----

PI_HALF_HIGH = Both(1.57079637050628662109375, 1.57079632679489655799898173427209258)
PI_HALF_LOW = Both(-4.37113900018624283e-8, 6.123233995736766035868820147292e-17)


def _arcsin_parts(x: Real) -> tuple[Bits, Real, Real]:
    """Whether |x| > ½, and in two parts arcsin|x|, or if so arccos|x| = 2 arcsin √((1 - |x|) / 2)."""
    a = fabs(x)
    big = a > 0.5
    z = 0.5 - 0.5 * a if big else a * a
    s = fsqrt(z)
    s = s + s if big else a
    return big, s, s * z * poly(z, ARCSIN)


@vector
def arcsin(x: Real) -> Real:
    big, s, rest = _arcsin_parts(x)
    near = PI_HALF_HIGH - s
    other = near + (((PI_HALF_HIGH - near) - s) - (rest - PI_HALF_LOW))
    return fcopysign(other if big else s + rest, x)


@vector
def arccos(x: Real) -> Real:
    big, s, rest = _arcsin_parts(x)
    turn = x if big else -x
    base = (2.0 if x < 0.0 else 0.0) if big else 1.0
    return fma(base, PI_HALF_HIGH, fcopysign(s, turn) + fma(base, PI_HALF_LOW, fcopysign(rest, turn)))


def _arctan_of(t: Real, base: Real) -> Real:
    """arctan(t) + base π/2 for |t| <= ½ and a base that is a multiple of ½."""
    z = t * t
    rest = fma(t * z, poly(z, ARCTAN), base * PI_HALF_LOW)
    return fma(base, PI_HALF_HIGH, t + rest)


@vector
def arctan(x: Real) -> Real:
    a = fabs(x)
    steep = a > 2.0
    middle = a > 0.5
    top = -1.0 if steep else (a - 1.0 if middle else a)
    bottom = a if steep else (a + 1.0 if middle else 1.0)
    base = 1.0 if steep else (0.5 if middle else 0.0)
    return fcopysign(_arctan_of(top / bottom, base), x)


ENORMOUS = Both(2.0**126, 2.0**1022)


@vector
def arctan2(y: Real, x: Real) -> Real:
    a = fabs(x)
    b = fabs(y)
    flat = b > a
    long, short = b if flat else a, a if flat else b
    # So that their sum is finite; infinity over infinity is 1, anything else over infinity 0.
    short = short * (0.25 if long > ENORMOUS else 1.0)
    short = 1.0 if short == INF else (short * 0.0 if long == INF else short)
    long = 1.0 if long == INF else long * (0.25 if long > ENORMOUS else 1.0)
    # Twice a subnormal number is exact, half of it is not.
    middle = short + short > long
    top = short - long if middle else short
    bottom = short + long if middle else long
    t = top / (1.0 if bottom == 0.0 else bottom)
    back = bits(x) < 0
    base = 0.5 if middle else 0.0
    base = 1.0 - base if flat else base
    base = 2.0 - base if back else base
    t = -t if flat else t
    return fcopysign(_arctan_of(-t if back else t, base), y)


@vector
def hypot(x: Real, y: Real) -> Real:
    a = fabs(x)
    b = fabs(y)
    size = a if a > b else b
    # Scaled so that squares neither overflow nor become subnormal.
    small, large = size < SMALL, size > LARGE
    scale = DOWN if large else (UP if small else 1.0)
    back = 1.0 / DOWN if large else (1.0 / UP if small else 1.0)
    p = a * scale
    q = b * scale
    root = fsqrt(fma(p, p, q * q)) * back
    return INF if either(a == INF, b == INF) else root


SMALL = Both(2.0**-60, 2.0**-500)
UP = Both(2.0**90, 2.0**600)
LARGE = Both(2.0**60, 2.0**500)
DOWN = Both(2.0**-70, 2.0**-600)


@vector
def sinc(x: Real) -> Real:
    # sin(πx) = ± sin(πf), with the sign of (-1)ⁿ.
    n = nearest(x)
    f = x - n
    z = f * f
    turn = n - 2.0 * nearest(0.5 * n)
    # f / x and 1 + z (…), and what rounding took from both.
    alone = f == x
    slope = 1.0 if alone else f / x
    slope_low = 0.0 if alone else -lost(slope, x, f) / x
    bend = z * poly(z, SINC)
    # Near |f| = ½, where that counts, bend falls 1.3 times as fast as z grows.
    bend_low = -1.3 * lost(f, f, z)
    wave = 1.0 + bend
    rest = fma(slope, ((1.0 - wave) + bend) + bend_low, slope_low * wave)
    y = slope * wave
    return (1.0 - 2.0 * fabs(turn)) * (y + (rest + lost(slope, wave, y)))


@vector
def cbrt(x: Real) -> Real:
    a = fabs(x)
    tiny = a < SMALLEST_NORMAL
    a = a * CUBE if tiny else a
    # 1 / ∛a to 3 %: in the bits of a float stands nearly its logarithm.
    logarithm = from_bits(ior(shr(bits(a), LOG_SHIFT), LOG_UNIT_BITS))
    t = from_bits(shl(bits(fma(logarithm, -1.0 / 3.0, CBRT_START)), LOG_SHIFT))
    h = fma(-a * t, t * t, 1.0)
    t = fma(t * h, poly(h, CBRT), t)
    # a t² (a t³)^(-2/3) = ∛a, whatever rounding did to the first factor.
    c = a * (t * t)
    c = fma(c * fma(-c, t, 1.0), 2.0 / 3.0, c)
    c = c if a < INF else a
    return fcopysign(c * CUBE_ROOT if tiny else c, x)


CUBE = Both(2.0**24, 2.0**54)
CUBE_ROOT = Both(2.0**-8, 2.0**-18)
LOG_SHIFT = Both(8, 12)
LOG_UNIT_BITS = Both((127 + 23) << 23, (1023 + 52) << 52)
CBRT_START = Both(16731296.453973332, 7504458574666204.0)
