#!/usr/bin/env python3
"""Measure vector mathematics: `scripts/vmath_accuracy.py [name ...] [--full] [--cpu NAME] [--time] [--write]`.

Errors are in units in the last place of the exact result. float64 is measured against mpmath (random bits, every
exponent, and around the places where a body changes its mind); float32 against NumPy's and SciPy's float64: on a sample,
or with --full on all 2^32 inputs. --time compares with NumPy's and SciPy's loops, one thread, 1e5 elements; pin the process
to a core for it. --write puts what was measured into the table of docs/vector-math.md, row by row.
"""

import argparse
import datetime
import platform
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import mpmath as mp
import numba
import numpy as np
import scipy
from scipy import special

from numbagrad.jit import vmath
from numbagrad.jit.abi import Flat
from numbagrad.jit.compile import compile_source

PAGE = Path(__file__).resolve().parent.parent / "docs" / "vector-math.md"
PRECISION = 220
DTYPES = ("float32", "float64")


# ----- What to compare with -----


@dataclass(frozen=True)
class Function:
    """What NumPy or SciPy calls it, what mpmath does, where to time it, and where it is hard."""

    numpy: Callable
    exact: Callable
    low: float = -4.0
    high: float = 4.0
    low2: float = -4.0
    high2: float = 4.0
    limit32: float = 1.5
    limit64: float = 2.0
    edges: tuple = ()
    # Size of what cancels where the result is small: errors are measured against the larger of the two.
    scale: Callable | None = None
    # float64 values to measure float32 against, if not NumPy's own.
    wide: Callable | None = None
    arity: int = field(default=1)


ln2, pi = np.log(2), np.pi
LN2_EDGES = tuple(ln2 * (k + 0.5) for k in (-1000, -20, -3, -2, -1, 0, 1, 2, 30, 900))
ROOT_EDGES = tuple(2.0**k * np.sqrt(0.5) for k in (-1000, -3, -1, 0, 1, 2, 3, 900)) + (1.0,)
ANGLE_EDGES = tuple(pi / 4 * k for k in (1, 2, 3, 4, 5, 6, 7, 8, 101, 1000, 2**15, 2**20, 2**21 - 2)) + (
    1.2e4,
    1.6e6,
    1e22,
)
UNIT_EDGES = (0.5, -0.5, 1.0, -1.0, 0.41421356237309503)


def softplus(x):
    return np.logaddexp(0, x)


def log_sigmoid(x):
    return special.log_expit(x)


def sinc(x):
    """NumPy's, without the error of pi * x."""
    n = np.rint(x)
    sign = 1 - 2 * np.abs(np.fmod(n, 2.0))
    return np.where(x == 0, 1, sign * np.sin(pi * (x - n)) / (pi * x))


def exact_sinc(x):
    return mp.mpf(1) if x == 0 else mp.sinpi(x) / (mp.pi * x)


def exact_erfc(x):
    if x > 1e5:
        return mp.mpf(0)
    return mp.erfc(x)


def exact_log_ndtr(x):
    if x < -1e5:
        return -(x * x) / 2 - mp.log(-x) - mp.log(2 * mp.pi) / 2 + mp.log1p(-1 / (x * x))
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2) if x < 5 else mp.log1p(-exact_erfc(x / mp.sqrt(2)) / 2)


def exact_lgamma(x):
    if x > 0:
        return mp.loggamma(x)
    return mp.log(mp.pi / abs(x * mp.sinpi(x))) - mp.loggamma(-x)


def lgamma_scale(x):
    return np.where(x < 0, 1 + np.abs(special.gammaln(np.abs(x))), 0)


def digamma_scale(x):
    with np.errstate(all="ignore"):
        return np.where(
            x < 0, np.abs(special.digamma(np.abs(x))) + np.abs(1 / x) + np.abs(pi / np.tan(pi * np.fmod(x, 1.0))), 0
        )


def logaddexp_scale(x, y):
    return np.maximum(np.abs(np.maximum(x, y)), np.log1p(np.exp(-np.abs(x - y))))


def exact_mod(x, y):
    return mp.mpf(float(np.mod(float(x), float(y))))  # as libm's, exact but for the last addition


def exact_arctan2(y, x):
    return mp.atan2(y, x)


