"""A team of threads for large kernels: the caller and helpers take numbered chunks until none is left.

Numba's own threads kill a forked child or abort under two callers, so kernels are serial and this team calls
them. The boundaries of chunks do not depend on the number of threads, so results do not either. Handing out
work costs about 15 µs; it pays from about 100 µs of work.
"""

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

# Kernels let go of the interpreter lock from this many items on, and no vectorised loop is unrolled further,
# so whole multiples of it run at once and give the same bits as one long loop.
CHUNK_STEP = 16384


# ----- For users -----


def get_num_threads() -> int:
    """How many threads a large kernel runs on, the caller among them.

    Returns
    -------
    int
        What `set_num_threads` or else NUMBAGRAD_NUM_THREADS says, else the processors this process may use.

    Examples
    --------
    >>> get_num_threads() >= 1
    True
    """
    global _num_threads
    if _num_threads is None:
        _num_threads = _default_num_threads()
    return _num_threads


def set_num_threads(n: int) -> None:
    """Set how many threads a large kernel runs on.

    Parameters
    ----------
    n
        At least 1, which means the caller alone.

    Raises
    ------
    TypeError, ValueError
        If n is not a whole number, or less than 1.

    Examples
    --------
    >>> set_num_threads(get_num_threads())
    """
    global _num_threads
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"the number of threads must be an int, got {n!r} of type {type(n).__name__}")
    if n < 1:
        raise ValueError(f"the number of threads must be at least 1, got {n}")
    _num_threads = int(n)


# ----- For kernels -----


def run_flat(entry: Callable[..., Any], flats: Sequence[Any], size: int, chunk: int) -> None:
    """Call an elementwise kernel on `size` items, in chunks if there are threads for them.

    Parameters
    ----------
    entry
        The kernel's entry point. It must let go of the interpreter lock for the chunks to run at once.
    flats
        Its arguments: 1-d contiguous arrays of `size` items, which are sliced, and scalars, which are passed
        on.
    size
        The number of items.
    chunk
        Items in a chunk, rounded up to whole multiples of CHUNK_STEP.
    """
    if size <= chunk or get_num_threads() == 1:
        entry(*flats)
        return
    chunk = -(-chunk // CHUNK_STEP) * CHUNK_STEP

    def run(i: int) -> None:
        part = slice(i * chunk, (i + 1) * chunk)
        entry(*[flat[part] if isinstance(flat, np.ndarray) else flat for flat in flats])

    run_chunks(run, -(-size // chunk))


def run_chunks(f: Callable[[int], object], n_chunks: int) -> None:
    """Call `f(i)` for each i below `n_chunks`, on the team.

    Parameters
    ----------
    f
        Does one chunk of the work. What it returns is dropped.
    n_chunks
        The number of chunks.

    Raises
    ------
    BaseException
        What f raised; if several chunks raised, the exception of the first of them in number.
        Chunks that nobody had begun by then are left out.
    """
    helpers = min(get_num_threads(), n_chunks) - 1
    if helpers < 1 or getattr(_here, "working", False):
        for i in range(n_chunks):
            f(i)
        return
    job = _Job(f, n_chunks)
    _team.call(job, helpers)
    job.work()
    job.wait()


class _Job:
    """Chunks to be done, and how far they are."""

    __slots__ = ("_all_done", "_count", "_f", "_failure", "_left", "_lock", "_next")

    def __init__(self, f: Callable[[int], object], count: int) -> None:
        self._f: Callable[[int], object] | None = f
        self._count = self._left = count
        self._next = 0
        self._failure: tuple[int, BaseException] | None = None
        self._lock = threading.Lock()
        self._all_done = threading.Lock()
        self._all_done.acquire()

    def work(self) -> None:
        """Take chunks until none is left."""
        _here.working = True
        try:
            while (i := self._take()) is not None:
                self._do(i)
        finally:
            _here.working = False

    def wait(self) -> None:
        """Wait for the chunks that others took, and raise what went wrong."""
        self._all_done.acquire()
        # A helper that was busy may find this job in its queue much later; the arrays must not wait for it.
        self._f = None
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure[1]
        finally:
            del failure  # its traceback refers to this frame

    def _take(self) -> int | None:
        with self._lock:
            if self._next >= self._count:
                return None
            self._next += 1
            return self._next - 1

    def _do(self, i: int) -> None:
        try:
            self._f(i)  # type: ignore[misc]
        except BaseException as error:
            self._fail(i, error)
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._all_done.release()

    def _fail(self, i: int, error: BaseException) -> None:
        """Remember the failure and drop the chunks that nobody has begun."""
        with self._lock:
            if self._failure is None or i < self._failure[0]:
                self._failure = i, error
            self._left -= self._count - self._next
            self._next = self._count


class _Team:
    """The helpers, started when first needed; they live as long as the process."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        # Starting a thread may collect garbage, whose finalizers may compute.
        self._lock = threading.RLock()
        self._stopped = False

    def call(self, job: _Job, helpers: int) -> None:
        """Ask that many helpers to join the job."""
        if len(self._threads) < helpers:
            self._hire(helpers)
        for _ in range(min(helpers, len(self._threads))):
            self._jobs.put(job)

    def stop(self) -> None:
        """Send the helpers home; jobs are done by their callers alone from now on."""
        with self._lock:
            self._stopped = True
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()

    def _hire(self, helpers: int) -> None:
        with self._lock:
            while len(self._threads) < helpers and not self._stopped:
                thread = threading.Thread(target=self._help, name=f"numbagrad-{len(self._threads) + 1}")
                try:
                    thread.start()
                except RuntimeError:  # no more threads to be had: the caller does the rest
                    return
                self._threads.append(thread)

    def _help(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.work()
            del job


def _default_num_threads() -> int:
    text = os.environ.get("NUMBAGRAD_NUM_THREADS")
    if text:
        if not text.strip().isdecimal() or int(text) < 1:
            raise ValueError(f"NUMBAGRAD_NUM_THREADS must be a whole number from 1 on, got {text!r}")
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _begin_again() -> None:
    """In a forked child: the helpers exist only in the parent."""
    global _team
    _team = _Team()
    _here.working = False


_num_threads: int | None = None
_here = threading.local()
_team = _Team()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)
# Runs before the interpreter waits for threads, which `atexit` does not; concurrent.futures does the same.
threading._register_atexit(lambda: _team.stop())  # type: ignore[attr-defined]
