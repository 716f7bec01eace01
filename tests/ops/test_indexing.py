"""Every index that NumPy knows: values, views and gradients, of reading and of writing."""

import numpy as np
import pytest
from helpers import assert_gradients, laid_out, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import numbagrad as ng
from numbagrad.jit.scatter import scatter_add
from numbagrad.ops.gathering import index_put

SHAPE = (3, 4, 5)
MASK3 = np.array([True, False, True])
MASK34 = np.arange(12).reshape(3, 4) % 3 == 0
MASK = np.arange(60).reshape(SHAPE) % 7 < 2

BASIC = {
    "integer": 1,
    "negative integer": -1,
    "NumPy integer": np.int64(2),
    "slice": slice(1, 3),
    "empty slice": slice(2, 2),
    "backward slice": slice(None, None, -2),
    "slice out of bounds": slice(-9, 99),
    "Ellipsis": Ellipsis,
    "None": None,
    "nothing": (),
    "integers": (1, 2),
    "integer and slice": (0, slice(None), slice(1, None, 2)),
    "slice and integer": (slice(None), 3),
    "Ellipsis and integer": (Ellipsis, -1),
    "None in the middle": (0, None, slice(1, 3)),
    "Ellipsis in the middle": (1, Ellipsis, None, 2),
}
ELEMENT = {"all integers": (1, 2, -1), "all NumPy integers": (np.int8(1), np.uint16(2), np.intp(0))}
ADVANCED = {
    "list": [0, 2, 0],
    "array": np.array([[0, 1], [2, 2]]),
    "negative array": np.array([-1, -3, 0]),
    "unsigned array": np.array([2, 0, 2], np.uint64),
    "small integers": np.array([2, 0, 2], np.int8),
    "array of no axes": np.array(1),
    "empty list": [],
    "empty array": np.zeros((0, 2), int),
    "nested list": [[0, 1], [1, 1]],
    "array in Fortran order": np.asfortranarray([[0, 1, 2], [2, 1, 0]]),
    "array that repeats": np.broadcast_to(np.array([1]), (4,)),
    "pair of arrays": ([0, 2, 0], [1, 3, 1]),
    "triple of arrays": ([0, 2, 0], [1, 3, 1], [4, 0, 4]),
    "arrays that broadcast": ([[0], [2]], [1, 3, 1]),
    "array and slice": ([0, 2, 2], slice(1, 3)),
    "slice and array": (slice(None), [0, 2, 2]),
    "slice, array, array": (slice(0, 2), [0, 2, 2], [1, 1, 1]),
    "array, slice, array": ([0, 2, 2], slice(1, None), [1, 1, 1]),
    "array and integer": ([0, 2, 2], 1),
    "integer, slice, array": (1, slice(None), [0, 0]),
    "array and None": ([0, 2, 2], None, slice(None, None, 2)),
    "None and array": (None, [0, 2, 2]),
    "Ellipsis and array": (Ellipsis, [0, 2, 2]),
    "array and Ellipsis": ([0, 2, 2], Ellipsis),
    "array, Ellipsis, array": ([0, 0], Ellipsis, [1, 1]),
    "full slices at the end": ([0, 2, 2], slice(None), slice(None)),
    "mask": MASK,
    "mask as lists": [True, False, True],
    "mask of the first axes": MASK34,
    "mask of an inner axis": (slice(None), [True, False, True, True]),
    "mask and slice": (MASK3, slice(None, None, -1)),
    "mask and integer": (MASK3, 2),
    "mask and array": (MASK3, [0, 1]),
    "mask of nothing": np.zeros(3, bool),
    "Python's True": True,
    "Python's False": False,
    "True and array": (True, [0, 2, 0]),
    "ix_": np.ix_([0, 2], [1, 1], [4, 0]),
    "ix_ with a mask": np.ix_(MASK3, [1, 1]),
}
EVERY = BASIC | ELEMENT | ADVANCED
LAYOUTS = ["C", "F", "strided", "reversed"]


def every(table):
    return pytest.mark.parametrize("index", table.values(), ids=table.keys())


def numbers(layout="C", dtype=float):
    return laid_out((np.arange(60).reshape(SHAPE) * 0.5 - 7).astype(dtype), layout)


