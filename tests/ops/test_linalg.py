"""Linear algebra: NumPy's values, gradients of differences, and what holds at singular and degenerate matrices."""

import importlib.util

import numpy as np
import pytest
from helpers import assert_gradients, laid_out, parts, plain
from numpy.linalg import LinAlgError

import numbagrad as ng

L = ng.linalg


@pytest.fixture(autouse=True)
def reference_backend():
    """The rules are the same on every backend, so no kernel needs compiling to ask them."""
    with ng.use_backend("reference"):
        yield


def draws(shape, seed=0, kind="f"):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + (1j * rng.normal(size=shape) if kind == "c" else 0)


def square(shape=(3, 3), kind="f", seed=1):
    """Matrices whose eigenvalues and singular values lie well apart."""
    return draws(shape, seed, kind) + np.diag(3.0 + 2 * np.arange(shape[-1]))


def T(x):
    return np.conj(np.swapaxes(x, -1, -2)) if isinstance(x, np.ndarray) else ng.conj(ng.matrix_transpose(x))


def hermitian(f):
    """`f` of the Hermitian part, so that the convention for the triangle that is not read does not matter."""
    return lambda x: f((x + T(x)) * 0.5)


def positive(f):
    return lambda x: f(x @ T(x) + np.eye(x.shape[-2]))


def size(x):
    return ng.real(x * ng.conj(x))


def projector(q):
    """What does not depend on the basis of a span."""
    return q @ T(q)


def of_eigh(x):
    w, v = L.eigh(x)
    return w, projector(v[..., :1]), projector(v[..., 1:])


def of_eig(x):
    w, v = L.eig(x)
    return w, size(v), (v * ng.exp(w)[..., None, :]) @ L.inv(v)


def of_svd(full):
    def f(x):
        u, s, vh = L.svd(x, full)
        k = s.shape[-1]
        first = (u[..., :k] * ng.log(s)[..., None, :]) @ vh[..., :k, :]
        rest = [projector(u[..., k:])] * (u.shape[-1] > k) + [projector(T(vh[..., k:, :]))] * (vh.shape[-2] > k)
        return s, first, projector(u[..., :1]), *rest

    return f


def of_qr(mode):
    def f(x):
        q, r = L.qr(x, mode)
        k = min(x.shape[-2:])
        # Signs and phases of rows of R go with those of columns of Q.
        return q[..., :k, None] * r[..., None, :k, :], T(r) @ r, projector(q[..., k:]), size(q[..., :k])

    return f


B = draws((3, 2), 7)
TALL, WIDE, MANY = draws((4, 2)), draws((2, 4)), draws((2, 3, 3), 3)

