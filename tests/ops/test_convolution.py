"""Convolution and pooling: torch's values and gradients where it is installed, SciPy's and differences otherwise."""

import numpy as np
import pytest
from scipy import ndimage, signal

import numbagrad as ng
from numbagrad.autograd import gradcheck, gradgradcheck
from numbagrad.ops.convolution import avg_pool, convolution, max_pool

RNG = np.random.default_rng(0)
LINE, WEIGHTS = RNG.normal(size=(2, 4, 9)), RNG.normal(size=(6, 4, 3))
IMAGE, KERNELS = RNG.normal(size=(3, 4, 7, 6)), RNG.normal(size=(6, 4, 3, 2))
BODY, CUBES = RNG.normal(size=(2, 2, 5, 4, 6)), RNG.normal(size=(3, 2, 2, 3, 2))
GROUPED = RNG.normal(size=(6, 2, 3, 2))

CONVOLUTIONS = {
    "line": (LINE, WEIGHTS, {}),
    "line with everything": (LINE, WEIGHTS, {"stride": 2, "padding": 3, "dilation": 2}),
    "plane": (IMAGE, KERNELS, {}),
    "plane padded": (IMAGE, KERNELS, {"padding": (2, 1)}),
    "plane strided": (IMAGE, KERNELS, {"stride": (2, 3), "padding": 1}),
    "plane dilated": (IMAGE, KERNELS, {"dilation": (2, 3)}),
    "plane in groups": (IMAGE, GROUPED, {"groups": 2, "padding": 1}),
    "each channel alone": (IMAGE, RNG.normal(size=(8, 1, 3, 3)), {"groups": 4, "stride": 2}),
    "plane to the same size": (IMAGE, KERNELS, {"padding": "same", "dilation": (1, 2)}),
    "body": (BODY, CUBES, {"stride": (1, 2, 1), "padding": (0, 1, 1)}),
}
of_convolutions = pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)

