"""Row programs: what they refuse, what their kernels compute, how exactly, and whatever the memory looks like."""

import itertools
import math
import re

import numpy as np
import pytest
from helpers import laid_out
from hypothesis import given
from hypothesis import strategies as st

import numbagrad as ng
from numbagrad.jit import backend, compile, rows, team
from numbagrad.jit.expr import s, symbol
from numbagrad.jit.reduce import BLOCK, POSITION, Fold, RowProgram, Stage, kernel

x, y, g, w, top, total, mean = map(symbol, ("x", "y", "g", "w", "top", "total", "mean"))


def fold(kind):
    return RowProgram(f"test_{kind}", ("x",), (Stage((Fold("total", kind, x),)),), ("total",))


SUM, PROD, MAX, MIN = map(fold, ("sum", "prod", "max", "min"))
SQUARES = RowProgram(
    "test_squares",
    ("x",),
    (Stage((Fold("total", "sum", x * x), Fold("top", "max", x)), after=(("root", s.sqrt(total) * symbol("unit")),)),),
    ("root", "top"),
    numbers=("unit",),
)
SOFTMAX = RowProgram(
    "test_softmax",
    ("x",),
    (
        Stage((Fold("top", "max", x),)),
        Stage((Fold("total", "sum", s.exp(x - top)),), (("y", s.exp(x - top)),), (("scale", 1 / total),)),
        Stage(stores=(("y", y * symbol("scale")),)),
    ),
    ("top",),
)
WEIGHTED = RowProgram(
    "test_weighted",
    ("x", "w"),
    (
        Stage((Fold("total", "sum", x * w),), after=(("mean", total / symbol("n")),)),
        Stage(stores=(("y", (x - mean) * g), ("z", w * g))),
    ),
    ("mean",),
    rows=("g",),
    numbers=("n",),
)
PLACE = RowProgram(
    "test_place",
    ("x",),
    (
        Stage((Fold("top", "max", x),)),
        Stage((Fold("at", "min", s.where(s.equal(x, top), symbol(POSITION), math.inf)),)),
    ),
    ("at",),
)

SHAPES_AND_AXES = [
    ((6,), (0,)),
    ((1,), (0,)),
    ((5, 7), (0,)),
    ((5, 7), (1,)),
    ((5, 7), (0, 1)),
    ((3, 4, 5), (0,)),
    ((3, 4, 5), (1,)),
    ((3, 4, 5), (0, 2)),
    ((3, 4, 5), (1, 2)),
    ((2, 3, 2, 3), (0, 2)),
    ((2, 3, 2, 3), (1, 3)),
    ((2, 1, 3), (1,)),
    ((2, 1, 3), (0, 1)),
    ((2, 2 * BLOCK + 3), (1,)),
    ((70, 1500), (0,)),
    ((2, 70, 9), (1,)),
]


def random(shape, dtype="f8", seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def agree(program, items, axes, rows_=(), numbers=(), rtol=1e-13):
    """What kernels give, after comparing it with what NumPy gives for the same expressions in float64."""
    got = rows.run(program, items, axes, keepdims=True, rows=rows_, numbers=numbers)
    wide = [[a.astype("f8") for a in arrays] for arrays in (items, rows_)]
    want = rows.evaluate(program, wide[0], axes, [r.reshape(got[-1].shape) for r in wide[1]], numbers)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == items[0].dtype and a.shape == b.shape and a.flags.c_contiguous
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(1, np.abs(b).max()))
    return got


