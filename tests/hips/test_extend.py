"""Primitives with rules in HIPS's manner: the same definitions in both libraries."""

import importlib

import numpy as np
import pytest

import numbagrad as ng
import numbagrad.numpy as gnp
from numbagrad import builtins, core, extend, tracer
from numbagrad.misc.fixed_points import fixed_point
from numbagrad.misc.optimizers import adam, rmsprop, sgd
from numbagrad.test_util import combo_check

X, Y = np.array([0.3, -1.2, 0.8]), np.array([[1.5], [0.4]])
Z = np.array([0.5 + 1j, -0.25j])


@pytest.fixture(params=["numbagrad", "autograd"])
def lib(request):
    pytest.importorskip(request.param)
    names = ("extend", "core", "tracer", "builtins", "test_util", "numpy", "misc", "misc.flatten", "numpy.numpy_vjps")
    found = importlib.import_module(request.param)
    for name in names:
        importlib.import_module(f"{request.param}.{name}")
    return found


def logsumexp(lib):
    """The example of autograd's tutorial, in our words."""
    np_ = lib.numpy

    @lib.extend.primitive
    def f(x):
        """Stable log of a sum of exponentials."""
        top = np.max(x)
        return top + np.log(np.sum(np.exp(x - top)))

    lib.extend.defvjp(f, lambda ans, x: lambda g: np_.full(x.shape, g) * np_.exp(x - np_.full(x.shape, ans)))
    return f


def test_first_and_second_derivative(lib):
    f = logsumexp(lib)
    p = np.exp(X) / np.exp(X).sum()
    np.testing.assert_allclose(lib.grad(f)(X), p, rtol=1e-12)
    np.testing.assert_allclose(lib.hessian(f)(X), np.diag(p) - np.outer(p, p), rtol=1e-10)
    assert f.__name__ == "f"
    assert isinstance(f(X), float)


def test_several_arguments_broadcasting_and_a_missing_rule(lib):
    vjps = lib.numpy.numpy_vjps

    @lib.extend.primitive
    def product(x, y, power=1):
        return x * y**power

    lib.extend.defvjp(
        product,
        lambda ans, x, y, power=1: vjps.unbroadcast_f(x, lambda g: g * y**power),
        lambda ans, x, y, power=1: vjps.unbroadcast_f(y, lambda g: g * x * power * y ** (power - 1)),
    )
    gx, gy = lib.grad(lambda x, y: lib.numpy.sum(product(x, y, power=2)), (0, 1))(X, Y)
    np.testing.assert_allclose(gx, np.full(3, (Y**2).sum()), rtol=1e-12)
    np.testing.assert_allclose(gy, 2 * X.sum() * Y, rtol=1e-12)

    @lib.extend.primitive
    def half(x, y):
        return x + y

    lib.extend.defvjp(half, None, argnums=(1,))
    assert lib.grad(lambda y: half(2.0, y) + y)(1.0) == 1.0
    with pytest.raises(NotImplementedError, match="not defined"):
        lib.grad(lambda x: half(x, 1.0))(1.0)


def test_rules_for_any_argument(lib):
    @lib.extend.primitive
    def total(*xs):
        return sum(xs)

    lib.extend.defvjp_argnum(total, lambda argnum, ans, args, kwargs: lambda g: g * (argnum + 1))
    assert lib.grad(lambda x: total(x, x * x, 2.0))(3.0) == 1 + 2 * 6
    lib.extend.defvjp_argnums(total, lambda argnums, ans, args, kwargs: lambda g: [g * 10 for _ in argnums])
    assert lib.grad(lambda x: total(x, x, 2.0))(3.0) == 20


def test_complex_rules_follow_hips(lib):
    np_ = lib.numpy

    @lib.extend.primitive
    def square(z):
        return z * z

    lib.extend.defvjp(square, lambda ans, z: lambda g: 2 * z * g)
    found = lib.grad(lambda z: np_.sum(np_.real(square(z)) + 2 * np_.imag(square(z))))(Z)
    np.testing.assert_allclose(found, 2 * Z * (1 - 2j), rtol=1e-12)


