"""The table of cases. Each program is written once, over the names that NumPy, torch, autograd and JAX share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.case import NEVER_SLOWER, Bound, Case
from benchmarks.libraries import MODES

CHAIN = 50


def normal(count: int, dtype: str, *shape: int) -> Any:
    """A maker of `count` normal arrays, of length `size` or of a fixed shape."""
    return lambda rng, size: [rng.standard_normal(shape or size).astype(dtype) for _ in range(count)]


# ----- eager overhead: what one op costs when the arrays are tiny -----


def chain_by_constant(xp: Any, x: Any, c: Any) -> Any:
    """y = y * c, fifty times."""
    y = x
    for _ in range(CHAIN):
        y = y * c
    return y


def chain_by_itself(xp: Any, x: Any) -> Any:
    """y = y * x, fifty times: both operands want a gradient."""
    y = x
    for _ in range(CHAIN):
        y = y * x
    return y


def chain_by_number(xp: Any, x: Any) -> Any:
    """y = y * 2.0, fifty times."""
    y = x
    for _ in range(CHAIN):
        y = y * 2.0
    return y


def near_one(count: int) -> Any:
    """Float64 arrays near 1, whose fiftieth power is harmless."""
    return lambda rng, size: [rng.uniform(0.9, 1.1, size) for _ in range(count)]


OVERHEAD = {
    "value": (),
    "backward": NEVER_SLOWER,
    "forward": (Bound("torch", 0.8), Bound("autograd", 1 / 3)),
    "forward+backward": (Bound("torch", 0.6), Bound("autograd", 1 / 3)),
}


def overhead() -> Iterator[Case]:
    """50 chained multiplications of 8 float64 numbers; times per op."""
    for name, program, count in (
        ("y = y * c", chain_by_constant, 2),
        ("y = y * x", chain_by_itself, 1),
        ("y = y * 2.0", chain_by_number, 1),
    ):
        for mode in MODES:
            yield Case(
                name, "overhead", mode, near_one(count), 8, program, (0,),
                bounds=OVERHEAD[mode], per=CHAIN, tiny=3,
            )


# ----- whole programs -----


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


def programs() -> Iterator[Case]:
    """Programs on large arrays, value and gradients."""
    tanh = {"numpy": tanh_chain_by_hand}
    for dtype, size, bounds in (
        ("float32", 4_000_000, (Bound("torch", 0.6), *NEVER_SLOWER)),
        ("float64", 4_000_000, NEVER_SLOWER),
        ("float32", 1_000, NEVER_SLOWER),
    ):
        yield Case(
            f"sum(tanh(x*w+b)**2) {size:.0e} {dtype}", "programs", "forward+backward", normal(3, dtype), size,
            tanh_chain, (0, 1, 2), own=tanh, bounds=bounds, tolerance=1e-3 if dtype == "float32" else 1e-9,
        )


def all_cases() -> list[Case]:
    """Every case that is timed within one process."""
    return [*overhead(), *programs()]
