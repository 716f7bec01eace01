"""Each library in a process of its own, as its users run it.

In one process they change each other's times: with the heap that others have left behind, PyTorch and HIPS autograd
page-fault less, and Black-Scholes on a million numbers takes 65 and 80 ms instead of 80 and 140.
"""

from __future__ import annotations

import gc
import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import LIBRARIES, Missing
from benchmarks.measure import Here


class Failed(Exception):
    """What went wrong in the other process."""


class Apart:
    """A library in a process of its own; the process is started again after it died."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Any = None

    def start(self, case: Case) -> list[np.ndarray]:
        """Build and warm up the case; what it computes."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._here, there = context.Pipe()
            self._process = context.Process(target=serve, args=(self.name, there), daemon=True)
            self._process.start()
            there.close()
        return self._ask("start", case.id)

    def sample(self, count: int) -> float:
        """Seconds per call of `count` in a row."""
        return self._ask("sample", count)

    def stop(self) -> None:
        """Forget the case."""
        if self._process is not None:
            self._ask("stop")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._here.close()
            self._process.join()
            self._process = None

    def _ask(self, *question: Any) -> Any:
        try:
            self._here.send(question)
            kind, answer = self._here.recv()
        except (EOFError, OSError):
            self.close()
            raise Failed("the process died") from None
        if kind == "missing":
            raise Missing(answer)
        if kind == "failed":
            raise Failed(answer)
        return answer


def serve(name: str, connection: Connection) -> None:
    """Answer questions until the other end is closed."""
    from benchmarks.cases import all_cases

    cases = {case.id: case for case in all_cases()}
    library = LIBRARIES[name]
    here = Here(library)
    gc.freeze()
    with library.active():
        while True:
            try:
                verb, *values = connection.recv()
            except EOFError:
                return
            connection.send(answer(here, cases, verb, values))


def answer(here: Here, cases: dict[str, Case], verb: str, values: list[Any]) -> tuple[str, Any]:
    """What to send back: the kind of the answer, and the answer."""
    try:
        return "done", getattr(here, verb)(*(cases[v] if verb == "start" else v for v in values))
    except Missing as error:
        return "missing", str(error)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
