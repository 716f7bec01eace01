"""autograd.functional. Each test runs in PyTorch too; values are compared with known derivatives."""

import numpy as np
import pytest

import numbagrad as ng

# PyTorch's own, when it loads forward mode.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

X, Y = np.array([1.0, 2.0, -0.5]), np.array([0.3, -1.0, 2.0])


def functional(lib):
    from importlib import import_module

    return import_module(f"{lib.name}.autograd.functional")


def close(lib, got, want):
    """Nested tuples of tensors against nested tuples of arrays."""
    if isinstance(want, tuple):
        assert isinstance(got, (tuple, list)) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            close(lib, g, w)
    else:
        want = np.asarray(want)
        assert tuple(got.shape) == want.shape
        np.testing.assert_allclose(lib.values(got), want, rtol=1e-12, atol=1e-12)


def diag(v):
    return np.diag(v)


# ----- products -----


def test_vjp_and_jvp(lib):
    F, x, y, v = functional(lib), lib.const(X), lib.const(Y), lib.const([1.0, 10.0, 100.0])
    weights = np.array([1.0, 10.0, 100.0])
    close(lib, F.vjp(lambda x, y: x * x * y, (x, y), v), (X * X * Y, (2 * X * Y * weights, X * X * weights)))
    close(lib, F.jvp(lambda x, y: x * x * y, (x, y), (v, v)), (X * X * Y, (2 * X * Y + X * X) * weights))


def test_several_outputs(lib):
    F, x = functional(lib), lib.const(X)
    seeds = (lib.const(Y), lib.const(3.0))
    close(lib, F.vjp(lambda x: (x * x, x.sum()), x, seeds), ((X * X, X.sum()), 2 * X * Y + 3))
    close(lib, F.jvp(lambda x: (x * x, x.sum()), x, lib.const(Y)), ((X * X, X.sum()), (2 * X * Y, Y.sum())))


def test_v_may_be_left_out_for_one_number(lib):
    F, x, one = functional(lib), lib.const(X), lib.const(2.0)
    close(lib, F.vjp(lambda x: (x * x).sum(), x), ((X * X).sum(), 2 * X))
    close(lib, F.jvp(lambda t: lib.exp(t) * x, one), (np.exp(2.0) * X, np.exp(2.0) * X))
    close(lib, F.hvp(lambda t: t**3, one), (8.0, 12.0))
    close(lib, F.vhp(lambda t: t**3, one), (8.0, 12.0))


def test_products_with_the_hessian(lib):
    F, x, y = functional(lib), lib.const(X), lib.const(Y)
    v, w = np.array([1.0, 10.0, 100.0]), np.array([-1.0, 0.5, 2.0])
    want = (6 * X * Y * v + 3 * X**2 * w, 3 * X**2 * v)
    for product in (F.hvp, F.vhp):
        got = product(lambda x, y: (x**3 * y).sum(), (x, y), (lib.const(v), lib.const(w)))
        close(lib, got, ((X**3 * Y).sum(), want))


# ----- whole matrices -----


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobian(lib, strategy, vectorize):
    if lib.name == "torch" and strategy == "forward-mode" and not vectorize:
        pytest.skip("PyTorch has no loop for forward mode")
    F, x, y = functional(lib), lib.const(X), lib.const(Y)
    how = {"strategy": strategy, "vectorize": vectorize}
    close(lib, F.jacobian(lambda x: x * x, x, **how), diag(2 * X))
    close(lib, F.jacobian(lambda x, y: x * y, (x, y), **how), (diag(Y), diag(X)))
    close(lib, F.jacobian(lambda x: (x * x, x.sum()), x, **how), (diag(2 * X), np.ones(3)))
    want = ((diag(Y), diag(X)), (np.ones(3), np.zeros(3)))
    close(lib, F.jacobian(lambda x, y: (x * y, x.sum()), (x, y), **how), want)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_jacobian_of_matrices(lib, strategy):
    F, a = functional(lib), np.arange(6.0).reshape(2, 3)
    got = F.jacobian(lambda a: a.sum(1) * 2 if lib.name == "torch" else a.sum(axis=1) * 2, lib.const(a),
                     strategy=strategy, vectorize=True)  # fmt: skip
    close(lib, got, 2 * np.stack([np.eye(2)] * 3, axis=-1))


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_hessian(lib, strategy):
    F, x, y = functional(lib), lib.const(X), lib.const(Y)
    how = {"outer_jacobian_strategy": strategy, "vectorize": True}
    close(lib, F.hessian(lambda x: (x**3).sum(), x, **how), diag(6 * X))
    want = ((diag(6 * X * Y), diag(3 * X**2)), (diag(3 * X**2), np.zeros((3, 3))))
    close(lib, F.hessian(lambda x, y: (x**3 * y).sum(), (x, y), **how), want)


def test_results_are_constants_without_create_graph(lib):
    F, x = functional(lib), lib.leaf(X)
    out, product = F.vjp(lambda x: (x * x).sum(), x)
    assert not out.requires_grad and not product.requires_grad
    assert not F.jacobian(lambda x: x * x, x).requires_grad
    assert x.grad is None


