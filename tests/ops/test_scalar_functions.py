"""Elementwise functions of one's own: they mean what Python means by them, element by element."""

import math

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad.jit.compile import stats

RATE = 0.03


def helper(x):
    return x * x + 1


@numba.njit
def jitted_helper(x):
    return math.sin(x) + RATE


def arithmetic(x, y):
    z = -x + y * 2
    z /= 1 + x * x
    z: float = z - 0.5 * abs(y)
    return z**2 + +(x**3) - (2**3 + y) % 3


def conditional(x, y):
    return x * y if x < y else math.exp(x) - 1 / (y + 3)


def chained(x, y):
    return 1.0 if -0.5 < x <= y and not (x == 0 or y > 1) else x - y


def early(x, y):
    if x > 1:
        return math.sqrt(x)
    elif y > 1:
        z = math.log(y)
    else:
        z = y
        if x < -1:
            z = x * 2
    w = z + x
    return w * w


def truthy(x, y):
    return x if y else 2 * x


def several_names(x, y):
    a, (b, c) = x, (y, 0.5)
    return math.atan2(a, b + 3) + max(a, b, c) - min(a, c) + math.hypot(a, b) + math.pi * RATE


def calls(x, y):
    return helper(x) + jitted_helper(y) + np.tanh(x) + ng.sigmoid(y) + math.pow(2.0, x) + float(math.log(8, 2))


def of_math(x, y):
    return math.erf(x) + math.asinh(y) + math.expm1(x) * math.log1p(y * y) + math.fabs(y) + math.radians(x)


FUNCTIONS = [arithmetic, conditional, chained, early, truthy, several_names, calls, of_math]
X = np.array([-2.3, -0.4, 0.3, 0.9, 1.7, 2.6])
Y = np.array([[0.7], [-1.2], [1.9]])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_values_are_those_of_python(function, backend):
    wanted = [[float(np.asarray(function(float(x), float(y)))) for x in X] for y in Y[:, 0]]
    with ng.use_backend(backend):
        np.testing.assert_allclose(ng.elementwise(function)(X, Y).numpy(), wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_derivatives_of_first_and_second_order(function):
    f = ng.elementwise(function)
    x, y = ng.tensor(X, requires_grad=True), ng.tensor(Y, requires_grad=True)
    assert ng.autograd.gradcheck(f, (x, y))
    assert ng.autograd.gradgradcheck(f, (x, y))


def test_float32_stays_float32_beside_numbers():
    f = ng.elementwise(conditional)
    assert f(X.astype(np.float32), 2).dtype == np.float32
    assert f(np.arange(3), 2).dtype == np.float64


def test_the_branch_not_taken_gives_no_nan():
    @ng.elementwise
    def safe(x):
        return math.log(x) / x if x > 0 else 0.0

    x = ng.tensor([0.0, -1.0, math.e], requires_grad=True)
    safe(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0, 0, 0], atol=1e-16)


def test_several_results():
    @ng.elementwise
    def polar(r, t):
        return r * math.cos(t), r * math.sin(t)

    r, t = ng.tensor([2.0, 3.0], requires_grad=True), ng.tensor([0.5, 1.5], requires_grad=True)
    a, b = polar(r, t)
    np.testing.assert_allclose(a.detach().numpy(), [2 * math.cos(0.5), 3 * math.cos(1.5)])
    (a * b).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), [4 * math.cos(1.0), 9 * math.cos(3.0)], rtol=1e-12)


def test_defaults_and_names():
    @ng.elementwise
    def scaled(x, by=2.0, plus=1.0):
        return x * by + plus

    np.testing.assert_array_equal(scaled(X).numpy(), X * 2 + 1)
    np.testing.assert_array_equal(scaled(X, plus=0.0).numpy(), X * 2)
    with pytest.raises(TypeError, match="unexpected keyword"):
        scaled(X, minus=1)
    with pytest.raises(TypeError, match="too many positional"):
        scaled(X, 1, 2, 3)


def test_a_lambda():
    square = ng.elementwise(lambda x: x * x)
    np.testing.assert_array_equal(square(X).numpy(), X * X)


def test_a_derivative_that_was_given():
    def straight_through(x):
        return 1.0

    rounded = ng.elementwise(derivative=straight_through)(lambda x: round(x))
    x = ng.tensor(X, requires_grad=True)
    rounded(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones(6))

    @ng.elementwise
    def around(x):
        return 3 * rounded(x) + x

    x.grad = None
    around(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(6, 4.0))


