"""float16 and bfloat16 in memory, float32 in registers: every bit pattern, on this processor and on older ones."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from numba.core import types

from numbagrad.jit import abi, backend, compile, convert, mapping, storage
from numbagrad.jit.expr import s, symbol

pytest.importorskip("ml_dtypes")

HALVES = list(storage.TYPES)
EVERY = np.arange(65536, dtype=np.uint16)
LOAD = "def load_all(x, out):\n    for i in range(x.size):\n        out[i] = x[i]\n"
# x86-64 without F16C, and what this test runs on.
MACHINES = ["x86-64", None]


def kernel(source, target, cpu):
    signature = types.void(abi.Flat(source), abi.Flat(target, writable=True))
    return compile.compile_source(LOAD, "load_all", signature, target_cpu=cpu)


def machine(cpu):
    if cpu is not None and platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("code for x86 does not run here")
    return cpu


def same(got, want):
    assert got.dtype == want.dtype
    got, want = np.atleast_1d(got), np.atleast_1d(want)
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    bits = f"u{want.itemsize}"
    np.testing.assert_array_equal(got.view(bits)[~nan], want.view(bits)[~nan])


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("name", HALVES)
def test_every_number_loads_exactly(name, cpu):
    x = EVERY.view(storage.dtype_of(name))
    out = np.empty(x.shape, np.float32)
    kernel(name, "float32", machine(cpu)).entry(x, out)
    same(out, x.astype(np.float32))


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("name", HALVES)
def test_stores_round_to_the_nearest(name, cpu):
    """Random patterns of bits, every number of 16 bits, and what lies halfway between two of them and beside that."""
    dtype = storage.dtype_of(name)
    numbers = EVERY.view(dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        middles = (numbers[:-1].astype(np.float64) + numbers[1:]).astype(np.float32) / 2
        x = np.concatenate(
            [numbers, middles, np.nextafter(middles, np.float32(9e9)), np.nextafter(middles, -numbers[1:])]
        )
        x = np.concatenate([x, np.random.default_rng(0).integers(0, 2**32, 300_000, np.uint32).view(np.float32)])
        want = x.astype(dtype)
    out = np.empty(x.shape, dtype)
    kernel("float32", name, machine(cpu)).entry(x, out)
    same(out, want)


@pytest.mark.parametrize("name", HALVES)
def test_no_library_is_called_without_f16c(name):
    machine("x86-64")
    for pair in ((name, "float32"), ("float32", name)):
        asm = kernel(*pair, "x86-64").asm()
        assert "__extendhfsf2" not in asm and "__truncsfhf2" not in asm and "vcvtp" not in asm
        assert "xmm" in asm


@pytest.mark.parametrize("name", HALVES)
def test_kernels_hold_no_double(name):
    x, y = symbol("x"), symbol("y")
    program = mapping.Program("half_probe", ("x", "y"), (s.tanh(x * y) + 0.1,))
    for loop in ("flat", "nested"):
        made = mapping.kernel_for(program.spec(loop, ("dense", "dense"), name))
        assert "double" not in made.compiled.llvm()


@pytest.mark.parametrize("name", HALVES)
def test_wrong_dtypes_are_refused(name):
    entry = kernel(name, "float32", None).entry
    other = np.zeros(4, storage.dtype_of("float16" if name == "bfloat16" else "bfloat16"))
    for x in (other, np.zeros(4, np.uint16), np.zeros(4, np.float32)):
        with pytest.raises(TypeError, match=f"takes an array of {name}"):
            entry(x, np.zeros(4, np.float32))


def test_kernels_on_disk_tell_dtypes_apart(tmp_path):
    """The same expressions over float32, float16 and bfloat16, kept by one process and used by the next."""
    program = (
        "import numpy as np\n"
        "from numbagrad.jit import compile, mapping, storage\n"
        "from numbagrad.jit.expr import symbol\n"
        "m = mapping.Map(mapping.Program('apart', ('x',), (symbol('x') * 3,)))\n"
        "for name in ('float32', 'float16', 'bfloat16', 'float64'):\n"
        "    x = np.array([1.001, 2.0, -0.25]).astype(storage.dtype_of(name))\n"
        "    (out,) = m([x], x.shape, x.dtype)\n"
        "    want = (x.astype(storage.compute_dtype(x.dtype)) * 3).astype(x.dtype)\n"
        "    assert out.dtype == x.dtype and (out == want).all(), (name, out, want)\n"
        "print(compile.stats().kernels_compiled, compile.stats().kernels_loaded)\n"
    )
    env = {**os.environ, "NUMBAGRAD_CACHE_DIR": str(tmp_path / "kept")}
    found = [
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert [f.split() for f in found] == [["4", "0"], ["0", "4"]]


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("other", ["float32", "float64", *HALVES])
@pytest.mark.parametrize("where", backend.BACKENDS)
def test_converting_is_numpys(name, other, where):
    narrow, wide = storage.dtype_of(name), storage.dtype_of(other)
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(300, 700)) * 10.0 ** rng.integers(-9, 9, (300, 700))).astype(np.float64)
    with backend.use_backend(where), np.errstate(over="ignore"):
        for source, target in ((wide, narrow), (narrow, wide)):
            given = x.astype(source)
            same(convert.convert(given, target), given.astype(target))
            same(convert.convert(given.T[::2], target), given.T[::2].astype(target))


def test_without_ml_dtypes_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match=r"install numbagrad\[half\]"):
        storage.dtype_of.__wrapped__("bfloat16")
