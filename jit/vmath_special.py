"""Bodies of vector mathematics: the normal distribution and the gamma function. float64 computes for both dtypes."""

from __future__ import annotations

from numbagrad.jit.intrinsics import both, either, fabs, fcopysign, fma, fsqrt, horner, lost, nearest
from numbagrad.jit.vmath_basic import _exp_pair, _log_in_two, _log_of_sum, log
from numbagrad.jit.vmath_tables import (
    COT,
    DIGAMMA,
    DIGAMMA_LARGE,
    ERF,
    ERFC,
    ERFINV_END,
    ERFINV_HIGH,
    ERFINV_LOW,
    ERFINV_NEAR,
    ERFINV_TAIL,
    LGAMMA_LARGE,
    LGAMMA_ONE,
    LGAMMA_TWO,
    NDTR,
    NDTR_NEAR,
    SINC,
)
from numbagrad.jit.vmath_words import INF, NAN, WANTS_FLOAT32, Real, vector_in_double

# ----- The tails of the normal distribution -----


def _ratio(k: Real, a: Real) -> tuple[Real, Real]:
    """k / (k + a), and what rounding took from it."""
    bottom = k + a
    q = k / bottom
    part = bottom - k
    bottom_lost = (k - (bottom - part)) + (a - part)
    return q, (-lost(q, bottom, k) - q * bottom_lost) * q / k


def _minus_square(a: Real, scale: Real) -> tuple[Real, Real]:
    """-scale a², in two parts, for a scale that is a power of 2."""
    part = scale * a
    square = part * a
    return -square, (-lost(part, a, square) if square < INF else 0.0)


def _product(x: Real, x_low: Real, y: Real, y_low: Real) -> tuple[Real, Real]:
    p = x * y
    return p, fma(x, y_low, fma(x_low, y, lost(x, y, p)))


def _times_polynomial(q: Real, q_low: Real, middle: Real, terms: Real) -> tuple[Real, Real]:
    """(q + q_low) p(q + q_low - middle), in two parts."""
    t = q - middle
    rest = t * horner(t, terms[1:])
    p = terms[0] + rest
    slope = horner(t, (terms[1], 2.0 * terms[2], 3.0 * terms[3], 4.0 * terms[4]))
    p_low = fma(q_low, slope, (terms[0] - p) + rest)
    return _product(q, q_low, p, p_low)


def _erfc_tail(a: Real) -> tuple[Real, Real]:
    """erfc(a) of a >= ½, in two parts."""
    q, q_low = _ratio(3.0, a)
    g, g_low = _times_polynomial(q, q_low, 0.475, ERFC)
    square, low = _minus_square(a, 1.0)
    e, e_low = _exp_pair(square, low)
    return _product(e, e_low, g, g_low)


@vector_in_double
def erfc(x: Real) -> Real:
    a = fabs(x)
    tail, tail_low = _erfc_tail(30.0 if a > 30.0 else a)
    far = (2.0 - tail) - tail_low if x < 0.0 else tail + tail_low
    z = x * x
    near = 1.0 - x
    near = near + (((1.0 - near) - x) - x * horner(z, ERF))
    return near if a < 0.5 else far


def _half_erfcx(a: Real) -> tuple[Real, Real]:
    """½ erfc(a / √2) exp(a² / 2) of a >= 0, in two parts."""
    q, q_low = _ratio(4.0, a)
    return _times_polynomial(q, q_low, 0.43, NDTR)


def _normal_tail(a: Real) -> tuple[Real, Real]:
    """The probability beyond a >= 0, in two parts."""
    g, g_low = _half_erfcx(a)
    square, low = _minus_square(a, 0.5)
    e, e_low = _exp_pair(square, low)
    return _product(e, e_low, g, g_low)


@vector_in_double
def ndtr(x: Real) -> Real:
    a = fabs(x)
    tail, tail_low = _normal_tail(40.0 if a > 40.0 else a)
    far = (1.0 - tail) - tail_low if x > 0.0 else tail + tail_low
    return fma(x, horner(x * x, NDTR_NEAR), 0.5) if a < 0.7 else far