def test_results_can_be_differentiated_with_create_graph(lib):
    F, x = functional(lib), lib.leaf(X)

    def gradient(y):
        return lib.autograd.grad(y.sum(), x)[0]

    close(lib, gradient(F.vjp(lambda x: (x**3).sum(), x, create_graph=True)[1]), 6 * X)
    close(lib, gradient(F.jacobian(lambda x: x**3, x, create_graph=True)), 6 * X)
    close(lib, gradient(F.hessian(lambda x: (x**4).sum(), x, create_graph=True)), 24 * X)
    v = lib.const(Y)
    close(lib, gradient(F.jvp(lambda x: x**3, x, v, create_graph=True)[1]), 6 * X * Y)
    close(lib, gradient(F.hvp(lambda x: (x**4).sum(), x, v, create_graph=True)[1]), 24 * X * Y)
    close(lib, gradient(F.vhp(lambda x: (x**4).sum(), x, v, create_graph=True)[1]), 24 * X * Y)


def test_forward_jacobian_with_create_graph():
    x = ng.tensor(X, requires_grad=True)
    j = ng.autograd.functional.jacobian(lambda x: x**3, x, create_graph=True, strategy="forward-mode")
    np.testing.assert_allclose(ng.autograd.grad(j.sum(), x)[0], 6 * X)


def test_grad_mode_of_the_caller_does_not_matter(lib):
    F = functional(lib)
    with lib.no_grad():
        close(lib, F.hessian(lambda x: (x**3).sum(), lib.const(X)), diag(6 * X))
    assert lib.is_grad_enabled()


# ----- what does not depend -----


def test_independent_outputs_give_zeros(lib):
    F, x = functional(lib), lib.const(X)
    close(lib, F.vjp(lambda x: lib.const(Y), x, lib.const(Y)), (Y, np.zeros(3)))
    close(lib, F.jvp(lambda x: lib.const(Y), x, lib.const(Y)), (Y, np.zeros(3)))
    close(lib, F.jacobian(lambda x, y: x * 2, (x, x)), (2 * np.eye(3), np.zeros((3, 3))))
    close(lib, F.hessian(lambda x: x.sum(), x), np.zeros((3, 3)))
    close(lib, F.hvp(lambda x: x.sum(), x, lib.const(Y)), (X.sum(), np.zeros(3)))
    close(lib, F.vhp(lambda x: x.sum(), x, lib.const(Y)), (X.sum(), np.zeros(3)))


@pytest.mark.parametrize(
    ("name", "f", "count", "match"),
    [
        ("vjp", lambda x: x.detach(), 1, "Output 0 of the user-provided function does not require gradients"),
        ("jvp", lambda x: x.detach(), 1, "Output 0 of the user-provided function does not require gradients"),
        ("jacobian", lambda x, y: x * 2, 2, "Output 0 of the user-provided function is independent of input 1"),
        ("hessian", lambda x: x.sum(), 1, "jacobian of the user-provided function with respect to input 0"),
    ],
)
def test_strict_mode(lib, name, f, count, match):
    inputs = (lib.const(X),) * count
    more = (lib.const(Y),) if name in ("vjp", "jvp") else ()
    with pytest.raises(RuntimeError, match=match):
        getattr(functional(lib), name)(f, inputs if count > 1 else inputs[0], *more, strict=True)


# ----- errors -----


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda F, x: F.vjp(lambda x: x, 3.0), TypeError, "inputs given to vjp must be either a Tensor or a tuple"),
        (lambda F, x: F.vjp(lambda x: 3.0, x), TypeError, "outputs of the user-provided function given to vjp must"),
        (lambda F, x: F.jacobian(lambda x: [x], x), TypeError, "outputs of the user-provided function given to jac"),
        (lambda F, x: F.jacobian(lambda x: x, [x]), TypeError, "inputs given to jacobian must be either"),
        (lambda F, x: F.vjp(lambda x: x, x), RuntimeError, "v can only be None if the user-provided function returns"),
        (lambda F, x: F.jvp(lambda x: x, x), RuntimeError, "v can only be None if the input to the user-provided"),
        (lambda F, x: F.vjp(lambda x: x, x, x[:1]), RuntimeError, "v has invalid size"),
        (lambda F, x: F.vjp(lambda x: (x, x), x, x), RuntimeError, "v is a tuple of invalid length: should be 2"),
        (lambda F, x: F.hessian(lambda x: x, x), RuntimeError, "given to hessian should contain a single element"),
        (lambda F, x: F.hessian(lambda x: (x, x), x), RuntimeError, "given to hessian should return a single Tensor"),
        (lambda F, x: F.jacobian(lambda x: x, x, strategy="x"), AssertionError, "Expected strategy to be either"),
    ],
)
def test_errors(lib, call, error, match):
    with pytest.raises(error, match=match):
        call(functional(lib), lib.const(X))