def as_tensors(index):
    """The same index with tensors in place of arrays and lists."""
    if isinstance(index, tuple):
        return tuple(map(as_tensors, index))
    return ng.tensor(index) if isinstance(index, np.ndarray) or (isinstance(index, list) and index) else index


def summed_by_numpy(index, weights):
    """Gradient of sum(weights * x[index])."""
    want = np.zeros(SHAPE, np.asarray(weights).dtype)
    np.add.at(want, index, weights)
    return want


# ----- Reading -----


@pytest.mark.parametrize("layout", LAYOUTS)
@every(EVERY)
def test_value_is_numpys(index, layout):
    a = numbers(layout)
    got = ng.asarray(a)[index]
    assert got.shape == a[index].shape and got.dtype == a.dtype
    np.testing.assert_array_equal(plain(got), a[index])


@every(EVERY)
def test_tensors_work_as_indices(index):
    a = numbers()
    np.testing.assert_array_equal(plain(ng.tensor(a)[as_tensors(index)]), a[index])


@pytest.mark.parametrize("layout", LAYOUTS)
@every(BASIC)
def test_basic_indices_are_views(index, layout):
    a = numbers(layout)
    x = ng.asarray(a)
    view = x[index]
    assert np.may_share_memory(plain(view), a) == np.may_share_memory(a[index], a)
    if view.size:
        view[...] = 99.0
        assert (a[index] == 99).all()
        assert view._base is x


@every(ELEMENT | ADVANCED)
def test_other_indices_are_copies(index):
    a = numbers()
    part = ng.asarray(a)[index]
    assert part._base is None and not np.may_share_memory(plain(part), a)


def test_an_element_stays_when_another_is_written_over_it():
    x = ng.tensor([1.0, 2.0])
    first = x[0]
    x[0] = x[1]
    x[1] = first
    np.testing.assert_array_equal(plain(x), [2.0, 1.0])


@pytest.mark.parametrize("layout", LAYOUTS)
@every(EVERY)
def test_gradient_adds_up_over_repeated_indices(index, layout):
    x = ng.asarray(numbers(layout)).requires_grad_()
    y = x[index]
    weights = np.random.default_rng(0).normal(size=y.shape)
    y.backward(weights)
    np.testing.assert_allclose(plain(x.grad), summed_by_numpy(index, weights), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128", "longdouble", "float16"])
@every(ADVANCED)
def test_gradient_keeps_the_dtype(index, dtype):
    x = ng.tensor(numbers(dtype=dtype), requires_grad=True)
    y = x[index]
    rng = np.random.default_rng(0)
    weights = np.asarray(rng.integers(-3, 4, y.shape) + (1j * rng.integers(-3, 4, y.shape) if dtype[0] == "c" else 0))
    y.backward(weights.astype(dtype))
    assert x.grad.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(plain(x.grad), summed_by_numpy(index, weights.astype(dtype)))


@every(EVERY)
def test_second_derivatives(index):
    a = numbers()
    x = ng.tensor(a, requires_grad=True)
    weights = np.random.default_rng(0).normal(size=a[index].shape)
    (first,) = ng.autograd.grad((x[index] ** 3 * weights).sum(), x, create_graph=True)
    (second,) = ng.autograd.grad((first**2).sum() * 0.5, x)
    # first = 3 x^2 W and its derivative is 6 x W, where W is the sum of the weights of a place.
    place = np.zeros(a.shape)
    np.add.at(place, index, weights)
    np.testing.assert_allclose(plain(first), 3 * a**2 * place, rtol=1e-12)
    np.testing.assert_allclose(plain(second), 3 * a**2 * place * 6 * a * place, rtol=1e-12)


@every(EVERY)
def test_reference_backend_agrees(index):
    def gradient():
        x = ng.tensor(numbers(), requires_grad=True)
        y = x[index]
        y.backward(np.random.default_rng(0).normal(size=y.shape))
        return plain(x.grad)

    want = gradient()
    with ng.use_backend("reference"):
        np.testing.assert_allclose(gradient(), want, rtol=1e-13)


@every(EVERY)
def test_tangents_are_indexed_like_values(index):
    tangent = np.random.default_rng(0).normal(size=SHAPE)
    _, moved = ng.jvp(lambda x: x[index], (numbers(),), (tangent,))
    np.testing.assert_array_equal(plain(moved), tangent[index])


def test_an_index_may_change_after_it_was_used():
    x = ng.tensor([1.0, 2.0, 3.0], requires_grad=True)
    index = np.array([0, 0, 2])
    mask = np.array([True, False, True])
    y = x[index].sum() + x[mask].sum()
    index[:] = 1
    mask[:] = False
    y.backward()
    np.testing.assert_array_equal(plain(x.grad), [3.0, 0.0, 2.0])


@st.composite
def arrays_and_indices(draw, advanced):
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1 if advanced else 0, max_side=4))
    if not advanced:
        return shape, draw(hnp.basic_indices(shape, allow_newaxis=True))
    index = draw(hnp.integer_array_indices(shape[: draw(st.integers(1, len(shape)))]))
    return shape, draw(st.sampled_from([index, index if len(index) > 1 else index[0], (*index, Ellipsis)]))