def test_containers_in_and_out(lib):
    @lib.extend.primitive
    def both(pair):
        return pair[0] * 2, pair[1] * 3

    lib.extend.defvjp(both, lambda ans, pair: lambda g: (g[0] * 2, g[1] * 3))

    def loss(x):
        a, b = both(lib.builtins.tuple((x, x * x)))
        return lib.numpy.sum(a * b)

    np.testing.assert_allclose(lib.grad(loss)(X), 18 * X**2, rtol=1e-12)


def test_forward_rules(lib):
    np_ = lib.numpy

    @lib.extend.primitive
    def f(x, y):
        return x * y

    lib.extend.defjvp(f, "same", lambda g, ans, x, y: 5 * x * g)
    value, along = lib.make_jvp(lambda x: f(x, x))(X)(np.ones(3))
    np.testing.assert_allclose(value, X * X)
    np.testing.assert_allclose(along, 6 * X)

    @lib.extend.primitive
    def g(x):
        return 3 * x

    lib.extend.def_linear(g) if hasattr(lib.extend, "def_linear") else lib.core.def_linear(g)
    assert lib.deriv(lambda x: g(x) * x)(2.0) == 12.0
    assert np_.pi == np.pi


def test_vector_spaces(lib):
    vs = lib.extend.vspace(X)
    assert vs.size == 3
    assert vs.shape == (3,)
    assert not vs.iscomplex
    np.testing.assert_array_equal(vs.zeros(), np.zeros(3))
    np.testing.assert_array_equal(vs.ones(), np.ones(3))
    np.testing.assert_array_equal(np.stack(list(vs.standard_basis())), np.eye(3))
    assert vs.randn().shape == (3,)
    np.testing.assert_array_equal(vs.add(X, X), 2 * X)
    np.testing.assert_allclose(vs.inner_prod(X, X), X @ X)
    of_z = lib.extend.vspace(Z)
    assert of_z.size == 4
    assert of_z.iscomplex
    assert len(list(of_z.standard_basis())) == 4
    np.testing.assert_allclose(of_z.inner_prod(Z, Z), np.sum(np.abs(Z) ** 2))
    np.testing.assert_array_equal(of_z.covector(Z), Z.conj())
    assert lib.extend.vspace([X, {"a": 2.0}]).size == 4
    assert lib.extend.vspace(X) == lib.extend.vspace(X + 1)
    assert lib.extend.vspace(X) != lib.extend.vspace(Z)


def test_values_and_boxes(lib):
    seen = []

    def f(x):
        seen.append((lib.tracer.isbox(x), lib.tracer.getval(x), lib.builtins.isinstance(x, np.ndarray)))
        return lib.numpy.sum(x * lib.extend.notrace_primitive(np.sign)(x))

    np.testing.assert_array_equal(lib.grad(f)(X), np.sign(X))
    assert seen[0][0]
    assert seen[0][2]
    np.testing.assert_array_equal(seen[0][1], X)


def test_core_functions(lib):
    pullback, value = lib.core.make_vjp(lambda x: x * x, X)
    np.testing.assert_array_equal(value, X * X)
    np.testing.assert_allclose(pullback(np.ones(3)), 2 * X)
    np.testing.assert_allclose(lib.core.make_jvp(lambda x: x * x, X)(np.ones(3))[1], 2 * X)


def test_flatten_and_its_gradient(lib):
    tree = {"b": [X, (2.0, Y)], "a": np.eye(2)}
    vector, unflatten = lib.misc.flatten(tree)
    np.testing.assert_array_equal(vector, np.concatenate([np.eye(2).ravel(), X, [2.0], Y.ravel()]))
    again = unflatten(vector * 2)
    np.testing.assert_array_equal(again["b"][1][1], 2 * Y)
    assert np.shape(again["b"][1][0]) == ()

    def loss(v):
        t = unflatten(v)
        return lib.numpy.sum(t["a"]) * t["b"][1][0] + lib.numpy.sum(t["b"][0] ** 2)

    wanted = np.concatenate([np.full(4, 2.0), 2 * X, [2.0], np.zeros(2)])
    np.testing.assert_allclose(lib.grad(loss)(vector), wanted)