def exact_power(x, y):
    if y == 0 or x == 1:
        return mp.mpf(1)
    if x < 0 and y != mp.floor(y):
        raise ValueError("no real power")
    # mpmath would compute all digits of a power that is far out of range.
    size = y * mp.log(abs(x))
    sign = -1 if x < 0 and mp.floor(y / 2) * 2 != y else 1
    return sign * mp.exp(size) if abs(size) < 1e4 else sign * (mp.inf if size > 0 else mp.mpf(0))


def bounded(f, bound):
    """f, but infinite (or 0) beyond a bound where mpmath would take for ever."""
    return lambda x: f(x) if abs(x) < bound else f(mp.sign(x) * bound)


FUNCTIONS = {
    "absolute": Function(np.abs, mp.fabs, limit32=0.5, limit64=0.5),
    "sqrt": Function(np.sqrt, mp.sqrt, 0.0, limit32=0.5, limit64=0.5),
    "floor": Function(np.floor, mp.floor, limit32=0, limit64=0, edges=UNIT_EDGES),
    "ceil": Function(np.ceil, mp.ceil, limit32=0, limit64=0, edges=UNIT_EDGES),
    "rint": Function(np.rint, mp.nint, limit32=0, limit64=0, edges=UNIT_EDGES),
    "trunc": Function(np.trunc, lambda x: mp.sign(x) * mp.floor(abs(x)), limit32=0, limit64=0, edges=UNIT_EDGES),
    "exp": Function(np.exp, bounded(mp.exp, 2000), edges=LN2_EDGES),
    "exp2": Function(np.exp2, bounded(lambda x: mp.mpf(2) ** x, 3000), edges=(0.5, 1.5, -0.5, -1.5, 1023.5, -1074.0)),
    "expm1": Function(np.expm1, bounded(mp.expm1, 2000), edges=LN2_EDGES),
    "log": Function(np.log, mp.log, 0.01, 10.0, edges=ROOT_EDGES),
    "log2": Function(np.log2, lambda x: mp.log(x) / mp.log(2), 0.01, 10.0, edges=ROOT_EDGES),
    "log10": Function(np.log10, mp.log10, 0.01, 10.0, edges=ROOT_EDGES),
    "log1p": Function(np.log1p, mp.log1p, -0.9, 10.0, edges=(*(e - 1 for e in ROOT_EDGES), 0.41, -0.29)),
    "sin": Function(np.sin, mp.sin, edges=ANGLE_EDGES),
    "cos": Function(np.cos, mp.cos, edges=ANGLE_EDGES),
    "tan": Function(np.tan, mp.tan, edges=ANGLE_EDGES),
    "sinh": Function(np.sinh, bounded(mp.sinh, 2000), edges=(*LN2_EDGES, 0.5)),
    "cosh": Function(np.cosh, bounded(mp.cosh, 2000), edges=LN2_EDGES),
    "tanh": Function(np.tanh, bounded(mp.tanh, 2000), edges=(*LN2_EDGES, 0.625)),
    "arcsin": Function(np.arcsin, mp.asin, -1.0, 1.0, edges=UNIT_EDGES),
    "arccos": Function(np.arccos, mp.acos, -1.0, 1.0, edges=UNIT_EDGES),
    "arctan": Function(np.arctan, mp.atan, edges=(*UNIT_EDGES, 2.0)),
    "arcsinh": Function(np.arcsinh, mp.asinh, edges=UNIT_EDGES),
    "arccosh": Function(np.arccosh, mp.acosh, 1.0, 10.0, edges=(1.0, 1.05, 1.5, 2.0)),
    "arctanh": Function(np.arctanh, mp.atanh, -1.0, 1.0, edges=(*UNIT_EDGES, 0.17, 0.2)),
    "cbrt": Function(np.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), edges=(1.0, 8.0)),
    "sigmoid": Function(special.expit, bounded(lambda x: 1 / (1 + mp.exp(-x)), 2000), edges=LN2_EDGES),
    "softplus": Function(softplus, lambda x: mp.log1p(mp.exp(x)) if x < 2000 else x, edges=LN2_EDGES),
    "log_sigmoid": Function(log_sigmoid, lambda x: -mp.log1p(mp.exp(-x)) if x > -2000 else x, edges=LN2_EDGES),
    "erf": Function(special.erf, bounded(mp.erf, 40), edges=(0.9, -0.9)),
    "erfc": Function(special.erfc, exact_erfc, edges=(0.5, -0.5, 26.0)),
    "erfinv": Function(special.erfinv, mp.erfinv, -1.0, 1.0, edges=(0.9990342, 1 - 1e-7)),
    "ndtr": Function(special.ndtr, lambda x: exact_erfc(-x / mp.sqrt(2)) / 2, edges=(0.7, -0.7, -38.0)),
    "log_ndtr": Function(special.log_ndtr, exact_log_ndtr, edges=(0.7, -0.7, -38.0)),
    "sinc": Function(np.sinc, exact_sinc, edges=(0.5, 1.0, 1.5, 2.0), wide=sinc),
    "lgamma": Function(
        special.gammaln,
        exact_lgamma,
        0.1,
        20.0,
        limit32=1.5,
        limit64=4,
        edges=(1.0, 2.0, 0.6, 1.55, 3.5),
        scale=lgamma_scale,
    ),
    "digamma": Function(
        special.digamma,
        mp.digamma,
        0.1,
        20.0,
        limit32=1.5,
        limit64=4,
        edges=(1.0, 2.0, 1.4616321),
        scale=digamma_scale,
    ),
    "arctan2": Function(np.arctan2, exact_arctan2, arity=2),
    "power": Function(np.power, exact_power, 0.0, limit32=4, limit64=4, arity=2),
    "hypot": Function(np.hypot, mp.hypot, arity=2),
    "logaddexp": Function(
        np.logaddexp, lambda x, y: max(x, y) + mp.log1p(mp.exp(-abs(x - y))), arity=2, scale=logaddexp_scale
    ),
    "mod": Function(np.mod, exact_mod, -40.0, 40.0, limit32=0.5, limit64=0.5, arity=2),
    "copysign": Function(np.copysign, lambda x, y: abs(x) if y > 0 else -abs(x), limit32=0, limit64=0, arity=2),
}