@pytest.mark.parametrize("advanced", [False, True], ids=["basic", "advanced"])
@settings(max_examples=150)
@given(st.data())
def test_drawn_indices(advanced, data):
    shape, index = data.draw(arrays_and_indices(advanced))
    a = np.arange(float(np.prod(shape))).reshape(shape)
    x = ng.tensor(a, requires_grad=True)
    y = x[index]
    np.testing.assert_array_equal(plain(y), a[index])
    weights = np.arange(1.0, y.size + 1).reshape(y.shape)
    y.backward(weights)
    want = np.zeros(shape)
    np.add.at(want, index, weights)
    np.testing.assert_array_equal(plain(x.grad), want)


@settings(max_examples=100)
@given(st.data())
def test_drawn_mixtures_of_indices(data):
    shape = (3, 2, 4)
    items = [
        data.draw(
            st.one_of(
                st.integers(-n, n - 1),
                st.slices(n),
                st.lists(st.integers(-n, n - 1), min_size=2, max_size=2),
                hnp.arrays(bool, n).map(lambda m: m if m.sum() == 2 else np.arange(m.size) < 2),
            )
        )
        for n in shape
    ]
    index = tuple(items[: data.draw(st.integers(1, 3))])
    a = np.arange(24.0).reshape(shape)
    x = ng.tensor(a, requires_grad=True)
    y = x[index]
    np.testing.assert_array_equal(plain(y), a[index])
    y.backward(np.ones(y.shape))
    want = np.zeros(shape)
    np.add.at(want, index, 1.0)
    np.testing.assert_array_equal(plain(x.grad), want)


BAD = {
    "out of bounds": 3,
    "out of bounds below": -4,
    "out of bounds in an inner axis": (0, 4),
    "array out of bounds": [0, 3],
    "array out of bounds below": (slice(None), [-5]),
    "too many": (0, 0, 0, 0),
    "a fraction": 1.5,
    "fractions": np.array([0.5, 1.0]),
    "a tensor of fractions": ng.tensor([0.5, 1.0]),
    "a string": "x",
    "two Ellipses": (Ellipsis, Ellipsis),
    "a mask of another length": np.array([True, False]),
    "a mask of another shape": np.ones((3, 5), bool),
    "arrays that do not broadcast": ([0, 1], [0, 1, 2]),
}


@every(BAD)
def test_bad_indices_are_refused_as_by_numpy(index):
    a = numbers()
    x = ng.tensor(a, requires_grad=True)
    with pytest.raises(IndexError):
        a[index if not isinstance(index, ng.Tensor) else index.numpy()]
    with pytest.raises(IndexError, match=r"\(3, 4, 5\)"):
        x[index]
    with pytest.raises(IndexError), ng.no_grad():
        x[index] = 1.0
    np.testing.assert_array_equal(plain(x), a)
    assert x.is_leaf and x.grad is None


# ----- Writing -----


def last_one_stays(index, count):
    """Which of the values stay in the array after an assignment in order."""
    flat = np.full(SHAPE, -1)
    flat[index] = np.arange(count).reshape(np.empty(SHAPE)[index].shape)
    return np.isin(np.arange(count), flat)


