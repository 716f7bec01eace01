"""Products: the value is NumPy's, the gradients are those of differences, whatever the shapes and subscripts."""

import tracemalloc

import numpy as np
import pytest
from helpers import assert_gradients, laid_out, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import numbagrad as ng


def draws(*shapes, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=s) for s in shapes]
    if np.dtype(dtype).kind == "c":
        parts = [p + 1j * rng.normal(size=p.shape) for p in parts]
    return [np.asarray(p * 3 if np.dtype(dtype).kind == "i" else p).astype(dtype) for p in parts]


# What to call, and the shapes of its arguments.
CASES = {
    "matmul": (lambda m, a, b: m.matmul(a, b), [((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2))]),
    "matmul of stacks": (
        lambda m, a, b: m.matmul(a, b),
        [
            ((2, 3, 2), (2, 2, 3)),
            ((2, 2, 3), (3, 2)),
            ((3, 2), (2, 2, 3)),
            ((2, 1, 2, 3), (3, 3, 1)),
            ((3,), (2, 3, 2)),
        ],
    ),
    "matmul of a stack and a vector": (lambda m, a, b: m.matmul(a, b), [((2, 2, 3), (3,)), ((1, 1, 1), (1,))]),
    "dot": (
        lambda m, a, b: m.dot(a, b),
        [
            ((3,), (3,)),
            ((2, 3), (3, 2)),
            ((2, 1, 3), (2, 3, 2)),
            ((3,), (2, 3, 2)),
            ((2, 2, 3), (3,)),
            ((), (2,)),
            ((), ()),
        ],
    ),
    "vdot": (lambda m, a, b: m.vdot(a, b), [((3,), (3,)), ((2, 3), (3, 2)), ((), ())]),
    "inner": (lambda m, a, b: m.inner(a, b), [((3,), (3,)), ((2, 3), (4, 3)), ((2, 1, 3), (3,)), ((), (2, 2))]),
    "outer": (lambda m, a, b: m.outer(a, b), [((3,), (2,)), ((2, 2), (3,)), ((), (2,))]),
    "vecdot": (lambda m, a, b: m.vecdot(a, b), [((3,), (3,)), ((2, 3), (3,)), ((2, 1, 3), (4, 3))]),
    "vecdot along the first": (lambda m, a, b: m.vecdot(a, b, axis=0), [((3, 2), (3, 2)), ((3, 2), (3, 1))]),
    "matvec": (lambda m, a, b: m.matvec(a, b), [((2, 3), (3,)), ((2, 2, 3), (3,)), ((2, 3), (4, 3))]),
    "vecmat": (lambda m, a, b: m.vecmat(a, b), [((2,), (2, 3)), ((4, 2), (2, 3)), ((2,), (4, 2, 3))]),
    "kron": (lambda m, a, b: m.kron(a, b), [((2, 2), (1, 3)), ((2,), (3,)), ((2,), (2, 1, 2)), ((), (2,))]),
    "cross": (lambda m, a, b: m.cross(a, b), [((3,), (3,)), ((2, 3), (3,)), ((2, 1, 3), (2, 3))]),
    "cross along the first": (lambda m, a, b: m.cross(a, b, axis=0), [((3, 2), (3, 2)), ((3, 1, 2), (3, 2, 1))]),
    "cross, axes mixed": (lambda m, a, b: m.cross(a, b, axisa=0, axisb=1, axisc=0), [((3, 2), (2, 3))]),
    "tensordot 1": (lambda m, a, b: m.tensordot(a, b, 1), [((2, 3), (3, 2)), ((3,), (3,)), ((2, 2, 3), (3, 2, 2))]),
    "tensordot 0": (lambda m, a, b: m.tensordot(a, b, 0), [((2,), (3,)), ((), (2,))]),
    "tensordot 2": (lambda m, a, b: m.tensordot(a, b), [((2, 3, 2), (3, 2, 2)), ((2, 3), (2, 3))]),
    "tensordot of a negative axis": (lambda m, a, b: m.tensordot(a, b, (-1, 0)), [((2, 3), (3, 2))]),
    "tensordot of crossed axes": (
        lambda m, a, b: m.tensordot(a, b, ([0, 2], [-1, 0])),
        [((3, 2, 4), (4, 2, 3))],
    ),
}
CALLS = [
    pytest.param(f, shapes, id=f"{name} {shapes[0]} {shapes[1]}")
    for name, (f, all_) in CASES.items()
    for shapes in all_
]
ONE_OF_EACH = [pytest.param(f, all_[0], id=name) for name, (f, all_) in CASES.items()]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
@pytest.mark.parametrize(("f", "shapes"), CALLS)
def test_value_and_dtype_are_numpys(f, shapes, dtype):
    a, b = draws(*shapes, dtype=dtype)
    got, want = plain(f(ng, ng.tensor(a), ng.tensor(b))), np.asarray(f(np, a, b))
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(got, want, tolerance, tolerance)


