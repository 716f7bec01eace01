"""How near to the speed of memory: cheap ops on 4,000,000 float32 beside loops like those of STREAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.case import Bound, Case
from benchmarks.programs import normal

SIZE = 4_000_000

PROGRAMS: dict[str, tuple[int, Callable[..., Any], str]] = {
    "x * y": (2, lambda xp, x, y: x * y, "out[i] = x[i] * y[i]"),
    "-x": (1, lambda xp, x: -x, "out[i] = -x[i]"),
}
"""Name -> how many arrays it reads, the op, and the same as a line of a loop."""


def stream(line: str, count: int) -> Callable[[Any, Sequence[np.ndarray]], Callable[[], Any]]:
    """A bare loop compiled by Numba, into memory that is kept: it moves the same bytes and does nothing else."""

    def build(library: Any, inputs: Sequence[np.ndarray]) -> Callable[[], Any]:
        import numba

        names = ", ".join(("x", "y")[:count])
        scope: dict[str, Any] = {}
        exec(f"def loop({names}, out):\n    for i in range(out.size):\n        {line}\n", scope)
        loop, out = numba.njit(scope["loop"]), np.empty_like(inputs[0])

        def run() -> list[np.ndarray]:
            loop(*inputs, out)
            return [out]

        return run

    return build


def bandwidth() -> Iterator[Case]:
    """Each program by us and, in the column of NumPy, by the bare loop: at least 80 % of its bandwidth is asked."""
    for name, (count, program, line) in PROGRAMS.items():
        yield Case(
            f"{name}, beside a loop like STREAM's",
            "bandwidth 4e6 float32",
            "value",
            normal(count, "float32"),
            SIZE,
            program,
            libraries=("numbagrad", "numpy"),
            own={"numpy": stream(line, count)},
            bounds=(Bound("numpy", 1 / 0.8),),
            tolerance=1e-6,
        )


__all__ = ["bandwidth"]
