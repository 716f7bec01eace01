#!/usr/bin/env python3
"""Derive the polynomials of vector mathematics and write jit/vmath_tables.py: `scripts/vmath_coefficients.py [name ...]`.

Each is the minimax polynomial of a function on an interval (Remez's exchange algorithm, on a grid of Chebyshev points).
The coefficients are rounded to their dtype one after the other, from the constant term on, and the rest is fitted again
to what rounding left (Muller et al., Handbook of Floating-Point Arithmetic, 10.3). With names, only those are derived
anew; `--errors` prints the error of each table in units of the last place.
"""

import argparse
import contextlib
import functools
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import mpmath as mp
import numpy as np

TABLES = Path(__file__).resolve().parent.parent / "jit" / "vmath_tables.py"
DTYPES = {"float32": np.float32, "float64": np.float64}

mp.mp.dps = 100
zero, one, two, half = mp.mpf(0), mp.mpf(1), mp.mpf(2), mp.mpf(1) / 2
ln2, ln10, sqrt2, pi = mp.log(2), mp.log(10), mp.sqrt(2), mp.pi


@dataclass(frozen=True)
class Fit:
    """`f(x)` on [low, high] by polynomials of these degrees (None: not wanted), error measured as weight(x) (f(x) - p(x))."""

    f: Callable
    low: mp.mpf
    high: mp.mpf
    float32: int | None
    float64: int | None
    weight: Callable
    kind: str = "Both"
    high32: mp.mpf | None = None


def smooth(f, at=0):
    """f with the removable singularity at a point taken out, for a grid that may come near it."""

    def value(x):
        with mp.workdps(200):
            x = x if abs(x - at) > mp.mpf(10) ** -30 else at + mp.mpf(10) ** -30
            return +f(x)

    return value


def root_series(f, first=1):
    """(f(√z) / √z - first) / z: what an odd function adds to its tangent, over x³, as a function of z = x²."""
    return smooth(lambda z: (f(mp.sqrt(z)) / mp.sqrt(z) - first) / z)


def rest_of_log(base, slope):
    """The logarithm of 1 + f, over f, without a slope that gives exact products."""
    return smooth(lambda f: mp.log1p(f) / base / f - slope)


@functools.cache
def erfcx(x):
    """exp(x²) erfc(x), by its asymptotic series where that is exact enough."""
    if x < 60:
        with mp.workdps(100 + int(x * x)):
            return mp.exp(x * x) * mp.erfc(x)
    term, total = mp.mpf(1), mp.mpf(1)
    for k in range(1, 60):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * mp.sqrt(pi))


DIGAMMA_ROOT = mp.findroot(mp.digamma, 1.4616321449683623)


def erfc_over_q(k, scale, q):
    """erfcx(a / scale) / q with q = k / (k + a)."""
    return erfcx((k / q - k) / scale) / q


@functools.cache
def erfinv_over_x(w):
    x = mp.sqrt(-mp.expm1(-w)) if w > mp.mpf(10) ** -20 else mp.sqrt(w)
    return mp.erfinv(x) / x if x else mp.sqrt(pi) / 2


def lgamma_rest(x):
    """What Stirling's formula leaves, times x."""
    with mp.workdps(150):
        return +(x * (mp.loggamma(x) - (x - half) * mp.log(x) + x - mp.log(2 * pi) / 2))


