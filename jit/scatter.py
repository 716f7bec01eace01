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
def scatter_add(places, rows, out, width):
    state = release_gil(rows.size)
    if width == uintp(1):
        for k in range(places.size):
            out[uintp(places[k])] += rows[k]
    else:
        for k in range(places.size):
            start = uintp(places[k]) * width
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
        Row numbers, none negative and all within `out`: they are not checked.
    rows : ndarray
        As many rows as there are places, two-dimensional, of the dtype of `out`.
    out : ndarray
        C-contiguous and two-dimensional, with rows of the same length.

    Examples
    --------
    >>> out = np.zeros((3, 1))
    >>> scatter_add(np.array([2, 0, 2]), np.array([[1.0], [2.0], [4.0]]), out)
    >>> out[:, 0].tolist()
    [2.0, 0.0, 5.0]
    """
    real = _REAL.get(out.dtype)
    if real is not None:
        rows, out = np.ascontiguousarray(rows).view(real), out.view(real)
    if backend.current() == "reference" or out.dtype.char not in "fd":
        np.add.at(out, places, rows)
        return
    places = np.ascontiguousarray(places, np.int64)
    rows = np.require(rows, out.dtype, ["C", "A"])
    _kernel(out.dtype.char)(places, rows, out, out.shape[1])


@functools.cache
def _kernel(char: str) -> Callable[..., Any]:
    flat = [abi.Flat("int64"), abi.Flat(char), abi.Flat(char, writable=True)]
    namespace = {"release_gil": abi.release_gil, "acquire_gil": abi.acquire_gil, "uintp": types.uintp}
    signature = types.void(*flat, types.uintp)
    return compile.compile_source(_SOURCE, "scatter_add", signature, namespace=namespace, noalias=True).entry


__all__ = ["scatter_add"]