# What to differentiate, and where. All of it is asked for real and for complex matrices.
CASES = {
    "inv": (L.inv, [(3, 3), (2, 2, 2), (1, 1), (0, 0)]),
    "det": (L.det, [(3, 3), (2, 2, 2), (1, 1), (4, 4)]),
    "slogdet": (lambda x: L.slogdet(x), [(3, 3), (2, 2, 2)]),
    "solve for a": (lambda x: L.solve(x, B), [(3, 3), (2, 3, 3)]),
    "solve for b": (lambda x: L.solve(square(), x), [(3,), (3, 2), (2, 3, 1)]),
    "solve for stacks of both": (lambda x: L.solve(square((2, 1, 3, 3)), x), [(2, 3, 1)]),
    "pinv": (L.pinv, [(4, 2), (2, 4), (2, 3, 2)]),
    "pinv of a Hermitian": (hermitian(lambda x: L.pinv(x, hermitian=True)), [(3, 3)]),
    "lstsq for a": (lambda x: L.lstsq(x, draws((4, 2), 5))[:2], [(4, 3)]),
    "lstsq for a wide": (lambda x: L.lstsq(x, draws((2, 2), 5)).x, [(2, 3)]),
    "lstsq for b": (lambda x: L.lstsq(TALL, x)[:2], [(4,), (4, 2)]),
    "lstsq, singular values": (lambda x: L.lstsq(x, draws(4)).s, [(4, 2)]),
    "cholesky": (positive(L.cholesky), [(3, 3), (2, 2, 2), (1, 1)]),
    "cholesky, upper": (positive(lambda x: L.cholesky(x, upper=True)), [(3, 3), (2, 2, 2)]),
    "qr, reduced": (of_qr("reduced"), [(4, 2), (2, 2), (2, 3), (2, 3, 2)]),
    "qr, complete": (of_qr("complete"), [(4, 2), (2, 2), (2, 3), (2, 3, 2)]),
    "qr, r": (lambda x: size(L.qr(x, "r")), [(3, 2), (2, 3)]),
    "svd, reduced": (of_svd(False), [(4, 2), (2, 2), (2, 3), (2, 3, 2)]),
    "svd, full": (of_svd(True), [(4, 2), (2, 2), (2, 3), (2, 3, 2)]),
    "svd, values only": (lambda x: L.svd(x, compute_uv=False), [(3, 2)]),
    "svd of a Hermitian": (hermitian(lambda x: L.svd(x, hermitian=True).S), [(3, 3)]),
    "svdvals": (L.svdvals, [(4, 2), (2, 4), (2, 3, 2)]),
    "eigh": (hermitian(of_eigh), [(3, 3), (2, 3, 3), (1, 1)]),
    "eigvalsh": (hermitian(L.eigvalsh), [(3, 3), (2, 3, 3)]),
    "eigvalsh, upper": (hermitian(lambda x: L.eigvalsh(x, "U")), [(3, 3)]),
    "eig": (of_eig, [(3, 3), (2, 2, 2)]),
    "eigvals": (L.eigvals, [(3, 3), (2, 2, 2)]),
    "norm": (L.norm, [(3,), (2, 3), (2, 2, 2), ()]),
    "norm along an axis": (lambda x: L.norm(x, axis=1, keepdims=True), [(3, 2)]),
    "1-norm": (lambda x: L.norm(x, 1, axis=0), [(3, 2)]),
    "3-norm": (lambda x: L.norm(x, 3, axis=0), [(3, 2)]),
    "1/2-norm": (lambda x: L.norm(x, 0.5, axis=-1, keepdims=True), [(3, 2)]),
    "-2-norm": (lambda x: L.norm(x, -2.0), [(3,)]),
    "inf-norm": (lambda x: L.norm(x, np.inf), [(3,)]),
    "-inf-norm": (lambda x: L.norm(x, -np.inf, axis=0), [(3, 2)]),
    "vector_norm": (lambda x: L.vector_norm(x, axis=(0, 2), ord=3, keepdims=True), [(2, 3, 2)]),
    **{
        f"matrix norm {o}": (lambda x, o=o: L.norm(x, o, axis=(0, -1)), [(3, 2), (3, 2, 2)])
        for o in ("fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf)
    },
    "matrix norm, axes exchanged": (lambda x: L.norm(x, 1, axis=(2, 0), keepdims=True), [(3, 2, 2)]),
    "matrix_norm": (L.matrix_norm, [(2, 3, 2)]),
    **{f"cond {p}": (lambda x, p=p: L.cond(x, p), [(3, 3)]) for p in (None, -2, 1, -1, np.inf, "fro", "nuc")},
    "cond of a stack": (L.cond, [(2, 3, 2)]),
    **{f"matrix_power {n}": (lambda x, n=n: L.matrix_power(x, n), [(2, 2)]) for n in (1, 2, 5, -1, -2)},
    "matrix_power of a stack": (lambda x: L.matrix_power(x, 3), [(2, 2, 2)]),
    "multi_dot": (lambda x: L.multi_dot([draws(2), x, B, x[:2, :2], draws((3, 1))[:2]]), [(2, 3)]),
    "multi_dot of matrices": (lambda x: L.multi_dot([x, B, T(B), T(x)]), [(4, 3)]),
    "tensorinv": (lambda x: L.tensorinv(x), [(2, 2, 4)]),
    "tensorinv, one axis": (lambda x: L.tensorinv(x, 1), [(4, 2, 2)]),
    "tensorsolve for a": (lambda x: L.tensorsolve(x, draws((2, 2), 4)), [(2, 2, 4)]),
    "tensorsolve for b": (lambda x: L.tensorsolve(draws((2, 2, 4), 4), x), [(2, 2)]),
    "tensorsolve, axes moved": (lambda x: L.tensorsolve(x, draws((2, 2), 4), axes=(0,)), [(4, 2, 2)]),
}
CALLS = [pytest.param(f, shape, id=f"{name} {shape}") for name, (f, shapes) in CASES.items() for shape in shapes]


def sample(shape, kind="f"):
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return draws(shape, 2, kind)
    return square(shape, kind)


def in_parts(f):
    """`f` of one complex tensor as a function of its real and imaginary part, with results in parts too."""

    def split(a, b):
        out = parts(f(a + 1j * b))
        return [part(y) for y in out for part in (ng.real, ng.imag)]

    return split


@pytest.mark.parametrize(("f", "shape"), CALLS)
def test_gradients_are_those_of_differences(f, shape):
    x = sample(shape)
    complex_out = any(y.dtype.kind == "c" for y in parts(f(ng.tensor(x))))
    g = (lambda t: [p(y) for y in parts(f(t)) for p in (ng.real, ng.imag)]) if complex_out else f
    assert_gradients(g, x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("f", "shape"), CALLS)
def test_complex_gradients_are_those_of_differences(f, shape):
    z = sample(shape, "c")
    assert_gradients(in_parts(f), z.real.copy(), z.imag.copy(), rtol=1e-5, atol=1e-6)


# ----- values -----

FUNCTIONS = {
    "inv": lambda m, x: m.inv(x[:, :3]),
    "pinv": lambda m, x: m.pinv(x),
    "pinv, rcond": lambda m, x: m.pinv(x, 0.4),
    "pinv, rtol": lambda m, x: m.pinv(x, rtol=0.4),
    "pinv, default rtol": lambda m, x: m.pinv(x * 1.0, rtol=None),
    "det": lambda m, x: m.det(x[:, :3]),
    "slogdet": lambda m, x: m.slogdet(x[:, :3]),
    "solve": lambda m, x: m.solve(x[:, :3], x[:, :3] * 2),
    "solve a vector": lambda m, x: m.solve(x[:, :3], x[0, :3, 0]),
    "lstsq": lambda m, x: m.lstsq(x[0], x[0] + 1),
    "lstsq of a vector": lambda m, x: m.lstsq(x[0], x[0, :, 0] + 1),
    "lstsq, machine precision": lambda m, x: m.lstsq(x[0], x[0, :, 0] + 1, rcond=-1),
    "lstsq, low rank": lambda m, x: m.lstsq(x[0], x[0, :, 0] + 1, rcond=0.5),
    "cholesky": lambda m, x: m.cholesky(x.mT @ x),
    "cholesky, upper": lambda m, x: m.cholesky(x.mT @ x, upper=True),
    "qr": lambda m, x: m.qr(x),
    "qr, complete": lambda m, x: m.qr(x, "complete"),
    "qr, r": lambda m, x: m.qr(x, "r"),
    "qr, raw": lambda m, x: m.qr(x, "raw"),
    "qr of wide ones": lambda m, x: [abs(y) for y in m.qr(x.mT)],
    "svd": lambda m, x: m.svd(x),
    "svd, reduced": lambda m, x: m.svd(x, full_matrices=False),
    "svd, values": lambda m, x: m.svd(x, compute_uv=False),
    "svd of Hermitian ones": lambda m, x: m.svd(x.mT @ x, hermitian=True).S,
    "svdvals": lambda m, x: m.svdvals(x),
    "eigh": lambda m, x: m.eigh(x[:, :3]),
    "eigh, upper": lambda m, x: m.eigh(x[:, :3], UPLO="U"),
    "eigvalsh": lambda m, x: m.eigvalsh(x[:, :3]),
    "eigvalsh, upper": lambda m, x: m.eigvalsh(x[:, :3], "u"),
    "eig": lambda m, x: m.eig(x[:, :3]),
    "eigvals": lambda m, x: m.eigvals(x[:, :3]),
    "cond": lambda m, x: m.cond(x),
    "cond, 1": lambda m, x: m.cond(x[:, :3], 1).real,  # NumPy 2.2 gives it a complex dtype
    "matrix_rank": lambda m, x: m.matrix_rank(x),
    "matrix_power": lambda m, x: m.matrix_power(x[:, :3], -3),
    "matrix_transpose": lambda m, x: m.matrix_transpose(x),
    "multi_dot": lambda m, x: m.multi_dot([x[0], x[0].T, x[1, :, 0]]),
    "tensorinv": lambda m, x: (
        m.tensorinv(x[:, :2, :2].reshape(4, 2, 1), 2) if m is None else m.tensorinv(x[0, :3, :3], 1)
    ),
    "tensorsolve": lambda m, x: m.tensorsolve(x[0, :3], x[0, :3, 0]),
    "norm": lambda m, x: m.norm(x),
    "vector_norm": lambda m, x: m.vector_norm(x, axis=(0, 1), ord=3),
    "vector_norm of all": lambda m, x: m.vector_norm(x, ord=np.inf, keepdims=True),
    "vector_norm, counting": lambda m, x: m.vector_norm(x, axis=0, ord=0),
    "matrix_norm": lambda m, x: m.matrix_norm(x, ord="nuc", keepdims=True),
    "cross": lambda m, x: m.cross(x[:, :3], x[:, 1:4], axis=1),
    "outer": lambda m, x: m.outer(x[0, 0], x[0, 1]),
    "trace": lambda m, x: m.trace(x, offset=1),
    "diagonal": lambda m, x: m.diagonal(x, offset=-1),
    "matmul": lambda m, x: m.matmul(x, x.mT),
    "tensordot": lambda m, x: m.tensordot(x, x, axes=3),
    "vecdot": lambda m, x: m.vecdot(x, x, axis=1),
}


def same_values(got, want, dtype):
    got, want = parts(got), parts(want)
    assert len(got) == len(want)
    for a, b in zip(got, map(np.asarray, want), strict=True):
        assert isinstance(a, ng.Tensor)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        tolerance = 2e-4 if dtype in (np.float32, np.complex64) else 1e-10
        np.testing.assert_allclose(plain(a), b, tolerance, tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64, np.int64])
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_value_and_dtype_are_numpys_through_numpys_own_function(f, dtype):
    x = square((2, 4, 4), "c" if np.dtype(dtype).kind == "c" else "f")[..., :3].astype(dtype)
    same_values(f(np.linalg, ng.tensor(x)), f(np.linalg, x), dtype)


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_results_do_not_depend_on_memory_layout_nor_on_being_recorded(f):
    x = square((2, 4, 4))[..., :3].copy()
    want = f(np.linalg, x)
    for layout in ("F", "strided", "reversed"):
        same_values(f(np.linalg, ng.asarray(laid_out(x, layout))), want, np.float64)
    if f is not FUNCTIONS["qr, raw"]:
        same_values(f(np.linalg, ng.tensor(x, requires_grad=True)), want, np.float64)


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize(("f", "shape"), CALLS)
def test_single_precision_stays_single(f, shape, kind):
    x = ng.tensor(sample(shape, kind), dtype=np.float32 if kind == "f" else np.complex64, requires_grad=True)
    outs = parts(f(x))
    single = [y for y in outs if y.dtype in (np.float32, np.complex64)]
    # Constants of double precision in a case make it double, as in NumPy.
    if len(single) == len(outs):
        total = sum(ng.real(y).sum() for y in outs)
        if total.requires_grad:
            total.backward()
            assert x.grad.dtype == x.dtype