@pytest.mark.parametrize(("f", "shapes"), CALLS)
def test_gradients_are_those_of_differences(f, shapes):
    assert_gradients(lambda a, b: f(ng, a, b), *draws(*shapes))


@pytest.mark.parametrize(("f", "shapes"), ONE_OF_EACH)
def test_complex_gradients_are_those_of_differences(f, shapes):
    def in_parts(a, b, c, d):
        y = f(ng, a + 1j * b, c + 1j * d)
        return ng.real(y), ng.imag(y)

    assert_gradients(in_parts, *draws(shapes[0], shapes[0], shapes[1], shapes[1]))


@pytest.mark.parametrize("layout", ["F", "strided", "reversed"])
@pytest.mark.parametrize(("f", "shapes"), ONE_OF_EACH)
def test_memory_layout_does_not_matter(f, shapes, layout):
    arrays = draws(*shapes)

    def run(arrays):
        leaves = [ng.asarray(a, requires_grad=True) for a in arrays]
        y = f(ng, *leaves)
        y.backward(np.cos(np.arange(y.size)).reshape(y.shape))
        return [plain(y), *(plain(t.grad) for t in leaves)]

    for got, want in zip(run([laid_out(a, layout) for a in arrays]), run(arrays), strict=True):
        np.testing.assert_allclose(got, want, 1e-12, 1e-12)


@pytest.mark.parametrize(("f", "shapes"), ONE_OF_EACH)
def test_float32_has_float32_gradients_also_beside_float64(f, shapes):
    a, b = draws(*shapes)
    x, y = ng.tensor(a, dtype=np.float32, requires_grad=True), ng.tensor(b, requires_grad=True)
    f(ng, x, y).sum().backward()
    assert x.grad.dtype == np.float32
    assert y.grad.dtype == np.float64


@pytest.mark.parametrize(("f", "shapes"), ONE_OF_EACH)
def test_only_the_wanted_gradient_is_there(f, shapes):
    a, b = (ng.tensor(v) for v in draws(*shapes))
    a.requires_grad = True
    f(ng, a, b).sum().backward()
    assert a.grad is not None
    assert b.grad is None


@pytest.mark.parametrize(
    ("a", "b"), [((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 0, 3), (3, 2)), ((2, 3, 0), (0,)), ((0,), (0,))]
)
def test_empty_operands(a, b):
    x, y = ng.zeros(a, requires_grad=True), ng.zeros(b, requires_grad=True)
    out = x @ y
    np.testing.assert_array_equal(plain(out), np.zeros(a) @ np.zeros(b))
    out.sum().backward()
    np.testing.assert_array_equal(plain(x.grad), np.zeros(a))
    np.testing.assert_array_equal(plain(y.grad), np.zeros(b))


def assert_bilinear(f, arrays):
    """The gradients of a function that is linear in each argument: one step of any size must be exact."""
    leaves = [ng.tensor(a, requires_grad=True) for a in arrays]
    out = f(*leaves)
    rng = np.random.default_rng(1)
    g = rng.normal(size=out.shape)
    grads = ng.autograd.grad(out, leaves, g)
    for i, (a, grad) in enumerate(zip(arrays, grads, strict=True)):
        step = rng.normal(size=a.shape)
        moved = f(*(ng.tensor(b + step if i == k else b) for k, b in enumerate(arrays)))
        assert grad.shape == a.shape
        np.testing.assert_allclose((plain(grad) * step).sum(), (g * (plain(moved) - plain(out))).sum(), 1e-8, 1e-8)


@given(hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=3, max_side=3), st.integers(0, 9))
def test_matmul_of_any_shapes(shapes, seed):
    arrays = draws(*shapes.input_shapes, seed=seed)
    np.testing.assert_allclose(plain(ng.matmul(*map(ng.tensor, arrays))), np.matmul(*arrays), 1e-12, 1e-12)
    assert_bilinear(ng.matmul, arrays)


