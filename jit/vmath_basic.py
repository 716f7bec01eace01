"""Bodies of vector mathematics: whole numbers, exponentials, logarithms, hyperbolic functions.

Read `vmath` for the language. Every function is exact in its special values because nan goes through arithmetic,
infinities are put in by choice or arise by overflow, and the sign of zero is carried by the first term or by copysign.
"""

from __future__ import annotations

from numbagrad.jit.intrinsics import (
    bits,
    both,
    down,
    fabs,
    fcopysign,
    fma,
    from_bits,
    fsqrt,
    iadd,
    iand,
    ior,
    isub,
    lost,
    nearest,
    poly,
    shl,
    shr,
    to_float,
    toward_zero,
    up,
)
from numbagrad.jit.vmath_rare import beyond_fmod
from numbagrad.jit.vmath_tables import (
    ARCTANH,
    COSH,
    ERF,
    EXP,
    EXP2,
    LOG,
    LOG10,
    LOG2,
    LOG_ERFC,
    LOG_ERFC_LONG,
    LOG_NARROW,
    LOG_QUOTIENT,
    SINH,
    TANH,
)
from numbagrad.jit.vmath_words import (
    INF,
    IS_FLOAT32,
    MANTISSA,
    NAN,
    ONE_BITS,
    SMALLEST_NORMAL,
    WHOLE,
    Bits,
    Both,
    Real,
    vector,
)

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
    return shifted, _rest_of_split(x, shifted)


def _rest_of_split(x: Real, shifted: Real) -> Real:
    n = shifted - WHOLE
    return fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))


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


def _exp_pair(x: Real, low: Real) -> tuple[Real, Real]:
    """exp(x + low) of x <= 0, and what rounding took from it."""
    low = 0.0 if x < EXP_LOWEST else low
    x = EXP_LOWEST if x < EXP_LOWEST else x
    shifted, r = _split_exponent(x)
    n = shifted - WHOLE
    lost = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x) - r) + low
    one_r = 1.0 + r
    bend = r * r * poly(r, EXP)
    rest = fma(lost, one_r + bend, bend) + (r - (one_r - 1.0))
    y = one_r + rest
    return _times_two_to(y, shifted), _times_two_to((one_r - y) + rest, shifted)


EXP2_LOWEST = Both(-151.0, -1076.0)
EXP2_HIGHEST = Both(129.0, 1025.0)


@vector
def exp2(x: Real) -> Real:
    x = EXP2_LOWEST if x < EXP2_LOWEST else x
    x = EXP2_HIGHEST if x > EXP2_HIGHEST else x
    shifted = x + WHOLE
    r = x - (shifted - WHOLE)
    return _times_two_to(fma(r, poly(r, EXP2), 1.0), shifted)


@vector
def expm1(x: Real) -> Real:
    clamped = EXPM1_LOWEST if x < EXPM1_LOWEST else x
    shifted, r = _split_exponent(EXP_HIGHEST if clamped > EXP_HIGHEST else clamped)
    # Half of 2ⁿ is finite where the result is.
    power = from_bits(iadd(shl(bits(shifted - 1.0), MANTISSA), ONE_BITS))
    y = fma(fma(r * r, poly(r, EXP), r), power, power - 0.5) * 2.0
    # Half of the smallest numbers is not exact.
    return x if fabs(x) < SMALLEST_NORMAL else fcopysign(y, x)


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
    return f, _power(field), field


def _power(field: Bits) -> Real:
    """n, which stands in the place of the exponent."""
    if IS_FLOAT32:
        return to_float(field)
    # Few processors convert int64 to float64, so n becomes the last bits of 2^52.
    return from_bits(ior(shr(iadd(field, ONE_BITS), MANTISSA), TWO_TO_52_BITS)) - (2.0**52 + 1023)


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
    """log(u + lost) for a normal u and a lost that is hardly more than its last place."""
    f, n, field = _split_power(u)
    return _log_of_parts(f, n, field, lost)