ORDERS = [None, 0, 1, 2, 3, 0.5, -1, -2, np.inf, -np.inf]
MATRIX_ORDERS = [None, "fro", "f", "nuc", 1, 2, -1, -2, np.inf, -np.inf]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64, bool])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, -1, (1,), (0, 2), (2, 1)], ids=str)
def test_every_norm_has_numpys_value(axis, keepdims, dtype):
    x = (draws((2, 3, 4), 8, "c" if dtype is np.complex128 else "f") * 3).astype(dtype)
    for ord in ORDERS if np.size(axis) == 1 else MATRIX_ORDERS:
        with np.errstate(divide="ignore"):
            want = np.linalg.norm(x, ord, axis, keepdims)
        same_values(L.norm(ng.tensor(x), ord, axis, keepdims), want, dtype)


def test_empty_stacks_and_matrices():
    for name in ("inv", "det", "cholesky", "eigvalsh", "eigvals", "svdvals"):
        for shape in ((0, 3, 3), (0, 0)):
            x = ng.zeros(shape, requires_grad=True)
            y = getattr(L, name)(x)
            assert y.shape == getattr(np.linalg, name)(np.zeros(shape)).shape
            y.sum().backward()
            assert x.grad.shape == shape
    assert L.norm(ng.zeros(0)).item() == L.norm(ng.zeros(0), np.inf).item() == 0
    for f in (L.svd, L.eigh, L.qr):
        x = ng.zeros((0, 2, 2), requires_grad=True)
        f(x)[0].sum().backward()
        assert x.grad.shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("f", "shape"), [c for c in CALLS if len(c.values[1]) == 3 and "norm" not in c.id and "tensor" not in c.id]
)
def test_a_stack_is_treated_matrix_by_matrix(f, shape):
    stack = sample(shape)
    x = ng.tensor(stack, requires_grad=True)
    sum(ng.real(y * y).sum() for y in parts(f(x))).backward()
    for i, matrix in enumerate(stack):
        one = ng.tensor(matrix, requires_grad=True)
        sum(ng.real(y * y).sum() for y in parts(f(one))).backward()
        np.testing.assert_allclose(plain(x.grad)[i], plain(one.grad), 1e-8, 1e-8)