@every(EVERY)
def test_put_value_and_gradients(index):
    a = numbers()
    part = a[index]
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=part.shape), rng.normal(size=SHAPE)
    x, v = ng.tensor(a, requires_grad=True), ng.tensor(values, requires_grad=True)
    y = x * 1.0
    y[index] = v
    want = a.copy()
    want[index] = values
    np.testing.assert_array_equal(plain(y), want)
    y.backward(weights)
    untouched = np.ones(SHAPE)
    untouched[index] = 0
    np.testing.assert_array_equal(plain(x.grad), weights * untouched)
    stays = last_one_stays(index, part.size).reshape(part.shape)
    np.testing.assert_array_equal(plain(v.grad), np.where(stays, weights[index], 0))


@every(EVERY)
def test_put_of_one_number_for_many_places(index):
    x, v = ng.tensor(numbers(), requires_grad=True), ng.tensor(2.0, requires_grad=True)
    y = x * 1.0
    y[index] = v
    weights = np.random.default_rng(0).normal(size=SHAPE)
    y.backward(weights)
    touched = np.zeros(SHAPE)
    touched[index] = 1
    np.testing.assert_allclose(plain(v.grad), (weights * touched).sum(), rtol=1e-12)


PUTS = {
    "pairs": (([0, 2, 1], [1, 3, 1]), (3, 5)),
    "repeated": ([0, 0, 2], (3, 4, 5)),
    "repeated, values broadcast": ([0, 0, 2], (3, 1, 5)),
    "repeated, one value": ([0, 0, 2], (1,)),
    "values with axes in front": ([1], (1, 1, 1, 4, 5)),
    "mask": (MASK3, (2, 4, 5)),
    "slice": (slice(1, 3), (4, 5)),
}


@pytest.mark.parametrize(("index", "shape"), PUTS.values(), ids=PUTS.keys())
def test_put_derivatives_are_those_of_differences(index, shape):
    rng = np.random.default_rng(5)
    small = numbers()[..., :5]
    plain_index = np.asarray(index) if isinstance(index, list) else index
    assert_gradients(lambda x, v: index_put(x, v, index=plain_index), small, rng.normal(size=shape))


def test_put_into_rows_without_elements():
    x, v = ng.zeros((3, 0), requires_grad=True), ng.zeros((2, 0), requires_grad=True)
    y = x * 1.0
    y[[1, 1]] = v
    y.backward(np.zeros((3, 0)))
    assert x.grad.shape == (3, 0) and v.grad.shape == (2, 0)


def test_values_in_any_layout_and_index_give_the_last():
    for layout in LAYOUTS:
        v = ng.asarray(laid_out(np.arange(6.0).reshape(2, 3), layout)).requires_grad_()
        for index in (np.zeros((2, 3), int), np.zeros((2, 3), int)[::-1], np.broadcast_to(np.zeros(3, int), (2, 3))):
            y = ng.zeros(4)
            y[index] = v
            assert plain(y)[0] == 5.0
            (grad,) = ng.autograd.grad(y.sum(), v)
            np.testing.assert_array_equal(plain(grad), [[0, 0, 0], [0, 0, 1]])


IN_PLACE = {
    "put": lambda np, x, v: np.put(x, [1, -1, 1], v),
    "put, wrapping": lambda np, x, v: np.put(x, [13, -14], v, mode="wrap"),
    "put, clipping": lambda np, x, v: np.put(x, [99, -99], v, mode="clip"),
    "place": lambda np, x, v: np.place(x, np.asarray([[1, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1]]) > 0, v),
    "putmask": lambda np, x, v: np.putmask(x, np.asarray([[1, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1]]) > 0, v),
    "put_along_axis": lambda np, x, v: np.put_along_axis(x, np.asarray([[1, 0, 3]] * 3), v, 1),
    "put_along_axis, flattened": lambda np, x, v: np.put_along_axis(x, np.asarray([1, 5, 9]), v, None),
    "fill_diagonal": lambda np, x, v: np.fill_diagonal(x, v),
    "fill_diagonal of a tall matrix": lambda np, x, v: np.fill_diagonal(x.reshape(6, 2), v),
    "fill_diagonal, wrapping": lambda np, x, v: np.fill_diagonal(x.reshape(6, 2), v, wrap=True),
}


