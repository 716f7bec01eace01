"""Fourier transforms: NumPy's values, gradients of differences, for every normalisation and length."""

import numpy as np
import pytest
from helpers import assert_gradients

import numbagrad as ng
import numbagrad.numpy as anp

RNG = np.random.default_rng(0)
ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "fft2", "ifft2", "rfftn", "irfftn", "rfft2", "irfft2"]
NORMS = [None, "backward", "ortho", "forward"]


def weighed(name, shape, **settings):
    """A function of the real and imaginary parts of the input that gives the parts of the transform."""
    real_input = name in ("rfft", "ihfft", "rfftn", "rfft2")

    def f(re, im):
        x = re if real_input else re + im * 1j
        y = getattr(anp.fft, name)(x, **settings)
        return ng.real(y), ng.imag(y) if y.dtype.kind == "c" else ng.real(y)

    return f


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 3, 4, 7, 8])
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name, n, norm):
    re, im = RNG.normal(size=(2, 5)), RNG.normal(size=(2, 5))
    x = re if name in ("rfft", "ihfft") else re + 1j * im
    for axis in (0, -1):
        want = getattr(np.fft, name)(x, n, axis, norm)
        got = getattr(anp.fft, name)(ng.tensor(x), n, axis, norm)
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-13)
    assert_gradients(weighed(name, re.shape, n=n, norm=norm), re, im, order=1)


@pytest.mark.parametrize("norm", [None, "ortho"])
@pytest.mark.parametrize("s", [None, (3, 4)])
@pytest.mark.parametrize("name", MANY)
def test_several_axes(name, s, norm):
    re, im = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    x = re if name.startswith("rfft") else re + 1j * im
    axes = None if s is None and name.endswith("n") else (0, 1)
    want = getattr(np.fft, name)(x, s, axes, norm)
    got = getattr(anp.fft, name)(ng.tensor(x), s, axes, norm)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-13)
    assert_gradients(weighed(name, re.shape, s=s, axes=axes, norm=norm), re, im, order=1)


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft"])
def test_second_derivative_and_forward_mode(name):
    re, im = RNG.normal(size=5), RNG.normal(size=5)
    assert_gradients(weighed(name, re.shape), re, im, order=2)
    x = ng.tensor(re) if name == "rfft" else ng.tensor(re + 1j * im)
    f = getattr(anp.fft, name)
    _, pushed = ng.jvp(f, (x,), (x * 0.5,))
    np.testing.assert_allclose(np.asarray(pushed), np.asarray(f(x)) * 0.5, rtol=1e-12)


def test_power_spectrum_of_float32_keeps_the_precision():
    x = ng.tensor(RNG.normal(size=8).astype(np.float32), requires_grad=True)
    (abs(anp.fft.rfft(x)) ** 2).sum().backward()
    assert x.grad.dtype == np.float32


@pytest.mark.parametrize("shape", [(4,), (5,), (3, 4)])
def test_shifts(shape):
    x = RNG.normal(size=shape)
    for name in ("fftshift", "ifftshift"):
        np.testing.assert_array_equal(np.asarray(getattr(anp.fft, name)(ng.tensor(x))), getattr(np.fft, name)(x))
        assert_gradients(getattr(anp.fft, name), x)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: anp.fft.fft(x, n=0), ValueError),
        (lambda x: anp.fft.fft(x, axis=3), np.exceptions.AxisError),
        (lambda x: anp.fft.fft(x, norm="half"), ValueError),
        (lambda x: anp.fft.rfft(x * 1j), TypeError),
        (lambda x: anp.fft.fftn(x, s=(2,), axes=(0, 1)), (ValueError, np.exceptions.AxisError)),
    ],
)
def test_bad_input(call, error):
    with pytest.raises(error):
        call(ng.tensor(np.ones(4), requires_grad=True))


def test_plain_arrays_stay_plain():
    assert isinstance(anp.fft.fft(np.ones(4)), np.ndarray)
    np.testing.assert_array_equal(anp.fft.fftfreq(4), np.fft.fftfreq(4))