# ----- singular matrices -----

SINGULAR = {
    "of rank 3": np.array([[2.0, 6, 1, 0], [1, 3, 0, 0], [0, 1, 4, 2], [3, 9, 1, 0]]),
    "of rank 2": np.diag([0.0, 3, 0, 2]),
    "of rank 1": np.outer([1.0, 2, 0, 1], [0.0, 1, 3, 1]),
    "of rank 0": np.zeros((4, 4)),
}


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize("x", SINGULAR.values(), ids=SINGULAR)
def test_det_of_a_singular_matrix_has_its_gradients(x, kind):
    x = x * (1 + 1j) if kind == "c" else x
    for stack in (x, np.stack([x, square((4, 4))])):
        if kind == "f":
            assert_gradients(L.det, stack)
        else:
            assert_gradients(in_parts(L.det), stack.real.copy(), stack.imag.copy())


@pytest.mark.parametrize("x", [*SINGULAR.values(), square((4, 4))], ids=[*SINGULAR, "of full rank"])
def test_det_has_a_third_derivative(x):
    directions = draws((3, 4, 4), 2)

    def f(steps):
        return np.linalg.det(x + np.tensordot(steps, directions, 1))

    # det is a polynomial of degree 4, so its mixed third differences have an error of degree 5 and more only.
    signs = np.array(np.meshgrid([1, -1], [1, -1], [1, -1])).reshape(3, -1).T
    want = sum(np.prod(s) * f(s) for s in signs) / 8
    t = ng.tensor(x, requires_grad=True)
    y = L.det(t)
    for d in directions:
        (g,) = ng.autograd.grad(y, [t], create_graph=True)
        y = (g * d).sum()
    np.testing.assert_allclose(y.item(), want, 1e-9, 1e-9)


