"""Scatter: adding rows into the rows of another array, where several may go to the same place.

Rows are added one after the other, in their order, so a result never depends on threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from numbagrad.jit import abi, backend, compile

_SOURCE = """\
def scatter_add(places, rows, out, width, length):
    state = release_gil(rows.size)
    if width == uintp(1):
        for k in range(places.size):
            place = places[k]
            out[uintp(place if place >= 0 else place + length)] += rows[k]
    else:
        for k in range(places.size):
            place = places[k]
            start = uintp(place if place >= 0 else place + length) * width
            row = k * width
            for j in range(width):
                out[start + j] += rows[row + j]
    acquire_gil(state)
"""

_REAL = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}


def scatter_add(places: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Add row ``k`` of `rows` to row ``places[k]`` of `out`, for each k.

    Parameters
    ----------
    places : ndarray of int64
        Row numbers, all within `out`, which is not checked; negative ones count from the end.
    rows : ndarray
        As many rows as there are places, two-dimensional, of the dtype of `out`.
    out : ndarray
        C-contiguous and two-dimensional, with rows of the same length.

    Examples
    --------
    >>> out = np.zeros((3, 1))
    >>> scatter_add(np.array([2, 0, -1]), np.array([[1.0], [2.0], [4.0]]), out)
    >>> out[:, 0].tolist()
    [2.0, 0.0, 5.0]
    """
    real = _REAL.get(out.dtype)
    if real is not None:
        rows, out = np.ascontiguousarray(rows).view(real), out.view(real)
    if backend.current() == "reference" or out.dtype.char not in "fd":
        np.add.at(out, places, rows)
        return
    places, rows = _dense(places, np.int64), _dense(rows, out.dtype)
    _kernel(out.dtype.char)(places, rows, out, out.shape[1], out.shape[0])


def _dense(array: np.ndarray, dtype: Any) -> np.ndarray:
    flags = array.flags
    dense = flags.c_contiguous and flags.aligned and array.dtype == dtype
    return array if dense else np.require(array, dtype, ["C", "A"])


@functools.cache
def _kernel(char: str) -> Callable[..., Any]:
    flat = [abi.Flat("int64"), abi.Flat(char), abi.Flat(char, writable=True)]
    namespace = {"release_gil": abi.release_gil, "acquire_gil": abi.acquire_gil, "uintp": types.uintp}
    signature = types.void(*flat, types.uintp, types.intp)
    return compile.compile_source(_SOURCE, "scatter_add", signature, namespace=namespace, noalias=True).entry


__all__ = ["scatter_add"]
