"""Making tensors: from data, filled, from ranges; what is copied, what is shared, what is refused."""

import functools
import inspect

import numpy as np
import pytest
from helpers import assert_gradients, plain

import numbagrad as ng
from numbagrad.ops import creation

# name: (function of a namespace)
CASES = {
    "zeros": lambda np: np.zeros((2, 3)),
    "zeros of a length": lambda np: np.zeros(3, np.float32),
    "zeros of no axes": lambda np: np.zeros(()),
    "ones": lambda np: np.ones((2, 3), dtype=int),
    "ones, complex": lambda np: np.ones(2, complex),
    "full": lambda np: np.full((2, 2), 7),
    "full of floats": lambda np: np.full(2, 7.5),
    "full of a row": lambda np: np.full((2, 3), [1.0, 2.0, 3.0]),
    "full of a dtype": lambda np: np.full(3, 1, np.float32),
    "arange": lambda np: np.arange(5),
    "arange of floats": lambda np: np.arange(1.5, 4.0, 0.5),
    "arange between": lambda np: np.arange(2, 5),
    "arange down": lambda np: np.arange(5, 1, -2),
    "arange by keywords": lambda np: np.arange(0, 4, dtype=np.float32),
    "arange of nothing": lambda np: np.arange(3, 1),
    "linspace": lambda np: np.linspace(0, 1, 5),
    "linspace without its end": lambda np: np.linspace(0, 1, 5, endpoint=False),
    "linspace of one": lambda np: np.linspace(2, 3, 1),
    "linspace of rows": lambda np: np.linspace([0.0, 1.0], [2.0, 5.0], 3, axis=-1),
    "linspace of integers": lambda np: np.linspace(0, 9, 4, dtype=int),
    "logspace": lambda np: np.logspace(0, 3, 4, base=2.0),
    "geomspace": lambda np: np.geomspace(1, 1000, 4),
    "eye": lambda np: np.eye(3),
    "eye, wide and above": lambda np: np.eye(2, 4, 1, dtype=int),
    "identity": lambda np: np.identity(3, np.float32),
    "tri": lambda np: np.tri(3, 4, -1),
    "zeros_like": lambda np: np.zeros_like(np.ones((2, 3), np.float32)),
    "zeros_like of another dtype": lambda np: np.zeros_like(np.ones(3, int), dtype=float),
    "ones_like of another shape": lambda np: np.ones_like(np.zeros((2, 3)), shape=(4,)),
    "full_like": lambda np: np.full_like(np.ones((2, 2), np.float32), 1.5),
    "full_like of integers": lambda np: np.full_like(np.ones(2, int), 1.5),
    "fromfunction": lambda np: np.fromfunction(lambda i, j: i * 10 + j, (2, 3)),
    "array": lambda np: np.array([[1, 2], [3, 4]]),
    "array of a dtype": lambda np: np.array([1, 2], np.float32),
    "array with more axes": lambda np: np.array([1.0, 2.0], ndmin=3),
    "asarray": lambda np: np.asarray([[1.5], [2.5]]),
    "ascontiguousarray": lambda np: np.ascontiguousarray(np.ones((2, 3), order="F")),
}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())
def test_values_and_dtypes_are_numpys(make):
    got, want = make(ng), make(np)
    assert isinstance(got, ng.Tensor) and got.is_leaf and not got.requires_grad
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_array_equal(plain(got), want)


MAKERS = {
    "zeros": ((2, 3),),
    "ones": ((2, 3),),
    "empty": ((2, 3),),
    "full": ((2, 3), 1.5),
    "arange": (3,),
    "linspace": (0.0, 1.0),
    "logspace": (0.0, 1.0),
    "geomspace": (1.0, 2.0),
    "eye": (3,),
    "identity": (3,),
    "tri": (3,),
    "zeros_like": (np.ones(3),),
    "ones_like": (np.ones(3),),
    "empty_like": (np.ones(3),),
    "full_like": (np.ones(3), 2.0),
}


@pytest.mark.parametrize(("name", "args"), MAKERS.items(), ids=MAKERS.keys())
def test_every_maker_takes_dtype_grad_and_device(name, args):
    made = getattr(ng, name)(*args, dtype=np.float32, requires_grad=True, device="cpu")
    assert made.dtype == np.float32 and made.requires_grad and made.is_leaf
    (made * made).sum().backward()
    assert made.grad.shape == made.shape