def _log_of_parts(start: Real, n: Real, field: Bits, lost: Real) -> Real:
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


def _log_in_base(x: Real, factor: Real, factor_low: Real, unit: Real, unit_low: Real) -> Real:
    """log(x) times a factor; n counts in whole units, the first part of which gives an exact product with n."""
    f, n = _split_log(x)
    rest = fma(n, unit_low, fma(f, factor_low, _log_bend(f, 0.0) * factor))
    y = fma(n, unit, fma(f, factor, rest))
    # Both parts of an infinite n, one of them times zero or of the other sign, would make nan.
    return y if n - n == 0.0 else n


@vector
def log2(x: Real) -> Real:
    if IS_FLOAT32:
        f, n = _split_log(x)
        return fma(n, UNIT, fma(f, poly(f, LOG2), f))
    return _log_in_base(x, LOG2_E, LOG2_E_LOW, 1.0, 0.0)


@vector
def log10(x: Real) -> Real:
    if IS_FLOAT32:
        f, n = _split_log(x)
        rest = fma(f, poly(f, LOG10), n * (UNIT * LOG10_2_LOW))
        # 7/16 in two parts, whose products are exact.
        return fma(n, UNIT * LOG10_2_HIGH, fma(f, 0.5, fma(f, -0.0625, rest)))
    return _log_in_base(x, LOG10_E, LOG10_E_LOW, LOG10_2_HIGH, LOG10_2_LOW)


LOG2_E_LOW = 2.0355273740931033e-17
LOG10_E = 0.4342944819032518
LOG10_E_LOW = 1.098319650216765e-17
# log10(2) in two parts, the first so short that its product with n is exact.
LOG10_2_HIGH = Both(0.301025390625, 0.30102999566406652)
LOG10_2_LOW = Both(4.605038981195214e-06, -8.532344317057107e-14)


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


SINH_LINEAR = Both(1e-4, 1e-9)
# Above, 2 sinh overflows, and below 2ⁿ/4 is still finite.
SINH_MAX = Both(89.6, 710.6)


def _sinh_cosh(x: Real, sign: Real) -> Real:
    """sinh for sign -1 and cosh for 1: (2ⁿ ± 2⁻ⁿ) cosh(r) + (2ⁿ ∓ 2⁻ⁿ) sinh(r), halved, where |x| = n ln2 + r."""
    a = fabs(x)
    a = SINH_MAX if a > SINH_MAX else a
    # With n = 0 up to a = ½ the terms of sinh do not cancel where n = 1.
    shifted = fma(a, LOG2_E, WHOLE) if sign > 0.0 else fma(a, LOG2_E, -0.22) + WHOLE
    r = _rest_of_split(a, shifted)
    z = r * r
    odd, even = r * z * poly(z, SINH), z * poly(z, COSH)
    n = shl(bits(shifted), MANTISSA)
    rise = from_bits(iadd(n, QUARTER_BITS))
    # Where 2⁻ⁿ is too small for these bits, it is too small to count.
    fall = (from_bits(isub(QUARTER_BITS, n)) if a < 40.0 else 0.0) * sign
    first, second = rise + fall, rise - fall
    y = first + fma(second, r, fma(first, even, fma(second, odd, (rise - first) + fall)))
    return y + y


QUARTER_BITS = Both(125 << 23, 1021 << 52)


@vector
def sinh(x: Real) -> Real:
    # A quarter of a subnormal number would be rounded.
    return x if fabs(x) < SINH_LINEAR else fcopysign(_sinh_cosh(x, -1.0), x)


@vector
def cosh(x: Real) -> Real:
    return _sinh_cosh(x, 1.0)


def _log1p_of_sum(w: Real, low: Real, more: Real) -> Real:
    """log(1 + w + low) + more ln2, for `more` in the units of n."""
    u = 1.0 + w
    part = u - 1.0
    # Knuth's sum: u + lost is exactly 1 + w.
    lost = (1.0 - (u - part)) + (w - part)
    f, n, field = _split_power(u)
    return _log_of_parts(f, n + more, field, lost + low)


