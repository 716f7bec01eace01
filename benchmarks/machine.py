"""One core and one thread for everybody, and what machine the figures are from."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMBAGRAD_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""Read by the libraries when they are imported, so set before."""


def use_one_thread() -> None:
    """Set what keeps each library to one thread. Call it before NumPy is imported."""
    os.environ.update(ONE_THREAD)


def pin(core: int | None = None) -> int | None:
    """Keep this process on one core, the last one by default. None where the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {core})
    return core


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """Version of each distribution that is installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's name in its maker's words."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
