"""Functional transforms: right values, any nesting, and plain results at the top."""

import math

import numpy as onp
import pytest

import numbagrad as ng
import numbagrad.numpy as np


def same(got, want, rtol=1e-12):
    onp.testing.assert_allclose(onp.asarray(got), want, rtol=rtol, atol=1e-14)


def test_grad_gives_plain_writable_arrays():
    g = ng.grad(lambda x: np.sum(x**3))(onp.array([1.0, 2.0]))
    assert type(g) is onp.ndarray and g.flags.writeable
    same(g, [3, 12])
    assert isinstance(ng.grad(lambda x: x**3)(2.0), float)


def test_tensors_give_tensors():
    x = ng.tensor([1.0, 2.0])
    g = ng.grad(lambda t: (t * t).sum())(x)
    assert isinstance(g, ng.Tensor) and not x.requires_grad
    same(g, [2, 4])


def test_value_and_grad_of_containers():
    def loss(params, scale):
        return np.sum(params["w"] * scale) + params["b"][0] ** 2

    value, grads = ng.value_and_grad(loss)({"w": onp.ones(2), "b": [3.0, None]}, onp.array([4.0, 5.0]))
    assert value == 18
    same(grads["w"], [4, 5])
    assert grads["b"] == [6.0, None]


def test_several_argnums():
    gx, gy = ng.grad(lambda x, y: x * y**2, argnum=(0, 1))(2.0, 3.0)
    assert (gx, gy) == (9, 12)
    assert ng.grad(lambda x, y: x * y**2, argnum=-1)(2.0, 3.0) == 12


def test_ten_derivatives_of_a_sine():
    f = np.sin
    for order in range(1, 11):
        f = ng.grad(f)
        same(f(0.7), math.sin(0.7 + order * math.pi / 2), rtol=1e-11)


# Siskind and Pearlmutter's example: d/dx (x * d/dy (x + y)) is 1; confusing the two variables gives 2.
@pytest.mark.parametrize("inner", ["grad", "jvp"])
@pytest.mark.parametrize("outer", ["grad", "jvp"])
def test_no_perturbation_confusion(outer, inner):
    d = {"grad": ng.grad, "jvp": lambda f: lambda x: ng.jvp(f, (x,), (1.0,))[1]}
    assert float(d[outer](lambda x: x * d[inner](lambda y: x + y)(1.0))(1.0)) == 1


@pytest.mark.parametrize("order", [("grad", "grad"), ("grad", "jvp"), ("jvp", "grad"), ("jvp", "jvp")])
def test_second_derivatives_in_every_nesting(order):
    d = {"grad": ng.grad, "jvp": lambda f: lambda x: ng.jvp(f, (x,), (1.0,))[1]}
    f = lambda x: np.exp(x) * np.sin(x) / x
    h = 1e-3
    v = lambda x: math.exp(x) * math.sin(x) / x
    want = (-v(2 + 2 * h) + 16 * v(2 + h) - 30 * v(2.0) + 16 * v(2 - h) - v(2 - 2 * h)) / (12 * h * h)
    same(d[order[0]](d[order[1]](f))(2.0), want, rtol=1e-7)


def test_closures_over_tape_tensors_stay_connected():
    w = ng.tensor(3.0, requires_grad=True)
    g = ng.grad(lambda x: w * x**2)(5.0)
    assert isinstance(g, ng.Tensor)
    g.backward()
    same(w.grad, 10)


def test_jacobian_shapes_and_containers():
    j = ng.jacobian(lambda x: np.outer(x, x))(onp.array([1.0, 2.0]))
    assert j.shape == (2, 2, 2)
    same(j[:, :, 0], [[2, 2], [2, 0]])
    pair = ng.jacobian(lambda x: {"a": x * 2, "b": np.sum(x)})(onp.ones(3))
    same(pair["a"], 2 * onp.eye(3))
    same(pair["b"], onp.ones(3))


def test_hessian_and_its_product():
    rng = onp.random.default_rng(0)
    m = rng.normal(size=(4, 4))
    f = lambda x: np.sum(np.sin(np.matmul(m, x)))
    x, v = rng.normal(size=4), rng.normal(size=4)
    want = -m.T @ onp.diag(onp.sin(m @ x)) @ m
    same(ng.hessian(f)(x), want, rtol=1e-10)
    same(ng.hessian_vector_product(f)(x, v), want @ v, rtol=1e-10)


def test_vjp_and_jvp_are_transposes():
    rng = onp.random.default_rng(1)
    f = lambda x, y: (np.tanh(x * y), np.sum(x, axis=0))
    x, y = rng.normal(size=(3, 2)), rng.normal(size=(1, 2))
    dx, dy = rng.normal(size=(3, 2)), rng.normal(size=(1, 2))
    cot = (rng.normal(size=(3, 2)), rng.normal(size=2))
    value, pull = ng.vjp(f, x, y)
    same(value[0], onp.tanh(x * y))
    gx, gy = pull(cot)
    again, _ = pull(cot)
    same(again, gx)
    _, push = ng.jvp(f, (x, y), (dx, dy))
    left = sum((c * p).sum() for c, p in zip(cot, push, strict=True))
    same(left, (gx * dx).sum() + (gy * dy).sum(), rtol=1e-11)


def test_elementwise_grad():
    x = onp.linspace(-1, 1, 5)
    same(ng.elementwise_grad(np.tanh)(x), 1 - onp.tanh(x) ** 2)


def test_complex_derivatives_follow_hips():
    z = 0.3 + 0.4j
    same(ng.grad(lambda t: np.real(t * t))(z), 2 * z)
    _, pull = ng.vjp(lambda t: t * t, z)
    same(pull(1.0 + 0j)[0], 2 * z)
    same(ng.jvp(lambda t: t * t, (z,), (1j,))[1], 2j * z)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ng.grad(lambda x: x * x)(onp.ones(2)), TypeError, "scalar-output"),
        (lambda: ng.grad(lambda x: None)(1.0), TypeError, "returned None"),
        (lambda: ng.grad(lambda x: x)(onp.array([1, 2])), TypeError, "dtype int64"),
        (lambda: ng.grad(lambda x: x)("a"), TypeError, "array or a number"),
        (lambda: ng.grad(lambda x: x, argnum=3)(1.0), IndexError, "argnum 3"),
        (lambda: ng.jvp(lambda x: x, 1.0, 1.0), TypeError, "two tuples"),
        (lambda: ng.jvp(lambda x: x, (1.0,), (onp.ones(3),)), ValueError, r"shape \(3,\)"),
        (lambda: ng.vjp(lambda x: x, onp.ones(2))[1](onp.ones(3)), ValueError, r"shape \(3,\)"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_function_that_ignores_its_argument():
    assert ng.grad(lambda x: 3.0)(1.0) == 0
    same(ng.jacobian(lambda x: onp.ones(2))(onp.ones(3)), onp.zeros((2, 3)))
    same(ng.jvp(lambda x: 3.0, (1.0,), (1.0,))[1], 0)
