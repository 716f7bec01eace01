"""The same program in numbagrad and in PyTorch: what a test asserts of both is PyTorch's meaning."""

from types import SimpleNamespace

import numpy as np
import pytest

import numbagrad as ng


def _numbagrad():
    return SimpleNamespace(
        name="numbagrad",
        autograd=ng.autograd,
        const=lambda data: ng.tensor(np.array(data, float)),
        leaf=lambda data: ng.tensor(np.array(data, float), requires_grad=True),
        values=lambda t: np.asarray(t.detach()),
        no_grad=ng.no_grad,
        enable_grad=ng.enable_grad,
        is_grad_enabled=ng.is_grad_enabled,
        inference_mode=ng.inference_mode,
        exp=ng.exp,
        sin=ng.sin,
        cos=ng.cos,
        reshape=lambda t, *shape: t.reshape(shape),
        Tensor=ng.Tensor,
    )


def _torch():
    torch = pytest.importorskip("torch")
    return SimpleNamespace(
        name="torch",
        autograd=torch.autograd,
        const=lambda data: torch.tensor(np.array(data, float)),
        leaf=lambda data: torch.tensor(np.array(data, float), requires_grad=True),
        values=lambda t: t.detach().numpy(),
        no_grad=torch.no_grad,
        enable_grad=torch.enable_grad,
        is_grad_enabled=torch.is_grad_enabled,
        inference_mode=torch.inference_mode,
        exp=torch.exp,
        sin=torch.sin,
        cos=torch.cos,
        reshape=lambda t, *shape: t.view(*shape),
        Tensor=torch.Tensor,
    )


LIBRARIES = {"numbagrad": _numbagrad, "torch": _torch}


@pytest.fixture(params=list(LIBRARIES))
def lib(request):
    return LIBRARIES[request.param]()


def same(lib, got, want):
    """`got`, of either library, has the values `want`."""
    np.testing.assert_allclose(lib.values(got), want, rtol=1e-12, atol=0)