def test_det_with_huge_and_tiny_matrices_beside_each_other():
    x = ng.tensor(np.stack([np.eye(3) * 1e-120, np.eye(3) * 1e90, np.zeros((3, 3))]), requires_grad=True)
    L.det(x).sum().backward()
    np.testing.assert_allclose(plain(x.grad)[1], np.eye(3) * 1e180, 1e-12)
    np.testing.assert_allclose(plain(x.grad)[0], np.eye(3) * 1e-240, 1e-12)
    np.testing.assert_array_equal(plain(x.grad)[2], np.zeros((3, 3)))


def test_a_singular_matrix_whose_log_det_nobody_uses_disturbs_nothing():
    x = ng.tensor(np.stack([np.zeros((2, 2)), np.diag([2.0, 4.0])]), requires_grad=True)
    sign, log = L.slogdet(x)
    ng.where(sign == 0, 0.0, log).sum().backward()
    np.testing.assert_allclose(plain(x.grad), [np.zeros((2, 2)), np.diag([0.5, 0.25])])
    with pytest.raises(LinAlgError, match="slogdet"):
        L.slogdet(x).logabsdet.sum().backward()


def test_cond_of_a_singular_matrix_is_infinite():
    for p in (None, 1, "fro"):
        np.testing.assert_array_equal(plain(L.cond(ng.zeros((2, 2)), p)), np.inf)


def test_least_squares_of_low_rank_is_that_of_the_pseudo_inverse():
    low = np.outer([1.0, 2, 3, 4], [1.0, 0, 2])
    b = draws((4, 2))
    weights = draws((3, 2), 6)

    def gradients(f):
        x, y = ng.tensor(low, requires_grad=True), ng.tensor(b, requires_grad=True)
        (f(x, y) * weights).sum().backward()
        return plain(x.grad), plain(y.grad)

    for got, want in zip(gradients(lambda x, y: L.lstsq(x, y).x), gradients(lambda x, y: L.pinv(x) @ y), strict=True):
        np.testing.assert_allclose(got, want, 1e-8, 1e-8)


def test_gradient_of_the_pseudo_inverse_of_low_rank_along_matrices_of_that_rank():
    a, b, s, t = draws((4, 1)), draws((1, 3), 1), draws((4, 1), 2), draws((1, 3), 3)
    assert_gradients(lambda a, b: L.pinv(a @ b, rcond=1e-8), a, b, rtol=1e-5)
    assert_gradients(lambda a, b: L.lstsq(a @ b, s, rcond=1e-8).x, a + s, b + t, rtol=1e-5)


# ----- degenerate spectra -----


def gradient(f, x):
    t = ng.tensor(x, requires_grad=True)
    f(t).backward()
    return plain(t.grad)


@pytest.mark.parametrize("x", [np.eye(3), np.zeros((3, 3)), np.diag([2.0, 2, 5])], ids=["identity", "zero", "a pair"])
def test_sums_of_equal_eigenvalues(x):
    for f in (lambda t: L.eigh(t)[0], L.eigvalsh, L.eigvals, lambda t: L.eig(t)[0]):
        np.testing.assert_allclose(gradient(lambda t, f=f: f(t).sum(), x), np.eye(3), atol=1e-12)
        np.testing.assert_allclose(gradient(lambda t, f=f: (f(t) ** 2).sum(), x), 2 * x, atol=1e-12)