FITS = {
    # exp(r) = 1 + r + r² EXP(r); the error counts against exp(r).
    "EXP": Fit(
        smooth(lambda r: (mp.expm1(r) - r) / r**2),
        -ln2 * 0.5001,
        ln2 * 0.5001,
        4,
        10,
        lambda r: r**2 * mp.exp(-r),
    ),
    # log(1 + f) = f + f² LOG(f), on [1/√2, √2] - 1.
    "LOG": Fit(
        smooth(lambda f: (mp.log1p(f) - f) / f**2),
        1 / sqrt2 - 1,
        sqrt2 - 1,
        7,
        None,
        lambda f: f**2 / mp.log1p(f) if f else 0,
    ),
    # log(1 + f) = f - f²/2 + s (f²/2 + s² LOG_QUOTIENT(s²)) with s = f / (2 + f).
    "LOG_QUOTIENT": Fit(
        smooth(lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z),
        mp.mpf(0),
        (sqrt2 - 1) ** 2 / (sqrt2 + 1) ** 2,
        2,
        6,
        lambda z: z,
    ),
    # The same for f from -0.115 to 0.128.
    "LOG_NARROW": Fit(
        smooth(lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z),
        zero,
        mp.mpf("0.0042"),
        None,
        5,
        lambda z: z,
    ),
    # tanh(x) = x + x³ TANH(x²) for |x| < 0.625.
    "TANH": Fit(
        smooth(lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z),
        mp.mpf(0),
        mp.mpf("0.3907"),
        4,
        11,
        lambda z: z,
    ),
    # erf(x) = x + x ERF(x²) for |x| < 0.9; the error counts against erf(x).
    "ERF": Fit(
        smooth(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1),
        mp.mpf(0),
        mp.mpf("0.8101"),
        5,
        11,
        lambda z: mp.mpf("1.13"),
    ),
    # erf(x) = 1 - exp(LOG_ERFC(x)) from 0.9 to where it rounds to 1; the error counts against 1.
    "LOG_ERFC": Fit(lambda x: mp.log(mp.erfc(x)), mp.mpf("0.9"), mp.mpf(4), 6, None, mp.erfc),
    "LOG_ERFC_LONG": Fit(lambda x: mp.log(mp.erfc(x)), mp.mpf("0.9"), mp.mpf(6), None, 18, mp.erfc),
    # sin(r) = r - r³ SIN(r²), cos(r) = 1 - r²/2 + r⁴ COS(r²), tan(r) = r - r³ TAN(r²) for |r| <= π/4.
    "SIN": Fit(root_series(lambda x: -mp.sin(x), -1), zero, (pi / 4) ** 2 * 1.001, 2, 5, lambda z: z),
    "COS": Fit(
        smooth(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2),
        mp.mpf(0),
        (pi / 4) ** 2 * 1.001,
        2,
        5,
        lambda z: z**2,
    ),
    "TAN": Fit(root_series(lambda x: -mp.tan(x), -1), zero, (pi / 4) ** 2 * 1.001, 5, 13, lambda z: z),
    # 2^r = 1 + r EXP2(r) for |r| <= ½.
    "EXP2": Fit(smooth(lambda r: (two**r - 1) / r), -half, half, 5, 11, lambda r: r / two**r),
    # log2(1 + f) = f + f LOG2(f) and log10(1 + f) = 7/16 f + f LOG10(f), on [1/√2, √2] - 1.
    "LOG2": Fit(rest_of_log(ln2, 1), 1 / sqrt2 - 1, sqrt2 - 1, 8, None, lambda f: ln2 * f / mp.log1p(f)),
    "LOG10": Fit(
        rest_of_log(ln10, mp.mpf(7) / 16), 1 / sqrt2 - 1, sqrt2 - 1, 8, None, lambda f: ln10 * f / mp.log1p(f)
    ),
    # sinh(r) = r + r³ SINH(r²), cosh(r) = 1 + r² COSH(r²) for |r| <= ½.
    "SINH": Fit(root_series(mp.sinh), zero, one / 4 * 1.001, 2, 5, lambda z: z),
    "COSH": Fit(smooth(lambda z: (mp.cosh(mp.sqrt(z)) - 1) / z), zero, one / 4 * 1.001, 2, 6, lambda z: z),
    # arcsin(s) = s + s³ ARCSIN(s²) for |s| <= ½.
    "ARCSIN": Fit(root_series(mp.asin), zero, one / 4, 4, 11, lambda z: z),
    # arctan(t) = t + t³ ARCTAN(t²) for |t| <= ½.
    "ARCTAN": Fit(root_series(mp.atan), zero, mp.mpf("0.2502"), 4, 11, lambda z: z),
    # arctanh(s) = s + s³ ARCTANH(s²) for |s| <= 0.268.
    "ARCTANH": Fit(root_series(mp.atanh), zero, mp.mpf("0.072"), 3, 8, lambda z: z),
    # sin(πf) / (πf) = 1 + f² SINC(f²) for |f| <= ½.
    "SINC": Fit(smooth(lambda z: (mp.sinc(pi * mp.sqrt(z)) - 1) / z), zero, one / 4, 3, 7, lambda z: z * 1.6),
    # (1 - h)^(-1/3) = 1 + h CBRT(h) for |h| <= 0.1021.
    "CBRT": Fit(
        smooth(lambda h: ((1 - h) ** (-one / 3) - 1) / h),
        mp.mpf("-0.1021"),
        mp.mpf("0.1021"),
        1,
        5,
        lambda h: h,
    ),
    # erfc(a) = exp(-a²) q ERFC(q - 0.475) with q = 3 / (3 + a) for a >= ½.
    "ERFC": Fit(
        lambda t: erfc_over_q(3, one, t + mp.mpf("0.475")),
        mp.mpf("-0.379"),
        mp.mpf("0.383"),
        10,
        21,
        lambda t: 1 / erfc_over_q(3, one, t + mp.mpf("0.475")),
        "Wanted",
    ),
    # ½ erfc(a/√2) = exp(-a²/2) q NDTR(q - 0.43) with q = 4 / (4 + a) for a >= 0.7.
    "NDTR": Fit(
        lambda t: erfc_over_q(4, sqrt2, t + mp.mpf("0.43")) / 2,
        mp.mpf("-0.4299"),
        mp.mpf("0.4268"),
        10,
        23,
        lambda t: 2 / erfc_over_q(4, sqrt2, t + mp.mpf("0.43")),
        "Wanted",
    ),
    # ndtr(x) = ½ + x NDTR_NEAR(x²) for |x| < 0.7.
    "NDTR_NEAR": Fit(
        smooth(lambda z: mp.erf(mp.sqrt(z / 2)) / mp.sqrt(z) / 2),
        zero,
        mp.mpf("0.4901"),
        4,
        9,
        lambda z: 4 * mp.sqrt(z),
        "Wanted",
    ),
    # erfinv(x) = x ERFINV_NEAR(x²) for |x| < 0.6. With w = -log(1 - x²) it is x ERFINV_LOW(w - 1.52) for w < 2.6,
    # x ERFINV_HIGH(w - 4.43) for w < 6.25, then x ERFINV_TAIL(√w - 3.3), and from √w = 4 on, where no float32 comes,
    # x ERFINV_END(√w - 5).
    "ERFINV_NEAR": Fit(
        smooth(lambda z: mp.erfinv(mp.sqrt(z)) / mp.sqrt(z)),
        zero,
        mp.mpf("0.3601"),
        7,
        18,
        lambda z: mp.mpf("1.13"),
        "Wanted",
    ),
    "ERFINV_LOW": Fit(
        lambda t: erfinv_over_x(t + mp.mpf("1.52")),
        mp.mpf("-1.081"),
        mp.mpf("1.081"),
        6,
        16,
        lambda t: 1 / erfinv_over_x(t + mp.mpf("1.52")),
        "Wanted",
    ),
    "ERFINV_HIGH": Fit(
        lambda t: erfinv_over_x(t + mp.mpf("4.43")),
        mp.mpf("-1.831"),
        mp.mpf("1.831"),
        7,
        17,
        lambda t: 1 / erfinv_over_x(t + mp.mpf("4.43")),
        "Wanted",
    ),
    "ERFINV_TAIL": Fit(
        lambda t: erfinv_over_x((t + mp.mpf("3.3")) ** 2),
        mp.mpf("-0.801"),
        mp.mpf("0.8"),
        8,
        20,
        lambda t: 1 / erfinv_over_x((t + mp.mpf("3.3")) ** 2),
        "Wanted",
    ),
    "ERFINV_END": Fit(
        lambda t: erfinv_over_x((t + 5) ** 2),
        mp.mpf("-1.001"),
        mp.mpf("1.1"),
        None,
        18,
        lambda t: 1 / erfinv_over_x((t + 5) ** 2),
        "Wanted",
    ),
    # lgamma(1 + t) = t LGAMMA_ONE(t) on [-0.4, 0.6], lgamma(2 + t) = t LGAMMA_TWO(t) on [-0.58, 1.5].
    "LGAMMA_ONE": Fit(
        smooth(lambda t: mp.loggamma(1 + t) / t),
        mp.mpf("-0.401"),
        mp.mpf("0.601"),
        11,
        26,
        lambda t: t / mp.loggamma(1 + t) if t else 1,
        "Wanted",
    ),
    "LGAMMA_TWO": Fit(
        smooth(lambda t: mp.loggamma(2 + t) / t),
        mp.mpf("-0.581"),
        mp.mpf("1.501"),
        10,
        24,
        lambda t: t / mp.loggamma(2 + t) if t else 1,
        "Wanted",
    ),
    # lgamma(x) = (x - ½) log(x) - x + log(2π)/2 + LGAMMA_LARGE(1/x²)/x for x >= 3.5; the error counts against 1.
    "LGAMMA_LARGE": Fit(
        lambda z: lgamma_rest(1 / mp.sqrt(z)), mp.mpf("1e-12"), mp.mpf("0.0817"), 2, 9, mp.sqrt, "Wanted"
    ),
    # digamma(x) = (x - root) DIGAMMA(x - 1.5) on [1, 2].
    "DIGAMMA": Fit(
        smooth(lambda t: mp.digamma(t + 1.5) / (t + 1.5 - DIGAMMA_ROOT), DIGAMMA_ROOT - 1.5),
        -half,
        half,
        9,
        20,
        lambda t: (t + 1.5 - DIGAMMA_ROOT) / mp.digamma(t + 1.5),
        "Wanted",
    ),
    # digamma(x) = log(x) - 1/(2x) - DIGAMMA_LARGE(1/x²)/x² for x >= 2; the error counts against digamma(2).
    "DIGAMMA_LARGE": Fit(
        lambda z: (mp.log(1 / mp.sqrt(z)) - mp.sqrt(z) / 2 - mp.digamma(1 / mp.sqrt(z))) / z,
        mp.mpf("1e-8"),
        one / 4,
        6,
        15,
        lambda z: 2.4 * z,
        "Wanted",
    ),
    # πf cot(πf) = 1 + f² COT(f²) for |f| <= ½; the error counts against 1.
    "COT": Fit(
        smooth(lambda z: (pi * mp.sqrt(z) * mp.cot(pi * mp.sqrt(z)) - 1) / z),
        zero,
        one / 4,
        6,
        13,
        lambda z: z,
        "Wanted",
    ),
}


