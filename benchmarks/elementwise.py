"""One row for each elementwise op, precision and mode, made from the registry: an op that is declared has its row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.case import NEVER_SLOWER, Bound, Case
from numbagrad.ops.elementwise import Elementwise
from numbagrad.ops.registry import every_op

SIZE = 100_000
LIBRARIES = ("numbagrad", "numpy", "torch", "autograd")
NUMBERS = ("low", "high", "slope", "alpha", "at_zero")
"""Arguments that people pass as a number."""
TOLERANCE = {"float32": 2e-5, "float64": 1e-10}
ARITHMETIC = (
    *("absolute", "add", "ceil", "clip_above", "clip_below", "clip_between", "deg2rad", "divide", "floor"),
    *("fmax", "fmin", "heaviside", "leaky_relu", "maximum", "minimum", "multiply", "negative", "rad2deg"),
    *("reciprocal", "relu", "rint", "sign", "square", "subtract", "trunc", "where"),
)
"""As fast as memory in every library. All other ops are asked to be no slower than NumPy or SciPy."""


def public() -> list[Elementwise]:
    """The ops that users can call; a leading underscore marks the others."""
    return [op for op in every_op(Elementwise) if not op.name.startswith("_")]


def inputs(op: Elementwise, dtype: str, rng: np.random.Generator, size: int) -> Sequence[Any]:
    """Arguments within the ranges that the op declares."""
    return [_argument(op, nr, dtype, rng, size) for nr in range(len(op.params))]


def _argument(op: Elementwise, nr: int, dtype: str, rng: np.random.Generator, size: int) -> Any:
    low, high = op.sampling.of(nr)
    if op.params[nr] in op.conditions:
        return rng.random(size) < 0.5
    return (low + high) / 2 if op.params[nr] in NUMBERS else rng.uniform(low, high, size).astype(dtype)


def differentiable(op: Elementwise) -> tuple[int, ...]:
    """The arguments that get a gradient, those passed as a number left out."""
    return tuple(i for i, p in enumerate(op.params) if p not in NUMBERS and op.partial(0, i) is not None)


def bounds(op: Elementwise, mode: str) -> tuple[Bound, ...]:
    """What is asked of the row."""
    if mode == "value":
        return () if op.name in ARITHMETIC else (Bound("numpy", 1.0),)
    return NEVER_SLOWER


def call(name: str, xp: Any, *args: Any) -> Any:
    """The function of that name."""
    return getattr(xp, name)(*args)


def elementwise() -> Iterator[Case]:
    """Every elementwise op, at 1e5 elements."""
    for dtype in ("float32", "float64"):
        for op in public():
            wrt = differentiable(op)
            for mode in ("value", *(["forward+backward"] if wrt else [])):
                yield Case(
                    op.name,
                    f"elementwise {dtype}",
                    mode,
                    partial(inputs, op, dtype),
                    SIZE,
                    partial(call, op.name),
                    wrt,
                    libraries=LIBRARIES,
                    bounds=bounds(op, mode),
                    tolerance=TOLERANCE[dtype],
                )