@pytest.mark.parametrize(("name", "args"), MAKERS.items(), ids=MAKERS.keys())
def test_every_maker_refuses_what_is_not_a_number(name, args):
    make = getattr(ng, name)
    for dtype in (object, str, "datetime64[s]", [("a", float)]):
        with pytest.raises(TypeError, match="holds numbers"):
            make(*args, dtype=dtype)
    with pytest.raises(ValueError, match=r"cuda.*cpu"):
        make(*args, device="cuda")
    with pytest.raises(RuntimeError, match="floating point"):
        make(*args, dtype=int, requires_grad=True)
    with pytest.raises(TypeError):
        make(*args, unknown=1)


@pytest.mark.parametrize("name", MAKERS)
def test_signatures_show_every_keyword(name):
    parameters = inspect.signature(getattr(ng, name)).parameters
    assert {"dtype", "requires_grad", "device"} <= set(parameters)


LIKE = ["zeros_like", "ones_like", "empty_like", "full_like"]


@pytest.mark.parametrize("name", LIKE)
def test_numpys_like_functions_take_tensors(name):
    x = ng.tensor(np.ones((2, 3), np.float32, order="F"), requires_grad=True)
    made = getattr(np, name)(x, *([4] if name == "full_like" else []))
    assert isinstance(made, ng.Tensor) and made.shape == (2, 3) and made.dtype == np.float32
    assert not made.requires_grad


# ----- Data -----

DATA = {
    "number": 3,
    "float": 2.5,
    "complex": 1 + 2j,
    "bool": True,
    "NumPy scalar": np.float32(1.5),
    "list": [1, 2, 3],
    "nested list": [[1, 2.5], [3, 4]],
    "tuple": (1.0, 2.0),
    "range": range(4),
    "empty list": [],
    "array": np.arange(4, dtype=np.int16),
    "Fortran array": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "list of arrays": [np.ones(2), np.zeros(2)],
    "masked lists": [[True, False], [False, True]],
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
def test_data_become_what_numpy_makes_of_them(data):
    want = np.array(data)
    for make in (ng.tensor, ng.array, ng.asarray):
        got = make(data)
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(plain(got), want)


def test_tensor_and_array_copy_and_asarray_shares():
    a = np.zeros(3)
    copied, shared = [ng.tensor(a), ng.array(a)], [ng.asarray(a), ng.from_numpy(a), ng.array(a, copy=None)]
    a[0] = 7.0
    assert [x[0].item() for x in copied] == [0.0, 0.0]
    assert [x[0].item() for x in shared] == [7.0, 7.0, 7.0]
    shared[0][1] = 5.0
    assert a[1] == 5.0


def test_asarray_that_must_not_copy():
    a = np.zeros(3)
    assert np.shares_memory(ng.asarray(a, copy=False).numpy(), a)
    with pytest.raises(ValueError, match="copy"):
        ng.asarray(a, np.float32, copy=False)
    with pytest.raises(ValueError, match="copy"):
        ng.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="copy"):
        ng.asarray(ng.tensor(a), np.float32, copy=False)
    assert not np.shares_memory(ng.asarray(a, copy=True).numpy(), a)


def test_tensors_pass_through_asarray_and_are_cut_off_by_tensor():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    assert ng.asarray(y) is y
    assert ng.tensor(y).is_leaf and not ng.tensor(y).requires_grad
    ng.array(y).backward([1.0, 1.0])
    np.testing.assert_array_equal(plain(x.grad), [2.0, 2.0])


NESTED = {
    "scalars": lambda np, x: np.array([x[0], x[1] * x[0], 1.0]),
    "scalars in rows": lambda np, x: np.array([[x[0], 2.0], [3.0, x[1]]]),
    "rows": lambda np, x: np.array([x, x * x, [5.0, 6.0]]),
    "rows in a tuple": lambda np, x: np.array((x, x[::-1])),
    "rows and lists of scalars": lambda np, x: np.array([x, [x[1], 4.0]]),
    "three deep": lambda np, x: np.array([[[x[0]], [1.0]], [[x[1]], [x[0]]]]),
    "matrices": lambda np, x: np.array([[x, x], [x, x * 3.0]]),
    "one": lambda np, x: np.array([x]),
    "of a dtype": lambda np, x: np.array([x[0], 1], dtype=float),
}


@pytest.mark.parametrize("function", NESTED.values(), ids=NESTED.keys())
def test_lists_of_tensors_are_joined_and_tracked(function):
    a = np.array([1.5, -2.0])
    want = function(np, a)
    got = function(ng, ng.tensor(a, requires_grad=True))
    assert got.requires_grad and got.dtype == want.dtype
    np.testing.assert_array_equal(plain(got), want)
    assert_gradients(lambda x: function(ng, x), a)