# ----- values -----


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("program", [SUM, MAX, MIN, PROD], ids=lambda p: p.name)
def test_folds_are_numpys(program, dtype):
    ufunc = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}[program.name.removeprefix("test_")]
    for shape, axes in SHAPES_AND_AXES:
        a = random(shape, dtype)
        (got,) = rows.run(program, [a], axes)
        want = ufunc(a.astype("f8"), axis=axes)
        assert got.shape == want.shape and got.dtype == dtype
        tiny = np.finfo(dtype).eps
        np.testing.assert_allclose(got, want, rtol=40 * tiny, atol=40 * tiny * max(1, np.abs(want).max()))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_programs_of_several_stages_mean_what_the_reference_says(dtype):
    rtol = 1e-12 if dtype == "f8" else 1e-5
    for shape, axes in SHAPES_AND_AXES:
        a, b = random(shape, dtype), random(shape, dtype, seed=1)
        agree(SQUARES, [a], axes, numbers=(2.5,), rtol=rtol)
        agree(SOFTMAX, [a], axes, rtol=rtol)
        agree(PLACE, [a], axes, rtol=rtol)
        row = random([1 if i in axes else n for i, n in enumerate(shape)], dtype, seed=2)
        agree(WEIGHTED, [a, b], axes, [row], (7.0,), rtol=rtol)


@pytest.mark.parametrize("layout", ["F", "strided", "reversed"])
def test_any_layout_does(layout):
    for shape, axes in SHAPES_AND_AXES:
        if shape[-1] < BLOCK:
            a, b = laid_out(random(shape), layout), laid_out(random(shape, seed=1), "F")
            row = laid_out(random([1 if i in axes else n for i, n in enumerate(shape)], seed=2), layout)
            agree(SUM, [a], axes)
            agree(SQUARES, [a], axes, numbers=(0.5,))
            agree(SOFTMAX, [a], axes)
            agree(WEIGHTED, [a, b], axes, [row], (3.0,))


def test_every_order_of_axes_does():
    a = random((3, 4, 5, 2))
    for order in itertools.permutations(range(4)):
        turned = a.transpose(order)
        for axes in [(0,), (3,), (1, 2), (0, 3), (0, 1, 2, 3)]:
            agree(SUM, [turned], axes)
            agree(SUM, [turned[1:, :, ::2]], axes)


def test_unaligned_and_byteswapped_arrays_do():
    raw = np.zeros(8 * 12 + 1, np.uint8)[1:].view("f8").reshape(3, 4)
    raw[...] = random((3, 4))
    agree(SUM, [raw], (1,))
    agree(SOFTMAX, [raw], (0,))
    swapped = random((3, 4)).astype(">f8")
    assert not rows.runs_natively(swapped)
    np.testing.assert_allclose(rows.run(SUM, [swapped], (1,))[0], swapped.sum(1))


