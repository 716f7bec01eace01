"""Order statistics and table look-up."""

import numpy as np
import pytest
from helpers import assert_gradients

import numbagrad as ng

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("q", [0.5, 0.0, 1.0, [0.1, 0.8], [[0.25], [0.3]]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_quantile_is_numpys(method, axis, q, keepdims):
    x = RNG.permutation(24).astype(float).reshape(2, 3, 4)
    want = np.quantile(x, q, axis=axis, method=method, keepdims=keepdims)
    got = ng.quantile(ng.tensor(x), q, axis=axis, method=method, keepdims=keepdims)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-14)
    assert_gradients(lambda t: ng.quantile(t, q, axis=axis, method=method, keepdims=keepdims), x, order=1)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_median(n, dtype):
    x = RNG.permutation(n).astype(dtype)
    got = ng.median(ng.tensor(x))
    assert got.dtype == dtype and got.item() == np.median(x)
    assert_gradients(ng.median, x.astype(float))


def test_median_of_ties_gives_each_group_its_total():
    x = ng.tensor([3.0, 1.0, 3.0, 1.0], requires_grad=True)
    ng.median(x).backward()
    g = np.asarray(x.grad)
    np.testing.assert_allclose([g[0] + g[2], g[1] + g[3]], [0.5, 0.5])


def test_nan_and_infinity():
    assert np.isnan(ng.median([1.0, np.nan, 2.0]).item())
    assert ng.median([1.0, 2.0, np.inf]).item() == 2
    assert np.asarray(ng.percentile([1.0, 2.0, 3.0], [0, 100])).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: ng.quantile(x, 1.5), ValueError),
        (lambda x: ng.percentile(x, -1), ValueError),
        (lambda x: ng.quantile(x, 0.5, axis=4), np.exceptions.AxisError),
        (lambda x: ng.quantile(x, 0.5, method="best"), ValueError),
        (lambda x: ng.median(x[:0]), ValueError),
        (lambda x: ng.interp(x, [0.0, 1.0], [0.0]), ValueError),
        (lambda x: ng.interp(x, [0.0, 1.0], [0.0, 1.0], period=0.0), ValueError),
    ],
)
def test_bad_input(call, error):
    with pytest.raises(error):
        call(ng.tensor([1.0, 2.0], requires_grad=True))


def test_interp_is_numpys_and_differentiates_in_everything():
    xp, fp = np.array([0.0, 1.0, 3.0]), np.array([5.0, -1.0, 2.0])
    x = np.array([[-1.0, 0.25, 0.5], [2.0, 2.5, 7.0]])
    np.testing.assert_allclose(np.asarray(ng.interp(ng.tensor(x), xp, fp)), np.interp(x, xp, fp))
    np.testing.assert_allclose(
        np.asarray(ng.interp(ng.tensor(x), xp, fp, left=0.0, right=9.0)), np.interp(x, xp, fp, 0.0, 9.0)
    )
    assert_gradients(ng.interp, x, xp, fp)
