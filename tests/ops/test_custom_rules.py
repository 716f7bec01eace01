"""custom_vjp, custom_jvp, linearize and tree utilities, beside JAX where it is installed."""

import numpy as np
import pytest

import numbagrad as ng

X = np.array([0.5, -1.0, 2.0])


def cubed_vjp():
    @ng.custom_vjp
    def cubed(d):
        return d["x"] ** 3

    cubed.defvjp(lambda d: (d["x"] ** 3, d["x"]), lambda x, g: ({"x": 7 * x**2 * g},))
    return lambda x: cubed({"x": x})


def cubed_jvp():
    @ng.custom_jvp
    def cubed(x):
        return x**3

    @cubed.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return x**3, 7 * x**2 * t

    return cubed


@pytest.mark.parametrize("make", [cubed_vjp, cubed_jvp])
def test_the_declared_derivative_is_used_in_every_mode(make):
    f = make()
    np.testing.assert_allclose(np.asarray(f(X)), X**3)
    np.testing.assert_allclose(ng.grad(lambda x: ng.sum(f(x)))(X), 7 * X**2)
    np.testing.assert_allclose(ng.jvp(f, (X,), (np.ones(3),))[1], 7 * X**2)
    np.testing.assert_allclose(ng.jacobian(f)(X), np.diag(7 * X**2))
    # The derivative of the declared derivative.
    np.testing.assert_allclose(ng.hessian(lambda x: ng.sum(f(x)))(X), np.diag(14 * X))


def test_fixed_arguments_come_first():
    @ng.custom_vjp
    def scaled(x, n):
        return x * n

    by_number = ng.custom_vjp(scaled.function, nondiff_argnums=(1,))
    by_number.defvjp(lambda x, n: (x * n, ()), lambda n, _, g: (g * n * 100,))
    assert float(ng.grad(lambda x: by_number(x, 3))(2.0)) == 300


def test_what_is_missing_or_wrong_is_named():
    @ng.custom_vjp
    def f(x, y):
        return x * y

    with pytest.raises(TypeError, match=r"declare it by f.defvjp"):
        f(1.0, 2.0)
    f.defvjp(lambda x, y: (x * y, ()), lambda _, g: (g,))
    with pytest.raises(TypeError, match="one cotangent for each of 2 arguments, got 1 values"):
        ng.grad(f)(1.0, 2.0)
    f.defvjp(lambda x, y: x * y, lambda _, g: (g, g))
    with pytest.raises(TypeError, match="must return"):
        ng.grad(f)(1.0, 2.0)
    f.defvjp(lambda x, y: (x * y, ()), lambda _, g: (ng.ones(2), None))
    with pytest.raises(ValueError, match=r"shape \(2,\) for an argument of \(\)"):
        ng.grad(f)(1.0, 2.0)


def test_linearize_calls_the_function_once():
    calls = []

    def f(x, y):
        calls.append(1)
        return ng.sin(x) * y

    value, pushed = ng.linearize(f, X, 2.0)
    np.testing.assert_allclose(value, np.sin(X) * 2)
    for v in np.eye(3):
        np.testing.assert_allclose(pushed(v, 0.5), 2 * np.cos(X) * v + np.sin(X) * 0.5)
    assert calls == [1]


TREES = [{"b": [1, (2, None)], "a": 3}, [1, [2, 3]], (), 5, [{"x": 1}, (2, 3)]]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_trees_are_those_of_jax(tree):
    jax = pytest.importorskip("jax")
    # JAX sorts keys, so leaves are compared as sets.
    assert sorted(ng.tree.leaves(tree)) == sorted(jax.tree.leaves(tree))
    assert ng.tree.map(lambda x: x + 1, tree) == jax.tree.map(lambda x: x + 1, tree)
    assert ng.tree.reduce(lambda a, b: a + b, tree, 0) == jax.tree.reduce(lambda a, b: a + b, tree, 0)
    assert ng.tree.structure(tree).num_leaves == jax.tree.structure(tree).num_leaves
    leaves, form = ng.tree.flatten(tree)
    assert ng.tree.unflatten(form, leaves) == tree


def test_leaves_may_be_containers():
    pairs = [(1, 2), (3, 4)]
    found = ng.tree.map(lambda p: p[0] * p[1], pairs, is_leaf=lambda t: isinstance(t, tuple))
    assert found == [2, 12]
    with pytest.raises(ValueError, match="differ in form"):
        ng.tree.map(lambda a, b: a, [1, 2], [1])
    with pytest.raises(ValueError, match="has 2 leaves"):
        ng.tree.unflatten(ng.tree.structure([1, 2]), [1])