@pytest.mark.parametrize("x", [np.eye(3), np.diag([2.0, 2, 5]), np.eye(4, 3), np.eye(2, 3) * 3], ids=str)
def test_squares_of_equal_singular_values(x):
    for f in (lambda t: L.svd(t)[1], lambda t: L.svd(t, False)[1], L.svdvals):
        np.testing.assert_allclose(gradient(lambda t, f=f: (f(t) ** 2).sum(), x), 2 * x, atol=1e-12)


def test_projection_on_an_eigenspace_of_equal_eigenvalues():
    q = np.linalg.qr(draws((4, 4)))[0]
    x = q @ np.diag([1.0, 1, 3, 7]) @ q.T
    w = draws((4, 4), 3)

    def project(t):
        return (projector(L.eigh((t + t.mT) / 2)[1][:, :2]) * w).sum()

    got = gradient(project, x)
    # Along a direction that splits the pair, the projection still changes smoothly.
    d = draws((4, 4), 4)
    h = 1e-5
    with ng.no_grad():
        want = (project(ng.tensor(x + h * d)).item() - project(ng.tensor(x - h * d)).item()) / (2 * h)
    np.testing.assert_allclose((got * d).sum(), want, 1e-6)


@pytest.mark.parametrize("x", [np.eye(3), np.diag([2.0, 2, 5]), -np.eye(3)], ids=str)
def test_polar_factor_where_singular_values_are_equal(x):
    w = draws((3, 3), 3)

    def polar(t):
        u, _, vh = L.svd(t)
        return ((u @ vh) * w).sum()

    got, d, h = gradient(polar, x), draws((3, 3), 4), 1e-5
    want = (polar(ng.tensor(x + h * d)).item() - polar(ng.tensor(x - h * d)).item()) / (2 * h)
    np.testing.assert_allclose((got * d).sum(), want, 1e-6)


def test_nearly_equal_eigenvalues_count_as_equal():
    x = np.eye(3) + draws((3, 3)) * 1e-17
    np.testing.assert_allclose(
        gradient(lambda t: L.eigh(t)[0].sum() + size(L.eigh(t)[1]).sum(), x), np.eye(3), atol=1e-9
    )


# ----- kinks of norms -----


def test_norms_at_zero_have_gradient_zero():
    for shape, orders in (((3,), ORDERS), ((3, 2), MATRIX_ORDERS)):
        for ord in orders:
            got = gradient(lambda t, ord=ord: L.norm(t, ord) * 1.0 + (t * 0).sum(), np.zeros(shape))
            np.testing.assert_array_equal(got, np.zeros(shape), err_msg=str(ord))
    assert_gradients(lambda t: L.norm(t) ** 2, np.zeros(3), order=1)


def test_a_zero_among_others_disturbs_no_norm():
    for ord in (1, 2, 3, 1.5, 0.5, np.inf):
        got = gradient(lambda t, ord=ord: L.norm(t, ord), np.array([0.0, 2.0, 0.0]))
        np.testing.assert_allclose(got, [0, 1, 0])


def test_equal_elements_share_the_gradient_of_the_largest():
    third = 1 / 3
    np.testing.assert_allclose(
        gradient(lambda t: L.norm(t, np.inf), np.array([4.0, -4, 1, 4])), [third, -third, 0, third]
    )
    np.testing.assert_allclose(gradient(lambda t: L.norm(t, 2), np.diag([3.0, 3.0])), np.eye(2) / 2, atol=1e-12)


def test_gradient_of_a_large_norm_does_not_overflow():
    x = np.array([3e150, 4e150])
    np.testing.assert_allclose(gradient(L.norm, x), [0.6, 0.8])
    np.testing.assert_allclose(gradient(lambda t: L.norm(t, 1.5), x), gradient(lambda t: L.norm(t, 1.5), x / 1e150))


def test_norm_of_a_list_of_tensors():
    x = ng.tensor(3.0, requires_grad=True)
    L.norm([x, 2 * x]).backward()
    np.testing.assert_allclose(plain(x.grad), np.sqrt(5))


# ----- conventions -----


def test_gradients_of_hermitian_functions_are_hermitian_and_read_one_triangle():
    x = positive(lambda a: a)(draws((3, 3)))
    garbage = np.triu(np.full((3, 3), 9.0), 1)
    for f in (L.cholesky, lambda t: L.eigh(t).eigenvalues, L.eigvalsh, lambda t: L.pinv(t, hermitian=True)):
        weights = draws(f(x).shape, 2)
        clean = gradient(lambda t, f=f, weights=weights: (f(t) * weights).sum(), x)
        np.testing.assert_allclose(clean, clean.T, atol=1e-12)
        dirty = gradient(lambda t, f=f, weights=weights: (f(t) * weights).sum(), np.tril(x) + garbage)
        np.testing.assert_allclose(dirty, clean, 1e-8, 1e-10)


