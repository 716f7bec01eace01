"""Kernels are compiled once per content, can be looked at, and survive threads and forks."""

import gc
import linecache
import math
import os
import platform
import re
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest
from numba import errors, float64, int64, void
from numba.extending import intrinsic

from numbagrad.jit import abi, compile
from numbagrad.jit.abi import Flat
from numbagrad.jit.compile import compile_source, stats

MULTIPLY = """
def multiply(x, y, out):
    for i in range(out.size):
        out[i] = x[i] * y[i]
"""


def scale(factor, **options):
    """A kernel of its own for each factor, so that no other test has compiled it."""
    source = f"def scale(x):\n    return x * {factor!r}\n"
    return compile_source(source, "scale", float64(float64), **options)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_CACHE_DIR", str(tmp_path))
    return tmp_path


def forget(monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(compile, "_kernels", {})


# ----- Once per content -----


def test_the_same_content_is_the_same_kernel():
    assert scale(2.25) is scale(2.25)


def test_everything_that_may_change_the_code_makes_another_kernel():
    source = "def power(x):\n    return x * factor\n"
    kernels = [
        compile_source(source, "power", float64(float64), namespace={"factor": 2.0}),
        compile_source(source, "power", float64(float64), namespace={"factor": 3.0}),
        compile_source(source, "power", float64(float64), namespace={"factor": 3}),
        compile_source(source, "power", int64(int64), namespace={"factor": 3}),
        compile_source(source, "power", float64(int64), namespace={"factor": 3}),
        compile_source(source + "\n", "power", float64(float64), namespace={"factor": 2.0}),
        compile_source(source, "power", float64(float64), namespace={"factor": 2.0}, fastmath=frozenset()),
        compile_source(source, "power", float64(float64), namespace={"factor": 2.0}, noalias=True),
    ]
    assert len({kernel.filename for kernel in kernels}) == len(kernels)
    assert [kernel.entry(5) for kernel in kernels[:3]] == [10.0, 15.0, 15.0]


def test_two_functions_of_one_factory_are_told_apart():
    def constant(value):
        @intrinsic
        def answer(typingctx):
            return float64(), lambda context, builder, sig, args: context.get_constant(float64, value)

        return answer

    source = "def ask():\n    return answer()\n"
    spaces = [{"answer": constant(value)} for value in (1.0, 2.0)]
    kernels = [compile_source(source, "ask", float64(), namespace=space) for space in spaces]
    assert [kernel.entry() for kernel in kernels] == [1.0, 2.0]


def test_stats_and_listeners_hear_of_each_kernel(empty_cache, monkeypatch):
    heard = []
    monkeypatch.setattr(compile, "listeners", [heard.append])
    before = stats()
    first = scale(3.125)
    scale(3.125)
    forget(monkeypatch)
    second = scale(3.125)
    after = stats()
    assert heard == [first, second]
    assert [kernel.from_cache for kernel in heard] == [False, True]
    assert after.kernels_compiled - before.kernels_compiled == 1
    assert after.kernels_loaded - before.kernels_loaded == 1
    assert after.seconds_compiling - before.seconds_compiling == pytest.approx(first.seconds)
    assert after.seconds_loading - before.seconds_loading == pytest.approx(second.seconds)


def test_threads_that_want_the_same_kernel_compile_it_once(empty_cache):
    before, kernels = stats().kernels_compiled, []
    threads = [threading.Thread(target=lambda: kernels.append(scale(4.0625))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kernels) == 4
    assert len(set(map(id, kernels))) == 1
    assert stats().kernels_compiled - before == 1


def test_numbas_settings_that_change_code_make_another_kernel(monkeypatch):
    before = scale(4.75)
    monkeypatch.setattr(numba.config, "LOOP_VECTORIZE", not numba.config.LOOP_VECTORIZE)
    assert scale(4.75) is not before


def test_a_kernel_lives_as_long_as_its_entry(empty_cache, monkeypatch):
    for _ in range(2):  # compiled, then loaded
        forget(monkeypatch)
        entry = scale(5.5).entry
        compile._kernels.clear()
        gc.collect()
        assert entry(2.0) == 11.0


# ----- What a kernel is like -----


def test_source_is_found_by_linecache():
    kernel = scale(6.5)
    assert re.fullmatch(r"<numbagrad kernel scale [0-9a-f]{12}>", kernel.filename)
    linecache.checkcache()
    assert linecache.getline(kernel.filename, 2) == "    return x * 6.5\n"
    assert kernel.source.endswith("x * 6.5\n")


def test_symbols_carry_the_hash():
    kernel = scale(6.75)
    digest = kernel.filename.split()[-1].rstrip(">")
    assert kernel.entry.__name__.startswith(f"scale_{digest}")
    assert f"scale_{digest}" in kernel.asm()


def test_errors_in_typing_show_the_line():
    source = "def wrong(x):\n    return x.no_such_thing\n"
    with pytest.raises(errors.TypingError, match="no_such_thing"):
        compile_source(source, "wrong", float64(float64))
    with pytest.raises(errors.TypingError, match=r"return x\.no_such_thing"):
        compile_source(source, "wrong", float64(float64))


def test_errors_in_python_name_the_kernel():
    with pytest.raises(SyntaxError) as caught:
        compile_source("def wrong(x)\n    return x\n", "wrong", float64(float64))
    assert caught.value.filename.startswith("<numbagrad kernel wrong ")


@pytest.mark.parametrize("name", ["other", "np"])
def test_source_must_define_the_name(name):
    with pytest.raises(ValueError, match=f"must define a function '{name}'"):
        compile_source("def one(x):\n    return x\n", name, float64(float64), namespace={"np": np})


def test_division_by_zero_is_numpys():
    kernel = compile_source("def divide(x, y):\n    return x / y\n", "divide", float64(float64, float64))
    assert kernel.entry(1.0, 0.0) == np.inf
    assert np.isnan(kernel.entry(0.0, 0.0))


def test_nan_and_infinity_stay():
    source = "def difference(x, y):\n    return (x - x) + y * 0.0\n"
    kernel = compile_source(source, "difference", float64(float64, float64))
    assert np.isnan(kernel.entry(np.inf, 1.0))
    assert np.isnan(kernel.entry(1.0, np.nan))


def test_code_can_be_read_whether_compiled_or_loaded(empty_cache, monkeypatch):
    compiled = scale(7.5)
    forget(monkeypatch)
    loaded = scale(7.5)
    assert loaded.from_cache
    for kernel in (compiled, loaded):
        assert "fmul" in kernel.llvm()
        assert compiled.entry.__name__ in kernel.asm()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names processors of this family")
@pytest.mark.parametrize(("cpu", "widest"), [("x86-64", "xmm"), ("haswell", "ymm"), ("skylake-avx512", "[yz]mm")])
def test_code_for_another_processor(cpu, widest, empty_cache):
    kernel = compile_source(MULTIPLY, "multiply", void(*[Flat("f8")] * 3), target_cpu=cpu)
    found = set(re.findall(r"\b([xyz]mm)\d", kernel.asm()))
    assert re.fullmatch(widest, max(found))


def test_a_processor_of_any_kind_runs_the_most_common_code(empty_cache):
    cpu = {"x86_64": "x86-64", "AMD64": "x86-64"}.get(platform.machine(), "generic")
    x, out = np.arange(100.0), np.empty(100)
    compile_source(MULTIPLY, "multiply", void(*[Flat("f8")] * 3), target_cpu=cpu).entry(x, x, out)
    np.testing.assert_array_equal(out, np.arange(100) ** 2)


def test_many_arrays_vectorise_if_none_overlaps():
    inputs, outputs = [f"x{i}" for i in range(16)], [f"out{i}" for i in range(10)]
    lines = [f"def mix({', '.join(inputs + outputs)}):", "    for i in range(out0.size):"]
    lines += [f"        y{i} = x{i}[i] * x{(i + 1) % 16}[i]" for i in range(16)]
    lines += [f"        out{i}[i] = y{i} + y{i + 1}" for i in range(10)]
    kernel = compile_source("\n".join(lines), "mix", void(*[Flat("f8")] * 26), noalias=True)
    assert re.search(r"fmul.* <\d+ x double>", kernel.llvm())
    x, out = np.random.default_rng(0).random((16, 50)), np.empty((10, 50))
    kernel.entry(*x, *out)
    y = x * np.roll(x, -1, axis=0)
    np.testing.assert_allclose(out, (y + np.roll(y, -1, axis=0))[:10], rtol=1e-14)


def test_debug_says_what_was_compiled(empty_cache, monkeypatch, capsys):
    monkeypatch.setenv("NUMBAGRAD_DEBUG", "tape, kernels")
    kernel = scale(8.5)
    forget(monkeypatch)
    scale(8.5)
    said = capsys.readouterr().err.splitlines()
    assert [re.sub(r"[\d.]+ ms", "", line) for line in said] == [
        f"numbagrad kernels: {kernel.filename} compiled in ",
        f"numbagrad kernels: {kernel.filename} loaded in ",
    ]


def test_debug_says_nothing_that_was_not_asked_for(monkeypatch, capsys):
    monkeypatch.setenv("NUMBAGRAD_DEBUG", "kernel")
    scale(8.75)
    assert capsys.readouterr().err == ""


# ----- What a namespace offers -----


def test_objects_of_released_packages_are_known_by_name():
    objects = (np, np.uint64, np.float32, math.sqrt, math.exp, float64, Flat("f8"))
    identities = [compile._identity(x) for x in objects]
    assert len(set(identities)) == len(identities)
    assert not any(identity.startswith(compile._PASSING) for identity in identities)


def test_what_a_module_of_ours_offers_is_known_by_its_file(monkeypatch):
    before = compile._identity(abi.load)
    assert before != compile._identity(abi.store)
    monkeypatch.setattr(compile, "_file_hash", lambda module: "another content")
    assert compile._identity(abi.load) != before


def test_a_kernel_that_uses_what_only_this_process_has_stays_in_it(empty_cache):
    @intrinsic
    def seven(typingctx):
        return float64(), lambda context, builder, sig, args: context.get_constant(float64, 7.0)

    kernel = compile_source("def ask():\n    return seven()\n", "ask", float64(), namespace={"seven": seven})
    assert kernel.entry() == 7.0
    assert not list(empty_cache.iterdir())


def test_a_changed_definition_is_not_taken_from_disk(tmp_path):
    """The same source and names, but the module that defines an intrinsic was edited in between."""
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import numbagrad.jit.compile as c, definitions
from numba import float64
source, namespace = "def ask():\\n    return answer()\\n", {{"answer": definitions.answer}}
kernel = c.compile_source(source, "ask", float64(), namespace=namespace)
print(kernel.entry(), kernel.from_cache)
"""
    definitions = """
from numba import float64
from numba.extending import intrinsic
@intrinsic
def answer(typingctx):
    return float64(), lambda context, builder, sig, args: context.get_constant(float64, VALUE)
"""
    said = []
    for value in ("1.0", "1.0", "2.0"):
        (tmp_path / "definitions.py").write_text(definitions.replace("VALUE", value))
        said.append(python(program, NUMBAGRAD_CACHE_DIR=str(tmp_path / "kernels")))
    assert said == ["1.0 False", "1.0 True", "2.0 False"]


# ----- Processes -----


def python(program, **environment):
    """What the program prints, run by a Python of its own."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_during_a_compile_can_compile():
    program = """
import os, threading, time
from numba import float64
from numbagrad.jit.compile import compile_source

def scale(factor):
    source = f"def scale(x):\\n    return x * {factor!r}\\n"
    return compile_source(source, "scale", float64(float64)).entry(1.0)

def others():
    factor = 100.5
    while not stop:
        scale(factor)
        factor += 1

stop = False
scale(1.5)
thread = threading.Thread(target=others)
thread.start()
good = 0
for child in range(4):
    time.sleep(0.03)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if scale(child + 0.25) == child + 0.25 else 1)
    good += os.waitpid(pid, 0)[1] == 0
stop = True
thread.join()
print(good, scale(2.5))
"""
    assert python(program, NUMBAGRAD_DISK_CACHE="off") == "4 2.5"


def test_importing_loads_no_compiler():
    """The parts of Numba that take long to load are left for the first kernel."""
    program = "import sys, numbagrad.jit.compile; print('numba.np.linalg' in sys.modules)"
    assert python(program) == "False"
