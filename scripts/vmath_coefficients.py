#!/usr/bin/env python3
"""Derive the polynomials of vector mathematics and write jit/vmath_tables.py: `scripts/vmath_coefficients.py [name ...]`.

Each is the minimax polynomial of a function on an interval (Remez's exchange algorithm, on a grid of Chebyshev points).
The coefficients are rounded to their dtype one after the other, from the constant term on, and the rest is fitted again
to what rounding left (Muller et al., Handbook of Floating-Point Arithmetic, 10.3). With names, only those are derived
anew; `--errors` prints the error of each table in units of the last place.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import mpmath as mp
import numpy as np

TABLES = Path(__file__).resolve().parent.parent / "jit" / "vmath_tables.py"
DTYPES = {"float32": np.float32, "float64": np.float64}

mp.mp.dps = 100
one, two, half = mp.mpf(1), mp.mpf(2), mp.mpf(1) / 2
ln2, sqrt2, pi = mp.log(2), mp.sqrt(2), mp.pi


@dataclass(frozen=True)
class Fit:
    """`f(x)` on [low, high] by polynomials of these degrees (None: not wanted), error measured as weight(x) (f(x) - p(x))."""

    f: Callable
    low: mp.mpf
    high: mp.mpf
    float32: int | None
    float64: int | None
    weight: Callable


def smooth(f, at=0):
    """f with the removable singularity at a point taken out, for a grid that may come near it."""

    def value(x):
        with mp.workdps(200):
            x = x if abs(x - at) > mp.mpf(10) ** -30 else at + mp.mpf(10) ** -30
            return +f(x)

    return value


FITS = {
    # exp(r) = 1 + r + r² EXP(r); the error counts against exp(r).
    "EXP": Fit(
        smooth(lambda r: (mp.expm1(r) - r) / r**2), -ln2 * 0.5001, ln2 * 0.5001, 4, 10, lambda r: r**2 * mp.exp(-r)
    ),
    # log(1 + f) = f + f² LOG(f), on [1/√2, √2] - 1.
    "LOG": Fit(
        smooth(lambda f: (mp.log1p(f) - f) / f**2), 1 / sqrt2 - 1, sqrt2 - 1, 7, None,
        lambda f: f**2 / mp.log1p(f) if f else 0,
    ),
    # log(1 + f) = f - f²/2 + s (f²/2 + s² LOG_QUOTIENT(s²)) with s = f / (2 + f).
    "LOG_QUOTIENT": Fit(
        smooth(lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z), mp.mpf(0), (sqrt2 - 1) ** 2 / (sqrt2 + 1) ** 2, None, 6,
        lambda z: z,
    ),
    # tanh(x) = x + x³ TANH(x²) for |x| < 0.625.
    "TANH": Fit(
        smooth(lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z), mp.mpf(0), mp.mpf("0.3907"), 4, 11, lambda z: z
    ),
    # erf(x) = x + x ERF(x²) for |x| < 0.9; the error counts against erf(x).
    "ERF": Fit(
        smooth(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1), mp.mpf(0), mp.mpf("0.8101"), 5, 11, lambda z: mp.mpf("1.13")
    ),
    # erf(x) = 1 - exp(LOG_ERFC(x)) from 0.9 to where it rounds to 1; the error counts against 1.
    "LOG_ERFC": Fit(lambda x: mp.log(mp.erfc(x)), mp.mpf("0.9"), mp.mpf(4), 6, None, mp.erfc),
    "LOG_ERFC_LONG": Fit(lambda x: mp.log(mp.erfc(x)), mp.mpf("0.9"), mp.mpf(6), None, 18, mp.erfc),
    # sin(r) = r + r³ SIN(r²), cos(r) = 1 - r²/2 + r⁴ COS(r²), tan(r) = r + r³ TAN(r²) for |r| <= π/4.
    "SIN": Fit(smooth(lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z), mp.mpf(0), (pi / 4) ** 2 * 1.001, 2, 5, lambda z: z),
    "COS": Fit(
        smooth(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2), mp.mpf(0), (pi / 4) ** 2 * 1.001, 2, 5, lambda z: z**2
    ),
    "TAN": Fit(smooth(lambda z: (mp.tan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z), mp.mpf(0), (pi / 4) ** 2 * 1.001, 5, 13, lambda z: z),
}


def minimax(f, weight, grid, degree):
    """Coefficients of the best polynomial on a grid, and its error."""
    count = degree + 2
    chosen = [int(round((1 - mp.cos(pi * i / (count - 1))) / 2 * (len(grid) - 1))) for i in range(count)]
    for _ in range(40):
        coefficients, level = levelled(f, weight, grid, chosen)
        errors = [w * (y - mp.polyval(coefficients[::-1], x)) for x, y, w in zip(grid, f, weight)]
        exchanged = alternating_peaks(errors, count)
        worst = max(abs(errors[i]) for i in exchanged)
        if exchanged == chosen or worst <= abs(level) * (1 + mp.mpf(10) ** -6):
            break
        chosen = exchanged
    return coefficients, worst


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
    assert len(peaks) == count, f"{len(peaks)} extremes where {count} were expected: take more digits or points"
    return peaks


def rounded(fit, degree, dtype):
    """Coefficients in a dtype, and the error that remains."""
    size = 24 * (degree + 4)
    grid = [(fit.low + fit.high) / 2 - (fit.high - fit.low) / 2 * mp.cos(pi * (i + half) / size) for i in range(size)]
    exact, weight = [fit.f(x) for x in grid], [abs(mp.mpf(fit.weight(x))) for x in grid]
    done = []
    for k in range(degree + 1):
        left = [(y - mp.polyval(done[::-1], x)) / x**k for x, y in zip(grid, exact)]
        rest, _ = minimax(left, [w * x**k for x, w in zip(grid, weight)], grid, degree - k)
        done.append(mp.mpf(float(dtype(rest[0]))))
    error = max(abs(w * (y - mp.polyval(done[::-1], x))) for x, y, w in zip(grid, exact, weight))
    return [dtype(c) for c in done], error


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
        coefficients, error = rounded(fit, getattr(fit, dtype), kind)
        print(f"{name} {dtype}: degree {getattr(fit, dtype)}, error {float(error / np.finfo(kind).eps * 2):.3g} of half an ulp")
        lines = ",\n        ".join(str(c) for c in coefficients)
        parts.append(f"    {dtype}=(\n        {lines},\n    ),\n")
    return f"{name} = Both(\n{''.join(parts)})\n"


def read_tables():
    text = TABLES.read_text() if TABLES.exists() else ""
    return {m[1]: m[0] for m in re.finditer(r"^(\w+) = Both\(\n.*?^\)\n", text, re.M | re.S)}


def write_tables(tables):
    head = '"""Coefficients of polynomials, lowest power first. Made by scripts/vmath_coefficients.py."""\n\n'
    head += "from numbagrad.jit.vmath_words import Both\n\n"
    TABLES.write_text(head + "\n".join(tables[name] for name in FITS if name in tables))


if __name__ == "__main__":
    main()