def test_a_real_matrix_with_complex_eigenvalues_has_a_real_gradient():
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    got = gradient(lambda t: size(L.eigvals(t)).sum(), turn)
    assert got.dtype == np.float64
    # The product of the two is the determinant.
    np.testing.assert_allclose(got, 2 * turn, atol=1e-12)


def test_results_have_numpys_names():
    x = ng.tensor(square())
    for name, fields in (
        ("eig", "eigenvalues eigenvectors"),
        ("eigh", "eigenvalues eigenvectors"),
        ("qr", "Q R"),
        ("slogdet", "sign logabsdet"),
        ("svd", "U S Vh"),
    ):
        assert getattr(L, name)(x)._fields == tuple(fields.split())
        assert all(hasattr(getattr(np.linalg, name)(plain(x)), f) for f in fields.split())


def test_every_function_of_numpy_linalg_takes_tensors():
    from numbagrad.ops.registry import NUMPY

    functions = [getattr(np.linalg, n) for n in np.linalg.__all__ if n != "LinAlgError"]
    assert [f.__name__ for f in functions if f not in NUMPY] == []


def test_forward_mode_of_inverse_and_determinant():
    x, d = square(), draws((3, 3), 4)
    for f in (L.inv, L.det, L.svdvals, lambda t: L.solve(t, B), lambda t: L.slogdet(t).logabsdet):
        _, tangent = ng.jvp(f, (ng.tensor(x),), (ng.tensor(d),))
        h = 1e-5
        want = (plain(f(ng.tensor(x + h * d))) - plain(f(ng.tensor(x - h * d)))) / (2 * h)
        np.testing.assert_allclose(plain(tangent), want, 1e-6, 1e-6)


@pytest.mark.parametrize("name", ["inv", "det", "svd, full", "eigh", "norm", "3-norm", "matrix norm nuc", "cholesky"])
def test_kernels_give_the_same_gradients(name):
    f, shapes = CASES[name]
    x = sample(shapes[0])
    grads = []
    for backend in ("cpu", "reference"):
        with ng.use_backend(backend):
            grads.append(gradient(lambda t: sum((y * y).sum() for y in parts(f(t))), x))
    np.testing.assert_allclose(*grads, 1e-10, 1e-12)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("kind", ["f", "c"])
def test_torch_has_the_same_gradients(kind):
    import torch

    def compare(name, x, **settings):
        ours, theirs = ng.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        y, z = getattr(L, name)(ours, **settings), getattr(torch.linalg, name)(theirs, **settings)
        g = draws(y.shape, 9, y.dtype.kind)
        y.backward(g)
        z.backward(torch.tensor(g))
        want = theirs.grad.numpy()
        # PyTorch leaves a part that no Hermitian matrix can see.
        want = (want + T(want)) / 2 if name in ("cholesky", "eigvalsh") else want
        np.testing.assert_allclose(plain(ours.grad), want, 1e-8, 1e-8, err_msg=name)

    x = square(kind=kind)
    # PyTorch's eigenvalues are complex always.
    for name in ("inv", "det", "pinv", "svdvals", "cond", *["eigvals"] * (kind == "c")):
        compare(name, x)
    for name in ("cholesky", "eigvalsh"):
        compare(name, x @ T(x))
    for ord in (1, -1, 2, -2, np.inf, -np.inf, "nuc", "fro"):
        compare("matrix_norm", x, ord=ord)
    for ord in (0.5, 1, 2, 3, np.inf, -np.inf):
        compare("vector_norm", x[0], ord=ord)


# ----- bad input -----

