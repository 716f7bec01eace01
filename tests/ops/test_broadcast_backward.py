"""Gradients of broadcast operands: summed in the loop that computes them, whatever the shapes and the threads."""

import tracemalloc

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.jit import memory, rows
from numbagrad.ops import elementwise
from numbagrad.ops.registry import OPS as REGISTRY
from numbagrad.ops.softmax import SOFTMAX

SHAPES = {
    "row": ((300, 400), (400,)),
    "column": ((300, 400), (300, 1)),
    "outer": ((300, 1), (1, 400)),
    "number": ((300, 400), ()),
    "one": ((300, 400), (1, 1)),
    "middle": ((7, 50, 60), (7, 1, 60)),
    "first": ((7, 50, 60), (50, 60)),
    "channels": ((4, 5, 60, 70), (1, 5, 1, 1)),
    "two middle": ((4, 5, 60, 70), (1, 5, 60, 1)),
    "last": ((4, 5, 60, 70), (4, 1, 1, 70)),
    "crossed": ((4, 5, 60, 70), (4, 1, 60, 1)),
    "narrow": ((9001, 3), (3,)),
    "short rows": ((9000, 3), (9000, 1)),
    "narrow outer": ((9000, 1), (1, 3)),
    "long": ((300_000,), (1,)),
    "long columns": ((3, 100_000), (100_000,)),
    "both stretched": ((20, 1, 30, 40), (1, 50, 30, 1)),
}
OPS = {
    "multiply": (lambda x, y: x * y, lambda x, y, g: (g * y, g * x)),
    "subtract": (lambda x, y: x - y, lambda x, y, g: (g, -g)),
    "divide": (lambda x, y: x / (y * y + 1), lambda x, y, g: (g / (y * y + 1), -2 * g * x * y / (y * y + 1) ** 2)),
    "hypot": (ng.hypot, lambda x, y, g: (g * x / np.hypot(x, y), g * y / np.hypot(x, y))),
    "where": (lambda x, y: ng.where(MASK(x, y), x, y), lambda x, y, g: (g * (x > y), g * ~(x > y))),
}


def MASK(x, y):
    return ng.tensor(np.asarray(x.detach()) > np.asarray(y.detach()))


def data(shapes, dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(dtype) for s in shapes)
    return x, y, rng.normal(size=np.broadcast_shapes(*shapes)).astype(dtype)


def gradients(op, x, y, g, need=(True, True)):
    leaves = [ng.tensor(v, requires_grad=n) for v, n in zip((x, y), need, strict=True)]
    return [np.asarray(r) for r in ng.autograd.grad(op(*leaves), [v for v in leaves if v.requires_grad], g)]


def summed(full, shape):
    """Sum over what broadcasting added."""
    full = full.sum(axis=tuple(range(full.ndim - len(shape))))
    return full.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1 and full.shape[i] > 1), keepdims=True)


@pytest.fixture(params=["cpu", "reference"])
def backend(request):
    with ng.use_backend(request.param):
        yield request.param


# Every shape for one op, a few for the others: each kind of loop is compiled for each op.
PAIRS = [("multiply", shape) for shape in SHAPES]
PAIRS += [(op, shape) for op in OPS if op != "multiply" for shape in ("row", "outer", "narrow")]


@pytest.mark.parametrize(("name", "shape"), PAIRS, ids=str)
def test_gradients_are_sums_of_the_full_ones(name, shape, backend):
    x, y, g = data(SHAPES[shape], np.float64)
    op, rule = OPS[name]
    wants = [summed(np.broadcast_to(w, g.shape), v.shape) for w, v in zip(rule(x, y, g), (x, y), strict=True)]
    for got, want in zip(gradients(op, x, y, g), wants, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11 * np.sqrt(g.size))
    (only,) = gradients(op, x, y, g, (False, True))
    np.testing.assert_allclose(only, wants[1], rtol=1e-10, atol=1e-11 * np.sqrt(g.size))


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("shapes", [SHAPES["row"], SHAPES["number"], SHAPES["narrow"]], ids=str)
def test_sums_are_exact_to_the_last_digits(shapes, dtype):
    x, y, g = data(shapes, dtype)
    wide = [v.astype(np.float64) for v in (x, y, g)]
    want = summed(wide[2] * wide[0], y.shape)
    got = gradients(OPS["multiply"][0], x, y, g)[1]
    assert got.dtype == dtype
    scale = summed(np.abs(wide[2] * wide[0]), y.shape)
    bound = np.finfo(dtype).eps * np.abs(want) + 2e-7 * scale
    assert (np.abs(got.astype(np.float64) - want) <= bound).all()