@vector
def arcsinh(x: Real) -> Real:
    a = fabs(x)
    huge = a > HUGE
    v = a * a / (1.0 + fsqrt(fma(a, a, 1.0)))
    w = a + v
    y = _log1p_of_sum(a if huge else w, 0.0 if huge else (a - w) + v, 1.0 / UNIT if huge else 0.0)
    return fcopysign(y if a < INF else a, x)


# Beyond, 1 is too small to count besides x².
HUGE = Both(2.0**30, 2.0**60)


@vector
def arccosh(x: Real) -> Real:
    huge = x > HUGE
    t = x - 1.0
    square = fma(t, t, t + t)
    s = fsqrt(square)
    # What rounding took from the square and from its root.
    s_low = (fma(t, t, (t + t) - square) - lost(s, s, square)) / (s + s + SMALLEST_NORMAL)
    w = t + s
    y = _log1p_of_sum(t if huge else w, 0.0 if huge else ((s - w) + t) + s_low, 1.0 / UNIT if huge else 0.0)
    y = y if x < INF else x
    return y if x >= 1.0 else NAN


@vector
def arctanh(x: Real) -> Real:
    # (1 + a) / (1 - a) = 2ⁿ (1 + s) / (1 - s), so that arctanh(a) = n ln2 / 2 + arctanh(s) with a small s.
    a = fabs(x)
    u = 1.0 + a
    v = 1.0 - a
    field = iand(iadd(isub(bits(u), bits(v)), LATE), EXPONENT)
    power = from_bits(iadd(field, ONE_BITS))
    top = (u - v * power) + ((a - (u - 1.0)) - ((1.0 - v) - a) * power)
    s = top / (u + v * power)
    z = s * s
    n = _power(field)
    y = fma(n, LN2_HIGH * UNIT * 0.5, s + fma(s * z, poly(z, ARCTANH), n * (LN2_LOW * UNIT * 0.5)))
    y = y if a < 1.0 else (INF if a == 1.0 else NAN)
    return fcopysign(y, x)


