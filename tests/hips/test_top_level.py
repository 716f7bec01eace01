"""HIPS autograd's top level: the same program in both libraries, the same numbers."""

import numpy as np
import pytest

import numbagrad as ng
import numbagrad.numpy as gnp

autograd = pytest.importorskip("autograd")
import autograd.numpy as anp  # noqa: E402

X, Y = np.array([0.3, -1.2, 0.8]), np.array([1.5, 0.4, -0.7])
M = np.arange(6.0).reshape(2, 3) / 7


def loss(np, x, y):
    return np.sum(np.sin(x) * y**2 + x * x * x)


def vector(np, x, y):
    return np.tanh(np.dot(M, x * y)) + np.sum(x)


CALLS = {
    "deriv": lambda ag, np: ag.deriv(lambda x: np.sin(x) * x)(0.7),
    "deriv of arrays": lambda ag, np: ag.deriv(lambda x, y: vector(np, x, y), 1)(X, Y),
    "grad of deriv": lambda ag, np: ag.grad(ag.deriv(lambda x: np.sin(x) * x * x))(0.7),
    "elementwise_grad twice": lambda ag, np: ag.elementwise_grad(ag.elementwise_grad(np.tanh))(X),
    "value_and_grad": lambda ag, np: ag.value_and_grad(lambda x, y: loss(np, x, y), 1)(X, Y),
    "several argnums": lambda ag, np: ag.grad(lambda x, y: loss(np, x, y), (0, 1))(X, Y),
    "grad_named": lambda ag, np: ag.grad_named(lambda x, y: loss(np, x, y), "y")(X, Y),
    "hessian": lambda ag, np: ag.hessian(lambda x: loss(np, x, Y))(X),
    "hessian_vector_product": lambda ag, np: ag.hessian_vector_product(lambda x: loss(np, x, Y))(X, Y),
    "hessian_tensor_product": lambda ag, np: ag.hessian_tensor_product(lambda m: np.sum(np.exp(m) * m))(M, M + 1),
    "tensor_jacobian_product": lambda ag, np: ag.tensor_jacobian_product(lambda x: vector(np, x, Y))(X, Y[:2]),
    "vector_jacobian_product": lambda ag, np: ag.vector_jacobian_product(lambda m: np.sin(m) * m[0])(M, M),
    "make_vjp": lambda ag, np: ag.make_vjp(lambda x: vector(np, x, Y))(X)[0](Y[:2]),
    "make_vjp of two": lambda ag, np: ag.make_vjp(lambda x, y: vector(np, x, y), (0, 1))(X, Y)[0](Y[:2]),
    "make_vjp of a dict": lambda ag, np: ag.make_vjp(lambda d: d["a"] * np.sum(d["b"]))({"a": X, "b": Y})[0](X)["b"],
    "make_jvp": lambda ag, np: ag.make_jvp(lambda x: vector(np, x, Y))(X)(Y),
    "make_hvp": lambda ag, np: ag.make_hvp(lambda x: loss(np, x, Y))(X)[0](Y),
    "gradient of make_hvp": lambda ag, np: ag.make_hvp(lambda x: loss(np, x, Y))(X)[1],
    "make_ggnvp": lambda ag, np: ag.make_ggnvp(lambda x: vector(np, x, Y))(X)(Y),
    "make_ggnvp of a loss": lambda ag, np: ag.make_ggnvp(lambda x: vector(np, x, Y), lambda z: np.sum(np.exp(z)))(X)(Y),
    "grad_and_aux": lambda ag, np: ag.grad_and_aux(lambda x: (loss(np, x, Y), x * 2))(X),
    "holomorphic_grad": lambda ag, np: ag.holomorphic_grad(lambda z: np.sin(z) * z)(0.5 + 0.25j),
    "complex to real": lambda ag, np: ag.grad(lambda z: np.real(z * z * np.conj(z)))(0.5 + 0.25j),
    "jacobian of a matrix": lambda ag, np: ag.jacobian(lambda m: np.sin(m) @ X)(M),
    "grad of grad of jvp": lambda ag, np: ag.grad(ag.grad(lambda t: ag.make_jvp(lambda x: np.sin(x * t))(t)(t * t)[1]))(
        0.4
    ),
    "perturbations kept apart": lambda ag, np: ag.grad(lambda x: x * ag.grad(lambda y: x + y)(2.0))(1.0),
    "deriv kept apart": lambda ag, np: ag.deriv(lambda x: x * ag.deriv(lambda y: x * y)(2.0))(3.0),
    "nested containers": lambda ag, np: ag.grad(lambda t: np.sum(t[0]["w"] * t[1][0]) * t[1][1])(({"w": X}, [Y, 2.0]))[
        1
    ][0],
}


def flat(result):
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in flat(part)]
    return [result]


@pytest.mark.parametrize("name", CALLS)
def test_same_numbers_and_plain_results(name):
    ours, theirs = flat(CALLS[name](ng, gnp)), flat(CALLS[name](autograd, anp))
    assert len(ours) == len(theirs)
    for got, wanted in zip(ours, theirs, strict=True):
        assert not isinstance(got, ng.Tensor)
        assert np.shape(got) == np.shape(wanted)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-14)


def test_multigrad_dict_by_name():
    found = ng.multigrad_dict(lambda x, y=2.0, *rest, scale=3.0: x * y * scale + sum(rest))(1.5, 2.5, 4.0, scale=0.5)
    assert found["x"] == 1.25
    assert found["y"] == 0.75
    assert found["rest"] == (1.0,)
    assert found["scale"] == 3.75


def test_arrays_that_come_back_are_writable_and_own():
    g = ng.grad(lambda x: gnp.sum(x))(X)
    g += 1
    value, gradient = ng.value_and_grad(lambda x: gnp.sum(x * x))(X)
    gradient[:] = 0
    assert isinstance(value, float)


def test_bad_arguments():
    with pytest.raises(IndexError, match="argnum 2 of <lambda>: it was called with 1"):
        ng.make_vjp(lambda x: x, 2)(1.0)
    with pytest.raises(TypeError, match="wants a function, got int"):
        ng.make_jvp(3)
    with pytest.raises(ValueError, match="has no argument 'z', only x"):
        ng.grad_named(lambda x: x, "z")
    with pytest.warns(UserWarning, match="not complex"):
        ng.holomorphic_grad(lambda x: x * x)(2.0)
    with pytest.raises(TypeError, match="scalar-output"):
        ng.grad(lambda x: x * 2)(X)
