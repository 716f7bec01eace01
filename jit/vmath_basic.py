"""Bodies of vector mathematics: whole numbers, exponentials, logarithms, hyperbolic functions.

Read `vmath` for the language. Every function is exact in its special values because nan goes through arithmetic,
infinities are put in by choice or arise by overflow, and the sign of zero is carried by the first term or by copysign.
"""

from __future__ import annotations

from numbagrad.jit.intrinsics import bits, down, fabs, fcopysign, fma, from_bits, fsqrt, iadd, iand, ior, isub
from numbagrad.jit.intrinsics import nearest, poly, shl, shr, to_float, toward_zero, up
from numbagrad.jit.vmath_tables import ERF, EXP, LOG, LOG_ERFC, LOG_ERFC_LONG, LOG_QUOTIENT, TANH
from numbagrad.jit.vmath_words import INF, IS_FLOAT32, MANTISSA, NAN, ONE_BITS, SMALLEST_NORMAL, WHOLE, Bits, Both, Real, vector

# ----- Machine operations -----


@vector
def absolute(x: Real) -> Real:
    return fabs(x)


@vector
def sqrt(x: Real) -> Real:
    return fsqrt(x)


@vector
def floor(x: Real) -> Real:
    return down(x)


@vector
def ceil(x: Real) -> Real:
    return up(x)


@vector
def rint(x: Real) -> Real:
    return nearest(x)


@vector
def trunc(x: Real) -> Real:
    return toward_zero(x)


@vector
def copysign(x: Real, y: Real) -> Real:
    return fcopysign(x, y)


EXPONENT = Both(-(1 << 23), -(1 << 52))
"""Sign and exponent."""

# ----- Exponentials -----
# x = n ln2 + r with whole n and |r| <= ln2 / 2 (Cody and Waite): n ln2 is taken away in two parts, the first so short that
# its product with n is exact.

LOG2_E = 1.4426950408889634
LN2_HIGH = Both(0.693145751953125, 0.69314718055966295651160180568695068359375)
LN2_LOW = Both(1.42860682030941723212e-6, 2.8235290563031577122588448175013e-13)
EXP_LOWEST = Both(-104.0, -746.0)
EXP_HIGHEST = Both(89.0, 710.0)
EXPM1_LOWEST = Both(-20.0, -40.0)


def _split_exponent(x: Real) -> tuple[Real, Real]:
    """n, as the last bits of a float, and r."""
    shifted = fma(x, LOG2_E, WHOLE)
    n = shifted - WHOLE
    return shifted, fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))


def _times_two_to(y: Real, shifted: Real) -> Real:
    """y 2ⁿ, rounded once, in two steps because 2ⁿ may lie outside of the normal numbers."""
    field = shl(bits(shifted), MANTISSA)
    half = iand(shl(bits(shifted), MANTISSA - 1), EXPONENT)
    return y * from_bits(iadd(half, ONE_BITS)) * from_bits(iadd(isub(field, half), ONE_BITS))


@vector
def exp(x: Real) -> Real:
    x = EXP_LOWEST if x < EXP_LOWEST else x
    x = EXP_HIGHEST if x > EXP_HIGHEST else x
    shifted, r = _split_exponent(x)
    return _times_two_to(fma(r * r, poly(r, EXP), r) + 1.0, shifted)


def _exp_normal(x: Real) -> Real:
    """exp where the result is a normal number."""
    shifted, r = _split_exponent(x)
    y = fma(r * r, poly(r, EXP), r) + 1.0
    return y * from_bits(iadd(shl(bits(shifted), MANTISSA), ONE_BITS))


def _exp_pair(x: Real) -> tuple[Real, Real]:
    """exp of x <= 0, and what rounding took from it."""
    x = EXP_LOWEST if x < EXP_LOWEST else x
    shifted, r = _split_exponent(x)
    n = shifted - WHOLE
    lost = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x) - r)
    one_r = 1.0 + r
    rest = fma(r * r, poly(r, EXP), lost) + (r - (one_r - 1.0))
    y = one_r + rest
    return _times_two_to(y, shifted), _times_two_to((one_r - y) + rest, shifted)


@vector
def expm1(x: Real) -> Real:
    clamped = EXPM1_LOWEST if x < EXPM1_LOWEST else x
    shifted, r = _split_exponent(EXP_HIGHEST if clamped > EXP_HIGHEST else clamped)
    # Half of 2ⁿ is finite where the result is.
    power = from_bits(iadd(shl(bits(shifted - 1.0), MANTISSA), ONE_BITS))
    y = fma(fma(r * r, poly(r, EXP), r), power, power - 0.5) * 2.0
    return fcopysign(y, x)


# ----- Logarithms -----
# x = 2ⁿ (1 + f) with 1 + f between √½ and √2.

