"""Whole programs: a value and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.case import NEVER_SLOWER, Bound, Case

LOOSE = {"float32": 1e-3, "float64": 1e-9}


def normal(count: int, dtype: str) -> Any:
    """A maker of `count` arrays of normal numbers."""
    return lambda rng, size: [rng.standard_normal(size).astype(dtype) for _ in range(count)]


def tanh_chain(xp: Any, x: Any, w: Any, b: Any) -> Any:
    """sum(tanh(x*w + b)**2)."""
    return xp.sum(xp.tanh(x * w + b) ** 2)


def tanh_chain_by_hand(library: Any, inputs: Sequence[np.ndarray]) -> Any:
    """The same and its three gradients, as one writes them in NumPy."""
    x, w, b = inputs

    def run() -> list[Any]:
        t = np.tanh(x * w + b)
        d = 2 * t * (1 - t * t)
        return [(t * t).sum(), d * w, d * x, d]

    return run


def market(dtype: str) -> Callable[[np.random.Generator, int], list[np.ndarray]]:
    """Spots, strikes, times, rates and volatilities."""
    ranges = ((80, 120), (80, 120), (0.2, 2), (0.0, 0.1), (0.1, 0.5))
    return lambda rng, size: [rng.uniform(low, high, size).astype(dtype) for low, high in ranges]


def black_scholes(xp: Any, s: Any, k: Any, t: Any, r: Any, v: Any) -> Any:
    """Sum of the prices of European calls."""
    spread = v * xp.sqrt(t)
    d1 = (xp.log(s / k) + (r + 0.5 * v * v) * t) / spread
    d2 = d1 - spread
    cdf1, cdf2 = 0.5 * (1 + xp.erf(d1 * 0.5**0.5)), 0.5 * (1 + xp.erf(d2 * 0.5**0.5))
    return xp.sum(s * cdf1 - k * xp.exp(-r * t) * cdf2)


def black_scholes_by_hand(library: Any, inputs: Sequence[np.ndarray]) -> Any:
    """The price and the five greeks, as one writes them in NumPy and SciPy."""
    s, k, t, r, v = inputs
    normal_cdf = library.namespace.ndtr

    def run() -> list[Any]:
        root = np.sqrt(t)
        spread = v * root
        d1 = (np.log(s / k) + (r + 0.5 * v * v) * t) / spread
        cdf1, cdf2 = normal_cdf(d1), normal_cdf(d1 - spread)
        discount = np.exp(-r * t)
        held = k * discount * cdf2
        density = s * np.exp(-0.5 * d1 * d1) * (2 * np.pi) ** -0.5
        by_time = density * v / (2 * root) + r * held
        return [(s * cdf1 - held).sum(), cdf1, -discount * cdf2, by_time, t * held, density * root]

    return run


def samples_50(dtype: str) -> Callable[[np.random.Generator, int], list[np.ndarray]]:
    """Features, labels of 0 and 1, and weights."""
    return lambda rng, size: [
        rng.standard_normal((size, 50)).astype(dtype),
        (rng.random(size) < 0.5).astype(dtype),
        (0.1 * rng.standard_normal(50)).astype(dtype),
    ]


def logistic(xp: Any, x: Any, y: Any, w: Any) -> Any:
    """Sum of the losses of logistic regression."""
    z = xp.matmul(x, w)
    return xp.sum(xp.softplus(z) - y * z)


def column_and_row(rng: np.random.Generator, size: int) -> list[np.ndarray]:
    """An (n, 1) and a (1, n) array."""
    return [rng.standard_normal((size, 1)).astype(np.float32), rng.standard_normal((1, size)).astype(np.float32)]


def outer(xp: Any, column: Any, row: Any) -> Any:
    """Sum of tanh over a table of products."""
    return xp.sum(xp.tanh(column * row))


def rosenbrock(xp: Any, x: Any) -> Any:
    """Rosenbrock's function: slices, powers and a sum."""
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rows_of(rng: np.random.Generator, size: int) -> list[np.ndarray]:
    """A table with 64 columns, and which of its rows to take: some often."""
    return [rng.standard_normal((size, 64)).astype(np.float32), rng.integers(0, size, 2 * size // 5)]


def embedding(xp: Any, table: Any, rows: Any) -> Any:
    """Sum of the squares of the rows taken."""
    return xp.sum(table[rows] ** 2)


FAST = (Bound("torch", 0.6), *NEVER_SLOWER)

TABLE = (
    ("sum(tanh(x*w+b)**2)", tanh_chain, normal(3, "float32"), 4_000_000, "float32", (0, 1, 2), FAST),
    ("sum(tanh(x*w+b)**2)", tanh_chain, normal(3, "float64"), 4_000_000, "float64", (0, 1, 2), NEVER_SLOWER),
    ("sum(tanh(x*w+b)**2)", tanh_chain, normal(3, "float32"), 1_000, "float32", (0, 1, 2), NEVER_SLOWER),
    ("Black-Scholes", black_scholes, market("float64"), 1_000_000, "float64", (0, 1, 2, 3, 4), FAST),
    ("Black-Scholes", black_scholes, market("float32"), 1_000_000, "float32", (0, 1, 2, 3, 4), NEVER_SLOWER),
    ("Black-Scholes", black_scholes, market("float64"), 100, "float64", (0, 1, 2, 3, 4), NEVER_SLOWER),
    ("logistic regression", logistic, samples_50("float64"), 100_000, "float64", (2,), NEVER_SLOWER),
    ("logistic regression", logistic, samples_50("float32"), 100_000, "float32", (2,), NEVER_SLOWER),
    ("logistic regression", logistic, samples_50("float32"), 1_000, "float32", (2,), NEVER_SLOWER),
    ("sum(tanh(column*row))", outer, column_and_row, 2_000, "float32", (0, 1), NEVER_SLOWER),
    ("Rosenbrock", rosenbrock, normal(1, "float64"), 100_000, "float64", (0,), NEVER_SLOWER),
    ("embedding", embedding, rows_of, 50_000, "float32", (0,), NEVER_SLOWER),
)
"""Name, program, inputs, size, dtype, which inputs get a gradient, bounds."""

BY_HAND = {"sum(tanh(x*w+b)**2)": tanh_chain_by_hand, "Black-Scholes": black_scholes_by_hand}
"""What stands in the column of NumPy."""


def programs() -> Iterator[Case]:
    """Programs on large and on small arrays."""
    for name, program, make, size, dtype, wrt, bounds in TABLE:
        yield Case(
            f"{name} {size:,} {dtype}",
            "programs",
            "forward+backward",
            make,
            size,
            program,
            wrt,
            own={"numpy": BY_HAND[name]} if name in BY_HAND else {},
            bounds=bounds,
            tiny=12,
            tolerance=LOOSE[dtype],
        )
