"""float16 and bfloat16: every op takes them, computes in float32 and gives them back."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.ops.elementwise import Elementwise
from numbagrad.ops.registry import OPS

ml_dtypes = pytest.importorskip("ml_dtypes")

BFLOAT16 = ml_dtypes.bfloat16
HALVES = pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=["float16", "bfloat16"])
EPS = {np.float16: 2.0**-10, BFLOAT16: 2.0**-7}
ELEMENTWISE = [op for op in OPS.values() if isinstance(op, Elementwise)]


@pytest.fixture(params=["cpu", "reference"])
def backend(request):
    with ng.use_backend(request.param):
        yield request.param


def close(got, want, dtype, ulps=1.0):
    """`got`, of 16 bits, is `want` to some units in the last place."""
    got, want = np.asarray(got), np.asarray(want, np.float64)
    assert got.dtype == dtype
    tiny = 2.0**-24 if dtype is np.float16 else 2.0**-133
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=ulps * EPS[dtype], atol=ulps * tiny)


def halves(dtype, *shape, seed=0, low=-2.0, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def arguments(op, dtype, size=37):
    rng = np.random.default_rng([*map(ord, op.name)])
    ranges = [(name, *op.sampling.of(i)) for i, name in enumerate(op.params)]
    return [
        rng.random(size) < 0.5 if name in op.conditions else rng.uniform(low, high, size).astype(dtype)
        for name, low, high in ranges
    ]


def wide(arrays):
    return [a.astype(np.float64) if a.dtype != bool else a for a in arrays]


# ----- Elementwise -----


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if isinstance(op.numpy, np.ufunc)], ids=lambda op: op.name)
def test_value_is_numpys_in_float32_rounded(op, backend):
    dtype = (np.float16, BFLOAT16)[ELEMENTWISE.index(op) % 2]
    arrays = arguments(op, dtype)
    narrow = [a.astype(np.float32) if a.dtype != bool else a for a in arrays]
    got = np.asarray(op(*map(ng.tensor, arrays)))
    close(got, op.numpy(*narrow), dtype, 0.51)
    if dtype is np.float16:
        close(got, op.numpy(*arrays), dtype, 1)


# A few: they differ from those of float32 in loads and stores only, and compiling takes its time.
@pytest.mark.parametrize("op", ELEMENTWISE[::5], ids=lambda op: op.name)
def test_value_and_gradients_are_those_of_float64_rounded(op):
    dtype = (np.float16, BFLOAT16)[ELEMENTWISE.index(op) % 2]
    arrays = arguments(op, dtype)
    seed = np.linspace(-1, 2, 37).astype(dtype)
    found = []
    for given, g in ((arrays, seed), (wide(arrays), seed.astype(np.float64))):
        leaves = [ng.tensor(a, requires_grad=a.dtype != bool) for a in given]
        out = op(*leaves)
        wanted = [x for x in leaves if x.requires_grad]
        grads = ng.autograd.grad(out, wanted, g, materialize_grads=True, allow_unused=True) if out.requires_grad else []
        found.append([out.detach(), *grads])
    for got, want in zip(*found, strict=True):
        # A partial that uses the output sees it rounded, and may take a difference of it.
        scale = np.abs(np.asarray(want)).max() * EPS[dtype]
        assert got.dtype == dtype
        np.testing.assert_allclose(np.asarray(got).astype(float), np.asarray(want), rtol=8 * EPS[dtype], atol=4 * scale)


@HALVES
def test_layouts_and_broadcasting(dtype, backend):
    x, row, column = halves(dtype, 6, 8), halves(dtype, 8, seed=1), halves(dtype, 6, 1, seed=2)
    for a, b in ((x, row), (column, row), (x[::2, ::-1], column[::2]), (x.T, column.T), (np.asfortranarray(x), x)):
        want = a.astype(np.float32) * b.astype(np.float32)
        close(ng.tensor(a) * ng.tensor(b), want, dtype, 0.51)


@HALVES
def test_large_arrays_over_threads(dtype):
    x, y = halves(dtype, 300, 500), halves(dtype, 300, 500, seed=1)
    a, b = (ng.tensor(v, requires_grad=True) for v in (x, y))
    out = ng.exp(a) * b
    out.backward(ng.ones_like(out))
    e = np.exp(x.astype(np.float32)).astype(dtype).astype(np.float32)
    close(out.detach(), e * y.astype(np.float32), dtype, 0.51)
    close(a.grad, y.astype(np.float32) * e, dtype, 1)
    close(b.grad, e, dtype, 0.51)


def test_overflow_and_subnormals(backend):
    x = ng.tensor(np.array([60000.0, 2.0**-24, -0.0, np.inf, np.nan], np.float16))
    with np.errstate(over="ignore"):
        want = x.numpy() * np.float16(2)
    np.testing.assert_array_equal(np.asarray(x * 2), want)
    np.testing.assert_array_equal(np.signbit(np.asarray(x * 2)), np.signbit(want))
    np.testing.assert_array_equal(np.asarray(x / 2), x.numpy() / np.float16(2))


# ----- Promotion -----


@pytest.mark.parametrize("other", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "?", "c8", "c16"])
@pytest.mark.parametrize("name", ["add", "divide", "hypot", "maximum"])
@HALVES
def test_promotion_is_numpys(name, dtype, other):
    op = OPS[name]
    x, y = np.ones(3, dtype), np.ones(3, other)
    try:
        want = op.numpy(x, y).dtype
    except TypeError:
        pytest.skip("NumPy has no such loop")
    for a, b in ((x, y), (y, x)):
        assert op(ng.tensor(a), ng.tensor(b)).dtype == want


@HALVES
def test_numbers_are_weak_and_rounded_first(dtype, backend):
    x = ng.tensor(halves(dtype, 50))
    data = x.numpy().astype(np.float32)
    for number in (0.1, 3, True):
        rounded = np.asarray(number, dtype).astype(np.float32)
        close(x * number, data * rounded, dtype, 0.51)
        close(number - x, rounded - data, dtype, 0.51)
    assert (x * 1j).dtype == np.complex64
    assert (x**2).dtype == (x / 3).dtype == ng.maximum(x, 0.5).dtype == ng.where(x > 0, x, 0.5).dtype == dtype


@HALVES
def test_dtypes_by_name(dtype):
    name = np.dtype(dtype).name
    assert ng.zeros(2, dtype=name).dtype == ng.tensor([1.0], dtype=name).dtype == dtype
    assert ng.ones(2).astype(name).dtype == dtype
    assert getattr(ng, name) is dtype
    assert name in repr(ng.ones(2, dtype=name))


# ----- Gradients stay in their dtype -----


@HALVES
def test_gradients_have_the_dtype_of_their_tensor(dtype, backend):
    x = ng.tensor(halves(dtype, 4, 5), requires_grad=True)
    w = ng.tensor(halves(np.float32, 4, 5), requires_grad=True)
    (x * w).sum().backward()
    assert x.grad.dtype == dtype and w.grad.dtype == np.float32
    close(x.grad, w.detach(), dtype, 0.51)
    np.testing.assert_array_equal(np.asarray(w.grad), x.detach().astype("f4"))


@HALVES
def test_second_derivatives(dtype, backend):
    x = ng.tensor(halves(dtype, 9), requires_grad=True)
    (g,) = ng.autograd.grad((x**3).sum(), [x], create_graph=True)
    (h,) = ng.autograd.grad(g.sum(), [x])
    close(h, 6 * x.detach().astype(np.float64), dtype, 2)


@HALVES
def test_forward_mode(dtype):
    x, t = halves(dtype, 9), halves(dtype, 9, seed=1)
    _, tangent = ng.autograd.functional.jvp(lambda v: ng.exp(v) * v, ng.tensor(x), ng.tensor(t))
    wide = x.astype(np.float64)
    close(tangent, np.exp(wide) * (1 + wide) * t.astype(np.float64), dtype, 4)


# ----- Reductions -----

FOLDS = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "var": np.var,
    "std": np.std,
}


CASES = [("sum", None, np.float16), ("sum", 0, BFLOAT16), ("mean", 1, np.float16), ("mean", (0, 2), BFLOAT16)]
CASES += [
    ("var", 1, BFLOAT16),
    ("std", 0, np.float16),
    ("prod", 1, BFLOAT16),
    ("max", 0, np.float16),
    ("min", None, BFLOAT16),
]


@pytest.mark.parametrize(("name", "axis", "dtype"), CASES, ids=str)
def test_reductions_are_those_of_float64_rounded(name, axis, dtype, backend):
    x = halves(dtype, 7, 12, 5, low=0.8, high=1.2)
    a = ng.tensor(x, requires_grad=True)
    b = ng.tensor(x.astype(np.float64), requires_grad=True)
    got, want = (getattr(ng, name)(v, axis=axis) for v in (a, b))
    close(got.detach(), FOLDS[name](x.astype(np.float64), axis=axis), dtype, 0.6 if backend == "cpu" else 1)
    got.backward(ng.ones_like(got))
    want.backward(ng.ones_like(want))
    np.testing.assert_allclose(
        a.grad.numpy().astype(float), b.grad.numpy(), rtol=4 * EPS[dtype], atol=4 * EPS[dtype] * np.abs(b.grad).max()
    )


@HALVES
def test_sums_do_not_stall(dtype, backend):
    """In 16 bits a running sum of ones would stop at 2048 or 256."""
    x = ng.ones((30_000,), dtype=dtype)
    assert float(x.sum()) == float(np.asarray(30_000, dtype))
    assert float(x.mean()) == 1
    assert float(ng.cumsum(x)[-1]) == float(np.asarray(30_000, dtype))
    y = ng.ones((3000, 4), dtype=dtype)
    assert np.asarray(y.sum(axis=0)).astype(float).tolist() == [float(np.asarray(3000, dtype))] * 4
    leaf = ng.zeros((2,), dtype=dtype, requires_grad=True)
    leaf[np.zeros(3000, int)].sum().backward()
    assert float(leaf.grad[0]) == float(np.asarray(3000, dtype))
    row = ng.zeros((2,), dtype=dtype, requires_grad=True)
    (ng.ones((3000, 2), dtype=dtype) * row).sum().backward()
    assert float(row.grad[1]) == float(np.asarray(3000, dtype))


@pytest.mark.parametrize(
    ("name", "axis", "dtype"),
    [
        ("softmax", -1, np.float16),
        ("softmax", 0, BFLOAT16),
        ("log_softmax", -1, BFLOAT16),
        ("logsumexp", 0, np.float16),
    ],
    ids=str,
)
def test_softmax_rounds_once(name, axis, dtype):
    x = halves(dtype, 40, 33, low=-8, high=8)
    wide = x.astype(np.float64)
    shifted = wide - wide.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    want = {
        "softmax": np.exp(shifted) / total,
        "log_softmax": shifted - np.log(total),
        "logsumexp": (np.log(total) + wide.max(axis, keepdims=True)).squeeze(axis),
    }
    close(getattr(ng, name)(ng.tensor(x), axis=axis), want[name], dtype, 0.51)


@HALVES
def test_cumulative_products(dtype, backend):
    x = halves(dtype, 5, 6, low=0.5, high=1.5)
    a, b = ng.tensor(x, requires_grad=True), ng.tensor(x.astype(float), requires_grad=True)
    for v in (a, b):
        ng.cumprod(v, axis=1).sum().backward()
    close(a.grad, b.grad, dtype, 4)


def test_products_go_through_numbers_that_float16_does_not_hold():
    x = ng.tensor(np.array([300.0, 300.0, 1e-3, 1e-3], np.float16), requires_grad=True)
    ng.prod(x).backward()
    wide = x.detach().astype(float).numpy()
    close(x.grad, np.prod(wide) / wide, np.float16, 2)


# ----- Matrices -----


@HALVES
def test_products_of_matrices(dtype, backend):
    x, y = halves(dtype, 20, 300), halves(dtype, 300, 10, seed=1)
    a, b = (ng.tensor(v, requires_grad=True) for v in (x, y))
    out = a @ b
    close(out.detach(), x.astype(np.float64) @ y.astype(np.float64), dtype, 1.1)
    out.backward(ng.ones_like(out))
    close(a.grad, np.broadcast_to(y.astype(np.float64).sum(1), x.shape), dtype, 1.1)
    assert b.grad.dtype == dtype
    got, want = ng.einsum("ij,jk->k", a.detach(), b.detach()), (x.astype(float) @ y.astype(float)).sum(0)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.numpy().astype(float), want, atol=2 * EPS[dtype] * np.abs(want).max())


@HALVES
@pytest.mark.parametrize("name", ["inv", "det", "cholesky", "eigvalsh", "svdvals", "pinv", "norm"])
def test_linear_algebra(name, dtype):
    x = np.eye(4) * 3 + halves(np.float64, 4, 4, low=-0.5, high=0.5)
    x = (x + x.T).astype(dtype)
    a, b = ng.tensor(x, requires_grad=True), ng.tensor(x.astype(float), requires_grad=True)
    got, want = (getattr(ng.linalg, name)(v) for v in (a, b))
    assert got.dtype == dtype
    scale = float(np.abs(np.asarray(want.detach())).max()) * EPS[dtype]
    np.testing.assert_allclose(got.detach().numpy().astype(float), want.detach(), atol=2 * scale)
    got.sum().backward()
    want.sum().backward()
    scale = float(np.abs(np.asarray(b.grad)).max()) * EPS[dtype]
    np.testing.assert_allclose(a.grad.numpy().astype(float), b.grad, atol=4 * scale)


# ----- Everything else -----

MOVES = {
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.T,
    "index": lambda x: x[1:, ::2],
    "gather": lambda x: x[[2, 0, 2]],
    "mask": lambda x: x[x > 0],
    "stack": lambda x: ng.stack([x, x]),
    "concatenate": lambda x: ng.concatenate([x, x], axis=1),
    "flip": lambda x: ng.flip(x),
    "roll": lambda x: ng.roll(x, 2, axis=1),
    "pad": lambda x: ng.pad(x, 1),
    "tile": lambda x: ng.tile(x, (2, 1)),
    "repeat": lambda x: ng.repeat(x, 2, axis=0),
    "tril": lambda x: ng.tril(x),
    "diagonal": lambda x: ng.diagonal(x),
    "sort": lambda x: ng.sort(x, axis=1),
    "where": lambda x: ng.where(x > 0, x, 0.0),
    "broadcast": lambda x: ng.broadcast_to(x, (2, *x.shape)),
    "take_along_axis": lambda x: ng.take_along_axis(x, ng.argsort(x, axis=1), axis=1),
    "median": lambda x: ng.median(x, axis=1),
    "max": lambda x: ng.max(x, axis=1),
}


@HALVES
@pytest.mark.parametrize("name", MOVES)
def test_what_only_moves_items_is_exact(name, dtype):
    x = halves(dtype, 5, 5)
    a, b = ng.tensor(x, requires_grad=True), ng.tensor(x.astype(np.float64), requires_grad=True)
    for v in (a, b):
        MOVES[name](v).sum().backward()
    got, want = MOVES[name](a.detach()), MOVES[name](b.detach())
    assert got.dtype == a.grad.dtype == dtype
    np.testing.assert_array_equal(got.numpy().astype(float), want.numpy())
    np.testing.assert_array_equal(a.grad.numpy().astype(float), b.grad.numpy())


@HALVES
def test_writing_in_place(dtype):
    x = ng.tensor(halves(dtype, 4, 5), requires_grad=True)
    y = x * 2
    y += 1
    y[0] = x[1]
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    assert x.grad.numpy().astype(float).tolist() == [[0] * 5, [3] * 5, [2] * 5, [2] * 5]


@HALVES
def test_a_gradient_of_another_width_is_converted(dtype):
    x = ng.tensor(halves(dtype, 3), requires_grad=True)
    y = x.astype(np.float32) * 2
    y.backward(np.ones(3, np.float32))
    assert x.grad.dtype == dtype
    close(x.grad, np.full(3, 2.0), dtype, 0)


def test_pytorch_agrees():
    torch = pytest.importorskip("torch")
    x = halves(BFLOAT16, 8, 16)
    a, b = ng.tensor(x, requires_grad=True), torch.tensor(x.astype(np.float32)).to(torch.bfloat16).requires_grad_()
    y, z = ng.tanh(a) * a + 0.5, torch.tanh(b) * b + 0.5
    y.sum().backward()
    z.sum().backward()
    close(y.detach(), z.detach().float().numpy(), BFLOAT16, 1)
    close(a.grad, b.grad.float().numpy(), BFLOAT16, 3)