@pytest.mark.parametrize("write", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_functions_that_write_do_as_numpys(write):
    a, values = np.arange(12.0).reshape(3, 4), np.array([50.0, 60.0, 70.0])
    want = a.copy()
    write(np, want, values)
    x, v = ng.tensor(a, requires_grad=True), ng.tensor(values, requires_grad=True)
    for namespace in (ng, np):
        y = x * 1.0
        assert write(namespace, y, v) is None
        np.testing.assert_array_equal(plain(y), want)
    weights = np.arange(1.0, 13).reshape(3, 4)
    y.backward(weights)
    np.testing.assert_array_equal(plain(x.grad), np.where(want == a, weights, 0))
    np.testing.assert_array_equal(plain(v.grad), [(weights * (want == n)).sum() for n in values])


WRONG_WRITES = {
    "put out of bounds": (lambda x: ng.put(x, [12], 1.0), IndexError, "out of bounds"),
    "put at fractions": (lambda x: ng.put(x, [0.5], 1.0), TypeError, "integers"),
    "place without values": (lambda x: ng.place(x, x > 1, []), ValueError, "empty"),
    "a mask of another size": (lambda x: ng.putmask(x, [True], 1.0), ValueError, "same size"),
    "fill_diagonal of a vector": (lambda x: ng.fill_diagonal(x[0], 1.0), ValueError, "2-d"),
    "fill_diagonal of a brick": (lambda x: ng.fill_diagonal(x.reshape(3, 2, 2), 1.0), ValueError, "equal length"),
    "a value that does not fit": (lambda x: x.__setitem__([0, 1], np.ones(3)), ValueError, "could not be broadcast"),
}


@pytest.mark.parametrize(("write", "error", "message"), WRONG_WRITES.values(), ids=WRONG_WRITES.keys())
def test_wrong_writes_are_refused(write, error, message):
    x = ng.tensor(np.arange(12.0).reshape(3, 4))
    with pytest.raises(error, match=message):
        write(x)
    np.testing.assert_array_equal(plain(x), np.arange(12.0).reshape(3, 4))


# ----- Places -----

PLACES = {
    "tril_indices": (ng.tril_indices, np.tril_indices, (3, -1, 4)),
    "triu_indices": (ng.triu_indices, np.triu_indices, (3, 1)),
    "diag_indices": (ng.diag_indices, np.diag_indices, (3, 3)),
    "indices": (ng.indices, np.indices, ((2, 3),)),
    "indices, sparse": (ng.indices, np.indices, ((2, 3), int, True)),
    "ix_": (ng.ix_, np.ix_, ([0, 2], [True, False, True])),
    "unravel_index": (ng.unravel_index, np.unravel_index, ([5, 3], (2, 3))),
    "unravel_index in Fortran order": (ng.unravel_index, np.unravel_index, (5, (2, 3), "F")),
    "ravel_multi_index": (ng.ravel_multi_index, np.ravel_multi_index, (([1, 0], [2, 1]), (2, 3))),
}


@pytest.mark.parametrize(("ours", "theirs", "args"), PLACES.values(), ids=PLACES.keys())
def test_functions_that_give_places_are_numpys(ours, theirs, args):
    got, want = ours(*args), theirs(*args)
    if not isinstance(want, tuple):
        got, want = (got,), (want,)
    for g, w in zip(got, want, strict=True):
        assert isinstance(g, ng.Tensor) and g.dtype == np.asarray(w).dtype
        np.testing.assert_array_equal(plain(g), w)


# ----- The kernel -----


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(1, 5), st.lists(st.integers(-6, 5), max_size=20), st.sampled_from("fdFDe"))
def test_scatter_adds_as_numpy_does(length, width, places, char):
    places = np.array(places, int) % length - length * (np.array(places, int) < 0)
    rng = np.random.default_rng(len(places))
    rows = rng.integers(-9, 9, (len(places), width)).astype(char)
    out = rng.integers(-9, 9, (length, width)).astype(char)
    want = out.copy()
    np.add.at(want, places, rows)
    scatter_add(places, rows, out)
    np.testing.assert_array_equal(out, want)


def test_scatter_reads_rows_of_any_layout():
    rows = np.broadcast_to(np.array([[2.0]]), (3, 4))
    out = np.zeros((2, 4))
    scatter_add(np.array([1, 1, 0], np.int32), rows, out)
    np.testing.assert_array_equal(out, [[2.0] * 4, [4.0] * 4])
