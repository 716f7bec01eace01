"""What this installation is and what it runs on: ``python -m numbagrad info``."""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.metadata
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

import llvmlite.binding

from numbagrad.jit import backend, cache, team

SIMD = (
    "sse2", "sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512bf16",
    "avx512fp16", "avx10.1", "neon", "fp-armv8", "fullfp16", "bf16", "sve", "sve2", "v", "zvfh",
)  # fmt: skip
SETTINGS = ("NUMBAGRAD_", "NUMBA_")
EXTRAS = {
    "scipy": ("scipy",),
    "half": ("ml_dtypes",),
    "cuda": ("cupy-cuda13x", "cupy-cuda12x", "cupy", "numba-cuda-mlir", "numba-cuda"),
    "dask": ("dask",),
    "examples": ("scikit-learn", "matplotlib"),
}


def collect() -> dict[str, str]:
    """Everything that a report of a fault should say, by heading.

    Nothing is compiled, and no GPU library is loaded.

    Returns
    -------
    dict of str to str
        One line of text for each heading.

    Examples
    --------
    >>> from numbagrad import info
    >>> list(info.collect())[:3]
    ['numbagrad', 'Python', 'numpy']
    """
    return {
        "numbagrad": version("numbagrad"),
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        **{name: version(name) for name in ("numpy", "numba", "llvmlite")},
        "system": platform.platform(),
        "CPU": f"{cpu_model()} (LLVM: {llvmlite.binding.get_host_cpu_name()})",
        "SIMD": ", ".join(simd_features()) or "none that LLVM knows of",
        "threads": f"{team.get_num_threads()} of {os.cpu_count()} processors",
        "backend": backend.current(),
        "cache": cache_state(),
        "settings": " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(SETTINGS)) or "none",
        **{f"extra {name}": extra_state(packages) for name, packages in EXTRAS.items()},
        "CUDA": cuda_state(),
    }


def version(distribution: str) -> str:
    """The installed version, or that there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def cpu_model() -> str:
    """The processor's name as its maker writes it, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return next(filter(None, names), platform.processor() or platform.machine())


def simd_features() -> list[str]:
    """The vector instruction sets that LLVM may use on this CPU."""
    features = llvmlite.binding.get_host_cpu_features()
    return [name for name in SIMD if features.get(name)]


def cache_state() -> str:
    """Where compiled kernels are kept, and how much that is."""
    try:
        folder = cache.folder()
    except RuntimeError as error:  # no home folder
        return f"none: {error}"
    files, size = cache.size()
    return f"{folder} ({files} kernels, {size / 1e6:.1f} MB)"


def extra_state(packages: Sequence[str]) -> str:
    """The versions of an extra's packages that are installed."""
    found = [f"{name} {version(name)}" for name in packages if version(name) != "not installed"]
    return ", ".join(found) or "not installed"


def cuda_state() -> str:
    """What can be said of CUDA without loading any of it."""
    return f"{driver()}; {gpus()}; numbagrad {version('numbagrad')} has no CUDA backend"


def driver() -> str:
    """The NVIDIA driver's version, or that none is found."""
    file = Path("/proc/driver/nvidia/version")
    if file.exists():
        return "driver: " + next(word for word in file.read_text().split() if word[0].isdigit() and "." in word)
    found = ctypes.util.find_library("cuda") or ctypes.util.find_library("nvcuda")
    return f"driver: {found}" if found else "no driver"


def gpus() -> str:
    """The models of the GPUs that the kernel's driver lists."""
    return ", ".join(gpu_models()) or "no GPU"


def gpu_models() -> Iterator[str]:
    """One name per NVIDIA GPU (Linux only)."""
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in file.read_text().splitlines():
            if line.startswith("Model:"):
                yield line.partition(":")[2].strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Print what `collect` finds."""
    argparse.ArgumentParser(
        prog="python -m numbagrad info", description="Show what this installation is and what it runs on."
    ).parse_args(argv)
    lines = collect()
    width = max(map(len, lines))
    for name, text in lines.items():
        print(f"{name:<{width}}  {text}")
    return 0
