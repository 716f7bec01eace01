"""Large results reuse memory, never while somebody can still see it, and never more than is allowed."""

import contextlib
import gc
import os
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from numbagrad.jit import memory
from numbagrad.jit.memory import POOLED_FROM_BYTES, empty, held_bytes, owns_memory, release

LARGE = POOLED_FROM_BYTES // 8 + 100  # items of float64


@pytest.fixture(autouse=True, scope="module")
def little_to_collect():
    """What lives already is left out of collections, which are many here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_held():
    gc.collect()
    release()
    yield
    gc.collect()
    release()


@pytest.fixture
def limit(monkeypatch):
    def set_limit(nbytes):
        monkeypatch.setattr(memory._pool, "limit", nbytes)

    return set_limit


def address(x):
    return x.ctypes.data


# ----- What an array is like -----


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f4", "f8", "c16", np.float32, "f2", "M8[s]", "S5"])
@pytest.mark.parametrize("shape", [0, 3, (), (0, 5), (2, 3), 300_000, (600, 700), (2, 1, 300, 500)], ids=str)
def test_an_array_is_as_numpys(shape, dtype):
    x, expected = empty(shape, dtype), np.empty(shape, dtype)
    assert (x.shape, x.dtype, x.strides) == (expected.shape, expected.dtype, expected.strides)
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert x.flags.aligned
    assert type(x) is np.ndarray


def test_objects_never_lie_in_used_memory():
    x = empty(LARGE, "f8")
    x[:] = 1
    del x
    assert (empty(LARGE, object) == None).all()  # noqa: E711


@pytest.mark.parametrize("shape", [-1, (-3, -LARGE), (-LARGE, 1)], ids=str)
def test_negative_sizes_are_refused_as_numpy_does(shape):
    with pytest.raises(ValueError, match="negative dimensions"):
        empty(shape, "f8")
    assert held_bytes() in (0, memory._rounded(3 * LARGE * 8))


@pytest.mark.parametrize("shape", [2**62, (2**31, 2**31), 10**30], ids=str)
def test_impossible_sizes_are_refused_as_numpy_does(shape):
    with pytest.raises((MemoryError, ValueError, OverflowError)):
        empty(shape, "f8")


def test_arrays_behave_under_pickling_and_copying():
    x = empty(LARGE, "f8")
    x[:] = np.arange(LARGE)
    for y in (pickle.loads(pickle.dumps(x)), x.copy(), np.array(x)):
        assert not np.shares_memory(x, y)
        np.testing.assert_array_equal(x, y)


def test_large_arrays_begin_at_a_cache_line_and_not_all_at_one_place_in_a_page():
    arrays = [empty(LARGE, "f8") for _ in range(64)]
    assert all(address(x) % 64 == 0 for x in arrays)
    assert len({address(x) % 4096 for x in arrays}) == 64


# ----- Reuse -----


def test_memory_comes_back_when_an_array_dies():
    x = empty(LARGE, "f8")
    place = address(x)
    assert held_bytes() == 0
    del x
    assert held_bytes() == memory._rounded(LARGE * 8)
    y = empty((LARGE // 2, 2), "f8")
    assert address(y) == place
    assert held_bytes() == 0


def test_small_arrays_are_numpys():
    x = empty(POOLED_FROM_BYTES - 1, "u1")
    assert x.base is None
    assert x.flags.owndata
    assert isinstance(empty(POOLED_FROM_BYTES, "u1").base, memory._Lease)


def test_arrays_of_nearly_the_same_size_follow_one_another():
    x = empty(1_000_000, "f4")
    place = address(x)
    del x
    assert address(empty(1_001_000, "f4")) == place


@pytest.mark.parametrize("nbytes", [POOLED_FROM_BYTES, 150_001, 2**20, 2**20 + 1, 33_000_000, 2**40 - 1])
def test_at_most_an_eighth_is_wasted(nbytes):
    assert nbytes <= memory._rounded(nbytes) <= nbytes * 9 / 8


def test_live_arrays_never_share_memory():
    rng = np.random.default_rng(0)
    live = []
    for step in range(2000):
        x = empty(LARGE + int(rng.integers(0, 3000)), "f8")
        x[:: LARGE // 50] = step
        live.append((step, x))
        if len(live) > 8:
            step, x = live.pop(int(rng.integers(len(live))))
            assert (x[:: LARGE // 50] == step).all()


VIEWS = {
    "a slice": lambda x: x[5:10],
    "a reshape": lambda x: x.reshape(2, -1),
    "a view of a view": lambda x: x[2:][::2].T,
    "another dtype": lambda x: x.view("u1"),
    "broadcast": lambda x: np.broadcast_to(x, (2, x.size)),
    "a memoryview": memoryview,
    "the base": lambda x: x.base,
    "a view of the base": lambda x: x.base[3:7],
    "a subclass": lambda x: x.view(np.matrix),
    "as_strided": lambda x: np.lib.stride_tricks.as_strided(x, (3,), (16,)),
    "another array on the same buffer": lambda x: np.frombuffer(x),
    "an iterator": np.nditer,
    "a capsule's array": lambda x: np.from_dlpack(x),
}


@pytest.mark.parametrize("make", VIEWS.values(), ids=list(VIEWS))
def test_memory_is_not_reused_while_a_view_lives(make):
    x = empty(LARGE + LARGE % 2, "f8")
    place = address(x)
    view = make(x)
    del x
    gc.collect()
    assert held_bytes() == 0
    assert address(empty(LARGE, "f8")) != place
    del view
    gc.collect()
    assert address(empty(LARGE, "f8")) == place or held_bytes() > 0


def test_a_view_keeps_the_values():
    x = empty(LARGE, "f8")
    x[:] = 7
    view = x[10:20]
    del x
    others = [empty(LARGE, "f8") for _ in range(5)]
    for other in others:
        other[:] = 0
    np.testing.assert_array_equal(view, np.full(10, 7.0))


def test_arrays_in_cycles_come_back():
    cycle = [empty(LARGE, "f8")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert held_bytes() == memory._rounded(LARGE * 8)


def test_a_thousand_arrays_one_after_the_other_need_one_block():
    places = set()
    for _ in range(1000):
        x = empty(LARGE, "f8")
        places.add(address(x))
        del x
    assert len(places) == 1
    assert held_bytes() == memory._rounded(LARGE * 8)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_nothing_leaks(limit):
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    limit(10 * 2**20)
    rng = np.random.default_rng(0)
    before = resident()
    for _ in range(300):
        empty(int(rng.integers(2**20, 8 * 2**20)), "u1")[:] = 1
    release()
    assert resident() - before < 50 * 2**20


# ----- Ownership -----


def test_what_was_allocated_for_it_is_its_own():
    for shape in (3, LARGE):
        assert owns_memory(empty(shape, "f8"))
        assert owns_memory(np.empty(shape))


@pytest.mark.parametrize("n", [1000, LARGE])
def test_views_do_not_own(n):
    x = empty(n, "f8")
    assert not owns_memory(x[:])
    assert not owns_memory(x.reshape(2, -1))
    assert not owns_memory(x[:][3:])
    assert not owns_memory(np.frombuffer(x))
    assert not owns_memory(np.broadcast_to(x, (2, n)))


# ----- Bounds -----


def test_no_more_than_the_limit_is_held(limit):
    size = memory._rounded(LARGE * 8)
    limit(3 * size)
    arrays = [empty(LARGE, "f8") for _ in range(10)]
    kept = {address(x) for x in arrays[-3:]}
    while arrays:
        del arrays[0]
        assert held_bytes() <= 3 * size
    assert held_bytes() == 3 * size
    assert {address(x) for x in [empty(LARGE, "f8") for _ in range(3)]} == kept


def test_sizes_that_are_no_longer_used_go_first(limit):
    old, new = 2 * LARGE, LARGE
    limit(memory._rounded(old * 8) + memory._rounded(new * 8))
    for n in (old, new):
        empty(n, "f8")
    both = [empty(new, "f8") for _ in range(2)]
    places = {address(x) for x in both}
    del both
    assert held_bytes() == 2 * memory._rounded(new * 8)
    assert {address(x) for x in [empty(new, "f8") for _ in range(2)]} == places


def test_what_exceeds_the_limit_alone_drives_nothing_out(limit):
    limit(memory._rounded(LARGE * 8))
    small = empty(LARGE, "f8")
    place = address(small)
    del small
    empty(4 * LARGE, "f8")
    assert held_bytes() == memory._rounded(LARGE * 8)
    assert address(empty(LARGE, "f8")) == place


def test_a_limit_of_nothing_keeps_nothing(limit):
    limit(0)
    for _ in range(10):
        empty(LARGE, "f8")[:] = 1
        assert held_bytes() == 0


def test_release_gives_everything_back():
    arrays = [empty(n * LARGE, "f8") for n in (1, 2, 3)]
    del arrays
    assert held_bytes() > 0
    release()
    assert held_bytes() == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1000", 1000), ("3K", 3072), ("512M", 2**29), ("2g", 2**31), ("2 GiB", 2**31)],
)
def test_the_environment_gives_the_limit(text, expected, monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_MEMORY_POOL", text)
    assert memory._limit() == expected


@pytest.mark.parametrize("text", ["-1", "much", "1.5G", "2T", "G"])
def test_the_environment_may_be_wrong(text, monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_MEMORY_POOL", text)
    with pytest.raises(ValueError, match=f"NUMBAGRAD_MEMORY_POOL must be bytes.* got '{text}'"):
        memory._limit()


def test_else_it_is_an_eighth_of_the_memory_or_2_gib(monkeypatch):
    monkeypatch.delenv("NUMBAGRAD_MEMORY_POOL", raising=False)
    for there_is, expected in [(2**30, 2**27), (2**34, 2**31), (2**40, 2**31)]:
        monkeypatch.setattr(memory, "_memory_there_is", lambda there_is=there_is: there_is)
        assert memory._limit() == expected


def test_a_containers_memory_counts(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda path: f"{3 * 2**20}\n")
    assert memory._memory_there_is() == 3 * 2**20
    monkeypatch.setattr(Path, "read_text", lambda path: "max\n")
    assert memory._memory_there_is() > 3 * 2**20


# ----- Out of memory -----


def test_when_memory_runs_out_the_pool_is_emptied_and_the_system_asked_again(monkeypatch):
    for n in (2, 3):
        empty(n * LARGE, "f8")
    asked, make = [], memory._map

    def scarce(nbytes):
        asked.append(held_bytes())
        if held_bytes():
            raise MemoryError
        return make(nbytes)

    monkeypatch.setattr(memory, "_map", scarce)
    x = empty(LARGE, "f8")
    assert isinstance(x.base, memory._Lease)
    assert asked[0] > 0
    assert asked[1:] == [0]


def test_small_arrays_get_what_the_pool_held_too(monkeypatch):
    empty(LARGE, "f8")
    make = np.empty

    def scarce(shape, dtype):
        if held_bytes():
            raise MemoryError
        return make(shape, dtype)

    monkeypatch.setattr(np, "empty", scarce)
    assert empty((memory._SMALL_ITEMS,), "u1").nbytes == memory._SMALL_ITEMS


def test_in_the_end_numpy_says_that_there_is_no_memory(monkeypatch):
    def none(*args, **kwargs):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(memory.mmap, "mmap", none)
    with pytest.raises(MemoryError, match="Unable to allocate"):
        empty(2**50, "f8")
    assert empty(LARGE, "f8").base is None


# ----- Threads, garbage, forks -----


def test_threads_never_get_the_same_memory():
    wrong = []

    def work(k):
        for step in range(300):
            x = empty(LARGE + step % 3 * 1000, "f8")
            x[::1000] = k
            y = empty(LARGE, "f8")
            y[::1000] = -k
            if not ((x[::1000] == k).all() and (y[::1000] == -k).all()):
                wrong.append(k)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    del threads
    blocks = [block for shelf in memory._pool._shelves.values() for block in shelf]
    assert held_bytes() == sum(block.nbytes for block in blocks)
    assert len({id(block.pages) for block in blocks}) == len(blocks)


def test_inside_the_pool_nobody_waits():
    """Garbage collected, or a signal handled, while this thread holds the lock must not lock it up."""
    x, y = empty(LARGE, "f8"), empty(LARGE, "f8")
    place = address(x)
    del x
    with memory._pool._lock:
        assert address(empty(LARGE, "f8")) != place
        del y
    assert address(empty(LARGE, "f8")) == place
    empty(2 * LARGE, "f8")
    assert held_bytes() >= 3 * memory._rounded(LARGE * 8) + memory._rounded(2 * LARGE * 8)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_memory_of_its_own():
    x, idle = empty(LARGE, "f8"), empty(LARGE, "f8")
    x[:] = 1
    del idle
    held = held_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside other tests' threads
        pid = os.fork()
    if pid == 0:
        good = False
        with contextlib.suppress(BaseException):
            good = held_bytes() == 0 and bool((x == 1).all())
            x[:] = 2
            empty(LARGE, "f8")[:] = 3
            good = good and held_bytes() == memory._rounded(LARGE * 8)
        os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert held_bytes() == held
    assert (x == 1).all()


def test_arrays_may_outlive_the_module():
    program = """
import numpy as np
from numbagrad.jit import memory
class Keeper:
    def __init__(self): self.x = memory.empty(100_000, "f8"); self.cycle = self
keeper, x = Keeper(), memory.empty(100_000, "f8")
np.kept = memory.empty(100_000, "f8")
"""
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
