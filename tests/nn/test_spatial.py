"""Layers over space: torch's values and gradients from torch's parameters; a small net learns."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn import functional as F

RNG = np.random.default_rng(0)
LINE, IMAGE, BODY = RNG.normal(size=(2, 4, 9)), RNG.normal(size=(2, 4, 6, 7)), RNG.normal(size=(1, 2, 4, 5, 4))

LAYERS = {
    "Conv1d": (lambda nn: nn.Conv1d(4, 3, 3, stride=2, padding=1), LINE),
    "Conv2d": (lambda nn: nn.Conv2d(4, 6, (3, 2), padding="valid", groups=2), IMAGE),
    "Conv2d without bias": (lambda nn: nn.Conv2d(4, 6, 3, padding="same", bias=False), IMAGE),
    "Conv2d of one image": (lambda nn: nn.Conv2d(4, 6, 3, dilation=2), IMAGE[0]),
    "Conv3d": (lambda nn: nn.Conv3d(2, 3, 2), BODY),
    "MaxPool1d": (lambda nn: nn.MaxPool1d(3, 2), LINE),
    "MaxPool2d": (lambda nn: nn.MaxPool2d(3, 2, 1), IMAGE),
    "MaxPool2d of one image": (lambda nn: nn.MaxPool2d(2), IMAGE[0]),
    "MaxPool3d": (lambda nn: nn.MaxPool3d(2), BODY),
    "AvgPool1d": (lambda nn: nn.AvgPool1d(3, 2), LINE),
    "AvgPool2d": (lambda nn: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "AvgPool3d": (lambda nn: nn.AvgPool3d(2, padding=1), BODY),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_over_space_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    make, array = LAYERS[name]
    layer, other = make(nn), make(torch.nn).double()
    layer.load_state_dict({k: v.numpy() for k, v in other.state_dict().items()})
    x, z = ng.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    y, wanted = layer(x), other(z)
    np.testing.assert_allclose(y.detach().numpy(), wanted.detach().numpy(), atol=1e-12)
    (y**2).sum().backward()
    (wanted**2).sum().backward()
    pairs = zip([x, *layer.parameters()], [z, *other.parameters()], strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), atol=1e-11)


def test_initial_values_have_the_bounds_of_torch():
    np.random.seed(0)  # noqa: NPY002
    layer = nn.Conv2d(4, 50, 3)
    for p in layer.parameters():
        largest = np.abs(p.detach().numpy()).max()
        assert 0.9 / 6 < largest <= 1 / 6


def test_a_net_learns_where_lines_run():
    np.random.seed(0)  # noqa: NPY002
    images = np.zeros((32, 1, 8, 8))
    for k in range(16):
        images[k, 0, k % 8] = images[16 + k, 0, :, k % 8] = 1
    upright = np.repeat([0, 1], 16)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 2))
    optimizer = ng.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(images), upright).backward()
        optimizer.step()
    assert (model(images).detach().numpy().argmax(1) == upright).all()


def test_channels_and_axes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="divisible by groups"):
        nn.Conv2d(4, 6, 3, groups=3)
    with pytest.raises(ValueError, match="Expected 3D"):
        nn.Conv2d(4, 6, 3)(LINE[0])
    with pytest.raises(ValueError, match="takes 4 channels"):
        nn.Conv2d(4, 6, 3)(IMAGE[:, :2])