def test_nothing_gives_the_value_of_nothing():
    for kind, want in [(SUM, 0), (PROD, 1), (MAX, -np.inf), (MIN, np.inf)]:
        np.testing.assert_array_equal(rows.run(kind, [np.zeros((2, 0))], (1,))[0], [want, want])
        assert rows.run(kind, [np.zeros((0, 3))], (1,))[0].shape == (0,)


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    chosen=st.lists(st.booleans(), min_size=5, max_size=5),
    order=st.permutations(range(5)),
)
def test_any_shape_and_axes_in_any_order(lengths, chosen, order):
    a = random(lengths).transpose([i for i in order if i < len(lengths)])
    axes = tuple(i for i in range(a.ndim) if chosen[i])
    if axes:
        np.testing.assert_allclose(rows.run(SUM, [a], axes)[0], a.sum(axes), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(rows.run(MAX, [a], axes)[0], a.max(axes))


# ----- special values -----


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("length", [1, 7, 40, 2100])
def test_nan_and_infinity_anywhere(dtype, length):
    for special, place in itertools.product([np.nan, -np.nan, np.inf, -np.inf], {0, length // 2, length - 1}):
        a = np.linspace(0.99, 1.01, length).astype(dtype)
        a[place] = special
        for program, function in [(SUM, np.sum), (MAX, np.max), (MIN, np.min), (PROD, np.prod)]:
            for view, axis in [(a, 0), (np.stack([a, a]), 1), (np.stack([a, a], 1), 0)]:
                got, want = rows.run(program, [view], (axis,))[0], function(view, axis=axis)
                np.testing.assert_allclose(got, want, rtol=1e-4)


def test_products_do_not_overflow_on_their_way():
    """In whatever order the lanes of the processor multiply, the result is that of the order of the items."""
    a = np.tile([1e200, 1e-200], 300)
    np.testing.assert_allclose(rows.run(PROD, [a], (0,))[0], np.prod(a))
    b = np.tile([1e30, 1e-30], 300).astype("f4")
    np.testing.assert_allclose(rows.run(PROD, [np.stack([b, b])], (1,))[0], 1, rtol=1e-4)
    a[17] = 0
    assert rows.run(PROD, [a], (0,))[0] == 0


# ----- accuracy -----


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((400_000,), 0), ((3, 100_000), 1), ((100_001, 3), 0), ((20_000, 70), 0), ((2, 20_000, 5), 1)]
)
def test_sums_are_at_least_as_exact_as_numpys(shape, axis, dtype):
    a = np.random.default_rng(0).uniform(0, 1, shape).astype(dtype)
    lines = np.moveaxis(a, axis, -1).reshape(-1, shape[axis])
    exact = np.array([math.fsum(line.tolist()) for line in lines])
    ours = rows.run(SUM, [a], (axis,))[0].reshape(-1).astype("f8")
    numpys = np.sum(np.ascontiguousarray(lines), axis=1).astype("f8")
    limit = np.maximum(np.abs(numpys - exact), 6 * np.finfo(dtype).eps * exact)
    assert (np.abs(ours - exact) <= limit).all()


def test_float64_sums_keep_what_rounding_loses():
    a = np.zeros(50 * BLOCK)
    a[::BLOCK] = 1
    a[0] = 1e16
    assert rows.run(SUM, [np.stack([a, a])], (1,))[0][0] == math.fsum(a) > 1e16


# ----- threads -----


@pytest.mark.parametrize(
    ("shape", "axes"), [((700_000,), (0,)), ((900, 1100), (1,)), ((1100, 900), (0,)), ((2, 400_000), (1,))]
)
def test_the_number_of_threads_changes_no_bit(shape, axes):
    a = random(shape, "f4")
    before = team.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            team.set_num_threads(threads)
            found.append([rows.run(p, [a], axes, numbers=(1.0,) * len(p.numbers)) for p in (SUM, SQUARES, SOFTMAX)])
    finally:
        team.set_num_threads(before)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            for left, right in zip(one, two, strict=True):
                np.testing.assert_array_equal(left, right)


def test_parts_of_long_rows_with_numbers_of_their_own():
    """Folds over parts, with arrays that have one value for each row."""
    chosen = RowProgram(
        "test_chosen",
        ("x",),
        (Stage((Fold("total", "sum", s.where(x > g, x, 0)),), after=(("mean", total * g),)),),
        ("mean",),
        rows=("g",),
    )
    a, row = random((3, 300_000)), np.array([[0.5], [-0.5], [0.0]])
    want = np.where(a > row, a, 0).sum(1, keepdims=True) * row
    np.testing.assert_allclose(rows.run(chosen, [a], (1,), keepdims=True, rows=[row])[0], want, rtol=1e-10)
    np.testing.assert_allclose(
        rows.run(chosen, [np.ascontiguousarray(a.T)], (0,), keepdims=True, rows=[row.T])[0], want.T, rtol=1e-10
    )


# ----- how rows lie in memory -----


@pytest.mark.parametrize(
    ("shape", "axes", "want"),
    [
        ((4, 6), (1,), (4, 6, 1, 48, 8)),
        ((4, 6), (0,), (1, 4, 6, 0, 48)),
        ((4, 6), (0, 1), (1, 24, 1, 0, 8)),
        ((2, 3, 4), (1,), (2, 3, 4, 96, 32)),
        ((2, 3, 4), (1, 2), (2, 12, 1, 96, 8)),
        ((2, 1, 4), (1,), (1, 1, 8, 0, 0)),
        ((1, 1), (0,), (1, 1, 1, 0, 0)),
    ],
)
def test_walk_merges_what_lies_together(shape, axes, want):
    a = np.zeros(shape)
    found = rows.walk(a.shape, a.strides, a.itemsize, axes)
    assert (found.outer, found.n, found.inner, found.step, found.line) == want


def test_walk_gives_up_on_several_groups_and_on_gaps():
    a = np.zeros((2, 3, 4, 5))
    assert rows.walk(a.shape, a.strides, 8, (0, 2)) is None
    assert rows.walk(a.shape, a.strides, 8, (1, 3)) is None
    assert rows.walk(a[..., ::2].shape, a[..., ::2].strides, 8, (3,)) is None
    assert rows.walk(a[:, :2].shape, a[:, :2].strides, 8, (2, 3)) is None
    assert rows.walk(a[:, 0].shape, a[:, 0].strides, 8, (1, 2)) is not None


# ----- programs -----


def test_programs_prove_themselves():
    with pytest.raises(ValueError, match="kind 'median'"):
        Fold("m", "median", x)
    with pytest.raises(ValueError, match="uses z before it is known"):
        RowProgram("p", ("x",), (Stage((Fold("m", "sum", symbol("z")),)),), ("m",))
    with pytest.raises(ValueError, match="uses total before"):
        RowProgram("p", ("x",), (Stage((Fold("total", "sum", x / total),)),), ("total",))
    with pytest.raises(ValueError, match="uses x before"):
        RowProgram("p", ("x",), (Stage((Fold("total", "sum", x),), after=(("m", total / x),)),), ("m",))
    with pytest.raises(ValueError, match="puts out z"):
        RowProgram("p", ("x",), (Stage((Fold("total", "sum", x),)),), ("z",))
    with pytest.raises(ValueError, match="no spiral kernel"):
        kernel(SUM, "spiral", "float32")
    with pytest.raises(ValueError, match="int64"):
        kernel(SUM, "rows", "int64")


def test_equal_programs_share_one_kernel():
    again = RowProgram("test_sum", ("x",), (Stage((Fold("total", "sum", symbol("x")),)),), ("total",))
    assert again is not SUM and kernel(again, "rows", "float64") is kernel(SUM, "rows", "float64")
    rows.run(SUM, [random((4, 8))], (1,))
    before = compile.stats().kernels_compiled
    for n in (2, 9, 33):
        rows.run(again, [random((n, n))], (1,))
    assert compile.stats().kernels_compiled == before


def test_the_reference_backend_compiles_nothing():
    fresh = RowProgram("test_reference", ("x",), (Stage((Fold("total", "sum", x * 3),)),), ("total",))
    before = compile.stats()
    with backend.use_backend("reference"):
        np.testing.assert_allclose(rows.run(fresh, [np.ones((2, 3))], (1,))[0], [9, 9])
    assert compile.stats() == before


# ----- machine code -----


def assembly(program, loop, dtype):
    made = kernel(program, loop, dtype)
    made.entry
    return made._compiled.asm()


@pytest.mark.skipif("x86" not in __import__("platform").machine(), reason="looks for x86 instructions")
@pytest.mark.parametrize("loop", ["rows", "columns"])
@pytest.mark.parametrize(
    ("program", "word"), [(SUM, "addps"), (MAX, "maxps|cmp.*ps"), (SOFTMAX, "f?m?addps|fmadd...ps")]
)
def test_loops_are_vectorised(program, word, loop):
    text = assembly(program, loop, "float32")
    assert re.search(rf"^\s+v?({word})", text, re.MULTILINE), "no packed instructions"
    assert not re.search(r"call\S*\s+\S*(expf?|logf?)\b", text), "a call of libm"


# ----- Products that are made in order -----

HUGE, TINY = 1e300, 1e-300
PRODUCTS = {
    "to zero": [TINY] * 3 + [-1.0] * 700,
    "to minus zero": [TINY] * 3 + [-1.0] * 701,
    "to infinity": [HUGE] * 3 + [-1.0] * 701,
    "zero, then infinity": [0.0] + [2.0] * 600 + [np.inf],
    "zero, then nan": [0.0] + [2.0] * 600 + [np.nan],
    "infinity, then zero": [np.inf] + [2.0] * 600 + [0.0],
    "infinity, then nan": [np.inf] + [2.0] * 600 + [np.nan],
    "nan": [np.nan] + [2.0] * 600,
    "there and back": [HUGE, TINY] * 400,
    "a zero alone": [2.0] * 300 + [-0.0] + [2.0] * 300,
    "infinity alone": [-2.0] * 300 + [np.inf] + [3.0] * 301,
    "late": [1.0] * 5000 + [TINY, TINY, -1.0],
}


@pytest.mark.parametrize("values", PRODUCTS.values(), ids=list(PRODUCTS))
def test_products_are_those_made_in_order(values):
    """A product that becomes zero or infinite on the way stays so, with the sign that the rest gives it."""
    x = np.array(values)
    with np.errstate(all="ignore"):
        want = np.float64(1.0)
        for v in x:
            want = want * v
    for shape in ((-1,), (1, -1)):
        got = np.asarray(ng.prod(ng.tensor(x.reshape(shape)), axis=-1)).reshape(())
        np.testing.assert_array_equal(got, want)
        assert np.signbit(got) == np.signbit(want) or np.isnan(want)


@pytest.mark.parametrize("lines", [1, 3, 4, 31, 32, 33, 38, 100, 1001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_several_lines_are_summed_at_once(lines, dtype):
    x = np.random.default_rng(lines).normal(size=(lines, 130)).astype(dtype)
    got = np.asarray(ng.sum(ng.tensor(x), axis=0))
    want, scale = x.astype(np.float64).sum(0), np.abs(x.astype(np.float64)).sum(0)
    assert (np.abs(got - want) <= 2 * np.finfo(dtype).eps * scale).all()


# ----- Few long rows -----

LONG = {
    "var": (lambda a: ng.var(a, axis=-1), lambda a: a.var(-1)),
    "std": (lambda a: ng.std(a, axis=-1, ddof=1), lambda a: a.std(-1, ddof=1)),
    "softmax": (ng.softmax, lambda a: shares(a)),
    "log_softmax": (ng.log_softmax, lambda a: np.log(shares(a))),
    "logsumexp": (lambda a: ng.logsumexp(a, -1), lambda a: np.log(np.exp(a).sum(-1))),
}


def shares(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("shape", [(300_001,), (2, 150_000)], ids=str)
def test_long_rows_are_worked_on_in_parts(shape, name):
    """The values are NumPy's, the gradients those of rows that are not cut, the bits those of any number of threads."""
    op, want = LONG[name]
    data = np.random.default_rng(0).normal(size=shape)
    seed = np.random.default_rng(1).normal(size=want(data).shape)
    before, found = team.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            team.set_num_threads(count)
            a = ng.tensor(data, requires_grad=True)
            out = op(a)
            out.backward(seed)
            found.append((np.asarray(out.detach()), np.asarray(a.grad)))
    finally:
        team.set_num_threads(before)
    assert len({(v.tobytes(), g.tobytes()) for v, g in found}) == 1
    np.testing.assert_allclose(found[0][0], want(data), rtol=1e-12)
    with backend.use_backend("reference"):
        a = ng.tensor(data, requires_grad=True)
        op(a).backward(seed)
    np.testing.assert_allclose(found[0][1], a.grad, rtol=1e-9, atol=1e-12 * np.abs(np.asarray(a.grad)).max())


def test_long_rows_of_float16_are_rounded_once():
    data = np.random.default_rng(0).normal(size=200_000).astype(np.float16)
    want = data.astype(float) - np.log(np.exp(data.astype(float)).sum())
    got = np.asarray(ng.log_softmax(ng.tensor(data)))
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(float), want, rtol=1.05 * 2**-11)