# ----- Our loops -----


def source(name, dtype):
    """The text of a loop `out[i] = name(x0[i], ...)`, and its signature."""
    args = [f"x{i}" for i in range(FUNCTIONS[name].arity)]
    lines = [f"t{i} = {arg}[i]" for i, arg in enumerate(args)]
    lines += vmath.emit(name, dtype, [f"t{i}" for i in range(len(args))], "y")
    body = "".join(f"        {line}\n" for line in [*lines, "out[i] = y"])
    text = f"def {name}({', '.join(args)}, out):\n    for i in range(out.size):\n{body}"
    return text, numba.void(*(Flat(dtype) for _ in args), Flat(dtype, writable=True))


def kernel(name, dtype, cpu=None):
    """That loop, compiled."""
    text, signature = source(name, dtype)
    return compile_source(text, name, signature, namespace=vmath.NAMESPACE, target_cpu=cpu)


def evaluate(name, *xs, cpu=None):
    out = np.empty_like(xs[0])
    kernel(name, xs[0].dtype.name, cpu).entry(*xs, out)
    return out


# ----- Errors -----

# 1 / ulp of a float32, by the exponent's bits of its float64.
PER_ULP = np.exp2(23.0 - np.clip(np.arange(2048) - 1023, -126, 128))


def worst_float32(got, wide, scale):
    """The largest error in ulp, and where; infinite where a special value is wrong."""
    size = np.maximum(np.maximum(np.abs(wide), scale), 2.0**-126)
    return _worst_float32(got, wide, size.view(np.int64))


@numba.njit
def _worst_float32(got, wide, size_bits):
    worst, at = 0.0, 0
    for i in range(got.size):
        near = np.float32(wide[i])
        if np.isfinite(near) and np.isfinite(got[i]):
            error = abs(got[i] - wide[i]) * PER_ULP[size_bits[i] >> 52]
        else:
            error = 0.0 if got[i] == near or (np.isnan(near) and np.isnan(got[i])) else np.inf
        if error > worst:
            worst, at = error, i
    return worst, at


def worst_float64(got, high, low, scale):
    """The same against high + low."""
    with np.errstate(all="ignore"):
        size = np.maximum(np.maximum(np.abs(high), scale), 2.0**-1022)
        error = np.abs((got - high) - low) / np.spacing(size)
    odd = ~(np.isfinite(high) & np.isfinite(got))
    same = (got == high) | (np.isnan(got) & np.isnan(high))
    error = np.where(odd, np.where(same, 0, np.inf), error)
    at = int(np.argmax(error))
    return float(error[at]), at


