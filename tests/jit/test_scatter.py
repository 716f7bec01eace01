"""Gathering and scattering: NumPy's results, and the same bits for any number of threads."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.jit import backend, scatter, team

# (places, length of the array, width of a row): one chunk, several, columns shared, columns that do not divide.
SIZES = [(1000, 7, 1), (600_000, 50, 1), (50_000, 40, 8), (9000, 3000, 64), (9000, 300, 70), (4000, 2, 200), (9, 4, 0)]


def data(places, length, width, dtype=np.float32):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(places, width)).astype(dtype)
    return rng.integers(-length, length, places), rows


@pytest.fixture(params=[1, 2, 3, 8])
def threads(request):
    before = team.get_num_threads()
    team.set_num_threads(request.param)
    yield request.param
    team.set_num_threads(before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_rows_are_added_where_they_belong(size, dtype, threads):
    places, rows = data(*size, dtype)
    out, want = np.ones(size[1:], dtype), np.ones(size[1:], np.result_type(dtype, np.float64))
    scatter.scatter_add(places, rows, out)
    np.add.at(want, places, rows)
    scale = 1e-4 if dtype != np.float64 else 1e-11
    np.testing.assert_allclose(out, want, atol=scale * max(1, len(places) / size[1]) ** 0.5)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_number_of_threads_changes_nothing(size):
    places, rows = data(*size)
    before, found = team.get_num_threads(), []
    try:
        for count in (1, 2, 3, 8):
            team.set_num_threads(count)
            for _ in range(2):
                out = np.zeros(size[1:], np.float32)
                scatter.scatter_add(places, rows, out)
                found.append(out.tobytes())
    finally:
        team.set_num_threads(before)
    assert len(set(found)) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.complex128, np.bool_])
@pytest.mark.parametrize("shape", [(500, 64), (30, 4, 50), (70, 0)], ids=str)
def test_gathering_is_numpys(shape, dtype, threads):
    rng = np.random.default_rng(1)
    x = (rng.normal(size=shape) * 3).astype(dtype)
    for places in (rng.integers(-len(x), len(x), 9000), rng.integers(0, len(x), (90, 100))[:, ::2], np.arange(0)):
        got = scatter.gather(x, places)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, x[places])


def test_places_out_of_bounds_are_refused(threads):
    x = np.zeros((10, 64), np.float32)
    for bad in (10, -11):
        places = np.zeros(9000, int)
        places[4321] = bad
        with pytest.raises(IndexError, match="out of bounds"):
            scatter.gather(x, places)


def test_bfloat16_is_gathered():
    pytest.importorskip("ml_dtypes")
    x = ng.tensor(np.arange(640.0).reshape(10, 64), dtype="bfloat16")
    places = np.random.default_rng(0).integers(0, 10, 9000)
    assert (x[places].numpy() == x.numpy()[places]).all()


def test_the_gradient_of_an_embedding(threads):
    rng = np.random.default_rng(2)
    table = ng.tensor(rng.normal(size=(500, 64)), requires_grad=True)
    places, seed = rng.integers(0, 500, (300, 40)), rng.normal(size=(300, 40, 64))
    table[places].backward(seed)
    want = np.zeros((500, 64))
    np.add.at(want, places, seed)
    np.testing.assert_allclose(table.grad, want, atol=1e-12)


def test_the_reference_backend_adds_with_numpy():
    places, rows = data(600_000, 50, 1)
    out, want = np.zeros((50, 1), np.float32), np.zeros((50, 1), np.float32)
    with backend.use_backend("reference"):
        scatter.scatter_add(places, rows, out)
    np.add.at(want, places, rows)
    np.testing.assert_array_equal(out, want)
