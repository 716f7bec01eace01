"""Bodies of vector mathematics: whole numbers, exponentials, logarithms, hyperbolic functions.

Read `vmath` for the language. Every function is exact in its special values because nan goes through arithmetic,
infinities are put in by choice or arise by overflow, and the sign of zero is carried by the first term or by copysign.
"""

from __future__ import annotations

from numbagrad.jit.intrinsics import bits, down, fabs, fcopysign, fma, from_bits, fsqrt, iadd, iand, ior, isub
from numbagrad.jit.intrinsics import nearest, poly, shl, shr, toward_zero, up
from numbagrad.jit.vmath_tables import ERF, EXP, LOG, LOG_ERFC, LOG_ERFC_LONG, LOG_QUOTIENT, TANH
from numbagrad.jit.vmath_words import INF, IS_FLOAT32, MANTISSA, NAN, ONE_BITS, SMALLEST_NORMAL, Bits, Both, Real, vector

# ----- Machine operations -----


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


# ----- Exponentials -----
# x = n ln2 + r with whole n and |r| <= ln2 / 2 (Cody and Waite): n ln2 is taken away in two parts, the first so short that
# its product with n is exact.

LOG2_E = 1.4426950408889634
LN2_HIGH = Both(0.693145751953125, 0.69314718055966295651160180568695068359375)
LN2_LOW = Both(1.42860682030941723212e-6, 2.8235290563031577122588448175013e-13)
# Added and taken away, it rounds to a whole number, which then stands in its last bits.
WHOLE = Both(1.5 * 2.0**23, 1.5 * 2.0**52)
EXP_LOWEST = Both(-104.0, -746.0)
EXP_HIGHEST = Both(89.0, 710.0)
EXPM1_LOWEST = Both(-20.0, -40.0)
# Sign and exponent.
FIELD_SIGNED = Both(-(1 << 23), -(1 << 52))


def _split_exponent(x: Real) -> tuple[Real, Real]:
    """n, as the last bits of a float, and r."""
    shifted = fma(x, LOG2_E, WHOLE)
    n = shifted - WHOLE
    return shifted, fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))


def _times_two_to(y: Real, shifted: Real) -> Real:
    """y 2ⁿ, rounded once, in two steps because 2ⁿ may lie outside of the normal numbers."""
    field = shl(bits(shifted), MANTISSA)
    half = iand(shl(bits(shifted), MANTISSA - 1), FIELD_SIGNED)
    return y * from_bits(iadd(half, ONE_BITS)) * from_bits(iadd(isub(field, half), ONE_BITS))


def _exp_of(shifted: Real, r: Real) -> Real:
    return _times_two_to(fma(r * r, poly(r, EXP), r) + 1.0, shifted)


@vector
def exp(x: Real) -> Real:
    x = EXP_LOWEST if x < EXP_LOWEST else x
    x = EXP_HIGHEST if x > EXP_HIGHEST else x
    shifted, r = _split_exponent(x)
    return _exp_of(shifted, r)


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
FIELD = Both(0xFF << 23, 0x7FF << 52)
FRACTION = Both((1 << 23) - 1, (1 << 52) - 1)
SCALE = Both(2.0**25, 2.0**54)
UNIT_BITS = Both((127 + 23) << 23, (1023 + 52) << 52)
"""The bits of 2^MANTISSA, whose last bits count."""
UNIT_BIAS = Both(2.0**23 + 127, 2.0**52 + 1023)
UNIT_BIAS_SCALED = Both(2.0**23 + 127 + 25, 2.0**52 + 1023 + 54)


def _split_power(x: Real, bias: Real) -> tuple[Real, Real, Bits]:
    """f and n of a normal x, and a number whose exponent field is that of 2ⁿ."""
    moved = iadd(bits(x), ONE_BITS - SQRT_HALF_BITS)
    f = from_bits(iadd(iand(moved, FRACTION), SQRT_HALF_BITS)) - 1.0
    n = from_bits(ior(shr(moved, MANTISSA), UNIT_BITS)) - bias
    return f, n, moved


def _split_any_power(x: Real) -> tuple[Real, Real]:
    """f and n of any positive x."""
    tiny = x < SMALLEST_NORMAL
    f, n, _ = _split_power(x * SCALE if tiny else x, UNIT_BIAS_SCALED if tiny else UNIT_BIAS)
    return f, n


def _log_tail(f: Real) -> tuple[Real, Real]:
    """f²/2, and what is left of log(1 + f) - f + f²/2."""
    square = 0.5 * f * f
    if IS_FLOAT32:
        return square, f * f * f * poly(f, LOG)
    # Tang: in s = f / (2 + f) the series is that of atanh.
    s = f / (f + 2.0)
    z = s * s
    return square, s * (square + z * poly(z, LOG_QUOTIENT))


def _log_of(f: Real, n: Real) -> Real:
    square, tail = _log_tail(f)
    return fma(n, LN2_HIGH, f - (square - fma(n, LN2_LOW, tail)))


def _log_limits(y: Real, x: Real) -> Real:
    """y, but what log gives where x is not a positive number."""
    y = y if x < INF else INF
    return y if x > 0.0 else (-INF if x == 0.0 else NAN)


@vector
def log(x: Real) -> Real:
    f, n = _split_any_power(x)
    return _log_limits(_log_of(f, n), x)


TWICE_BIAS_FIELD = Both(255 << 23, 2047 << 52)


@vector
def log1p(x: Real) -> Real:
    u = 1.0 + x
    big = x > 1.0
    # u + lost is exactly 1 + x (Dekker).
    lost = (1.0 if big else x) - (u - (x if big else 1.0))
    f, n, moved = _split_power(u, UNIT_BIAS)
    f = f + lost * 0.5 * from_bits(isub(TWICE_BIAS_FIELD, iand(moved, FIELD)))
    return fcopysign(_log_limits(_log_of(f, n), u), x)


# ----- Hyperbolic and logistic functions -----


@vector
def tanh(x: Real) -> Real:
    a = fabs(x)
    z = a * a
    small = fma(a * z, poly(z, TANH), a)
    large = 1.0 - 2.0 / (exp(a + a) + 1.0)
    return fcopysign(small if a < 0.625 else large, x)


@vector
def sigmoid(x: Real) -> Real:
    e = exp(-fabs(x))
    return (e if x < 0.0 else 1.0) / (1.0 + e)


@vector
def softplus(x: Real) -> Real:
    rest = log1p(exp(-fabs(x)))
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