def minimax(f, weight, grid, degree):
    """Coefficients of the best polynomial on a grid, and its error."""
    count = degree + 2
    chosen = [int(round((1 - mp.cos(pi * i / (count - 1))) / 2 * (len(grid) - 1))) for i in range(count)]
    best = None
    for _ in range(40):
        coefficients, level = levelled(f, weight, grid, chosen)
        errors = [w * (y - mp.polyval(coefficients[::-1], x)) for x, y, w in zip(grid, f, weight, strict=True)]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[1]:
            best = coefficients, worst
        peaks = alternating_peaks(errors, count)
        if len(peaks) < count or worst <= abs(level) * (1 + mp.mpf(10) ** -6):
            break
        chosen = peaks
    return best


def levelled(f, weight, grid, chosen):
    """The polynomial whose weighted error has the same size and alternating signs at the chosen points."""
    system, right = mp.matrix(len(chosen)), mp.matrix(len(chosen), 1)
    for row, i in enumerate(chosen):
        for column in range(len(chosen) - 1):
            system[row, column] = weight[i] * grid[i] ** column
        system[row, len(chosen) - 1] = (-1) ** row
        right[row] = weight[i] * f[i]
    solution = mp.lu_solve(system, right)
    return list(solution)[:-1], solution[len(chosen) - 1]


