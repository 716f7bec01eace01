"""Converting whole arrays to and from the floats of 16 bits, several times as fast as NumPy and ml_dtypes do."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from numbagrad.jit import abi, backend, compile, memory, storage, team
from numbagrad.jit.kernel import FLOATS

_SOURCE = """\
def convert(x, out):
    gil = release_gil(out.size)
    for i in range(out.size):
        out[i] = {dtype}(x[i])
    acquire_gil(gil)
"""
_CHUNK = 131072


def convert(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``x.astype(dtype)``, with overflow to infinity instead of a warning.

    Examples
    --------
    >>> convert(np.array([1.0, 1e6], np.float32), np.dtype(np.float16)).tolist()
    [1.0, inf]
    """
    pair = x.dtype.name, dtype.name
    if not _suits(*pair) or backend.current() == "reference" or not (x.flags.c_contiguous and x.flags.aligned):
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    out = memory.empty(x.shape, dtype)
    team.run_flat(_kernel(*pair), [x.reshape(-1), out.reshape(-1)], x.size, _CHUNK)
    return out


@functools.cache
def _suits(source: str, target: str) -> bool:
    """Whether one of the two has 16 bits, and nothing is rounded twice."""
    halves = storage.TYPES.keys() & {source, target}
    return bool(halves) and {source, target} <= {*FLOATS} and (target == "float64" or source != "float64")


@functools.cache
def _kernel(source: str, target: str) -> Any:
    from numba.core import types

    made = types.void(abi.Flat(storage.kernel_type(source)), abi.Flat(storage.kernel_type(target), writable=True))
    namespace = {
        "float32": np.float32,
        "float64": np.float64,
        "release_gil": abi.release_gil,
        "acquire_gil": abi.acquire_gil,
    }
    text = _SOURCE.format(dtype=storage.compute_name(target))
    return compile.compile_source(text, "convert", made, namespace=namespace, noalias=True).entry


__all__ = ["convert"]
