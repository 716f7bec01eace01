"""The team does every chunk once, gives the same bits on any number of threads, and survives failures."""

import contextlib
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
from numba import float64, void

from numbagrad.jit import abi, team
from numbagrad.jit.abi import Flat
from numbagrad.jit.compile import compile_source
from numbagrad.jit.team import CHUNK_STEP, get_num_threads, run_chunks, run_flat, set_num_threads

# Long enough for any machine: reached only if threads wait for each other for ever.
PATIENCE = 60


@pytest.fixture(autouse=True)
def four_threads(monkeypatch):
    monkeypatch.setattr(team, "_num_threads", 4)


def multiply_add():
    source = """
def multiply_add(x, y, out, shift):
    state = release_gil(out.size)
    for i in range(out.size):
        out[i] = x[i] * y[i] + shift
    acquire_gil(state)
"""
    namespace = {"release_gil": abi.release_gil, "acquire_gil": abi.acquire_gil}
    flat = Flat("f8")
    return compile_source(source, "multiply_add", void(flat, flat, flat, float64), namespace=namespace).entry


# ----- Chunks -----


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
def test_every_chunk_is_done_once(threads, n):
    set_num_threads(threads)
    done = []
    run_chunks(done.append, n)
    assert sorted(done) == list(range(n))


def test_chunks_run_at_once():
    together = threading.Barrier(4)
    run_chunks(lambda i: together.wait(PATIENCE), 4)


def test_the_caller_takes_part():
    workers = set()
    together = threading.Barrier(4)

    def work(i):
        together.wait(PATIENCE)
        workers.add(threading.current_thread())

    run_chunks(work, 4)
    assert len(workers) == 4
    assert threading.current_thread() in workers


def test_one_thread_starts_no_other(monkeypatch):
    monkeypatch.setattr(team, "_team", team._Team())
    set_num_threads(1)
    run_chunks(lambda i: None, 10)
    assert not team._team._threads


def test_no_more_helpers_than_chunks(monkeypatch):
    monkeypatch.setattr(team, "_team", team._Team())
    set_num_threads(50)
    run_chunks(lambda i: None, 3)
    assert len(team._team._threads) == 2
    team._team.stop()


def test_nested_calls_run_inline():
    done, together = [], threading.Barrier(4)

    def outer(i):
        together.wait(PATIENCE)  # so that every thread of the team is inside
        here = threading.get_ident()
        run_chunks(lambda j: done.append((i, j, threading.get_ident() == here)), 5)

    run_chunks(outer, 4)
    assert sorted(done) == [(i, j, True) for i in range(4) for j in range(5)]