@pytest.mark.parametrize("layout", ["transposed", "every other", "spread"])
def test_other_layouts_give_the_same(layout):
    x, y, g = data(((300, 400), (400,)), np.float64)
    given = {
        "transposed": lambda a: np.asfortranarray(a),
        "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        "spread": lambda a: np.broadcast_to(a[:1], a.shape) if a.ndim > 1 else a,
    }[layout]
    x, g = given(x), given(g)
    leaves = [ng.asarray(x).requires_grad_(), ng.asarray(given(y)).requires_grad_()]
    found = ng.autograd.grad(leaves[0] * leaves[1], leaves, ng.asarray(g))
    np.testing.assert_allclose(found[0], g * y, rtol=1e-14)
    np.testing.assert_allclose(found[1], (g * x).sum(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=list(SHAPES))
def test_results_do_not_depend_on_the_number_of_threads(shapes, monkeypatch):
    # Parts as small as these arrays have several.
    monkeypatch.setattr(rows, "PART", 4096)
    monkeypatch.setattr(rows, "BATCH", 16384)
    monkeypatch.setattr(REGISTRY["multiply"].plan((True,), (True, True)).pull, "_known", {})
    x, y, g = data(shapes, np.float64)
    before, found = ng.get_num_threads(), []
    try:
        for count in (1, 2, 3, 7):
            ng.set_num_threads(count)
            found.append([v.tobytes() for v in gradients(OPS["multiply"][0], x, y, g)])
    finally:
        ng.set_num_threads(before)
    assert all(f == found[0] for f in found)


LARGE = {
    "row": ((1000, 1000), (1000,)),
    "column": ((1000, 1000), (1000, 1)),
    "outer": ((1000, 1), (1, 1000)),
    "number": ((1000, 1000), ()),
    "middle": ((30, 300, 200), (30, 1, 200)),
    "channels": ((20, 10, 70, 80), (1, 10, 1, 1)),
    "narrow": ((400_000, 3), (3,)),
    "short rows": ((400_000, 3), (400_000, 1)),
}


@pytest.mark.parametrize("name", LARGE)
def test_nothing_of_full_size_lies_between(name, monkeypatch):
    x, y, g = data(LARGE[name], np.float32)
    leaves = [ng.tensor(v, requires_grad=True) for v in (x, y)]
    seed = ng.tensor(g)
    for _ in range(2):
        out = leaves[0] * leaves[1]
        taken = []
        empty = memory.empty
        monkeypatch.setattr(memory, "empty", lambda *args, to=taken, f=empty: to.append(f(*args)) or to[-1])
        tracemalloc.start()
        try:
            grads = ng.autograd.grad(out, leaves, seed)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        monkeypatch.setattr(memory, "empty", empty)
    given_back = sum(r._data.nbytes for r in grads)
    pooled = sum(a.nbytes for a in taken)
    # Sums of parts are float64; a partial derivative of full size would be g.nbytes more.
    assert pooled + peak < given_back + 0.6 * g.nbytes


def test_a_zero_gradient_absorbs():
    x = ng.tensor(np.full((200, 300), np.inf), requires_grad=True)
    y = ng.ones((300,), requires_grad=True)
    (x * y).backward(np.zeros((200, 300)))
    assert not np.asarray(y.grad).any() and not np.asarray(x.grad).any()


def test_numbers_and_repeated_operands():
    y = ng.tensor(np.linspace(1, 2, 300), requires_grad=True)
    x = ng.tensor(np.ones((200, 300)), requires_grad=True)
    ((x - y) ** 2 / y).sum().backward()
    want = (-2 * (1 - y.detach()) / y.detach() - (1 - y.detach()) ** 2 / y.detach() ** 2) * 200
    np.testing.assert_allclose(y.grad, want, rtol=1e-12)


def test_second_derivatives_take_the_recorded_way():
    x = ng.tensor(np.ones((200, 300)), requires_grad=True)
    y = ng.tensor(np.linspace(1, 2, 300), requires_grad=True)
    (g,) = ng.autograd.grad((x * y * y).sum(), [y], create_graph=True)
    (h,) = ng.autograd.grad(g.sum(), [y])
    np.testing.assert_allclose(h, np.full(300, 400.0))


def test_memory_that_is_not_aligned():
    x = np.zeros(8 * 60_000 + 1, np.uint8)[1:].view(np.float64).reshape(200, 300)
    x[...] = 2
    leaves = [ng.asarray(x).requires_grad_(), ng.ones((300,), requires_grad=True)]
    found = ng.autograd.grad(leaves[0] * leaves[1], leaves, np.ones((200, 300)))
    assert (np.asarray(found[1]) == 400).all()
    assert x.size > elementwise.FAST_SIZE


def test_blocks_of_columns_are_counted_as_kernels_count_them():
    """Many columns and three numbers for each: more blocks than there are would write beyond the end."""

    for inner in (1, 4095, 4097, 1_000_001, 4_000_000):
        blocks, block = rows.blocks_of(inner, SOFTMAX)
        assert (blocks - 1) * block < inner <= blocks * block
        assert block * len(SOFTMAX.slots) <= rows.SCRATCH + len(SOFTMAX.slots)
