"""What runs in a fresh process: `python -m benchmarks.child TASK LIBRARY` prints one JSON object of figures.

Nothing but the standard library may be imported here at the top: imports are what is measured. Times are CPU seconds
of the process, so waiting for another program's turn does not count.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

MILLION = 1_000_000
PARTS = ("forward", "backward", "freeing")


def import_(library: str) -> dict[str, float]:
    """Seconds to import it."""
    start = process_time()
    importlib.import_module(library)
    return {"seconds": process_time() - start}


def first_gradient(library: str) -> dict[str, float]:
    """Seconds from the start of the process to the first gradient of sum(tanh(x*w+b)**2)."""
    import numpy as np

    from benchmarks.libraries import LIBRARIES
    from benchmarks.programs import normal, tanh_chain

    lib = LIBRARIES[library]
    with lib.active():
        inputs = normal(3, "float32")(np.random.default_rng(0), 1000)
        lib.call("forward+backward", tanh_chain, inputs, (0, 1, 2))()
    return {"seconds": process_time()}


def million(library: str) -> dict[str, float]:
    """A chain of multiplications, of a tenth of a million and of a million ops: seconds, and memory kept after it."""
    import numpy as np

    from benchmarks.libraries import LIBRARIES

    lib = LIBRARIES[library]
    figures: dict[str, float] = {}
    with lib.active():
        steps = CHAINS[library](lib, np.full(8, 1.0))
        steps(1000)
        short = steps(MILLION // 10)
        before = memory()
        long = steps(MILLION)
        gc.collect()
        figures["memory kept"] = memory() - before
    figures |= long
    figures["slope"] = sum(long.values()) / (10 * sum(short.values()))
    return figures


def taped_chain(lib: Any, values: Any) -> Callable[[int], dict[str, float]]:
    """The chain in a library with tensors."""
    x, seed = lib.array(values, True), lib.array(values)

    def run(count: int) -> dict[str, float]:
        x.grad = None
        marks = [process_time()]
        y = x
        for _ in range(count):
            y = y * 1.0
        marks.append(process_time())
        # Kept, so that freeing has a part of its own.
        y.backward(seed, retain_graph=True)
        marks.append(process_time())
        del y
        marks.append(process_time())
        return between(marks)

    return run


def traced_chain(lib: Any, values: Any) -> Callable[[int], dict[str, float]]:
    """The chain in HIPS autograd."""
    make_vjp = importlib.import_module("autograd").make_vjp

    def run(count: int) -> dict[str, float]:
        def chain(x: Any) -> Any:
            y = x
            for _ in range(count):
                y = y * 1.0
            return y

        marks = [process_time()]
        pull, _ = make_vjp(chain)(values)
        marks.append(process_time())
        pull(values)
        marks.append(process_time())
        del pull
        marks.append(process_time())
        return between(marks)

    return run


def between(marks: list[float]) -> dict[str, float]:
    """The time that each part took."""
    return {part: b - a for part, (a, b) in zip(PARTS, pairwise(marks), strict=True)}


CHAINS = {"numbagrad": taped_chain, "reference": taped_chain, "torch": taped_chain, "autograd": traced_chain}


def training(library: str) -> dict[str, float]:
    """10,000 training steps: memory gained after the first 100, in MB, and seconds per step."""
    import numpy as np

    from benchmarks.libraries import LIBRARIES
    from benchmarks.training import STEPS, make

    lib = LIBRARIES[library]
    with lib.active():
        step = STEPS[library](lib, make(np.random.default_rng(0), 64))
        for _ in range(100):
            step()
        before, start = memory(), process_time()
        for _ in range(9_900):
            step()
        return {"memory gained": memory() - before, "seconds": (process_time() - start) / 9_900}


def threads(library: str) -> dict[str, float]:
    """Seconds of wall time that tanh of a million numbers takes on one thread and on two, in float32 and float64."""
    import numpy as np

    ng = importlib.import_module("numbagrad")
    if hasattr(os, "sched_setaffinity"):
        # The table is measured on one core.
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    figures = {}
    for dtype in ("float32", "float64"):
        x = ng.tensor(np.random.default_rng(0).standard_normal(MILLION).astype(dtype))
        samples: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(100):
            for count, times in samples.items():
                ng.set_num_threads(count)
                start = perf_counter()
                ng.tanh(x)
                times.append(perf_counter() - start)
        figures |= {f"{dtype} on {count}": median(times) for count, times in samples.items()}
    return figures


def memory() -> float:
    """Resident memory now, in MB; where the system does not tell, the most so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        resource = importlib.import_module("resource")
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


TASKS = {"import": import_, "first": first_gradient, "million": million, "threads": threads, "training": training}

if __name__ == "__main__":
    task, name = sys.argv[1:]
    print(json.dumps(TASKS[task](name)))
