"""Unscaling a gradient: multiply it in place, and see on the way whether all of it is finite."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from numbagrad.jit import abi, backend, compile, rows, storage, team
from numbagrad.jit.intrinsics import fabs

# What is not finite is counted as ints: a comparison of floats would keep the loop from being vectorised.
_SOURCE = """\
def unscale(grad, factor, found):
    gil = release_gil(grad.size)
    by, bad = {dtype}(factor), int32(0)
    for i in range(grad.size):
        g = grad[i]
        bad |= int32(not (fabs(g) < {dtype}(inf)))
        grad[i] = g * by
    found[uintp(0)] = bad
    acquire_gil(gil)
"""
_CHUNK = 131072


def unscale(grad: np.ndarray, factor: float) -> bool:
    """Multiply a gradient by a number, in place. Whether all of it was finite.

    Examples
    --------
    >>> grad = np.array([2.0, np.inf])
    >>> unscale(grad, 0.5), grad.tolist()
    (False, [1.0, inf])
    """
    flags = grad.flags
    dense = flags.c_contiguous and flags.aligned and flags.writeable and rows.runs_natively(grad)
    if not dense or backend.current() == "reference":
        finite = bool(np.isfinite(grad).all())
        with np.errstate(all="ignore"):
            grad *= grad.dtype.type(factor)
        return finite
    entry, flat = _kernel(grad.dtype.name), grad.reshape(-1)
    count = -(-flat.size // _CHUNK)
    found = np.zeros(count, np.int32)

    def part(k: int) -> None:
        entry(flat[k * _CHUNK : (k + 1) * _CHUNK], factor, found[k : k + 1])

    team.run_chunks(part, count)
    return not found.any()


@functools.cache
def _kernel(name: str) -> Any:
    from numba.core import types

    item = abi.Flat(storage.kernel_type(name), writable=True)
    namespace = {
        "acquire_gil": abi.acquire_gil,
        "fabs": fabs,
        "float32": np.float32,
        "float64": np.float64,
        "inf": np.inf,
        "int32": np.int32,
        "release_gil": abi.release_gil,
        "uintp": np.uintp,
    }
    source = _SOURCE.format(dtype=storage.compute_name(name))
    signature = types.void(item, types.float64, abi.Flat(types.int32, writable=True))
    return compile.compile_source(source, "unscale", signature, namespace=namespace, noalias=True).entry


__all__ = ["unscale"]