SQRT_HALF_BITS = Both(0x3F3504F3, 0x3FE6A09E667F3BCD)
SCALE = Both(2.0**25, 2.0**54)
SCALE_POWER = Both(25.0, 54.0)
# n is kept in units that spare a multiplication: its float32 comes from the bits of the exponent where they stand.
UNIT = Both(2.0**-23, 1.0)


def _split_power(x: Real) -> tuple[Real, Real, Bits]:
    """f, n and the bits of n in the place of the exponent, for a normal x."""
    field = iand(isub(bits(x), SQRT_HALF_BITS), EXPONENT)
    f = from_bits(isub(bits(x), field)) - 1.0
    if IS_FLOAT32:
        return f, to_float(field), field
    # Few processors convert int64 to float64, so n becomes the last bits of 2^52.
    return f, from_bits(ior(shr(iadd(field, ONE_BITS), MANTISSA), TWO_TO_52_BITS)) - (2.0**52 + 1023), field


TWO_TO_52_BITS = (1023 + 52) << 52


def _split_log(x: Real) -> tuple[Real, Real]:
    """f and n of any x; n is infinite or nan where the logarithm is."""
    tiny = x < SMALLEST_NORMAL
    f, n, _ = _split_power(x * SCALE if tiny else x)
    odd = SCALE_POWER / UNIT if x > 0.0 else (INF if x == 0.0 else NAN)
    return f, (n if x < INF else x) - (odd if tiny else 0.0)


def _log_bend(f: Real, start: Real) -> Real:
    """start + log(1 + f) - f"""
    if IS_FLOAT32:
        return fma(f * f, poly(f, LOG), start)
    # Tang: in s = f / (2 + f) the series is that of atanh.
    s = f / (f + 2.0)
    z = s * s
    return fma(s, fma(z, poly(z, LOG_QUOTIENT), -f), start)


@vector
def log(x: Real) -> Real:
    f, n = _split_log(x)
    return fma(n, LN2_HIGH * UNIT, _log_bend(f, fma(n, LN2_LOW * UNIT, f)))


TWO_BITS = Both(128 << 23, 1024 << 52)


def _log_of_sum(u: Real, lost: Real) -> Real:
    """log(u + lost) for a normal u and a lost that is less than its last place."""
    start, n, field = _split_power(u)
    # Twice and half, because 2⁻ⁿ may be too small for a normal number.
    scaled = lost * from_bits(isub(TWO_BITS, field)) * 0.5
    f = start + scaled
    rest = fma(n, LN2_LOW * UNIT, (start - f) + scaled)
    return fma(n, LN2_HIGH * UNIT, f + _log_bend(f, rest))


@vector
def log1p(x: Real) -> Real:
    u = 1.0 + x
    big = x > 1.0
    # u + lost is exactly 1 + x (Dekker).
    lost = (1.0 if big else x) - (u - (x if big else 1.0))
    y = _log_of_sum(u, lost) if u < INF else u
    return fcopysign(y if u > 0.0 else (-INF if u == 0.0 else NAN), x)


# ----- Hyperbolic and logistic functions -----


TANH_MAX = Both(20.0, 40.0)


@vector
def tanh(x: Real) -> Real:
    a = fabs(x)
    z = a * a
    small = fma(a * z, poly(z, TANH), a)
    twice = a + a
    large = 1.0 - 2.0 / (_exp_normal(TANH_MAX if twice > TANH_MAX else twice) + 1.0)
    return fcopysign(small if a < 0.625 else large, x)


@vector
def sigmoid(x: Real) -> Real:
    e, e_lost = _exp_pair(-fabs(x))
    bottom = 1.0 + e
    bottom_lost = (e - (bottom - 1.0)) + e_lost
    negative = x < 0.0
    y = (e if negative else 1.0) / bottom
    # What rounding took from both, over the bottom: that is 1 - y or y, nearly enough.
    return fma((e_lost if negative else 0.0) - y * bottom_lost, (1.0 - y) if negative else y, y)


@vector
def softplus(x: Real) -> Real:
    e, e_lost = _exp_pair(-fabs(x))
    u = 1.0 + e
    rest = _log_of_sum(u, (e - (u - 1.0)) + e_lost)
    return (x if x > 0.0 else 0.0) + rest


@vector
def log_sigmoid(x: Real) -> Real:
    return -softplus(-x)


# ----- The error function -----

ERF_MAX = Both(4.0, 6.0)


@vector
def erf(x: Real) -> Real:
    a = fabs(x)
    z = a * a
    small = fma(a, poly(z, ERF), a)
    top = ERF_MAX if a > ERF_MAX else a
    large = 1.0 - exp(poly(top, LOG_ERFC if IS_FLOAT32 else LOG_ERFC_LONG))
    return fcopysign(small if a < 0.9 else large, x)
