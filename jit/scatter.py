"""Gather and scatter: taking rows of an array, and adding rows into those of another where several may go to one place.

What is added to one place is added in the order of the rows. Wide rows are split between threads by columns; many
narrow rows into few places are added up in chunks apart, whose number depends on sizes only; all else is added by one
thread. So a result never depends on the number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from numbagrad.jit import abi, backend, compile, memory, team

COLUMNS = 32
"""Items of a row from which on threads share it, and the least that one takes."""

NARROW = 8
"""Rows of fewer items are taken by NumPy."""

CHUNK_ITEMS, CHUNKS_AT_MOST = 131072, 16
"""Items in a chunk of narrow rows, unless that makes more chunks than these."""

_SCATTER = """\
def scatter_add(places, rows, out, first, last, begin, end, width, length, at):
    state = release_gil(uintp(last - first) * (end - begin))
    if width == uintp(1):
        for k in range(first, last):
            place = places[k]
            out[at + uintp(place if place >= 0 else place + length)] += rows[k]
    else:
        for k in range(first, last):
            place = places[k]
            start = at + uintp(place if place >= 0 else place + length) * width
            row = k * width
            for j in range(begin, end):
                out[start + j] += rows[row + j]
    acquire_gil(state)
"""

_GATHER = """\
def gather(places, x, out, first, last, width, length):
    state = release_gil(uintp(last - first) * width)
    for k in range(first, last):
        place = places[k]
        start = uintp(place if place >= 0 else place + length) * width
        row = k * width
        for j in range(width):
            out[row + j] = x[start + j]
    acquire_gil(state)
"""

_REAL = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}


# ----- Scatter -----


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
    chunks = _chunks(rows.size, out.size)
    if chunks > 1:
        _in_chunks(places, rows, out, chunks)
    else:
        _by_columns(places, rows, out)


def _chunks(items: int, size: int) -> int:
    """In how many chunks the rows are added up apart: many only where their sums are small beside what is added."""
    return min(items // CHUNK_ITEMS, items // (4 * size), CHUNKS_AT_MOST) if size else 1


def _in_chunks(places: np.ndarray, rows: np.ndarray, out: np.ndarray, chunks: int) -> None:
    entry, (length, width) = _scatter_kernel(out.dtype.char), out.shape
    sums = memory.empty((chunks, *out.shape), out.dtype)
    each = -(-len(places) // chunks)

    def add(k: int) -> None:
        sums[k].fill(0)
        here = k * each, min(len(places), (k + 1) * each)
        entry(places, rows, sums, *here, 0, width, width, length, k * out.size)

    team.run_chunks(add, chunks)
    # NumPy adds the chunks up in their order, whatever the number of threads.
    out += np.add.reduce(sums, axis=0)


def _by_columns(places: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    entry, (length, width) = _scatter_kernel(out.dtype.char), out.shape
    parts = min(team.get_num_threads(), width // COLUMNS) if rows.size >= CHUNK_ITEMS else 1
    if parts < 2:
        entry(places, rows, out, 0, len(places), 0, width, width, length, 0)
        return
    # Whole lines of the cache, so that no two threads write to one.
    each = -(-width // parts // COLUMNS) * COLUMNS if width // parts >= COLUMNS else width

    def add(k: int) -> None:
        entry(places, rows, out, 0, len(places), k * each, min(width, (k + 1) * each), width, length, 0)

    team.run_chunks(add, -(-width // each))


# ----- Gather -----


def gather(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """``x.take(places, axis=0)``, on all threads where that pays.

    Parameters
    ----------
    x : ndarray
        C-contiguous, with at least one axis.
    places : ndarray of int

    Raises
    ------
    IndexError
        If a place is out of bounds.

    Examples
    --------
    >>> gather(np.array([1.0, 2.0, 3.0]), np.array([2, 0, -1])).tolist()
    [3.0, 1.0, 3.0]
    """
    length = len(x)
    width = x.size // length if length else 0
    threads = 1 if backend.current() == "reference" else team.get_num_threads()
    small = width < NARROW or places.size * width < 2 * CHUNK_ITEMS
    if threads == 1 or small or x.dtype.itemsize not in _UNITS or _out(places, length):
        return np.asarray(x.take(places, axis=0))
    unit = _UNITS[x.dtype.itemsize]
    numbers = _dense(places.reshape(-1), np.int64)
    out = memory.empty((*places.shape, *x.shape[1:]), x.dtype)
    entry, each = _gather_kernel(unit), max(1, CHUNK_ITEMS // width)

    def take(k: int) -> None:
        here = k * each, min(numbers.size, (k + 1) * each)
        entry(numbers, x.reshape(-1).view(unit), out.reshape(-1).view(unit), *here, width, length)

    team.run_chunks(take, -(-numbers.size // each))
    return out


_UNITS = {2: "int16", 4: "int32", 8: "int64"}
"""What items are copied as, by their size."""


def _out(places: np.ndarray, length: int) -> bool:
    """Whether a place is out of bounds; NumPy says so in its own words."""
    return bool(places.min() < -length or places.max() >= length)


# ----- Kernels -----


def _dense(array: np.ndarray, dtype: Any) -> np.ndarray:
    flags = array.flags
    dense = flags.c_contiguous and flags.aligned and array.dtype == dtype
    return array if dense else np.require(array, dtype, ["C", "A"])


_NAMESPACE = {"release_gil": abi.release_gil, "acquire_gil": abi.acquire_gil, "uintp": types.uintp}


@functools.cache
def _scatter_kernel(char: str) -> Callable[..., Any]:
    flat = [abi.Flat("int64"), abi.Flat(char), abi.Flat(char, writable=True)]
    signature = types.void(*flat, *[types.uintp] * 5, types.intp, types.uintp)
    return compile.compile_source(_SCATTER, "scatter_add", signature, namespace=_NAMESPACE, noalias=True).entry


@functools.cache
def _gather_kernel(unit: str) -> Callable[..., Any]:
    flat = [abi.Flat("int64"), abi.Flat(unit), abi.Flat(unit, writable=True)]
    signature = types.void(*flat, *[types.uintp] * 3, types.intp)
    return compile.compile_source(_GATHER, "gather", signature, namespace=_NAMESPACE, noalias=True).entry


__all__ = ["gather", "scatter_add"]
