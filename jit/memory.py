"""Memory for large results, kept for the next one instead of being given back to the system.

A fresh page costs more than the arithmetic on it. An eager tape that makes four results of 1 MB one after the
other pays 0.5 ms for each from `np.empty` and 0.036 ms from here; at 33 MB it is 6.0 against 2.6 ms. From 128
KiB on the C library gives memory back, below it `np.empty` is as fast and a microsecond cheaper.

Each result's `.base` is a `_Lease` on its block; when the last view of the result dies, so does the lease,
and the block is kept. What is kept is bounded, and given up when memory runs out.
"""

import itertools
import math
import mmap
import os
import re
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

POOLED_FROM_BYTES = 128 * 1024
# So few that not even complex128 makes them large.
_SMALL_ITEMS = POOLED_FROM_BYTES // 16
_BYTE = np.dtype(np.uint8)
_new = np.ndarray.__new__
_PAGE = 4096
# Arrays that all start on a page boundary share cache sets: a kernel over 18 of them took 40 µs instead of
# 24. An odd number of cache lines visits every place in a page.
_STAGGER = 3 * 64
# Huge pages make a fresh 33 MB result cost 6 ms instead of 17.
_HUGE = 2 * 2**20
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


# ----- For users -----


def empty(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array, like `np.empty`, in memory that is kept for reuse if it is large.

    Parameters
    ----------
    shape
        A size, or a size for each dimension.
    dtype
        Type of the items.

    Returns
    -------
    numpy.ndarray
        A C-contiguous array.

    Examples
    --------
    >>> empty((512, 512), "float64").shape
    (512, 512)
    """
    items = math.prod(shape) if isinstance(shape, tuple) else shape
    return np.empty(shape, dtype) if items < _SMALL_ITEMS else _empty_large(shape, np.dtype(dtype), items)


def _empty_large(shape: int | tuple[int, ...], dtype: np.dtype, items: int) -> np.ndarray:
    nbytes = items * dtype.itemsize
    try:
        if nbytes < POOLED_FROM_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, _lease(nbytes))
    except MemoryError:
        release()
        return np.empty(shape, dtype)


def copy(array: np.ndarray) -> np.ndarray:
    """A C-contiguous copy of an array, of kept memory if it is large.

    Examples
    --------
    >>> copy(np.broadcast_to(1.0, (2, 2))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    if array.size < _SMALL_ITEMS:
        return array.copy(order="C")
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def release() -> None:
    """Give all memory that is kept but not in use back to the system.

    Examples
    --------
    >>> release()
    >>> held_bytes()
    0
    """
    _pool.release()


def held_bytes() -> int:
    """How much memory is kept but not in use.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> held_bytes() >= 0
    True
    """
    return _pool.held


def owns_memory(array: np.ndarray) -> bool:
    """Whether the array is not a view of another array or object.

    Parameters
    ----------
    array
        Any ndarray.

    Returns
    -------
    bool
        True for what NumPy allocated for it and for what `empty` gives.

    Examples
    --------
    >>> x = empty(100_000, "float64")
    >>> owns_memory(x), owns_memory(x[1:])
    (True, False)
    """
    return array.base is None or type(array.base) is _Lease


# ----- How much is kept -----


def _limit() -> int:
    """NUMBAGRAD_MEMORY_POOL, else an eighth of the memory there is, 2 GiB at most."""
    text = os.environ.get("NUMBAGRAD_MEMORY_POOL")
    if not text:
        return min(2 * 2**30, _memory_there_is() // 8)
    match = re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"NUMBAGRAD_MEMORY_POOL must be bytes, such as 0, 512M or 2G; got {text!r}")
    return int(match[1]) * _UNITS[match[2].upper()]


def _memory_there_is() -> int:
    """The machine's memory, or the container's if that is less; 4 GiB where nobody tells."""
    found = [2**63]
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found) if len(found) > 1 else 4 * 2**30


# ----- Blocks -----


class _Block(NamedTuple):
    """Memory of `nbytes` that begins `offset` bytes into `pages`."""

    pages: mmap.mmap
    offset: int
    nbytes: int


class _Pool:
    """Blocks that are not in use, by size.

    Garbage is collected and signals are handled anywhere, so a lease may die, or an array be asked for, while
    this very thread is inside the pool. So nobody waits for the lock: who does not get it takes fresh memory,
    or leaves a block in a queue, which needs no lock, for the next to put away.
    """

    __slots__ = ("_lock", "_returned", "_shelves", "held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reset()

    def reset(self) -> None:
        """Begin again without blocks, whatever other threads were about to do."""
        self.held = 0
        self._returned: deque[_Block] = deque()
        # A size goes when its last block is taken and comes back last, so sizes out of use stay in front.
        self._shelves: dict[int, list[_Block]] = {}
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> _Block | None:
        """A block of that size, if there is one."""
        if nbytes not in self._shelves or not self._lock.acquire(False):
            return None
        try:
            shelf = self._shelves.pop(nbytes, None)
            if shelf is None:
                return None
            block = shelf.pop()
            if shelf:
                self._shelves[nbytes] = shelf
            self.held -= nbytes
            return block
        finally:
            self._lock.release()

    def give(self, block: _Block) -> None:
        """Keep a block that is no longer in use."""
        if block.nbytes > self.limit:
            return
        self._returned.append(block)
        # Between the last look at the queue and the release another thread may have left a block there.
        while self._returned and self._lock.acquire(False):
            try:
                surplus = self._put_away()
            finally:
                self._lock.release()
            del surplus  # outside the lock: unmapping 33 MB takes a millisecond

    def release(self) -> None:
        """Drop every block."""
        # Another thread needs microseconds; if it takes longer, it is this thread that is inside already.
        if not self._lock.acquire(timeout=1.0):
            return
        try:
            surplus = self._put_away()
            shelves, self._shelves = self._shelves, {}
            self.held = 0
        finally:
            self._lock.release()
        del surplus, shelves

    def _put_away(self) -> list[_Block] | None:
        """Shelve what was returned; gives back what is too much."""
        while self._returned:
            block = self._returned.popleft()
            nbytes = block.nbytes
            if nbytes in self._shelves:
                self._shelves[nbytes].append(block)
            else:
                self._shelves[nbytes] = [block]
            self.held += nbytes
        return self._surplus() if self.held > self.limit else None

    def _surplus(self) -> list[_Block]:
        """Take down blocks until the rest is within the limit, from the sizes that are longest out of use."""
        surplus = []
        for nbytes, shelf in list(self._shelves.items()):
            while shelf and self.held > self.limit:
                surplus.append(shelf.pop(0))
                self.held -= nbytes
            if not shelf:
                del self._shelves[nbytes]
        return surplus


_pool = _Pool(_limit())
_made = itertools.count()


class _Lease(np.ndarray):
    """The bytes of a block while they are in use; gives the block back when it dies."""

    __slots__ = ("_block",)
    _block: _Block

    # A default, because a module's names may be gone when the interpreter shuts down.
    def __del__(self, give: Callable[[_Block], None] = _pool.give) -> None:
        try:
            block = self._block
        except AttributeError:  # a view of a lease
            return
        give(block)


def _lease(nbytes: int) -> _Lease:
    """The bytes for a large array; MemoryError if there are none."""
    size = _rounded(nbytes)
    block = _pool.take(size) or _fresh(size)
    lease = _new(_Lease, (size,), _BYTE, block.pages, block.offset)
    lease._block = block
    return lease


def _fresh(size: int) -> _Block:
    try:
        return _map(size)
    except MemoryError:
        release()
        return _map(size)


def _rounded(nbytes: int) -> int:
    """Up to an eighth more, so that arrays of nearly the same size can follow one another."""
    step = 1 << (nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


def _map(nbytes: int) -> _Block:
    """Fresh memory, private to this process even after a fork."""
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            pages = mmap.mmap(-1, nbytes + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            pages = mmap.mmap(-1, nbytes + _PAGE)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no {nbytes} bytes to be had: {error}") from error
    if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel may be built without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return _Block(pages, next(_made) * _STAGGER % _PAGE, nbytes)


# ----- Fork -----

# A child writes to its own copy of each page, which costs as much as a new one; so it begins without any.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)