def test_many_callers_at_once():
    wrong = []

    def caller(k):
        for n in range(1, 30):
            done = []
            run_chunks(done.append, n)
            if sorted(done) != list(range(n)):
                wrong.append((k, n, done))

    callers = [threading.Thread(target=caller, args=(k,)) for k in range(6)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not wrong


# ----- Failure -----


def test_exceptions_reach_the_caller():
    def fail(i):
        if i == 5:
            raise KeyError("chunk 5")

    with pytest.raises(KeyError, match="chunk 5"):
        run_chunks(fail, 20)
    run_chunks(lambda i: None, 20)


@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_chunk_that_failed_is_told(threads):
    set_num_threads(threads)
    together = threading.Barrier(threads)

    def fail(i):
        together.wait(PATIENCE)
        raise ValueError(f"chunk {i}")

    with pytest.raises(ValueError, match="chunk 0"):
        run_chunks(fail, 4)


def test_after_a_failure_no_new_chunk_begins():
    begun, failed = [], threading.Event()

    def work(i):
        begun.append(i)
        if i == 0:
            failed.set()
            raise ValueError
        failed.wait(PATIENCE)

    with pytest.raises(ValueError):
        run_chunks(work, 100_000)
    assert len(begun) < 100_000


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_helpers_survive_any_exception(error):
    together = threading.Barrier(4)

    def fail(i):
        together.wait(PATIENCE)
        raise error

    for _ in range(3):
        with pytest.raises(error):
            run_chunks(fail, 4)
    run_chunks(lambda i: together.wait(PATIENCE), 4)


def test_a_system_without_threads_leaves_the_work_to_the_caller(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(team, "_team", team._Team())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = []
    run_chunks(done.append, 10)
    assert sorted(done) == list(range(10))


def test_arrays_live_no_longer_than_the_call():
    x = np.ones(1000)
    seen = weakref.ref(x)
    run_chunks(lambda i, x=x: x.sum(), 8)
    del x
    assert seen() is None


def test_failures_leave_no_cycle():
    class Failure(Exception):
        pass

    def fail(i):
        raise Failure

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(Failure) as caught:
            run_chunks(fail, 4)
        seen = weakref.ref(caught.value)
        del caught
        assert seen() is None
    finally:
        gc.enable()


# ----- Flat arrays -----


@pytest.mark.parametrize("size", [0, 1, 1000, CHUNK_STEP, CHUNK_STEP + 1, 5 * CHUNK_STEP - 3, 300_001])
def test_flat_work_is_done_as_in_one_loop(size):
    x, y = np.random.default_rng(0).random((2, size))
    out = np.full(size, np.nan)
    run_flat(multiply_add(), (x, y, out, 0.5), size, CHUNK_STEP)
    np.testing.assert_allclose(out, x * y + 0.5, rtol=1e-15)


def test_bits_do_not_depend_on_the_number_of_threads():
    source = """
def chain(x, out):
    state = release_gil(out.size)
    for i in range(out.size):
        y = x[i] * 1.1 + 0.3
        out[i] = (y * x[i] - 0.7) / (y * y + 1.3) + y * 0.1
    acquire_gil(state)
"""
    namespace = {"release_gil": abi.release_gil, "acquire_gil": abi.acquire_gil}
    entry = compile_source(source, "chain", void(Flat("f4"), Flat("f4")), namespace=namespace).entry
    x = np.random.default_rng(0).standard_normal(7 * CHUNK_STEP + 1237).astype("f4")
    results = []
    for threads in (1, 2, 3, 7):
        set_num_threads(threads)
        for chunk in (CHUNK_STEP, 3 * CHUNK_STEP):
            out = np.empty_like(x)
            run_flat(entry, (x, out), x.size, chunk)
            results.append(out.tobytes())
    assert len(set(results)) == 1


def test_chunks_do_not_depend_on_the_number_of_threads():
    def boundaries(threads):
        set_num_threads(threads)
        parts = []
        x = np.arange(10 * CHUNK_STEP + 5)
        run_flat(lambda part: parts.append((part[0], part.size)), (x,), x.size, 20_000)
        return sorted(parts)

    assert boundaries(2) == boundaries(3) == boundaries(8)
    assert [size for _, size in boundaries(2)] == [2 * CHUNK_STEP] * 5 + [5]


def test_small_work_is_one_call_with_the_arrays_themselves():
    x, calls = np.arange(10.0), []
    run_flat(lambda *args: calls.append(args), (x, 2.0), 10, 10)
    assert len(calls) == 1
    assert calls[0][0] is x


def test_a_refused_array_is_told_from_any_thread():
    x, out = np.ones(10 * CHUNK_STEP, "f4"), np.ones(10 * CHUNK_STEP)
    with pytest.raises(TypeError, match="array of float64"):
        run_flat(multiply_add(), (x, out, out, 1.0), out.size, CHUNK_STEP)


# ----- How many -----


def test_the_number_can_be_set():
    set_num_threads(3)
    assert get_num_threads() == 3
    set_num_threads(np.int64(2))
    assert get_num_threads() == 2
    assert type(get_num_threads()) is int


@pytest.mark.parametrize(
    ("n", "error", "message"),
    [
        (0, ValueError, "at least 1, got 0"),
        (-2, ValueError, "at least 1, got -2"),
        (1.0, TypeError, "an int, got 1.0 of type float"),
        ("2", TypeError, "got '2' of type str"),
        (True, TypeError, "got True of type bool"),
        (None, TypeError, "got None of type NoneType"),
    ],
)
def test_a_wrong_number_is_refused(n, error, message):
    with pytest.raises(error, match=message):
        set_num_threads(n)
    assert get_num_threads() == 4


@pytest.mark.parametrize(("text", "expected"), [("1", 1), ("7", 7), (" 3 ", 3)])
def test_the_environment_gives_the_number(text, expected, monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_NUM_THREADS", text)
    monkeypatch.setattr(team, "_num_threads", None)
    assert get_num_threads() == expected


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_the_environment_may_be_wrong(text, monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_NUM_THREADS", text)
    monkeypatch.setattr(team, "_num_threads", None)
    with pytest.raises(ValueError, match=f"NUMBAGRAD_NUM_THREADS must be a whole number .*, got '{text}'"):
        get_num_threads()


@pytest.mark.parametrize("text", ["", None])
def test_else_the_processors_are_counted(text, monkeypatch):
    monkeypatch.delenv("NUMBAGRAD_NUM_THREADS", raising=False)
    if text is not None:
        monkeypatch.setenv("NUMBAGRAD_NUM_THREADS", text)
    monkeypatch.setattr(team, "_num_threads", None)
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5})
    else:
        monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert get_num_threads() == 3


# ----- Processes -----


def test_the_number_grows_and_shrinks_while_running():
    for threads in (2, 5, 1, 3, 8):
        set_num_threads(threads)
        together = threading.Barrier(threads)
        run_chunks(lambda i, together=together: together.wait(PATIENCE), threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_a_team_of_its_own():
    together = threading.Barrier(4)
    run_chunks(lambda i: together.wait(PATIENCE), 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is the question
        pid = os.fork()
    if pid == 0:
        good = False
        with contextlib.suppress(BaseException):
            together = threading.Barrier(4)
            run_chunks(lambda i: together.wait(PATIENCE), 4)
            good = True
        os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0
    run_chunks(lambda i: together.wait(PATIENCE), 4)


END = {
    "plainly": "",
    "by exception": "raise SystemExit",
    "while computing in another thread": """
def compute():
    for _ in range(100):
        run_chunks(lambda i: None, 4)
threading.Thread(target=compute).start()
""",
    "computing until after the threads are gone": """
import atexit
atexit.register(lambda: (run_chunks(done.append, 4), print(sorted(done))))
""",
    "computing in a finalizer": """
class Late:
    def __del__(self, run=run_chunks):
        run(lambda i: None, 4)
late = Late()
""",
}


@pytest.mark.parametrize("end", END.values(), ids=list(END))
def test_the_interpreter_ends(end):
    program = f"""
import threading
from numbagrad.jit.team import run_chunks, set_num_threads
set_num_threads(4)
done = []
together = threading.Barrier(4)
run_chunks(lambda i: together.wait(60), 4)
print("done")
{end}
"""
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.stderr == ""
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == ["done"] + ["[0, 1, 2, 3]"] * ("atexit" in end)
