"""NumPy meets Tensors: no gradient is ever lost silently."""

import numpy as np
import pytest

import numbagrad as ng
import numbagrad.numpy as anp
from numbagrad.ops.registry import NUMPY


def leaf(data):
    return ng.tensor(np.asarray(data, dtype=float), requires_grad=True)


def same(got, want):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)


A, M = np.array([1.0, 2.0]), np.array([[1.0, 2.0], [3.0, 4.0]])
MIXED = {
    "a * x": (lambda x: A * x, lambda x: A),
    "a / x": (lambda x: A / x, lambda x: -A / x**2),
    "a - x": (lambda x: A - x, lambda x: -np.ones(2)),
    "a ** x": (lambda x: A**x, lambda x: A**x * np.log(A)),
    "a % x": (lambda x: (A + 0.25) % x, lambda x: -np.floor((A + 0.25) / x)),
    "m @ x": (lambda x: M @ x, lambda x: M.sum(0)),
    "x @ m": (lambda x: x @ M, lambda x: M.sum(1)),
    "np.float64 * x": (lambda x: np.float64(2) * x, lambda x: np.full(2, 2.0)),
    "np.float32 / x": (lambda x: np.float32(2) / x, lambda x: -2 / x**2),
    "np.int64 - x": (lambda x: np.int64(2) - x, lambda x: -np.ones(2)),
    "list + x": (lambda x: [1.0, 2.0] + x, lambda x: np.ones(2)),
    "np.tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "np.maximum": (lambda x: np.maximum(x, 1.75), lambda x: (x > 1.75) * 1.0),
    "np.add.reduce": (np.add.reduce, lambda x: np.ones(2)),
    "np.add.accumulate": (np.add.accumulate, lambda x: np.array([2.0, 1.0])),
    "np.multiply.outer": (lambda x: np.multiply.outer(x, A), lambda x: np.full(2, 3.0)),
    "np.sum": (np.sum, lambda x: np.ones(2)),
    "np.where": (lambda x: np.where(x > 1.75, x * x, x), lambda x: np.where(x > 1.75, 2 * x, 1)),
    "np.concatenate": (lambda x: np.concatenate([x, A, x]), lambda x: np.full(2, 2.0)),
    "np.clip": (lambda x: np.clip(x, None, 1.75), lambda x: (x <= 1.75) * 1.0),
}


@pytest.mark.parametrize("name", MIXED)
def test_numpy_and_tensors_mixed(name):
    function, derivative = MIXED[name]
    at = np.array([1.5, 2.5])
    x = leaf(at)
    y = function(x)
    assert isinstance(y, ng.Tensor)
    want = function(at) if name != "list + x" else np.array([1.0, 2.0]) + at
    same(y.detach(), want)
    y.sum().backward()
    same(x.grad, derivative(at))


def test_numpy_functions_we_do_not_have_say_so():
    x = leaf([1, 2])
    for call in (lambda: np.setdiff1d(x, x), lambda: np.busday_count(x, x), lambda: np.intersect1d(x, x)):
        with pytest.raises(TypeError, match="gradient would be lost"):
            call()


def test_out_and_dtype_of_ufuncs():
    x = leaf([1, 2])
    target = ng.zeros(2)
    assert np.multiply(x, 3.0, out=target) is target
    target.sum().backward()
    same(x.grad, [3, 3])
    assert np.add(x, 1, dtype=np.float32).dtype == np.float32
    with pytest.raises(TypeError, match="where"):
        np.add(x, 1, where=[True, False])
    with pytest.raises(ValueError, match="out of shape"):
        np.add(x, 1, out=np.zeros(3))


def test_an_unknown_operand_gets_its_turn():
    class Other:
        def __rmul__(self, x):
            return "mine"

        __radd__ = __rmatmul__ = __rpow__ = __rmul__

        def __eq__(self, x):
            return "equal"

    x = leaf([1, 2])
    assert (x * Other(), x + Other(), x @ Other(), x ** Other(), x == Other()) == ("mine",) * 4 + ("equal",)
    with pytest.raises(TypeError):
        x * object()


# ----- numbagrad.numpy -----


def test_plain_in_plain_out():
    for result in (anp.sum(A), anp.tanh(A), anp.concatenate([A, A]), anp.linalg.norm(A), anp.array([1.0, 2.0])):
        assert not isinstance(result, ng.Tensor)
    assert anp.pi == np.pi and anp.ndarray is np.ndarray and anp.float32 is np.float32


def test_tensors_are_found_inside_lists():
    x = leaf([1, 2])
    y = anp.array([x[0], [3.0, 4.0][0], anp.sum(x)])
    assert isinstance(y, ng.Tensor)
    y.sum().backward()
    same(x.grad, [2, 1])


def test_every_numpy_function_we_stand_for_is_in_the_face():
    missing = [f.__name__ for f in NUMPY if getattr(np, f.__name__, None) is f and not hasattr(anp, f.__name__)]
    assert not missing
    for function, ours in NUMPY.items():
        if getattr(np, function.__name__, None) is function:
            assert getattr(anp, function.__name__) is not function, f"{function.__name__} would bypass {ours}"
