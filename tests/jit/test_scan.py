"""Scans: every kernel against NumPy and against the recurrence written out."""

import itertools

import numpy as np
import pytest
from helpers import laid_out

from numbagrad.jit import scan, team

SHAPES_AND_AXES = [
    ((1,), 0),
    ((9,), 0),
    ((4, 7), 0),
    ((4, 7), 1),
    ((2, 9, 5), 1),
    ((3, 1), 1),
    ((3, 1, 4), 1),
    ((5, 2100), 0),
    ((2, 4001), 1),
]
DTYPES = ["f8", "f4"]


def random(shape, dtype, seed=0):
    rng = np.random.default_rng([seed, *shape])
    return (rng.uniform(0.8, 1.2, shape) * rng.choice([-1, 1], shape)).astype(dtype)


def limits(dtype):
    return {"rtol": 1e-11, "atol": 1e-11} if dtype == "f8" else {"rtol": 2e-5, "atol": 2e-5}


def walked(function, arrays, axis, reverse):
    """`function` of lines along the axis in the order of the walk, put back in place."""
    lines = [np.moveaxis(a.astype("f8"), axis, 0)[:: -1 if reverse else 1] for a in arrays]
    return np.moveaxis(function(*lines)[:: -1 if reverse else 1], 0, axis)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "accumulate", "nothing"), [("sum", np.cumsum, 0.0), ("prod", np.cumprod, 1.0)])
def test_cumulative_is_numpys(kind, accumulate, nothing, dtype, reverse):
    def exclusive(lines):
        return np.concatenate([np.full_like(lines[:1], nothing), accumulate(lines, axis=0)[:-1]])

    for shape, axis in SHAPES_AND_AXES:
        a = random(shape, dtype)
        for alone, function in ((False, lambda lines: accumulate(lines, axis=0)), (True, exclusive)):
            got = scan.cumulative(kind, a, axis, reverse, exclusive=alone)
            assert got.dtype == dtype and got.shape == shape
            np.testing.assert_allclose(got, walked(function, [a], axis, reverse), **limits(dtype))


@pytest.mark.parametrize(("reverse", "lag"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_recurrence_is_its_definition(dtype, reverse, lag):
    def step_by_step(a, b):
        out = b.copy()
        for i in range(1, len(b)):
            out[i] = b[i] + a[i - 1 if lag else i] * out[i - 1]
        return out

    for shape, axis in SHAPES_AND_AXES:
        a, b = random(shape, dtype) * np.asarray(0.8, dtype), random(shape, dtype, seed=1)
        got = scan.recurrence(a, b, axis, reverse, lag)
        assert got.dtype == dtype and got.shape == shape
        np.testing.assert_allclose(got, walked(step_by_step, [a, b], axis, reverse), **limits(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_others_leave_one_out(dtype):
    for shape, axis in SHAPES_AND_AXES:
        if shape[axis] < 100:
            a = random(shape, dtype)
            want = np.stack([np.prod(np.delete(a.astype("f8"), i, axis), axis) for i in range(shape[axis])], axis)
            np.testing.assert_allclose(scan.others(a, axis), want, **limits(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_and_infinite_factors_meet_in_order(dtype):
    a = np.array([2, 0, 3, np.inf, 1, 0.5, np.inf, 0, 4, 5, 0, 7], dtype)
    b = np.array([1, 2, 3, 4, 0, 0, 1, 1, 2, 0, 1, 1], dtype)
    for reverse, lag in itertools.product([False, True], repeat=2):
        got = scan.recurrence(a, b, 0, reverse, lag)
        np.testing.assert_array_equal(got, scan._recur(a, b, 0, reverse, lag))
    np.testing.assert_array_equal(scan.others(np.array([2, 0, 5], dtype), 0), [0, 10, 0])


def test_products_of_float64_stay_in_order():
    """A product of four items apart from the carry would overflow."""
    a = np.tile([1e200, 1e-200], 10)
    np.testing.assert_allclose(scan.cumulative("prod", a, 0, False), np.cumprod(a))


@pytest.mark.parametrize("layout", ["F", "strided", "reversed"])
def test_any_layout_does(layout):
    a, b = random((6, 5), "f8"), random((6, 5), "f8", seed=1)
    for axis in (0, 1):
        want = scan.recurrence(a, b, axis, False, True)
        np.testing.assert_array_equal(scan.recurrence(laid_out(a, layout), laid_out(b, "F"), axis, False, True), want)
        np.testing.assert_array_equal(
            scan.cumulative("sum", laid_out(a, layout), axis, True), scan.cumulative("sum", a, axis, True)
        )


def test_other_dtypes_and_empty_arrays_go_to_numpy():
    for a in (np.arange(1, 6), np.array([1 + 2j, 3, -1j]), np.zeros((0,)), np.zeros((2, 0)), np.ones(3, "g")):
        for axis in range(a.ndim):
            np.testing.assert_array_equal(scan.cumulative("sum", a, axis, False), np.cumsum(a, axis))
            assert scan.others(a, axis).shape == a.shape
            assert scan.recurrence(a, a, axis, True, False).dtype == a.dtype


@pytest.mark.parametrize(("shape", "axis"), [((600, 700), 1), ((700, 4200), 0)])
def test_the_number_of_threads_changes_no_bit(shape, axis):
    a = random(shape, "f4")
    before = team.get_num_threads()
    try:
        team.set_num_threads(1)
        alone = scan.cumulative("sum", a, axis, False), scan.recurrence(a, a, axis, True, True)
        team.set_num_threads(3)
        shared = scan.cumulative("sum", a, axis, False), scan.recurrence(a, a, axis, True, True)
    finally:
        team.set_num_threads(before)
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)