@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adam"])
def test_optimisers_take_the_same_steps(name):
    theirs = pytest.importorskip("autograd.misc.optimizers")
    ours = {"sgd": sgd, "rmsprop": rmsprop, "adam": adam}[name]
    target = {"w": X, "b": 1.5}

    def gradient(p, i):
        return {"w": 2 * (p["w"] - target["w"]) / (i + 1), "b": p["b"] - target["b"]}

    seen = []
    start = {"w": np.zeros(3), "b": 0.0}
    a = ours(gradient, start, callback=lambda x, i, g: seen.append((x, g)), num_iters=7, step_size=0.05)
    b = getattr(theirs, name)(gradient, start, num_iters=7, step_size=0.05)
    np.testing.assert_allclose(a["w"], b["w"], rtol=1e-12)
    np.testing.assert_allclose(a["b"], b["b"], rtol=1e-12)
    assert len(seen) == 7
    assert set(seen[0][1]) == {"w", "b"}


def test_gradient_of_a_fixed_point():
    def newton(a):
        return lambda x: 0.5 * (x + a / x)

    def root(a):
        return fixed_point(newton, a, 1.0, lambda x, y: abs(x - y), 1e-12)

    assert root(2.0) == pytest.approx(2**0.5)
    assert ng.grad(root)(2.0) == pytest.approx(0.5 / 2**0.5)
    assert ng.grad(ng.grad(root))(2.0) == pytest.approx(-0.25 / 2**1.5)


def test_check_grads_finds_wrong_rules(lib):
    @lib.extend.primitive
    def wrong(x):
        return x * x

    lib.extend.defvjp(wrong, lambda ans, x: lambda g: 3 * x * g)
    check = lib.test_util.check_grads
    check(lambda x, y: lib.numpy.sin(x) * lib.numpy.sum(y * y), (0, 1))(X, Y)
    check(lambda t: t[0] * t[1]["a"])((X, {"a": 2.0}))
    with pytest.raises(AssertionError):
        check(wrong, modes=["rev"], order=1)(X)


def test_combinations():
    combo_check(lambda x, axis, keepdims: gnp.sum(gnp.sin(x), axis=axis, keepdims=keepdims), (0,))(
        [np.eye(3), np.ones((2, 3))], axis=[0, 1, None], keepdims=[True, False]
    )


def test_boxes_for_isinstance():
    from numbagrad.numpy.numpy_boxes import ArrayBox

    x = ng.tensor(X)
    assert isinstance(x, ArrayBox)
    assert isinstance([x], builtins.ListBox)
    assert isinstance({"a": (x,)}, builtins.DictBox)
    assert not isinstance({"a": 1.0}, builtins.DictBox)
    assert not isinstance((1.0,), builtins.TupleBox)
    assert tracer.isbox(x)
    assert core.vspace(x) == extend.vspace(X)


def test_a_namespace_of_functions():
    from numbagrad.numpy.numpy_wrapper import wrap_namespace

    space = {}
    wrap_namespace(
        {"sin": np.sin, "heaviside_": np.heaviside, "own": lambda x: x + 1, "pi": np.pi, "real": float}, space
    )
    assert ng.grad(space["sin"])(0.0) == 1.0
    assert space["pi"] == np.pi
    extend.defvjp(space["own"], lambda ans, x: lambda g: 7 * g)
    assert ng.grad(space["own"])(1.0) == 7.0


def test_random_numbers_are_numpys():
    import numbagrad.numpy.random as npr

    assert npr.RandomState is np.random.RandomState
    assert type(npr.RandomState(0).randn(2)) is np.ndarray
    assert gnp.random.default_rng(0).random() == np.random.default_rng(0).random()


def test_bad_rules():
    with pytest.raises(TypeError, match=r"made by extend\.primitive, got 'sin'"):
        extend.defvjp(np.sin, lambda ans, x: lambda g: g)
    f = extend.primitive(lambda x: x)
    with pytest.raises(TypeError, match="must be a function or None, got 'same'"):
        extend.defvjp(f, "same")
    with pytest.raises(NotImplementedError, match="give it one with defvjp"):
        ng.grad(extend.primitive(lambda x: x * 2))(1.0)
    with pytest.raises(TypeError, match="vector space"):
        extend.vspace("text")