@pytest.mark.parametrize("layout", ["C", "F", "strided", "reversed"])
@pytest.mark.parametrize(
    ("a", "b"), [((3, 4, 2), (2, 3)), ((3, 16, 20), (20, 16)), ((2, 120, 100), (100, 110)), ((3, 16, 20), (3, 20, 16))]
)
def test_stacks_of_tiny_middling_and_large_matrices(a, b, layout):
    arrays = [laid_out(x, layout) for x in draws(a, b)]
    want = np.einsum("...ij,...jk->...ik", *arrays)
    np.testing.assert_allclose(plain(ng.matmul(*map(ng.asarray, arrays))), want, 1e-10, 1e-10)
    assert_bilinear(lambda x, y: ng.matmul(x, y), arrays)


def test_a_gradient_that_is_one_number_everywhere():
    x, w = ng.tensor(draws((2, 3, 4))[0], requires_grad=True), ng.tensor(draws((4, 5))[0], requires_grad=True)
    (x @ w).sum().backward()
    np.testing.assert_allclose(plain(x.grad), np.broadcast_to(plain(w).sum(1), (2, 3, 4)))
    np.testing.assert_allclose(plain(w.grad), np.broadcast_to(plain(x).sum((0, 1))[:, None], (4, 5)))


# ----- matmul in networks -----


def test_operators_take_arrays_and_lists_on_either_side():
    w = ng.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    for y in (np.ones(2) @ w, [1.0, 1.0] @ w, ng.ones(2) @ w):
        (grad,) = ng.autograd.grad(y.sum(), [w])
        np.testing.assert_array_equal(plain(grad), np.ones((2, 2)))
    assert (w @ np.ones((2, 1))).shape == (2, 1)
    with pytest.raises(TypeError):
        w @ "x"


def test_a_view_as_operand_sends_its_gradient_to_the_base():
    base = ng.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    (base.T @ base).sum().backward()
    np.testing.assert_allclose(plain(base.grad), 2 * plain(base).sum(1, keepdims=True) * np.ones(3))


def test_a_weight_written_between_forward_and_backward_is_refused():
    x, w = ng.tensor(np.ones((2, 3)), requires_grad=True), ng.tensor(np.ones((3, 2)), requires_grad=True)
    y = (x @ w).sum()
    with ng.no_grad():
        w -= 1.0
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*matmul"):
        y.backward()
    (x @ w).sum().backward()
    np.testing.assert_array_equal(plain(w.grad), np.full((3, 2), 2.0))


def test_a_second_backward_is_refused_unless_the_graph_was_kept():
    x = ng.tensor(np.ones((2, 2)), requires_grad=True)
    y = (x @ x).sum()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_array_equal(plain(x.grad), np.full((2, 2), 8.0))
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_matmul_has_derivatives_of_any_order():
    x = ng.tensor([[2.0]], requires_grad=True)
    y = x @ x @ x @ x
    for want in (32.0, 48.0, 48.0, 24.0):
        (y,) = ng.autograd.grad(y, [x], create_graph=True)
        assert y.item() == want


def test_forward_mode_is_the_product_rule():
    a, b, s, t = draws((2, 3), (3, 2), (2, 3), (3, 2))
    for f in (np.matmul, np.dot, lambda x, y: np.einsum("ij,jk->ki", x, y), lambda x, y: np.tensordot(x, y, 1)):
        _, tangent = ng.jvp(lambda x, y, f=f: f(x, y), (ng.tensor(a), ng.tensor(b)), (ng.tensor(s), ng.tensor(t)))
        np.testing.assert_allclose(plain(tangent), f(s, b) + f(a, t), 1e-12)


def test_large_products_copy_no_operand():
    x, w = ng.ones((400, 3000), requires_grad=True), ng.ones((3000, 2), requires_grad=True)
    y = x @ w
    g = ng.ones((400, 2))
    tracemalloc.start()
    (grad,) = ng.autograd.grad(y, [w], g)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(plain(grad), np.full((3000, 2), 400.0))
    assert peak < x.nbytes / 10


# ----- einsum -----

EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ji,jk->ik", (3, 2), (3, 4)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->ji", (2, 2, 3)),
    ("ijkl->jl", (2, 3, 2, 2)),
    ("ij->", (2, 3)),
    ("ij->ji", (2, 3)),
    ("i,j->ij", (3,), (2,)),
    ("i,i", (3,), (1,)),
    ("i,i", (1,), (3,)),
    ("i,i->i", (1,), (3,)),
    ("ij,ij->ij", (1, 3), (2, 1)),
    ("ab,cd->", (2, 2), (1, 3)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
    ("bi,bi->b", (3, 2), (3, 2)),
    ("...ij,...jk->...ik", (2, 2, 3), (3, 2)),
    ("...i,...i", (2, 3), (2, 3)),
    ("i...,...->...i", (2, 3), (2, 1)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 2)),
    ("i,i,i->", (3,), (3,), (3,)),
    ("ij,jk,ik->j", (2, 3), (3, 2), (2, 2)),
    ("iij,jk,k,->i", (2, 2, 3), (3, 2), (2,), ()),
    (" i j , j k -> i k ", (2, 3), (3, 2)),
    ("Aa,aB->AB", (2, 3), (3, 2)),
    ("ab,ba->", (2, 0), (0, 2)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=str)
def test_einsum_is_numpys_and_its_gradients_those_of_differences(case):
    subscripts, *shapes = case
    arrays = draws(*shapes)
    got, want = plain(ng.einsum(subscripts, *map(ng.tensor, arrays))), np.einsum(subscripts, *arrays)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, 1e-12, 1e-12)
    assert_gradients(lambda *xs: ng.einsum(subscripts, *xs), *arrays)


@st.composite
def contractions(draw):
    """Subscripts with repeated labels, axes of length one that stretch, an ellipsis, and an output or none."""
    letters = draw(st.lists(st.sampled_from("abcXY"), min_size=1, max_size=4, unique=True))
    size = {k: draw(st.integers(1, 3)) for k in letters}
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 3))):
        labels = draw(st.lists(st.sampled_from(letters), max_size=3))
        unique = {k: size[k] if labels.count(k) > 1 else draw(st.sampled_from([1, size[k]])) for k in labels}
        dots = draw(st.integers(0, len(batch)))
        terms.append(("..." if batch else "") + "".join(labels))
        shapes.append((*batch[len(batch) - dots :], *(unique[k] for k in labels)))
    used = sorted({k for t in terms for k in t if k != "."})
    if not draw(st.booleans()):
        return ",".join(terms), shapes
    out = draw(st.permutations(draw(st.lists(st.sampled_from(used), unique=True)) if used else []))
    return ",".join(terms) + "->" + ("..." if batch else "") + "".join(out), shapes


@settings(max_examples=200)
@given(contractions(), st.sampled_from([False, True, "optimal"]))
def test_einsum_of_any_subscripts(case, optimize):
    subscripts, shapes = case
    arrays = draws(*shapes)
    want = np.einsum(subscripts, *arrays)
    got = plain(ng.einsum(subscripts, *map(ng.tensor, arrays), optimize=optimize))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, 1e-10, 1e-10)
    assert_bilinear(lambda *xs: ng.einsum(subscripts, *xs), arrays)


@pytest.mark.parametrize(
    "args",
    [([0, 1, 1], [1, 2], [2, 0]), ([0, 1, 1], [1, 2]), ([Ellipsis, 1], [1, 2], [Ellipsis, 2]), ([Ellipsis, 7], [7, 3])],
    ids=str,
)
def test_einsum_with_lists_of_labels(args):
    a, b = draws((2, 3, 3), (3, 4))
    ours = (ng.tensor(a), args[0], ng.tensor(b), *args[1:])
    np.testing.assert_allclose(plain(ng.einsum(*ours)), np.einsum(a, args[0], b, *args[1:]), 1e-12)


def test_einsum_follows_a_given_path_and_converts_to_a_dtype():
    arrays = draws((2, 3), (3, 4), (4, 2))
    got = ng.einsum("ij,jk,kl->il", *arrays, optimize=["einsum_path", (1, 2), (0, 1)], dtype=np.float32)
    assert got.dtype == np.float32
    np.testing.assert_allclose(plain(got), np.linalg.multi_dot(arrays), 1e-5, 1e-5)


