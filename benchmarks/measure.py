"""Times of several calls, interleaved: a busy moment of the machine hits all of them alike.

The clock is the process's CPU time, user and system: with one thread on one core that is the time that passes, less
what other programs took of the core.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.case import Case, check_same
from benchmarks.libraries import Call, Library, Missing

clock = time.process_time

SAMPLE = 2e-3
"""Seconds that one sample takes at least, by repeating short calls."""
WARM = 4
"""Calls before the first sample: from the fourth on, nothing may be compiled."""
ROUNDS = (7, 41)


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one for each round."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """The second worst over the second best: 1 on a quiet machine."""
        ordered = sorted(self.samples)
        return ordered[-2] / ordered[1] if len(ordered) > 3 else ordered[-1] / ordered[0]

    def over(self, other: Timing) -> float:
        """Median over the rounds of our time divided by the other's in the same round."""
        return statistics.median(a / b for a, b in zip(self.samples, other.samples, strict=True))


@dataclass(frozen=True)
class Result:
    """What came of one case: times by library, why the others have none, and how the machine was."""

    times: dict[str, Timing]
    missing: dict[str, str]
    failed: dict[str, str]
    control: Timing | None = None


class Control:
    """A fixed piece of NumPy work, timed in every round: its spread shows a noisy machine."""

    def __init__(self) -> None:
        self.x = np.linspace(0.0, 1.0, 20_000)

    def __call__(self) -> Any:
        return np.exp(self.x)


def measure(case: Case, libraries: Sequence[Library], budget: float) -> Result:
    """Build, warm up, compare and time `case` for each library, in about `budget` seconds after the warm-up."""
    inputs = case.inputs()
    calls: dict[str, Call] = {}
    missing: dict[str, str] = {}
    failed: dict[str, str] = {}
    first: list[np.ndarray] | None = None
    for library in libraries:
        try:
            with library.active():
                call = case.call(library, inputs)
                got = [library.result(r) for r in call()]
                if first is not None:
                    check_same(case, first, got, library.name)
                warm(call)
        except (Missing, NotImplementedError) as error:
            missing[library.name] = str(error).strip().partition("\n")[0]
        except Exception as error:
            failed[library.name] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        else:
            calls[library.name] = call
            first = got if first is None else first
    times, control = interleave(calls, {lib.name: lib for lib in libraries}, budget)
    return Result(times, missing, failed, control)


def warm(call: Call) -> None:
    """Run until everything is compiled and every table is filled."""
    for _ in range(WARM):
        call()


def interleave(
    calls: Mapping[str, Call], libraries: Mapping[str, Library], budget: float
) -> tuple[dict[str, Timing], Timing | None]:
    """One sample of each in turn, round after round, each round starting with another one."""
    if not calls:
        return {}, None
    counts, cost = {}, 0.0
    for name, call in calls.items():
        with libraries[name].active():
            call()
            once = max(sample(call, 1), 1e-7)
        counts[name] = max(1, round(SAMPLE / once))
        # Before each sample one more call follows a change of backend.
        cost += (counts[name] + 1) * once
    rounds = int(min(max(budget / cost, ROUNDS[0]), ROUNDS[1]))
    control = Control()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    controls = []
    names = list(calls)
    for turn in range(rounds):
        controls.append(sample(control, 40))
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            with libraries[name].active():
                samples[name].append(timed(calls[name], counts[name]))
    return {n: Timing(tuple(s)) for n, s in samples.items()}, Timing(tuple(controls))


def timed(call: Call, count: int) -> float:
    """Seconds per call, after one call that brings everything back into the caches."""
    call()
    return sample(call, count)


def sample(call: Any, count: int) -> float:
    """Seconds per call of `count` in a row, without the cyclic garbage collector, as `timeit` has it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = clock()
        for _ in range(count):
            call()
        return (clock() - start) / count
    finally:
        if enabled:
            gc.enable()


