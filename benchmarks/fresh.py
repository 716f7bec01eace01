"""Cases that need a fresh process: imports, the first gradient, memory over a long run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import cpu_count, environ
from pathlib import Path

from benchmarks.libraries import Library
from benchmarks.report import Row, Verdict

ROOT = Path(__file__).resolve().parent.parent
Figures = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Fresh:
    """A case whose figures come from processes of their own."""

    id: str
    rows: Callable[[Sequence[Library]], list[Row]]


def child(task: str, library: str, **settings: str) -> dict[str, float]:
    """Figures of one fresh process, which finds its modules compiled to bytecode, as a second run does."""
    settings = {"PYTHONDONTWRITEBYTECODE": "", **settings}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", task, library],
        cwd=ROOT,
        env=environ | settings,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return json.loads(done.stdout)


def medians(task: str, libraries: Sequence[str], rounds: int, **settings: str) -> tuple[Figures, dict[str, str]]:
    """Median figures of each library over interleaved rounds, and why others have none."""
    found: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        for name in libraries:
            if name not in failed:
                try:
                    found.setdefault(name, []).append(child(task, name, **settings))
                except RuntimeError as error:
                    failed[name] = str(error)
    middle = {n: {k: statistics.median(f[k] for f in fs) for k in fs[0]} for n, fs in found.items() if fs}
    return middle, failed


def row(name: str, mode: str, unit: str, figures: dict[str, float], failed: dict[str, str], *verdicts: Verdict) -> Row:
    """A row of this group."""
    ours = figures.get("numbagrad")
    ratios = {n: ours / f for n, f in figures.items() if n != "numbagrad" and f} if ours and unit == "s" else {}
    return Row("fresh processes", name, mode, unit, figures, ratios, verdicts, failed=failed)


def at_most(limit: float, unit: str, what: str, measured: float | None) -> Verdict:
    """A bound on a figure rather than on a ratio."""
    reached = None if measured is None else measured <= limit
    return Verdict(f"{what} ≤ {limit:g} {unit}".strip(), measured, reached)


# ----- the cases -----


def imports(libraries: Sequence[Library]) -> list[Row]:
    """`import numbagrad` may take 0.15 s more than `import numba`."""
    modules = {lib.name: lib.needs for lib in libraries if lib.name not in ("reference", "jax jit")}
    modules["numba"] = "numba"
    medians("import", list(modules.values()), 1)
    found, failed = medians("import", list(modules.values()), 5)
    times = {name: found[module]["seconds"] for name, module in modules.items() if module in found}
    extra = times["numbagrad"] - times["numba"] if {"numbagrad", "numba"} <= set(times) else None
    return [row("import", "", "s", times, failed, at_most(0.15, "s", "over numba", extra))]


def first_gradient(libraries: Sequence[Library]) -> list[Row]:
    """sum(tanh(x*w+b)**2), three gradients, from the start of the process; kernels on disk, and not."""
    names = [lib.name for lib in libraries if lib.name not in ("numpy", "jax")]
    with empty_cache() as folder:
        child("first", "numbagrad", NUMBAGRAD_CACHE_DIR=folder)
        found, failed = medians("first", names, 3, NUMBAGRAD_CACHE_DIR=folder)
    warm = {n: f["seconds"] for n, f in found.items()}
    colds = []
    for _ in range(3):
        with empty_cache() as folder:
            colds.append(child("first", "numbagrad", NUMBAGRAD_CACHE_DIR=folder)["seconds"])
    cold = {**warm, "numbagrad": statistics.median(colds)}
    return [
        row("first gradient", "warm cache", "s", warm, failed, at_most(0.8, "s", "", warm.get("numbagrad"))),
        row("first gradient", "cold cache", "s", cold, failed, at_most(4.0, "s", "", cold["numbagrad"])),
    ]


@contextmanager
def empty_cache() -> Iterator[str]:
    """A folder for kernels, with none in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def million(libraries: Sequence[Library]) -> list[Row]:
    """A chain of a million ops: time linear, memory back."""
    names = [lib.name for lib in libraries if lib.name in ("numbagrad", "torch", "autograd")]
    found, failed = medians("million", names, 1)
    ours = found.get("numbagrad", {})

    def of(part: str) -> dict[str, float]:
        return {n: f[part] for n, f in found.items()}

    rows = [row("1,000,000 chained ops", part, "s", of(part), failed) for part in ("forward", "backward", "freeing")]
    linear = at_most(1.3, "", "", ours.get("slope"))
    back = at_most(5.0, "MB", "", ours.get("memory kept"))
    return [
        *rows,
        row("1,000,000 chained ops", "time per op over that of 100,000", "x", of("slope"), failed, linear),
        row("1,000,000 chained ops", "memory kept", "MB", of("memory kept"), failed, back),
    ]


def long_training(libraries: Sequence[Library]) -> list[Row]:
    """10,000 training steps: the memory does not grow after the first 100."""
    names = [lib.name for lib in libraries if lib.name in ("numbagrad", "torch", "autograd", "jax jit")]
    found, failed = medians("training", names, 1)
    gained = {n: f["memory gained"] for n, f in found.items()}
    seconds = {n: f["seconds"] for n, f in found.items()}
    still = at_most(1.0, "MB", "", gained.get("numbagrad"))
    return [
        row("10,000 training steps", "one step", "s", seconds, failed),
        row("10,000 training steps", "memory gained after 100", "MB", gained, failed, still),
    ]


def two_threads(libraries: Sequence[Library]) -> list[Row]:
    """A function of a million numbers takes at most 1/1.7 of the time on two threads."""
    figures = child("threads", "numbagrad")
    rows = []
    for dtype in ("float32", "float64"):
        one, two = figures[f"{dtype} on 1"], figures[f"{dtype} on 2"]
        asked = at_most(1 / 1.7, "", "of one thread's time", two / one) if (cpu_count() or 1) > 1 else None
        rows.append(row(f"tanh of 1,000,000 {dtype}", "one thread", "s", {"numbagrad": one}, {}))
        rows.append(
            row(f"tanh of 1,000,000 {dtype}", "two threads", "s", {"numbagrad": two}, {}, *([asked] if asked else []))
        )
    return rows


FRESH = (
    Fresh("fresh processes: import", imports),
    Fresh("fresh processes: first gradient, warm and cold cache", first_gradient),
    Fresh("fresh processes: 1,000,000 chained ops", million),
    Fresh("fresh processes: 10,000 training steps", long_training),
    Fresh("fresh processes: two threads", two_threads),
)