@vector_in_double
def log_ndtr(x: Real) -> Real:
    a = fabs(x)
    a = FARTHEST if a > FARTHEST else a
    g, g_low = _half_erfcx(a)
    square, low = _minus_square(a, 0.5)
    e, e_low = _exp_pair(square, low)
    tail, tail_low = _product(e, e_low, g, g_low)
    # log of the probability itself, of one minus the tail, or of the tail without the exponential, which is added.
    middle = x * horner(x * x, NDTR_NEAR)
    near, low_side = a < 0.7, x < 0.0
    u = 0.5 + middle if near else (g if low_side else 1.0 - tail)
    start = 0.5 if near else 1.0
    rest = ((start - u) + middle) if near else (g_low if low_side else ((start - u) - tail) - tail_low)
    y = _log_of_sum(u, rest)
    return -fabs(y + low + square if both(low_side, not near) else y)


FARTHEST = 1e300


@vector_in_double
def erfinv(x: Real) -> Real:
    a = fabs(x)
    z = x * x
    w = -log((1.0 - a) * (1.0 + a))
    s = fsqrt(w)
    near, low, high = a < 0.6, w < 2.6, w < 6.25
    first, rest = ERFINV_TAIL[0], (s - 3.3) * horner(s - 3.3, ERFINV_TAIL[1:])
    if not WANTS_FLOAT32:
        first = first if s < 4.0 else ERFINV_END[0]
        rest = rest if s < 4.0 else (s - 5.0) * horner(s - 5.0, ERFINV_END[1:])
    first = ERFINV_LOW[0] if low else (ERFINV_HIGH[0] if high else first)
    first = ERFINV_NEAR[0] if near else first
    rest = (w - 4.43) * horner(w - 4.43, ERFINV_HIGH[1:]) if high else rest
    rest = (w - 1.52) * horner(w - 1.52, ERFINV_LOW[1:]) if low else rest
    rest = z * horner(z, ERFINV_NEAR[1:]) if near else rest
    p = first + rest
    y, y_low = _product(x, 0.0, p, (first - p) + rest)
    return fcopysign(INF, x) if a == 1.0 else y + y_low


# ----- The gamma function -----

HALF_LOG_2PI = 0.91893853320467274178


@vector_in_double
def lgamma(x: Real) -> Real:
    a = fabs(x)
    log_a, log_low = _log_in_two(a)
    # Near its zeros at 1 and 2 the function is the distance to them times a polynomial; for small a one step is taken.
    small, one = a < 0.6, a < 1.42
    t = a if small else (a - 1.0 if one else a - 2.0)
    # The sum makes a positive zero.
    near = t * (horner(t, LGAMMA_ONE) if one else horner(t, LGAMMA_TWO)) + 0.0
    near = (near - log_low) - log_a if small else near
    # Stirling's formula.
    c = a - 0.5
    p = c * log_a
    w = 1.0 / a
    low = fma(c, log_low, lost(c, log_a, p)) + fma(w, horner(w * w, LGAMMA_LARGE), HALF_LOG_2PI)
    far = (p - a) + (low if p < INF else 0.0)
    y = near if a < 3.5 else far
    y = INF if either(a == INF, a == 0.0) else y
    # Γ(-a) Γ(a) = -π / (a sin πa)
    f = a - nearest(a)
    mirrored = (-log(fabs(f) * fma(f * f, horner(f * f, SINC), 1.0)) - log_a) - y
    mirrored = INF if f == 0.0 else mirrored
    # SciPy's lgamma(-inf) is -inf.
    return (mirrored if a < INF else x) if x < 0.0 else y


DIGAMMA_ROOT = 1.4616321449683622
DIGAMMA_ROOT_LOW = 9.549995429965697e-17


@vector_in_double
def digamma(x: Real) -> Real:
    a = fabs(x)
    small = a < 1.0
    t = 1.0 + a if small else a
    near = ((t - DIGAMMA_ROOT) - DIGAMMA_ROOT_LOW) * horner(t - 1.5, DIGAMMA)
    w = 1.0 / a
    z = w * w
    far = log(a) - fma(z, horner(z, DIGAMMA_LARGE), 0.5 * w)
    y = near if a < 2.0 else far
    # digamma(-a) = digamma(a) + 1/a + π cot(πa), and near 0 the step down takes 1/a away again.
    f = a - nearest(a)
    turned = fma(f * f, horner(f * f, COT), 1.0) / f
    mirrored = NAN if f == 0.0 else y + (turned if small else w + turned)
    y = y - w if small else y
    return -1.0 / x if x == 0.0 else (mirrored if x < 0.0 else y)
