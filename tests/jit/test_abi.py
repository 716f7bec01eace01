"""Arrays reach kernels as memory, and what does not fit is refused before a kernel runs."""

import pickle
import re
import sys
import threading

import numpy as np
import pytest
from numba import types

from numbagrad.jit import abi
from numbagrad.jit.abi import Flat, Pointer, Strided
from numbagrad.jit.compile import compile_source

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16"]
INTRINSICS = {name: getattr(abi, name) for name in ("load", "store", "release_gil", "acquire_gil")}

COPY = """
def copy(x, out):
    for i in range(out.size):
        out[i] = x[i]
"""

TOTAL = """
def total(x):
    sum = 0.0
    for i in range(x.size):
        sum += x[i]
    return sum
"""

MULTIPLY = """
def multiply(x, y, out):
    state = release_gil(out.size)
    for i in range(out.size):
        out[i] = x[i] * y[i]
    acquire_gil(state)
"""

MULTIPLY_ROWS = """
def multiply_rows(x, y, out, rows, columns, x_step, y_step, out_step):
    for r in range(rows):
        x_row, y_row, out_row = x.at(r * x_step), y.at(r * y_step), out.at(r * out_step)
        for c in range(columns):
            i = np.uintp(c)
            out_row[i] = x_row[i] * y_row[i]
"""

ADD_STRIDED = """
def add_strided(x, y, out, rows, columns, x0, x1, y0, y1, out0, out1):
    for r in range(rows):
        for c in range(columns):
            value = load(x, r * x0 + c * x1) + load(y, r * y0 + c * y1)
            store(out, r * out0 + c * out1, value)
"""


def build(source, *types_, returns=types.void, **options):
    name = re.search(r"def (\w+)", source)[1]
    return compile_source(source, name, returns(*types_), namespace={**INTRINSICS, "np": np}, **options)


def values(dtype, shape, seed=0):
    """Random items of every bit pattern that has a meaning."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "b":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))
    x = rng.standard_normal(shape)
    return np.asarray(x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x, dtype)


# ----- Reading and writing -----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (37,), (5, 7), (2, 3, 4, 5), (1,) * 20 + (3,)], ids=str)
def test_a_flat_array_is_copied_bit_by_bit(dtype, shape):
    x = values(dtype, shape)
    out = np.empty_like(x)
    build(COPY, Flat(dtype), Flat(dtype)).entry(x, out)
    assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4"])
def test_multiplication_is_numpys(dtype):
    x, y = values(dtype, 20_001, 1), values(dtype, 20_001, 2)
    out = np.empty_like(x)
    build(MULTIPLY, Flat(dtype), Flat(dtype), Flat(dtype)).entry(x, y, out)
    # A compiler may contract the parts of a complex product into fused operations.
    np.testing.assert_allclose(out, x * y, rtol=1e-6 if dtype == "c8" else 0)


@pytest.mark.parametrize("index", ["np.uint8(i)", "np.int32(i)", "np.uint32(i)", "np.int64(i)", "i"])
def test_any_integer_is_an_index(index):
    source = f"def gather(x, out):\n    for i in range(out.size):\n        out[{index}] = x[{index}]\n"
    x = values("f8", 100)
    out = np.empty_like(x)
    build(source, Flat("f8"), Flat("f8")).entry(x, out)
    np.testing.assert_array_equal(out, x)


def test_literals_are_indices():
    source = "def swap(x):\n    first = x[0]\n    x[0] = x[1]\n    x[1] = first\n"
    x = np.array([1.0, 2.0])
    build(source, Flat("f8")).entry(x)
    np.testing.assert_array_equal(x, [2.0, 1.0])


def test_what_is_stored_takes_the_dtype_of_the_array():
    source = "def fill(out, value):\n    for i in range(out.size):\n        out[i] = value\n"
    out = np.empty(3, np.float32)
    build(source, Flat("f4"), types.float64).entry(out, 0.1)
    np.testing.assert_array_equal(out, np.full(3, np.float32(0.1)))


def test_size_counts_the_items_of_every_dimension():
    source = "def size(x):\n    return x.size\n"
    entry = build(source, Flat("i2"), returns=types.uintp).entry
    for shape in [(), (0,), (7,), (3, 0, 5), (2, 3, 4)]:
        assert entry(np.zeros(shape, "i2")) == np.zeros(shape).size


@pytest.mark.parametrize("row", ["x.at(r * 24)", "x.at(8).at(r * 24 - 8)", "x.at(np.uint32(r * 24))"])
@pytest.mark.parametrize("kind", [Flat, Strided])
def test_a_place_is_found_by_its_offset(row, kind):
    source = f"""