def alternating_peaks(errors, count):
    """The `count` neighbouring extremes of alternating sign with the largest errors."""
    peaks = []
    for i, e in enumerate(errors):
        if e == 0:
            continue
        if peaks and (errors[peaks[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks


def rounded(fit, degree, dtype):
    """Coefficients in a dtype, and the error that remains."""
    size = 24 * (degree + 4)
    middle, radius = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    grid = [middle - radius * mp.cos(pi * (i + half) / size) for i in range(size)]
    exact, weight = [fit.f(x) for x in grid], [abs(mp.mpf(fit.weight(x))) for x in grid]
    best, _ = minimax(exact, weight, grid, degree)
    tried = [[mp.mpf(float(dtype(c))) for c in best]]
    # Where the interval holds 0, either sign of the weight may give the better fit of the rest, or none.
    for sign in (abs, lambda power: power):
        with contextlib.suppress(ZeroDivisionError):
            tried.append(rounded_in_turn(grid, exact, weight, degree, dtype, sign))

    def error(coefficients):
        return max(
            abs(w * (y - mp.polyval(coefficients[::-1], x))) for x, y, w in zip(grid, exact, weight, strict=True)
        )

    error_found, found = min((error(coefficients), coefficients) for coefficients in tried)
    return [dtype(c) for c in found], error_found


ROUNDED_IN_TURN = 16
"""Coefficients after these are small enough to be rounded together."""


def rounded_in_turn(grid, exact, weight, degree, dtype, sign):
    done = []
    for k in range(min(degree + 1, ROUNDED_IN_TURN)):
        left = [(y - mp.polyval(done[::-1], x)) / x**k for x, y in zip(grid, exact, strict=True)]
        rest, _ = minimax(left, [w * sign(x**k) for x, w in zip(grid, weight, strict=True)], grid, degree - k)
        done.append(mp.mpf(float(dtype(rest[0]))))
    return done + [mp.mpf(float(dtype(c))) for c in rest[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(FITS)}; default: all that are not in the file")
    asked = parser.parse_args().names
    tables = read_tables()
    for name, fit in FITS.items():
        if name in asked or name not in tables:
            tables[name] = derive(name, fit)
            write_tables(tables)


def derive(name, fit):
    parts = []
    for dtype, kind in DTYPES.items():
        if getattr(fit, dtype) is None:
            parts.append(f"    {dtype}=None,\n")
            continue
        kind = kind if fit.kind == "Both" else np.float64
        coefficients, error = rounded(fit, getattr(fit, dtype), kind)
        print(
            f"{name} {dtype}: degree {getattr(fit, dtype)}, error {float(error / np.finfo(dtype).eps * 2):.3g} of half an ulp"
        )
        lines = "\n".join(
            textwrap.wrap(
                ", ".join(map(str, coefficients)) + ",", 110, initial_indent=" " * 8, subsequent_indent=" " * 8
            )
        )
        parts.append(f"    {dtype}=(\n{lines}\n    ),\n")
    return f"{name} = {fit.kind}(\n{''.join(parts)})\n"


def read_tables():
    text = TABLES.read_text() if TABLES.exists() else ""
    return {m[1]: m[0] for m in re.finditer(r"^(\w+) = (?:Both|Wanted)\(\n.*?^\)\n", text, re.M | re.S)}


def write_tables(tables):
    head = '"""Coefficients of polynomials, lowest power first. Made by scripts/vmath_coefficients.py."""\n\n'
    head += "# fmt: off\nfrom numbagrad.jit.vmath_words import Both, Wanted\n\n"
    TABLES.write_text(head + "\n".join(tables[name] for name in FITS if name in tables))


if __name__ == "__main__":
    main()