def test_einsum_of_one_operand_is_a_view_as_in_numpy():
    x = ng.tensor(np.zeros((3, 3)))
    ng.einsum("ii->i", x)[...] = 1.0
    np.testing.assert_array_equal(plain(x), np.eye(3))


# ----- traces -----


@pytest.mark.parametrize(
    "settings", [{}, {"offset": 1}, {"offset": -2}, {"axis1": 1, "axis2": 2}, {"axis1": -1, "axis2": 0}]
)
def test_trace_is_numpys_with_gradients(settings):
    (x,) = draws((3, 2, 3))
    np.testing.assert_allclose(plain(ng.tensor(x).trace(**settings)), np.trace(x, **settings), 1e-12)
    assert_gradients(lambda t: ng.trace(t, **settings), x)


def test_trace_of_a_tall_matrix_leaves_the_rest_alone():
    x = ng.zeros((5, 2), requires_grad=True)
    ng.trace(x).backward()
    np.testing.assert_array_equal(plain(x.grad), np.eye(5, 2))


# ----- bad input -----


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ng.ones((2, 3)) @ ng.ones((2, 3)), r"matmul: .*\(2, 3\) and \(2, 3\)"),
        (lambda: ng.ones((2, 2, 3)) @ ng.ones((3, 3, 2)), r"matmul: .*\(2, 2, 3\)"),
        (lambda: ng.matmul(2.0, ng.ones(2)), r"matmul: .*\(\) and \(2,\)"),
        (lambda: ng.dot(ng.ones(2), ng.ones(3)), r"dot: .*\(2,\) and \(3,\)"),
        (lambda: ng.vdot(ng.ones(2), ng.ones(3)), r"vdot: .*\(2,\) and \(3,\)"),
        (lambda: ng.inner(ng.ones(2), ng.ones(3)), r"inner: .*\(2,\) and \(3,\)"),
        (lambda: ng.vecdot(ng.ones(2), ng.ones(3)), r"vecdot: .*\(2,\) and \(3,\)"),
        (lambda: ng.matvec(ng.ones((2, 3)), ng.ones(2)), r"matvec: .*\(2, 3\) and \(2,\)"),
        (lambda: ng.matvec(ng.ones(2), ng.ones(2)), r"matvec: .*\(2,\) and \(2,\)"),
        (lambda: ng.vecmat(ng.ones(2), ng.ones((3, 2))), r"vecmat: .*\(2,\) and \(3, 2\)"),
        (lambda: ng.cross(ng.ones(4), ng.ones(3)), r"cross: .*\(4,\) and \(3,\)"),
        (lambda: ng.tensordot(ng.ones((2, 3)), ng.ones((2, 3)), 1), r"tensordot: shape-mismatch.*\(2, 3\)"),
        (lambda: ng.tensordot(ng.ones(2), ng.ones(2), 2), r"tensordot: axes=2"),
        (lambda: ng.tensordot(ng.ones((2, 2)), ng.ones((2, 2)), ([0, 0], [0, 1])), "twice"),
        (lambda: ng.einsum("ij,jk", ng.ones((2, 2))), "2 operands, got 1"),
        (lambda: ng.einsum("ij", ng.ones(2)), "operand 0 has 1 axes"),
        (lambda: ng.einsum("i$", ng.ones((2, 2))), r"'\$'"),
        (lambda: ng.einsum("ij->ik", ng.ones((2, 2))), "'k'"),
        (lambda: ng.einsum("ij->ii", ng.ones((2, 2))), "'i'"),
        (lambda: ng.einsum("ij,jk", ng.ones((2, 2)), ng.ones((3, 2))), r"'j'.*2 and 3.*\(2, 2\) \(3, 2\)"),
        (lambda: ng.einsum("ii", ng.ones((2, 3))), r"'i'.*2 and 3"),
        (lambda: ng.einsum("ii", ng.ones((1, 3))), r"'i'.*\[1, 3\]"),
        (lambda: ng.einsum("...i->i", ng.ones((2, 2))), "ellipsis"),
        (lambda: ng.einsum(), "at least one operand"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_shapes_that_do_not_fit_raise_what_numpy_raises(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_cross_of_plane_vectors_has_the_third_component():
    a, b = draws((4, 2), (4, 2))
    np.testing.assert_allclose(plain(ng.cross(a, b)), a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0], 1e-12)
    assert_gradients(ng.cross, a, b)
    assert_gradients(ng.cross, a, *draws((3,)))