def total(x):
    sum = 0.0
    for r in range(4):
        row = {row}
        sum += row[2] - load(row, 8)
    return sum
"""
    x = values("f8", (4, 3))
    total = build(source, kind("f8"), returns=types.float64).entry(x)
    np.testing.assert_allclose(total, np.sum(x[:, 2] - x[:, 1]))


def layouts():
    base = values("f8", (8, 10))
    yield "rows apart", base[::2, :5]
    yield "rows backwards", base[3::-1, 5:]
    yield "one row again and again", np.broadcast_to(base[0, :5], (4, 5))


@pytest.mark.parametrize("x", [pytest.param(x, id=name) for name, x in layouts()])
@pytest.mark.parametrize("y", [pytest.param(y, id=name) for name, y in layouts()])
def test_rows_multiply_as_in_numpy(x, y):
    out = np.zeros((8, 5))[1::2]
    kernel = build(MULTIPLY_ROWS, Strided("f8"), Strided("f8"), Strided("f8"), *[types.intp] * 5)
    kernel.entry(x, y, out, *x.shape, x.strides[0], y.strides[0], out.strides[0])
    np.testing.assert_array_equal(out, x * y)


@pytest.mark.parametrize("dtype", ["f4", "i8", "c16"])
def test_any_strides_are_walked(dtype):
    x = values(dtype, (6, 8))[::-2, 1::3]
    y = np.broadcast_to(values(dtype, (3, 1)), (3, 3))
    out = np.zeros((3, 3), dtype, order="F")
    kernel = build(ADD_STRIDED, *[Strided(dtype)] * 3, *[types.intp] * 8)
    kernel.entry(x, y, out, 3, 3, *x.strides, *y.strides, *out.strides)
    np.testing.assert_array_equal(out, x + y)


# ----- What LLVM makes of it -----


def has_vectors(kernel, operation="fmul"):
    return re.search(rf"{operation}.* <\d+ x (double|float)>", kernel.llvm()) is not None


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_flat_loops_vectorise_with_the_lock_let_go(dtype):
    assert has_vectors(build(MULTIPLY, Flat(dtype), Flat(dtype), Flat(dtype)))


def test_row_loops_vectorise():
    assert has_vectors(build(MULTIPLY_ROWS, Strided("f8"), Strided("f8"), Strided("f8"), *[types.intp] * 5))


def test_code_names_what_it_needs_and_holds_no_address():
    text = build(MULTIPLY, Flat("f8"), Flat("f8"), Flat("f8")).llvm()
    assert "@numbagrad_ndarray" in text
    assert "@PyEval_SaveThread" in text
    assert not re.search(r"inttoptr \(i64 \d{5,}", text)


# ----- What fits and what does not -----


class Subclass(np.ndarray):
    pass


def read_only(x):
    x.flags.writeable = False
    return x


def misaligned():
    return np.zeros(25, np.uint8)[1:].view("f8")


FITTING = {
    "read-only": read_only(np.ones(3)),
    "a subclass": np.ones(3).view(Subclass),
    "a matrix": np.ones((1, 3)).view(np.matrix),
    "0-d": np.array(1.0),
    "empty": np.ones((3, 0)),
    "Fortran order in one dimension": np.asfortranarray(np.ones(3)),
    "a slice of whole rows": np.ones((4, 3))[1:3],
}

REFUSED = {
    "a list": ([1.0, 2.0], "ndarray of float64.* <class 'list'>"),
    "None": (None, "ndarray of float64.* <class 'NoneType'>"),
    "a NumPy scalar": (np.float64(1), "ndarray of float64.* <class 'numpy.float64'>"),
    "a memoryview": (memoryview(np.ones(3)), "<class 'memoryview'>"),
    "float32": (np.ones(3, "f4"), r"array of float64.* dtype\('float32'\)"),
    "int64": (np.ones(3, "i8"), r"array of float64.* dtype\('int64'\)"),
    "complex64 of the same size": (np.ones(3, "c8"), r"dtype\('complex64'\)"),
    "dates": (np.zeros(3, "M8[s]"), "dtype"),
    "objects": (np.zeros(3, object), r"dtype\('O'\)"),
    "records": (np.zeros(3, [("x", "f8")]), "dtype"),
    "the other byte order": (np.ones(3).astype(np.dtype("f8").newbyteorder()), "dtype"),
    "misaligned": (misaligned(), "aligned"),
}

REFUSED_FLAT = {
    "strided": np.ones(6)[::2],
    "Fortran order": np.ones((3, 2), order="F"),
    "broadcast": np.broadcast_to(1.0, (3,)),
    "backwards": np.ones(3)[::-1],
}


def params(table):
    return [pytest.param(*(x if isinstance(x, tuple) else (x,)), id=name) for name, x in table.items()]


@pytest.mark.parametrize("x", params(FITTING))
def test_fits(x):
    assert build(TOTAL, Flat("f8"), returns=types.float64).entry(x) == x.size


@pytest.mark.parametrize("kind", [Flat, Strided])
@pytest.mark.parametrize(("x", "message"), params(REFUSED))
def test_is_refused_before_the_kernel_runs(x, message, kind):
    source = "def mark(out, x):\n    out[0] = 1.0\n"
    out = np.zeros(1)
    with pytest.raises(TypeError, match=message):
        build(source, Flat("f8"), kind("f8")).entry(out, x)
    assert out[0] == 0


@pytest.mark.parametrize("x", params(REFUSED_FLAT))
def test_only_a_flat_argument_must_be_contiguous(x):
    source = "def nothing(x):\n    pass\n"
    with pytest.raises(TypeError, match="float64 that is C-contiguous, aligned here"):
        build(source, Flat("f8")).entry(x)
    build(source, Strided("f8")).entry(x)


@pytest.mark.parametrize("kind", [Flat, Strided])
def test_results_must_be_writable(kind):
    kernel = build("def nothing(x):\n    pass\n", kind("f8", writable=True))
    kernel.entry(np.ones(3))
    with pytest.raises(TypeError, match="writable"):
        kernel.entry(read_only(np.ones(3)))


@pytest.mark.parametrize("dtype", [np.intc, np.int_, np.longlong, np.uintc, np.ulonglong])
def test_integers_of_one_size_are_one_type(dtype):
    x = np.arange(3, dtype=dtype)
    out = np.empty_like(x)
    build(COPY, Flat(x.dtype), Flat(x.dtype)).entry(x, out)
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("arguments", [0, 1, 3])
def test_the_number_of_arguments_must_be_right(arguments):
    with pytest.raises(TypeError, match="expected 2 arguments"):
        build(COPY, Flat("f8"), Flat("f8")).entry(*[np.ones(1)] * arguments)


def test_references_are_neither_lost_nor_kept():
    kernel = build(COPY, Flat("f8"), Flat("f8"))
    x, bad = np.ones(3), np.ones(3, "f4")
    before = sys.getrefcount(x), sys.getrefcount(bad)
    for _ in range(100):
        kernel.entry(x, x)
        with pytest.raises(TypeError):
            kernel.entry(x, bad)
    assert (sys.getrefcount(x), sys.getrefcount(bad)) == before


@pytest.mark.parametrize("dtype", ["O", "S4", "M8[s]", [("x", "f8")]], ids=str)
def test_only_numbers_and_booleans_make_a_type(dtype):
    with pytest.raises(TypeError, match="booleans or numbers"):
        Flat(dtype)


@pytest.mark.parametrize("ty", [Flat("f8"), Flat("f4", writable=True), Strided("c8"), Pointer("u2")], ids=str)
def test_types_survive_pickling(ty):
    again = pickle.loads(pickle.dumps(ty))
    assert again == ty
    assert hash(again) == hash(ty)


def test_types_that_differ_are_not_equal():
    kinds = [Flat("f8"), Flat("f4"), Flat("f8", writable=True), Strided("f8"), Pointer("f8")]
    assert len(set(kinds)) == len(kinds) == len({str(ty) for ty in kinds})


# ----- The interpreter lock -----


class OtherThread:
    """A thread that leaves a mark once it gets the interpreter lock, which nobody is made to give up."""

    def __enter__(self):
        self.interval = sys.getswitchinterval()
        self.may_run = threading.Lock()
        self.may_run.acquire()
        self.has_run = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        sys.setswitchinterval(1000)
        self.may_run.release()
        return self

    def run(self):
        self.may_run.acquire()
        self.has_run = True

    def __exit__(self, *_):
        sys.setswitchinterval(self.interval)
        self.thread.join()


def test_other_threads_run_during_a_large_loop():
    entry = build(MULTIPLY, Flat("f8"), Flat("f8"), Flat("f8")).entry
    x = np.ones(2**20)
    out = np.empty_like(x)
    with OtherThread() as other:
        for _ in range(100_000):
            entry(x, x, out)
            if other.has_run:
                break
        assert other.has_run


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no lock to keep")
def test_the_lock_is_kept_during_small_loops():
    entry = build(MULTIPLY, Flat("f8"), Flat("f8"), Flat("f8")).entry
    x = np.ones(abi.GIL_ITEMS - 1)
    out = np.empty_like(x)
    with OtherThread() as other:
        for _ in range(100):
            entry(x, x, out)
        assert not other.has_run