MAXIMA = {
    "plane": (IMAGE, 2, {"kernel": 2}),
    "plane overlapping": (IMAGE, 2, {"kernel": (3, 2), "stride": 1, "padding": (1, 0)}),
    "plane dilated": (IMAGE, 2, {"kernel": 2, "stride": 2, "dilation": (3, 2), "padding": 1}),
    "line": (LINE, 1, {"kernel": 3, "stride": 2, "padding": 1}),
    "body": (BODY, 3, {"kernel": 2}),
    "equal numbers": (np.zeros((1, 2, 6, 6)), 2, {"kernel": 3, "stride": 1, "padding": 1}),
    "infinite": (np.full((1, 1, 4, 4), -np.inf), 2, {"kernel": 3, "stride": 1, "padding": 1}),
}
AVERAGES = {
    "plane": (IMAGE, 2, {"kernel": 2}),
    "plane padded": (IMAGE, 2, {"kernel": 3, "stride": 2, "padding": 1}),
    "plane without what is around": (IMAGE, 2, {"kernel": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    "plane by seven": (IMAGE, 2, {"kernel": (2, 3), "divisor_override": 7}),
    "line": (LINE, 1, {"kernel": 4, "stride": 3, "padding": 2}),
    "body": (BODY, 3, {"kernel": 2, "padding": 1}),
}


def leaves(*arrays):
    return [ng.tensor(a, requires_grad=True) for a in arrays]


def assert_same(ours, theirs):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-10, atol=1e-12)


def compare(torch, our_function, their_function, arrays):
    """Values, gradients, and gradients of gradients, against random cotangents."""
    ours, theirs = leaves(*arrays), [torch.tensor(a, requires_grad=True) for a in arrays]
    y, z = our_function(*ours), their_function(*theirs)
    assert_same(y, z)
    seed = np.random.default_rng(1).normal(size=y.shape)
    first = ng.autograd.grad(y, ours, ng.tensor(seed), create_graph=True)
    expected = torch.autograd.grad(z, theirs, torch.tensor(seed), create_graph=True)
    for a, b in zip(first, expected, strict=True):
        assert_same(a, b)
    if len(arrays) > 1:
        second = ng.autograd.grad(sum((a**2).sum() for a in first), ours)
        expected = torch.autograd.grad(sum((b**2).sum() for b in expected), theirs)
        for a, b in zip(second, expected, strict=True):
            assert_same(a, b)


@of_convolutions
def test_convolution_is_that_of_torch(case):
    torch = pytest.importorskip("torch")
    x, w, settings = case
    functional = getattr(torch.nn.functional, f"conv{x.ndim - 2}d")
    compare(torch, lambda x, w: convolution(x, w, **settings), lambda x, w: functional(x, w, **settings), [x, w])


@pytest.mark.parametrize("case", MAXIMA.values(), ids=MAXIMA)
def test_maxima_are_those_of_torch(case):
    torch = pytest.importorskip("torch")
    x, axes, settings = case
    theirs = getattr(torch.nn.functional, f"max_pool{axes}d")
    named = {"kernel_size" if k == "kernel" else k: v for k, v in settings.items()}
    compare(torch, lambda x: max_pool(x, axes, **settings), lambda x: theirs(x, **named), [x])


@pytest.mark.parametrize("case", AVERAGES.values(), ids=AVERAGES)
def test_averages_are_those_of_torch(case):
    torch = pytest.importorskip("torch")
    x, axes, settings = case
    theirs = getattr(torch.nn.functional, f"avg_pool{axes}d")
    named = {"kernel_size" if k == "kernel" else k: v for k, v in settings.items()}
    compare(torch, lambda x: avg_pool(x, axes, **settings), lambda x: theirs(x, **named), [x])


def test_one_plane_is_correlated_as_scipy_does():
    x, w = IMAGE[:1], KERNELS[:1]
    expected = sum(signal.correlate(x[0, c], w[0, c], "valid") for c in range(4))
    np.testing.assert_allclose(convolution(x, w).numpy()[0, 0], expected, atol=1e-12)


def test_largest_numbers_are_those_of_scipy():
    expected = ndimage.maximum_filter(IMAGE[0, 0], 3, mode="constant", cval=-np.inf)
    found = max_pool(IMAGE[:1, :1], 2, 3, stride=1, padding=1)
    np.testing.assert_array_equal(found.numpy()[0, 0], expected)


@pytest.mark.parametrize("name", ["line with everything", "plane in groups"])
def test_gradients_of_convolution_are_differences(name):
    x, w, settings = CONVOLUTIONS[name]
    few = leaves(x[:1, :, :5], w)
    assert gradcheck(lambda x, w: convolution(x, w, **settings), few, check_forward_ad=True)
    assert gradgradcheck(lambda x, w: convolution(x, w, **settings), few)


def test_gradients_of_complex_convolution_are_differences():
    x, w = LINE[:1, :2, :5] + 1j * LINE[:1, 2:, :5], WEIGHTS[:2, :2] + 1j * WEIGHTS[2:4, 2:]
    assert gradcheck(lambda x, w: convolution(x, w, padding=1), leaves(x, w))


def test_gradients_of_pooling_are_differences():
    x = leaves(IMAGE[:1, :1])
    assert gradcheck(lambda x: max_pool(x, 2, 3, 2, 1), x, check_forward_ad=True)
    assert gradcheck(lambda x: avg_pool(x, 2, 3, 2, 1), x, check_forward_ad=True)
    assert gradgradcheck(lambda x: avg_pool(x, 2, 3, 2, 1) ** 2, x)


def test_no_images_have_no_gradient():
    x, w = leaves(IMAGE[:0], KERNELS)
    y = convolution(x, w)
    assert y.shape == (0, 6, 5, 5)
    assert max_pool(y, 2, 2).shape == avg_pool(y, 2, 2).shape == (0, 6, 2, 2)
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert not w.grad.numpy().any()


def test_nan_is_the_largest():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    x[0, 0, 0, 0] = np.nan
    np.testing.assert_array_equal(max_pool(x, 2, 2).numpy()[0, 0], [[np.nan, 7], [13, 15]])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_precision_is_kept(dtype):
    x, w = IMAGE.astype(dtype), KERNELS.astype(dtype)
    found = convolution(x, w)
    assert found.dtype == dtype
    exact = convolution(x.astype(float), w.astype(float)).numpy()
    np.testing.assert_allclose(found.numpy(), exact, rtol=0.01, atol=0.01)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: convolution(IMAGE, WEIGHTS), ValueError, "as many axes"),
        (lambda: convolution(IMAGE, KERNELS, groups=2), ValueError, "takes 8 channels"),
        (lambda: convolution(IMAGE, KERNELS, groups=0), ValueError, "groups=0"),
        (lambda: convolution(IMAGE, KERNELS, stride=0), ValueError, "stride must be at least 1"),
        (lambda: convolution(IMAGE, KERNELS, stride=1.5), TypeError, "stride must be an int"),
        (lambda: convolution(IMAGE, KERNELS, padding=-1), ValueError, "padding must be at least 0"),
        (lambda: convolution(IMAGE, KERNELS, padding="full"), ValueError, "'same', 'valid' or ints"),
        (lambda: convolution(IMAGE, KERNELS, padding="same", stride=2), ValueError, "strided"),
        (lambda: convolution(IMAGE, KERNELS, dilation=9), ValueError, "larger than the padded input"),
        (lambda: max_pool(LINE, 2, 2), ValueError, "batch, channels"),
        (lambda: max_pool(LINE, 1, 2, padding=2), ValueError, "half of the kernel"),
        (lambda: max_pool(LINE.astype(int), 1, 2), TypeError, "floats"),
        (lambda: avg_pool(LINE, 1, 10), ValueError, "larger than"),
        (lambda: avg_pool(LINE, 1, 2, divisor_override=0), ValueError, "not zero"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