def test_a_given_derivative_may_use_the_value():
    def by(x, k, out):
        return k * out, None

    grown = ng.elementwise(lambda x, k: math.exp(k * x), derivative=by)
    x, k = ng.tensor(X, requires_grad=True), ng.tensor(0.5, requires_grad=True)
    (g,) = ng.autograd.grad(grown(x, k).sum(), x, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), 0.5 * np.exp(0.5 * X), rtol=1e-14)
    (h,) = ng.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.numpy(), 0.25 * np.exp(0.5 * X), rtol=1e-14)
    (gk,) = ng.autograd.grad(grown(x, k).sum(), k, allow_unused=True)
    np.testing.assert_array_equal(gk.numpy(), 0)


def test_one_call_is_one_kernel_forward_and_one_backward():
    @ng.elementwise
    def fresh(x, y):
        return math.tanh(x * 1.25 + y) ** 2 - y if x > 0.125 else math.cosh(y) * x

    x, y = ng.tensor(X, requires_grad=True), ng.tensor(X + 1, requires_grad=True)
    before = stats()
    fresh(x, y).sum().backward()
    after = stats()
    made = after.kernels_compiled + after.kernels_loaded - before.kernels_compiled - before.kernels_loaded
    assert made <= 3  # with the sum
    fresh(x, y).sum().backward()
    assert stats() == after


def test_numba_functions_call_it_and_its_derivative():
    f = ng.elementwise(conditional)
    by_x = f.scalar_derivatives[0]

    @numba.njit
    def total(xs, y):
        value, slope = 0.0, 0.0
        for x in xs:
            value += f(x, y)
            slope += by_x(x, y)
        return value, slope

    value, slope = total(X, 0.5)
    x = ng.tensor(X, requires_grad=True)
    out = f(x, 0.5).sum()
    out.backward()
    np.testing.assert_allclose(value, out.item(), rtol=1e-13)
    np.testing.assert_allclose(slope, x.grad.numpy().sum(), rtol=1e-13)


def test_numba_gives_single_precision_for_single_precision():
    f = ng.elementwise(of_math)
    result = f.scalar(np.float32(0.7), np.float32(-1.2))
    assert numba.typeof(result) in (numba.float32, numba.float64)
    assert f.scalar.nopython_signatures[0].return_type == numba.float32
    np.testing.assert_allclose(result, of_math(0.7, -1.2), rtol=1e-5)


def loops(x):
    for _ in range(3):
        x = x * x
    return x


def no_return(x):  # noqa: RET503
    if x > 0:
        return x
    y = x * 2  # noqa: F841


def text(x):
    return "a" if x > 0 else "b"


def unknown(x):
    return x + not_defined_anywhere  # noqa: F821


def foreign(x):
    return np.sort(x)


def subscript(x):
    return x[0]


def recursive(x):
    return recursive(x - 1)


def array_outside(x):
    return x + X


def uneven(x):
    return (x, x) if x > 0 else x


def bits(x):
    return x << 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (loops, r"test_scalar_functions.py:\d+\): it has a for statement"),
        (no_return, "a path ends without a return"),
        (text, "constant"),
        (unknown, "'not_defined_anywhere' is not known"),
        (foreign, "it calls 'sort', which is no function of scalars"),
        (subscript, "it has a subscript"),
        (recursive, "calls itself"),
        (array_outside, "X is an array from outside: pass it as an argument"),
        (uneven, "different numbers of values"),
        (bits, "operator LShift"),
        (lambda *xs: 1, "wants plain positional ones"),
        (lambda: 1, "at least one"),
        (3, "wants a function, got int"),
        (math.sin, "wants a Python function"),
    ],
)
def test_what_cannot_be_read_is_said(function, message):
    with pytest.raises(TypeError, match=message):
        ng.elementwise(function)


def test_source_that_is_not_there():
    scope = {}
    exec("def f(x): return x", scope)
    with pytest.raises(OSError, match="define it in a file"):
        ng.elementwise(scope["f"])


def test_derivatives_of_a_wrong_form():
    with pytest.raises(TypeError, match="returns 1 values, wanted one for each of its 2"):
        ng.elementwise(derivative=lambda x, y: 1.0)(conditional)
    with pytest.raises(TypeError, match="asks for z"):
        ng.elementwise(derivative=lambda z: 1.0)(helper)