@pytest.mark.parametrize("function", NESTED.values(), ids=NESTED.keys())
def test_lists_of_tensors_are_taken_wherever_arrays_are(function):
    class AsLists:
        """A namespace whose `array` gives the lists back."""

        @staticmethod
        def array(data, dtype=None):
            return data

    x = ng.tensor([1.5, -2.0], requires_grad=True)
    out = ng.asarray(1.0) * ng.reshape(function(AsLists, x), -1)
    np.testing.assert_array_equal(plain(out), function(np, plain(x)).ravel())
    assert out.requires_grad


BAD_DATA = {
    "objects": ([object()], TypeError, "holds numbers"),
    "strings": (["a"], TypeError, "holds numbers"),
    "None": (None, TypeError, "holds numbers"),
    "dates": (np.array(["2020-01-01"], "datetime64[D]"), TypeError, "holds numbers"),
    "ragged lists": ([[1.0], [1.0, 2.0]], ValueError, "inhomogeneous"),
    "tensors of unequal shapes": ([ng.tensor([1.0]), ng.tensor([1.0, 2.0])], ValueError, "same shape"),
    "tensors at unequal depths": ([ng.tensor(1.0), [ng.tensor(1.0)]], ValueError, "same shape"),
}


@pytest.mark.parametrize("name", BAD_DATA)
@pytest.mark.parametrize("make", [ng.tensor, ng.array, ng.asarray], ids=["tensor", "array", "asarray"])
def test_bad_data_are_refused(make, name):
    data, error, message = BAD_DATA[name]
    with pytest.raises(error, match=message):
        make(data)


def test_integers_cannot_require_gradients():
    for make in (ng.tensor, ng.array, ng.asarray):
        with pytest.raises(RuntimeError, match="int64"):
            make([1, 2], requires_grad=True)


def test_from_numpy_takes_arrays_only():
    for data in ([1.0], 1.0, np.float64(1.0)):
        with pytest.raises(TypeError, match="from_numpy"):
            ng.from_numpy(data)
    with pytest.raises(TypeError, match="holds numbers"):
        ng.from_numpy(np.array([None]))


def test_arange_without_stop():
    with pytest.raises(TypeError, match="stop"):
        ng.arange()


# ----- What gradients flow through -----

FLOWING = {
    "full": (lambda v: ng.full((2, 3), v), [()]),
    "full of a row": (lambda v: ng.full((2, 3), v), [(3,)]),
    "full_like": (lambda v: ng.full_like(np.ones((2, 2)), v), [()]),
    "linspace": (lambda a, b: ng.linspace(a, b, 5), [(), ()]),
    "linspace without its end": (lambda a, b: ng.linspace(a, b, 4, endpoint=False), [(), ()]),
    "linspace of rows": (lambda a, b: ng.linspace(a, b, 3, axis=1), [(2,), (2, 1)]),
    "linspace with its step": (lambda a, b: ng.linspace(a, b, 3, retstep=True), [(), ()]),
    "linspace of one": (lambda a: ng.linspace(a, 2.0, 1), [()]),
}


@pytest.mark.parametrize(("function", "shapes"), FLOWING.values(), ids=FLOWING.keys())
def test_derivatives_are_those_of_differences(function, shapes):
    rng = np.random.default_rng(0)
    assert_gradients(function, *(rng.normal(size=shape) for shape in shapes))


def test_tracked_and_plain_linspace_agree():
    for endpoint in (True, False):
        want, step = np.linspace(0.3, 0.7, 7, endpoint, retstep=True)
        got, got_step = ng.linspace(ng.tensor(0.3, requires_grad=True), 0.7, 7, endpoint, retstep=True)
        np.testing.assert_allclose(plain(got), want, rtol=1e-15)
        assert got_step.item() == pytest.approx(step, rel=1e-15)


@pytest.mark.parametrize("endpoint", [True, False])
def test_gradients_of_logarithmic_ranges(endpoint):
    a, b = np.array([0.5, 1.5]), np.array([2.0, 0.75])
    for make, arrays in (
        (lambda np, x, y: np.logspace(x, y, 4, endpoint, axis=1), (a, b)),
        (lambda np, x, y: np.geomspace(x, y, 4, endpoint, axis=-1), (a, b)),
        (lambda np, x, base: np.logspace(x, 2.0, 4, endpoint, base=base), (np.array(0.5), np.array(3.0))),
    ):
        got = make(np, *[ng.tensor(v, requires_grad=True) for v in arrays])
        np.testing.assert_allclose(plain(got), make(np, *arrays), rtol=1e-12)
        assert_gradients(functools.partial(make, ng), *arrays)


def test_every_public_function_has_an_example():
    for name in creation.__all__:
        assert ">>>" in getattr(creation, name).__doc__, name