def exact_values(name, xs):
    """Exact results as sums of two float64."""
    function = FUNCTIONS[name]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        high = function.numpy(*xs).astype(np.float64)
    low = np.zeros_like(high)
    with mp.workprec(PRECISION):
        for i, point in enumerate(zip(*xs, strict=True)):
            if not all(map(np.isfinite, point)):
                continue
            try:
                value = function.exact(*(mp.mpf(float(v)) for v in point))
                high[i], low[i] = in_two(value)
            except (ValueError, ZeroDivisionError, mp.libmp.NoConvergence):
                continue  # a pole, or outside of the domain: NumPy's value stands
    return high, low


def in_two(value):
    if isinstance(value, mp.mpc):
        if value.imag != 0:
            return np.nan, 0.0
        value = value.real
    high = float(value)
    return high, float(value - mp.mpf(high)) if np.isfinite(high) else 0.0


# ----- Where to measure -----


def points(name, dtype, count, seed=0):
    """Random bits, every size, the usual range, and close to the edges."""
    rng = np.random.default_rng(seed)
    function = FUNCTIONS[name]
    ranges = [(function.low, function.high), (function.low2, function.high2)][: function.arity]
    return [column(rng, dtype, count, low, high, function.edges) for low, high in ranges]


def column(rng, dtype, count, low, high, edges):
    kind = np.dtype(dtype)
    info = np.finfo(kind)
    parts = [
        rng.integers(0, 1 << 8 * kind.itemsize, count, dtype=np.uint64).astype(f"u{kind.itemsize}").view(kind),
        np.exp2(rng.uniform(info.minexp - info.nmant, info.maxexp - 0.01, count)) * rng.choice([-1, 1], count),
        np.exp2(rng.uniform(-12, 8, count)) * rng.choice([-1, 1], count),
        rng.uniform(low, high, 2 * count),
        rng.uniform(-800, 800, count // 4),
    ]
    for edge in edges:
        steps = np.round(np.exp2(rng.uniform(0, info.nmant - 4, max(4, count // 40)))) * rng.choice([-1, 1])
        parts += [np.array([edge]), edge + steps * np.spacing(abs(edge)) * 2.0 ** (52 - info.nmant)]
    with np.errstate(all="ignore"):
        return np.concatenate([part.astype(kind) for part in parts])


SPECIAL = (
    0.0,
    1.0,
    0.5,
    2.0,
    2.5,
    3.0,
    7.0,
    100.0,
    1e5,
    1e-45,
    1e-40,
    5e-324,
    1e-310,
    3.4e38,
    1.7e308,
    1e-30,
    np.inf,
)


def special_values(dtype, arity):
    with np.errstate(all="ignore"):
        values = np.array([*SPECIAL, *(-v for v in SPECIAL), np.nan]).astype(dtype)
    return [axis.ravel() for axis in np.meshgrid(*[values] * arity)]


# ----- Measuring -----


def measure(name, dtype, count=2000, full=False, cpu=None):
    """Largest error in ulp, and the arguments that have it."""
    function = FUNCTIONS[name]
    if dtype == "float32" and full and function.arity == 1:
        return measure_all_float32(name, cpu)
    xs = points(name, dtype, count if dtype == "float64" or function.arity == 1 else count)
    got = evaluate(name, *xs, cpu=cpu)
    scale = scales(function, xs)
    if dtype == "float32":
        worst, at = worst_float32(got, wide_values(name, xs), scale)
    else:
        worst, at = worst_float64(got, *exact_values(name, xs), scale)
    return worst, tuple(x[at].item() for x in xs)


def scales(function, xs):
    if function.scale is None:
        return np.zeros(xs[0].size)
    with np.errstate(all="ignore"):
        scale = function.scale(*(x.astype(np.float64) for x in xs))
        return np.where(np.isfinite(scale), scale, 0.0)


def wide_values(name, xs):
    function = FUNCTIONS[name]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (function.wide or function.numpy)(*(x.astype(np.float64) for x in xs))


def measure_all_float32(name, cpu, chunk=1 << 20):
    function = FUNCTIONS[name]
    worst, where = 0.0, None
    for start in range(0, 1 << 32, chunk):
        x = np.arange(start, start + chunk, dtype=np.uint32).view(np.float32)
        error, at = worst_float32(evaluate(name, x, cpu=cpu), wide_values(name, [x]), scales(function, [x]))
        if error > worst:
            worst, where = error, (x[at].item(),)
    return worst, where


def seconds_per_element(call, count, repeat=31):
    call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / count


def measure_time(name, dtype, count=100_000):
    """Nanoseconds per element: ours, and NumPy's or SciPy's."""
    function = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    ranges = [(function.low, function.high), (function.low2, function.high2)][: function.arity]
    xs = [rng.uniform(low, high, count).astype(dtype) for low, high in ranges]
    out, entry = np.empty_like(xs[0]), kernel(name, dtype).entry
    theirs = (
        (lambda: function.numpy(*xs, out=out)) if isinstance(function.numpy, np.ufunc) else lambda: function.numpy(*xs)
    )
    return tuple(1e9 * seconds_per_element(call, count) for call in (lambda: entry(*xs, out), theirs))


# ----- The page -----


def row(name, errors, times):
    cells = [name]
    for dtype in DTYPES:
        cells.append(f"{errors[dtype][0]:.2f}" if dtype in errors else "")
        ours, theirs = times.get(dtype, (None, None))
        cells.append(f"{ours:.2f}" if ours else "")
        cells.append(f"{ours / theirs:.2f}" if ours else "")
    return cells


def write_row(cells):
    """Put a row into the page's table; empty cells leave what was there."""
    text = PAGE.read_text()
    found = re.search(rf"^\| {cells[0]} \|.*$", text, re.M)
    if found is None:
        raise SystemExit(f"{PAGE} has no row for {cells[0]}")
    old = [cell.strip() for cell in found[0].strip("|").split("|")]
    line = "| " + " | ".join(new or before for new, before in zip(cells, old, strict=True)) + " |"
    PAGE.write_text(text.replace(found[0], line))


def write_stamp(full):
    """Say when and where the table was measured."""
    model = (
        re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) if Path("/proc/cpuinfo").exists() else None
    )
    versions = f"NumPy {np.__version__}, SciPy {scipy.__version__}, Numba {numba.__version__}"
    machine = f"{model[1] if model else platform.processor()} ({numba.config.CPU_NAME or host()})"
    inputs = "all 2^32 float32 inputs" if full else "a sample of float32 inputs"
    stamp = f"Measured on {datetime.date.today()}: {machine}, {versions}, {inputs} of functions of one argument."
    PAGE.write_text(re.sub(r"^Measured on .*$", stamp, PAGE.read_text(), flags=re.M))


def host():
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="functions; default: all")
    parser.add_argument("--full", action="store_true", help="all 2^32 float32 inputs and ten times the float64 points")
    parser.add_argument("--cpu", help="a processor in LLVM's words to compile for, e.g. x86-64, which has no FMA")
    parser.add_argument("--time", action="store_true", help="compare the time per element too")
    parser.add_argument("--no-errors", action="store_true", help="only the times")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    options = parser.parse_args()
    missing = sorted(vmath.SUPPORTED - set(FUNCTIONS))
    if missing:
        sys.exit(f"scripts/vmath_accuracy.py: nothing to compare {', '.join(missing)} with: add it to FUNCTIONS")
    failed = [name for name in options.names or FUNCTIONS if not report(name, options)]
    if options.write:
        write_stamp(options.full)
    if failed:
        sys.exit(f"over the limit: {', '.join(failed)}")


def report(name, options):
    """Measure and print one function; whether its errors are within the limits."""
    function, errors, times = FUNCTIONS[name], {}, {}
    for dtype in DTYPES:
        if not options.no_errors:
            errors[dtype] = measure(name, dtype, 20_000 if options.full else 2000, options.full, options.cpu)
        if options.time or options.no_errors:
            times[dtype] = measure_time(name, dtype)
    cells = row(name, errors, times)
    where = "; ".join(f"{dtype} at {error[1]}" for dtype, error in errors.items())
    print(" ".join(f"{cell:>11}" for cell in cells), where, flush=True)
    if options.write:
        write_row(cells)
    limits = {"float32": function.limit32, "float64": function.limit64}
    return all(error[0] <= limits[dtype] for dtype, error in errors.items())


if __name__ == "__main__":
    main()
