"""The table of cases that are timed within one process. Each program is written once, over names that all share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.bandwidth import bandwidth
from benchmarks.case import NEVER_SLOWER, Bound, Case
from benchmarks.elementwise import elementwise
from benchmarks.libraries import MODES
from benchmarks.programs import programs
from benchmarks.training import training

CHAIN = 50


def all_cases() -> list[Case]:
    """Every case."""
    return [*overhead(), *programs(), *training(), *reductions(), *products(), *bandwidth(), *elementwise()]


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
    """y = y * 1.5, fifty times."""
    y = x
    for _ in range(CHAIN):
        y = y * 1.5
    return y


def near_one(count: int) -> Any:
    """Float64 arrays near 1, whose fiftieth power is harmless."""
    return lambda rng, size: [rng.uniform(0.9, 1.1, size) for _ in range(count)]


OVERHEAD = {
    "value": (),
    "forward": (Bound("torch", 0.8), Bound("autograd", 1 / 3)),
    "backward": NEVER_SLOWER,
    "forward+backward": (Bound("torch", 0.6), Bound("autograd", 1 / 3)),
}


def overhead() -> Iterator[Case]:
    """50 chained multiplications of 8 float64 numbers; times per op."""
    for name, program, count in (
        ("y = y * c", chain_by_constant, 2),
        ("y = y * x", chain_by_itself, 1),
        ("y = y * 1.5", chain_by_number, 1),
    ):
        for mode in MODES:
            yield Case(
                name, "overhead", mode, near_one(count), 8, program, (0,), bounds=OVERHEAD[mode], per=CHAIN, tiny=3
            )


# ----- reductions, and what is made of them -----


def layer_norm(xp: Any, x: Any) -> Any:
    """Rows with mean 0 and variance 1, written out."""
    centred = x - xp.mean(x, 1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, 1, keepdims=True) + 1e-5)


REDUCTIONS = {
    "sum": lambda xp, x: xp.sum(x),
    "sum axis 0": lambda xp, x: xp.sum(x, 0),
    "sum axis 1": lambda xp, x: xp.sum(x, 1),
    "mean axis 0": lambda xp, x: xp.mean(x, 0),
    "mean axis 1": lambda xp, x: xp.mean(x, 1),
    "max axis 1": lambda xp, x: xp.max(x, 1),
    "softmax axis 1": lambda xp, x: xp.softmax(x, 1),
    "log_softmax axis 1": lambda xp, x: xp.log_softmax(x, 1),
    "logsumexp axis 1": lambda xp, x: xp.logsumexp(x, 1),
    "layer norm": layer_norm,
}


def reductions() -> Iterator[Case]:
    """Over a (4096, 1024) float32 matrix."""
    for name, program in REDUCTIONS.items():
        for mode, bounds in (("value", ()), ("forward+backward", NEVER_SLOWER)):
            yield Case(
                name,
                "reductions 4096x1024 float32",
                mode,
                matrix,
                4096,
                program,
                (0,),
                bounds=(Bound("torch", 0.7), *bounds),
                tiny=4,
                tolerance=2e-4,
            )


def matrix(rng: np.random.Generator, size: int) -> list[np.ndarray]:
    """A float32 matrix, four times as high as wide."""
    return [rng.standard_normal((size, max(size // 4, 3))).astype(np.float32)]


# ----- products -----


def products() -> Iterator[Case]:
    """Square matrix products."""
    for size, dtype in ((8, "float64"), (64, "float32"), (512, "float32"), (512, "float64")):
        for mode in ("value", "forward+backward"):
            yield Case(
                f"matmul {size}x{size} {dtype}",
                "products",
                mode,
                two_matrices(dtype),
                size,
                lambda xp, a, b: xp.matmul(a, b),
                (0, 1),
                bounds=NEVER_SLOWER if mode != "value" else (),
                tolerance=1e-3 if dtype == "float32" else 1e-10,
            )


def two_matrices(dtype: str) -> Any:
    """Two square matrices of normal numbers."""
    return lambda rng, size: [rng.standard_normal((size, size)).astype(dtype) for _ in range(2)]