# With n = 1 from a = tanh(1/4) on, below which the result has a finer last place than n ln2 / 2.
LATE = Both((1 << 23) * 265 // 1000, (1 << 52) * 265 // 1000)


@vector
def sigmoid(x: Real) -> Real:
    e, e_lost = _exp_pair(-fabs(x), 0.0)
    bottom = 1.0 + e
    bottom_lost = (e - (bottom - 1.0)) + e_lost
    negative = x < 0.0
    y = (e if negative else 1.0) / bottom
    # What rounding took from both, over the bottom: that is 1 - y or y, nearly enough.
    return fma((e_lost if negative else 0.0) - y * bottom_lost, (1.0 - y) if negative else y, y)


def _log1p_of_exp(x: Real, low: Real) -> Real:
    """log(1 + exp(x + low)) of x <= 0"""
    e, e_lost = _exp_pair(x, low)
    u = 1.0 + e
    return _log_of_sum(u, (e - (u - 1.0)) + e_lost)


@vector
def softplus(x: Real) -> Real:
    return (x if x > 0.0 else 0.0) + _log1p_of_exp(-fabs(x), 0.0)


@vector
def logaddexp(x: Real, y: Real) -> Real:
    distance = x - y
    part = distance - x
    # Knuth's sum: distance + lost is exactly x - y. Where it is infinite, it does not matter.
    lost = (x - (distance - part)) - (y + part)
    near = fabs(distance) < LARGE_DISTANCE
    d = -fabs(0.0 if x == y else distance)
    toward = -lost if distance > 0.0 else lost
    return (x if x > y else y) + _log1p_of_exp(d, toward if near else 0.0)


LARGE_DISTANCE = 1e4


@vector
def log_sigmoid(x: Real) -> Real:
    return -softplus(-x)


# ----- Powers -----


def _log_in_two(a: Real) -> tuple[Real, Real]:
    """log(a) to some ten bits more, of a positive finite number."""
    tiny = a < SMALLEST_NORMAL
    f, n, _ = _split_power(a * SCALE if tiny else a)
    n = n - (SCALE_POWER / UNIT if tiny else 0.0)
    whole, f_low, whole_low = n * (LN2_HIGH * UNIT), 0.0, n * (LN2_LOW * UNIT)
    if not IS_FLOAT32:
        # A factor of 1.25 or 51/64 brings 1 + f nearer to 1, so that the tail is small enough to be rounded.
        low_side, high_side = f < -0.1091, f > 0.1225
        factor = 1.25 if low_side else (0.796875 if high_side else 1.0)
        m = 1.0 + f
        p = m * factor
        f, f_low = p - 1.0, lost(m, factor, p)
        whole = whole + (LOG_DOWN if low_side else (LOG_UP if high_side else 0.0))
        whole_low = whole_low + (LOG_DOWN_LOW if low_side else (LOG_UP_LOW if high_side else 0.0))
    # 2 s + s³ (…) with s = f / g and g = 2 + f, and what rounding took from s.
    g = f + 2.0
    inverse = 1.0 / g
    s = f * inverse
    s_low = ((f_low - lost(s, g, f)) - s * ((f - (g - 2.0)) + f_low)) * inverse
    z = s * s
    bend = s * z * poly(z, LOG_QUOTIENT if IS_FLOAT32 else LOG_NARROW)
    tail = 2.0 * fma(s_low, z, s_low) + bend
    total = whole + 2.0 * s
    rest = ((whole - total) + 2.0 * s) + (whole_low + tail)
    y = total + rest
    return y, (total - y) + rest


# -log of the factors, of which the first parts have no bits that n ln2 has not.
LOG_DOWN, LOG_DOWN_LOW = -0.22314355131425145, 4.169796584527195e-14
LOG_UP, LOG_UP_LOW = 0.22705745063535687, -1.078736749871691e-14
POWER_LOWEST = Both(-106.0, -748.0)
POWER_HIGHEST = Both(91.0, 712.0)


@vector
def power(x: Real, y: Real) -> Real:
    a = fabs(x)
    log_a, log_low = _log_in_two(a)
    # With infinite logarithms the ends of the range come out by themselves, and 1 to any power is 1.
    log_a = -INF if a == 0.0 else (log_a if a < INF else a)
    p = 0.0 if log_a == 0.0 else y * log_a
    p_low = lost(y, log_a, p) + y * log_low
    within = POWER_LOWEST if p < POWER_LOWEST else p
    within = POWER_HIGHEST if within > POWER_HIGHEST else within
    shifted, r = _split_exponent(within)
    r = r + (p_low if fabs(p_low) < 1.0 else 0.0)
    size = _times_two_to(fma(r * r, poly(r, EXP), r) + 1.0, shifted)
    size = 1.0 if y == 0.0 else size
    half = 0.5 * y
    whole = nearest(y) == y
    odd = both(whole, nearest(half) != half)
    undefined = both(both(x < 0.0, x > -INF), not whole)
    return NAN if undefined else (fcopysign(size, x) if odd else size)


@vector
def mod(x: Real, y: Real) -> Real:
    a = fabs(x)
    b = fabs(y)
    quotient = a / b
    q = toward_zero(quotient)
    p = q * b
    r = (a - p) - lost(q, b, p)
    # The quotient may have been rounded up to, or down from, a whole number.
    r = r + b if r < 0.0 else r
    r = r - b if r >= b else r
    r = a if both(b == INF, a < INF) else r
    size = quotient if quotient < INF else LARGEST
    r = fcopysign(beyond_fmod(size, a, b, r), x)
    # The sign is the divisor's, that of zero too.
    r = r + y if both(r != 0.0, (r < 0.0) != (y < 0.0)) else r
    return fcopysign(r, y) if r == 0.0 else r


LARGEST = Both(3.4e38, 1.7e308)


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
