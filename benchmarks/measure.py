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
from typing import Any, Protocol

import numpy as np

from benchmarks.case import Case, check_same
from benchmarks.libraries import Call, Library, Missing

clock = time.process_time

SAMPLE = 2e-3
"""Seconds that one sample takes at least, by repeating short calls."""
WARM = 4
"""Calls before the first sample: from the fourth on, nothing may be compiled."""
ROUNDS = (5, 41)


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


class Runner(Protocol):
    """Runs one case at a time with one library, here or in a process of its own."""

    name: str

    def start(self, case: Case) -> list[np.ndarray]:
        """Build and warm up the case; what it computes. Raises Missing if the library takes no part."""
        ...

    def sample(self, count: int) -> float:
        """Seconds per call of `count` in a row."""
        ...

    def stop(self) -> None:
        """Forget the case."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Here:
    """A library in this process."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.name = library.name
        self.call: Call | None = None

    def start(self, case: Case) -> list[np.ndarray]:
        """Build and warm up the case; what it computes."""
        with self.library.active():
            try:
                self.call = case.call(self.library, case.inputs())
                # Copied, because a library may use the memory again.
                results = [np.array(self.library.result(r)) for r in self.call()]
            except NotImplementedError as error:
                raise Missing(str(error)) from None
            warm(self.call)
        return results

    def sample(self, count: int) -> float:
        """Seconds per call of `count` in a row, after one that brings small things back into the caches."""
        assert self.call is not None
        with self.library.active():
            if count > 1:
                self.call()
            return timed(self.call, count)

    def stop(self) -> None:
        """Forget the case."""
        self.call = None
        gc.collect()

    def close(self) -> None:
        """Nothing is held."""


def measure(case: Case, runners: Sequence[Runner], budget: float) -> Result:
    """Build, warm up, compare and time `case` with each library, in about `budget` seconds after the warm-up."""
    ready: dict[str, Runner] = {}
    missing: dict[str, str] = {}
    failed: dict[str, str] = {}
    first: list[np.ndarray] | None = None
    for runner in runners:
        try:
            got = runner.start(case)
            if first is not None:
                check_same(case, first, got, runner.name)
        except Missing as error:
            missing[runner.name] = _first_line(str(error))
        except Exception as error:
            failed[runner.name] = f"{type(error).__name__}: {_first_line(str(error))}"
        else:
            ready[runner.name] = runner
            first = got if first is None else first
    times, control = interleave(ready, budget)
    for runner in runners:
        runner.stop()
    return Result(times, missing, failed, control)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def warm(call: Call) -> None:
    """Run until everything is compiled and every table is filled."""
    for _ in range(WARM):
        call()


def interleave(runners: Mapping[str, Runner], budget: float) -> tuple[dict[str, Timing], Timing | None]:
    """One sample of each in turn, round after round, each round starting with another one."""
    if not runners:
        return {}, None
    counts, cost = {}, 0.0
    for name, runner in runners.items():
        once = max(runner.sample(1), 1e-7)
        counts[name] = max(1, round(SAMPLE / once))
        cost += (counts[name] + 1) * once
    rounds = int(min(max(budget / cost, ROUNDS[0]), ROUNDS[1]))
    control = Control()
    samples: dict[str, list[float]] = {name: [] for name in runners}
    controls = []
    names = list(runners)
    for turn in range(rounds):
        controls.append(timed(control, 40))
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            samples[name].append(runners[name].sample(counts[name]))
    return {n: Timing(tuple(s)) for n, s in samples.items()}, Timing(tuple(controls))


class Control:
    """A fixed piece of NumPy work, timed in every round: its spread shows a noisy machine."""

    def __init__(self) -> None:
        self.x = np.linspace(0.0, 1.0, 20_000)

    def __call__(self) -> Any:
        return np.exp(self.x)


def timed(call: Any, count: int) -> float:
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