ERRORS = [
    (lambda: L.inv(ng.ones((2, 3))), LinAlgError, r"inv: .*square.*\(2, 3\)"),
    (lambda: L.inv(ng.zeros((2, 2))), LinAlgError, r"inv: Singular matrix.*\(2, 2\)"),
    (lambda: L.det(ng.ones(3)), LinAlgError, r"det: .*two-dimensional.*\(3,\)"),
    (lambda: L.slogdet(ng.ones((2, 3))), LinAlgError, r"slogdet: .*\(2, 3\)"),
    (lambda: L.solve(ng.ones((2, 2)), ng.ones(2)), LinAlgError, "solve: Singular"),
    (lambda: L.solve(ng.eye(2), ng.ones(3)), ValueError, r"solve: .*\(2, 2\)"),
    (lambda: L.lstsq(ng.ones((3, 2)), ng.ones(2)), LinAlgError, r"lstsq: .*\(3, 2\) and \(2,\)"),
    (lambda: L.pinv(ng.ones((2, 2)), 0.1, rtol=0.1), ValueError, "rtol"),
    (lambda: L.cholesky(-ng.eye(2)), LinAlgError, "cholesky: .*positive definite"),
    (lambda: L.qr(ng.ones((2, 2)), "full"), ValueError, "qr: .*'full'"),
    (lambda: L.qr(ng.ones(3)), LinAlgError, r"qr: .*\(3,\)"),
    (lambda: L.qr(ng.tensor(np.eye(2), requires_grad=True), "raw"), NotImplementedError, "detach"),
    (lambda: L.svd(ng.ones(3)), LinAlgError, r"svd: .*\(3,\)"),
    (lambda: L.svdvals(ng.ones(3)), LinAlgError, r"svdvals: .*\(3,\)"),
    (lambda: L.eigh(ng.ones((2, 3))), LinAlgError, r"eigh: .*\(2, 3\)"),
    (lambda: L.eigh(ng.eye(2), "X"), ValueError, "eigh: UPLO.*'X'"),
    (lambda: L.eigvalsh(ng.eye(2), "X"), ValueError, "eigvalsh: UPLO.*'X'"),
    (lambda: L.eig(ng.tensor([[np.nan]])), LinAlgError, "eig: "),
    (lambda: L.eigvals(ng.ones((2, 3))), LinAlgError, "eigvals: "),
    (lambda: L.norm(ng.ones((2, 2)), 3), ValueError, "norm: Invalid norm order for matrices.*3"),
    (lambda: L.norm(ng.ones(2), "fro"), ValueError, "norm: Invalid norm order 'fro'"),
    (lambda: L.norm(ng.ones((2, 2, 2)), 2), ValueError, r"norm: Improper number.*\(2, 2, 2\)"),
    (lambda: L.norm(ng.ones((2, 2)), axis=(0, 0)), ValueError, "norm: Duplicate axes"),
    (lambda: L.norm(ng.ones((2, 2)), axis=(1, -1)), ValueError, "norm: Duplicate axes"),
    (lambda: L.norm(ng.ones((2, 2)), axis=2), np.exceptions.AxisError, "axis 2"),
    (lambda: L.norm(ng.ones((2, 2)), axis=0.5), TypeError, "'axis'.*0.5"),
    (lambda: L.cond(ng.ones((0, 0))), LinAlgError, "cond"),
    (lambda: L.matrix_power(ng.ones((2, 3)), 2), LinAlgError, r"matrix_power: .*\(2, 3\)"),
    (lambda: L.matrix_power(ng.eye(2), 0.5), TypeError, "matrix_power: .*0.5"),
    (lambda: L.matrix_power(ng.zeros((2, 2)), -1), LinAlgError, "Singular"),
    (lambda: L.multi_dot([ng.eye(2)]), ValueError, "multi_dot: .*two"),
    (lambda: L.multi_dot([ng.eye(2), ng.ones((1, 2, 2)), ng.eye(2)]), LinAlgError, r"multi_dot: .*\(1, 2, 2\)"),
    (lambda: L.multi_dot([ng.eye(2), ng.eye(3), ng.eye(2)]), ValueError, r"\(2, 2\) and \(3, 3\)"),
    (lambda: L.tensorinv(ng.ones((2, 2, 4)), 0), ValueError, "tensorinv: .*0"),
    (lambda: L.tensorinv(ng.ones((2, 3, 4))), LinAlgError, "square"),
    (lambda: L.tensorsolve(ng.ones((2, 3)), ng.ones(2)), LinAlgError, r"tensorsolve: .*\(2, 3\) and \(2,\)"),
    (lambda: np.linalg.cross(ng.ones(2), ng.ones(2)), ValueError, "cross: .*3-dimensional"),
    (lambda: np.linalg.outer(ng.ones((2, 2)), ng.ones(2)), ValueError, r"outer: .*\(2, 2\) and \(2,\)"),
]


@pytest.mark.parametrize(("call", "error", "says"), ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_input_raises_what_numpy_raises_and_says_more(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_a_matrix_without_eigenvectors_has_no_gradient_of_them():
    x = ng.tensor([[1.0, 1.0], [0.0, 1.0]], requires_grad=True)
    w, v = L.eig(x)
    with pytest.raises(LinAlgError, match="defective"):
        (w.sum() + v.sum()).backward()
    with pytest.raises(LinAlgError, match="defective"):
        L.eigvals(x).sum().backward()
    assert x.grad is None


def test_power_0_is_the_identity():
    np.testing.assert_array_equal(plain(L.matrix_power(ng.ones((2, 3, 3)), 0)), np.broadcast_to(np.eye(3), (2, 3, 3)))
