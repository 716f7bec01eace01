"""Modules: torch's values and gradients from torch's parameters, and the rules of Module."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn import functional as F

RNG = np.random.default_rng(0)
X, IMAGE = RNG.normal(size=(6, 4)), RNG.normal(size=(3, 4, 5, 2))
CLASSES, PLACES = np.array([0, 3, 1, 1, 2, 0]), RNG.integers(0, 4, (3, 5, 2))
SHARES = RNG.dirichlet(np.ones(4), 6)
WEIGHT = np.array([0.5, 1.0, 2.0, 0.25])
HALVES = RNG.uniform(0.1, 0.9, (6, 4))

LAYERS = {
    "Linear": (lambda nn: nn.Linear(4, 3), [X]),
    "Linear without bias": (lambda nn: nn.Linear(4, 3, bias=False), [X]),
    "Linear of one": (lambda nn: nn.Linear(4, 3), [X[0]]),
    "Bilinear": (lambda nn: nn.Bilinear(4, 2, 3), [X, X[:, :2].copy()]),
    "LayerNorm": (lambda nn: nn.LayerNorm(4), [X]),
    "LayerNorm of two axes": (lambda nn: nn.LayerNorm((5, 2), eps=1e-3), [IMAGE]),
    "LayerNorm plain": (lambda nn: nn.LayerNorm(4, elementwise_affine=False), [X]),
    "RMSNorm": (lambda nn: nn.RMSNorm(4), [X]),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), [IMAGE]),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(4), [X]),
    "BatchNorm1d of three": (lambda nn: nn.BatchNorm1d(4, momentum=None), [IMAGE[..., 0].copy()]),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(4), [IMAGE]),
    "BatchNorm2d evaluating": (lambda nn: nn.BatchNorm2d(4).eval(), [IMAGE]),
    "BatchNorm2d untracked": (lambda nn: nn.BatchNorm2d(4, track_running_stats=False).eval(), [IMAGE]),
    "PReLU": (lambda nn: nn.PReLU(), [X]),
    "PReLU by channel": (lambda nn: nn.PReLU(4), [IMAGE]),
    "Sequential": (lambda nn: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), [X]),
    "Flatten": (lambda nn: nn.Sequential(nn.Flatten(), nn.Linear(40, 2)), [IMAGE]),
    **{
        name: (lambda nn, name=name: getattr(nn, name)(), [X])
        for name in [
            "ReLU",
            "ReLU6",
            "Hardtanh",
            "LeakyReLU",
            "ELU",
            "SELU",
            "GELU",
            "SiLU",
            "Mish",
            "Sigmoid",
            "LogSigmoid",
            "Tanh",
            "Softplus",
            "Softsign",
        ]
    },
    "GELU by tanh": (lambda nn: nn.GELU(approximate="tanh"), [X]),
    "ELU of alpha": (lambda nn: nn.ELU(alpha=0.5), [X]),
    "Softplus of beta": (lambda nn: nn.Softplus(beta=3.0, threshold=2.0), [X]),
    "Softmax": (lambda nn: nn.Softmax(dim=1), [IMAGE]),
    "LogSoftmax": (lambda nn: nn.LogSoftmax(dim=1), [IMAGE]),
}


def tensors(torch, arrays):
    ours = [ng.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    theirs = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    return ours, theirs


def compare(ours, theirs, rtol=1e-9):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=rtol, atol=1e-12)


def compare_backward(torch, out, wanted, ours, theirs):
    compare(out, wanted)
    seed = RNG.normal(size=out.shape)
    out.backward(seed)
    wanted.backward(torch.tensor(seed))
    for a, b in zip(ours, theirs, strict=True):
        if b.requires_grad and b.grad is not None:
            compare(a.grad, b.grad)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_as_torch(name):
    torch = pytest.importorskip("torch")
    make, arrays = LAYERS[name]
    layer, other = make(nn), make(torch.nn).double()
    for p in other.parameters():
        p.data.uniform_(-1, 1)
    layer.load_state_dict({k: v.numpy() for k, v in other.state_dict().items()})
    assert list(layer.state_dict()) == list(other.state_dict())
    for _ in range(2):
        ours, theirs = tensors(torch, arrays)
        layer.zero_grad()
        other.zero_grad()
        compare_backward(torch, layer(*ours), other(*theirs), ours, theirs)
    for (n, p), (m, q) in zip(layer.named_parameters(), other.named_parameters(), strict=True):
        assert n == m
        compare(p.grad, q.grad)
    for b, c in zip(layer.buffers(), other.buffers(), strict=True):
        compare(b, c)


LOSSES = {
    "MSELoss": ({}, X, HALVES),
    "L1Loss": ({}, X, HALVES),
    "HuberLoss": ({"delta": 0.7}, X, HALVES),
    "SmoothL1Loss": ({"beta": 0.4}, X, HALVES),
    "BCELoss": ({}, HALVES, SHARES),
    "BCEWithLogitsLoss": ({}, X, SHARES),
    "BCEWithLogitsLoss weighted": ({"pos_weight": WEIGHT}, X, SHARES),
    "NLLLoss": ({}, np.log(SHARES), CLASSES),
    "NLLLoss weighted": ({"weight": WEIGHT, "ignore_index": 1}, np.log(SHARES), CLASSES),
    "CrossEntropyLoss": ({}, X, CLASSES),
    "CrossEntropyLoss of images": ({"ignore_index": 2}, IMAGE, PLACES),
    "CrossEntropyLoss weighted": ({"weight": WEIGHT}, X, CLASSES),
    "CrossEntropyLoss smooth": ({"label_smoothing": 0.2, "weight": WEIGHT, "ignore_index": 3}, X, CLASSES),
    "CrossEntropyLoss of shares": ({"label_smoothing": 0.1}, X, SHARES),
    "CrossEntropyLoss of one": ({}, X[0], np.array(2)),
    "KLDivLoss": ({}, np.log(SHARES), SHARES[::-1].copy()),
    "KLDivLoss of logs": ({"log_target": True}, np.log(SHARES), np.log(SHARES[::-1])),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
def test_losses_as_torch(name, reduction):
    torch = pytest.importorskip("torch")
    options, x, target = LOSSES[name]
    kind = name.split()[0]
    given = dict(options.items())
    theirs_given = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    ours, theirs = tensors(torch, [x, target.copy()])
    loss = getattr(nn, kind)(reduction=reduction, **given)(*ours)
    other = getattr(torch.nn, kind)(reduction=reduction, **theirs_given)(*theirs)
    compare_backward(torch, loss, other, ours, theirs)


def test_embedding_as_torch():
    torch = pytest.importorskip("torch")
    layer, other = nn.Embedding(5, 3, padding_idx=1), torch.nn.Embedding(5, 3, padding_idx=1).double()
    layer.load_state_dict({k: v.numpy() for k, v in other.state_dict().items()})
    rows = np.array([[0, 1, 4], [4, 1, 2]])
    compare_backward(torch, layer(rows), other(torch.tensor(rows)), list(layer.parameters()), list(other.parameters()))
    with pytest.raises(IndexError, match="rows are 0 to 4"):
        layer(np.array([5]))


@pytest.mark.parametrize("name", ["xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_"])
def test_initial_values_have_torchs_spread(name):
    torch = pytest.importorskip("torch")
    np.random.seed(0)  # noqa: NPY002 - what modules draw from
    torch.manual_seed(0)
    ours, theirs = ng.zeros((300, 200)), torch.zeros(300, 200)
    getattr(nn.init, name)(ours)
    getattr(torch.nn.init, name)(theirs)
    assert ours.numpy().std() == pytest.approx(theirs.std().item(), rel=0.02)
    assert abs(ours.numpy()).max() == pytest.approx(theirs.abs().max().item(), rel=0.15)


def test_orthogonal_values():
    w = nn.init.orthogonal_(ng.zeros((3, 5)), 2.0).numpy()
    np.testing.assert_allclose(w @ w.T, 4 * np.eye(3), atol=1e-12)
    t = nn.init.trunc_normal_(ng.zeros((50, 50)), 0.0, 2.0, -1.0, 1.0).numpy()
    assert abs(t).max() <= 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.list = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.scale = nn.Parameter(2.0)
        self.register_buffer("seen", ng.tensor(0.0))
        self.register_buffer("scratch", ng.tensor(0.0), persistent=False)

    def forward(self, x):
        x = self.first(x)
        for layer in self.list:
            x = layer(x)
        return x * self.scale


NAMES = ["scale", "first.weight", "first.bias", "list.0.weight", "list.0.bias"]


def test_names_children_and_state():
    model = Model()
    assert [n for n, _ in model.named_parameters()] == NAMES
    assert [n for n, _ in model.named_modules()] == ["", "first", "list", "list.0", "list.1"]
    assert [n for n, _ in model.named_children()] == ["first", "list"]
    assert [n for n, _ in model.named_buffers()] == ["seen", "scratch"]
    assert list(model.state_dict()) == ["scale", "seen", *NAMES[1:]]
    assert model.get_submodule("list.0") is model.list[0]
    assert model.get_parameter("first.bias") is model.first.bias
    assert all(isinstance(p, nn.Parameter) and type(p) is ng.Tensor for p in model.parameters())


def test_repr_is_torchs():
    torch = pytest.importorskip("torch")

    def make(nn):
        return nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.Sequential(nn.Dropout(0.25), nn.Tanh())))

    assert repr(make(nn)) == repr(make(torch.nn)).replace(", inplace=False", "")


def test_loading_is_strict_and_all_or_nothing():
    model, other = Model(), Model()
    state = other.state_dict()
    before = model.first.weight.detach().numpy().copy()
    with pytest.raises(RuntimeError, match="Unexpected key"):
        model.load_state_dict({**{k: v for k, v in state.items() if k != "scale"}, "more": np.ones(2)})
    with pytest.raises(RuntimeError, match="size mismatch for scale"):
        model.load_state_dict({**state, "scale": np.ones(2)})
    np.testing.assert_array_equal(model.first.weight.detach().numpy(), before)
    result = model.load_state_dict({"scale": np.array(5.0), "more": 1}, strict=False)
    assert result.unexpected_keys == ["more"]
    assert "seen" in result.missing_keys
    assert model.scale.item() == 5.0
    assert repr(model.load_state_dict(state)) == "<All keys matched successfully>"
    np.testing.assert_array_equal(model(X).detach().numpy(), other(X).detach().numpy())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_apart(copied):
    model = Model().eval()
    again = copied(model)
    assert not again.training
    assert [n for n, _ in again.named_parameters()] == NAMES
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in again.parameters())
    np.testing.assert_array_equal(again(X).detach().numpy(), model(X).detach().numpy())
    with ng.no_grad():
        again.scale += 1
    assert model.scale.item() == 2.0


def test_modes_dtypes_and_freezing():
    model = Model()
    assert model.train(False) is model
    assert not model.list[1].training
    assert model.train().list[1].training
    model(X).sum().backward()
    assert model.float().scale.dtype == np.float32
    assert model.scale.grad.dtype == np.float32
    assert model.seen.dtype == np.float32
    assert model(X.astype(np.float32)).dtype == np.float32
    model.requires_grad_(False)
    assert not model(X.astype(np.float32)).requires_grad
    model.zero_grad()
    assert model.scale.grad is None
    with pytest.raises(TypeError, match="floating or complex"):
        model.to(np.int64)


def test_attributes_go_where_they_belong():
    model = Model()
    with pytest.raises(TypeError, match="cannot assign int as parameter 'scale'"):
        model.scale = 3
    model.scale = None
    assert "scale" not in dict(model.named_parameters())
    model.first = nn.Identity()
    assert isinstance(model.first, nn.Identity)
    del model.first
    with pytest.raises(AttributeError, match="no attribute 'first'"):
        model.first
    with pytest.raises(KeyError, match="without dots"):
        model.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="already exists"):
        model.register_buffer("forward", None)

    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.Identity()

    with pytest.raises(AttributeError, match="before Module"):
        Early()
    with pytest.raises(NotImplementedError, match="missing the required"):
        nn.Module()(1)


def test_hooks_see_and_replace():
    model, seen = nn.Linear(4, 2), []
    pre = model.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    post = model.register_forward_hook(lambda m, args, out: seen.append(out.shape) or out + 1)
    np.testing.assert_allclose(model(X).detach().numpy(), np.broadcast_to(model.bias.detach().numpy() + 1, (6, 2)))
    pre.remove()
    post.remove()
    assert seen == [(6, 2)]
    np.testing.assert_allclose(model(X).detach().numpy(), F.linear(X, model.weight, model.bias).detach().numpy())


def test_shared_parameters_count_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert len(list(model.parameters())) == 3
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_containers():
    parts = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.ReLU()})
    assert list(parts) == ["a", "b"]
    assert "a" in parts
    values = nn.ParameterList([np.ones(2), nn.Parameter(3.0)])
    assert [n for n, _ in values.named_parameters()] == ["0", "1"]
    named = nn.ParameterDict({"x": np.ones(2)})
    assert named["x"].requires_grad
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(model[:2]) == 2
    assert len(model.append(nn.Tanh())) == 4


def test_dropout_keeps_the_mean_and_passes_when_evaluating():
    np.random.seed(0)  # noqa: NPY002 - what modules draw from
    layer = nn.Dropout(0.25)
    x = ng.tensor(np.ones((200, 200)), requires_grad=True)
    y = layer(x)
    assert set(np.unique(y.detach().numpy())) == {0.0, 1 / 0.75}
    assert y.detach().numpy().mean() == pytest.approx(1, abs=0.02)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    assert layer.eval()(x) is x
    np.testing.assert_array_equal(F.dropout(x, 1.0).detach().numpy(), np.zeros((200, 200)))
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


def test_clipping_as_torch():
    torch = pytest.importorskip("torch")
    ours = [nn.Parameter(X), nn.Parameter(WEIGHT)]
    theirs = [torch.nn.Parameter(torch.tensor(a)) for a in (X, WEIGHT)]
    for norm in (2.0, 1.0, float("inf")):
        for params, lib in ((ours, ng), (theirs, torch)):
            for p in params:
                p.grad = lib.tensor(p.detach().numpy() * 3)
        a = nn.utils.clip_grad_norm_(ours, 0.5, norm)
        b = torch.nn.utils.clip_grad_norm_(theirs, 0.5, norm)
        assert a.item() == pytest.approx(b.item())
        for p, q in zip(ours, theirs, strict=True):
            compare(p.grad, q.grad)
    nn.utils.clip_grad_value_(ours, 0.01)
    assert max(abs(p.grad.numpy()).max() for p in ours) == 0.01
    ours[0].grad = ng.tensor(np.full_like(X, np.nan))
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)


def test_parameters_as_a_vector():
    model = nn.Linear(4, 3)
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert vector.shape == (15,)
    nn.utils.vector_to_parameters(ng.tensor(np.arange(15.0)), model.parameters())
    np.testing.assert_array_equal(model.bias.detach().numpy(), [12, 13, 14])
    with pytest.raises(ValueError, match="15 items"):
        nn.utils.vector_to_parameters(ng.zeros(3), model.parameters())


def test_bad_input_to_losses():
    with pytest.raises(IndexError, match="Target 4 is out of bounds: there are 4 classes"):
        F.cross_entropy(X, np.array([0, 1, 2, 3, 4, 0]))
    with pytest.raises(ValueError, match=r"integer classes of shape \(6,\)"):
        F.nll_loss(X, np.array([[0]]))
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        nn.MSELoss(reduction="max")
    with pytest.raises(TypeError, match="MSELoss takes 2 tensors, got 1"):
        nn.MSELoss()(X)
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.BatchNorm2d(4)(X)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        nn.LayerNorm(3)(X)


def test_training_a_small_model_reaches_its_target():
    np.random.seed(1)  # noqa: NPY002 - what modules draw from
    x = np.random.default_rng(5).uniform(-1, 1, (64, 2))
    y = np.sin(3 * x[:, :1]) * x[:, 1:]
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = ng.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(600):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.01 * np.mean(y * y)
