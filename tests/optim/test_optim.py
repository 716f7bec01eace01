"""Optimisers: the trajectories of torch.optim, one kernel a step, state that can be saved."""

import copy
import pickle

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.jit.compile import stats
from numbagrad.optim import lr_scheduler

W, B = np.random.default_rng(0).normal(size=(4, 3)), np.random.default_rng(1).normal(size=3)
X = np.random.default_rng(2).normal(size=(5, 4))

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 0.01, "maximize": True, "eps": 1e-4}),
    ("AdamW", {"lr": 0.1}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "amsgrad": True}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.02}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.02}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.02}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"lr": 1.0, "weight_decay": 0.01}),
    ("Rprop", {"lr": 0.01}),
]
ids = [f"{name}-{k}" for k, (name, _) in enumerate(CASES)]


def ours(dtype="float64"):
    return [ng.tensor(v.astype(dtype), requires_grad=True) for v in (W, B)]


def loss_of(lib, x, w, b):
    return ((x @ w + b) ** 2).mean() + lib.sin(w).sum() * 0.1


def train(optimizer, params, steps):
    x = ng.tensor(X.astype(params[0].dtype))
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(ng, x, *params).backward()
        optimizer.step()


@pytest.mark.parametrize(("name", "options"), CASES, ids=ids)
def test_fifty_steps_as_torch(name, options):
    torch = pytest.importorskip("torch")
    params = ours()
    train(getattr(ng.optim, name)(params, **options), params, 50)
    theirs = [torch.tensor(v, requires_grad=True) for v in (W, B)]
    optimizer = getattr(torch.optim, name)(theirs, **options)
    for _ in range(50):
        optimizer.zero_grad()
        loss_of(torch, torch.tensor(X), *theirs).backward()
        optimizer.step()
    # torch keeps the product of NAdam's momenta in float32.
    rtol = 1e-5 if name == "NAdam" else 1e-9
    for got, wanted in zip(params, theirs, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), wanted.detach().numpy(), rtol=rtol, atol=rtol / 100)


@pytest.mark.parametrize(("name", "options"), CASES[:1] + CASES[4:6] + CASES[13:14], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_dtypes_and_the_reference_backend(name, options, dtype):
    found = []
    for backend in ("cpu", "reference"):
        with ng.use_backend(backend):
            params = ours(dtype)
            train(getattr(ng.optim, name)(params, **options), params, 3)
            assert params[0].dtype == dtype
            found.append(params[0].detach().numpy())
    np.testing.assert_allclose(
        *found, rtol=2e-2 if dtype == "float16" else 1e-5, atol=1e-3 if dtype == "float16" else 1e-6
    )


def test_a_strided_parameter():
    memory = np.array(np.broadcast_to(W[:, ::-1], (4, 3)))
    params = [ng.tensor(np.asfortranarray(W), requires_grad=True), ng.tensor(B, requires_grad=True)]
    params[0]._data = np.asfortranarray(W)
    usual = ours()
    for group in (params, usual):
        train(ng.optim.Adam(group, lr=0.1), group, 3)
    np.testing.assert_allclose(params[0].detach().numpy(), usual[0].detach().numpy(), rtol=1e-12)
    assert memory.shape == (4, 3)


def test_a_step_compiles_nothing_more_and_counts_a_write():
    params = ours()
    optimizer = ng.optim.Adam(params, lr=0.1)
    train(optimizer, params, 3)
    before, version = stats().kernels_compiled, params[0]._version
    train(optimizer, params, 3)
    assert stats().kernels_compiled == before
    assert params[0]._version == version + 3


def test_a_graph_that_saved_the_old_values_is_refused():
    (w,) = params = [ng.tensor(W, requires_grad=True)]
    optimizer = ng.optim.SGD(params, lr=0.1)
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_groups_with_options_of_their_own():
    w, b = ours()
    optimizer = ng.optim.SGD([{"params": [w]}, {"params": b, "lr": 0.0}], lr=0.1)
    train(optimizer, [w, b], 2)
    assert not np.array_equal(w.detach().numpy(), W)
    np.testing.assert_array_equal(b.detach().numpy(), B)
    assert "Parameter Group 1" in repr(optimizer)
    optimizer.add_param_group({"params": [ng.tensor(1.0, requires_grad=True)], "momentum": 0.5})
    assert optimizer.param_groups[2]["lr"] == 0.1


def test_parameters_without_gradient_stay():
    w, b = ours()
    optimizer = ng.optim.Adam([w, b], lr=0.1)
    (w * w).sum().backward()
    optimizer.step()
    np.testing.assert_array_equal(b.detach().numpy(), B)
    assert b not in optimizer.state


@pytest.mark.parametrize("copied", [lambda s: s, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_going_on_from_a_saved_state(copied):
    params = ours()
    optimizer = ng.optim.Adam(params, lr=0.1, amsgrad=True)
    train(optimizer, params, 5)
    again = [ng.tensor(p.detach().numpy(), requires_grad=True) for p in params]
    other = ng.optim.Adam(again, lr=0.5, amsgrad=True)
    other.load_state_dict(copied(optimizer.state_dict()))
    assert other.param_groups[0]["lr"] == 0.1
    train(optimizer, params, 5)
    train(other, again, 5)
    for p, q in zip(params, again, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_zero_grad_closure_and_hooks():
    (w,) = params = [ng.tensor(W, requires_grad=True)]
    optimizer = ng.optim.SGD(params, lr=0.1)
    seen = []
    handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))

    def closure():
        optimizer.zero_grad(set_to_none=False)
        loss = (w * w).sum()
        loss.backward()
        return loss

    with ng.no_grad():
        assert optimizer.step(closure).item() == pytest.approx((W**2).sum())
    handle.remove()
    optimizer.step()
    assert seen == ["before", "after", "after"]
    np.testing.assert_allclose(w.detach().numpy(), W - 0.4 * W)
    optimizer.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(w.grad.numpy(), np.zeros_like(W))
    optimizer.zero_grad()
    assert w.grad is None


def test_bad_input():
    w = ng.tensor(W, requires_grad=True)
    with pytest.raises(TypeError, match="put it into a list"):
        ng.optim.SGD(w, lr=0.1)
    with pytest.raises(ValueError, match="empty parameter list"):
        ng.optim.SGD([], lr=0.1)
    with pytest.raises(TypeError, match="one of the params is float"):
        ng.optim.SGD([1.0], lr=0.1)
    with pytest.raises(ValueError, match="non-leaf"):
        ng.optim.SGD([w * 2], lr=0.1)
    with pytest.raises(ValueError, match="twice in one"):
        ng.optim.SGD([w, w], lr=0.1)
    with pytest.raises(ValueError, match="Invalid lr: -1"):
        ng.optim.Adam([w], lr=-1)
    with pytest.raises(ValueError, match="Invalid beta parameter at index 1: 1"):
        ng.optim.Adam([w], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="Nesterov"):
        ng.optim.SGD([w], nesterov=True)
    optimizer = ng.optim.SGD([w], lr=0.1)
    with pytest.raises(ValueError, match=r"\d against \d"):
        optimizer.load_state_dict(ng.optim.SGD(ours(), lr=0.3).state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1


SCHEDULES = {
    "LambdaLR": lambda m, o: m.LambdaLR(o, lambda e: 0.95**e),
    "MultiplicativeLR": lambda m, o: m.MultiplicativeLR(o, lambda e: 0.9),
    "StepLR": lambda m, o: m.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda m, o: m.MultiStepLR(o, [2, 5, 5], 0.5),
    "ConstantLR": lambda m, o: m.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda m, o: m.LinearLR(o, 0.25, 0.75, 6),
    "ExponentialLR": lambda m, o: m.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda m, o: m.PolynomialLR(o, 8, 2.0),
    "CosineAnnealingLR": lambda m, o: m.CosineAnnealingLR(o, 7, 0.01),
    "CosineAnnealingWarmRestarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "OneCycleLR": lambda m, o: m.OneCycleLR(o, 0.5, 20),
    "OneCycleLR linear": lambda m, o: m.OneCycleLR(o, 0.5, epochs=5, steps_per_epoch=4, anneal_strategy="linear"),
    "SequentialLR": lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1, 1.0, 4), m.ExponentialLR(o, 0.9)], [4]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_as_torch(name):
    torch = pytest.importorskip("torch")
    optimizers = [
        ng.optim.SGD([ng.tensor(W, requires_grad=True)], lr=0.2, momentum=0.9),
        torch.optim.SGD([torch.tensor(W, requires_grad=True)], lr=0.2, momentum=0.9),
    ]
    modules = (lr_scheduler, torch.optim.lr_scheduler)
    schedules = [SCHEDULES[name](m, o) for m, o in zip(modules, optimizers, strict=True)]
    for _ in range(18):
        groups = [o.param_groups[0] for o in optimizers]
        assert groups[0]["lr"] == pytest.approx(groups[1]["lr"], rel=1e-12)
        assert groups[0]["momentum"] == pytest.approx(groups[1]["momentum"], rel=1e-12)
        for o, s in zip(optimizers, schedules, strict=True):
            o.step()
            s.step()
    assert schedules[0].get_last_lr() == pytest.approx(schedules[1].get_last_lr())


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateaus_as_torch(mode, threshold_mode):
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(3).normal(size=40) + np.linspace(3, 0, 40)
    found = []
    for lib, module in ((ng, lr_scheduler), (torch, torch.optim.lr_scheduler)):
        optimizer = lib.optim.SGD([lib.tensor([1.0], requires_grad=True)], lr=1.0)
        schedule = module.ReduceLROnPlateau(
            optimizer, mode, 0.5, 2, threshold=0.05, threshold_mode=threshold_mode, cooldown=1, min_lr=0.01
        )
        rates = []
        for v in values:
            schedule.step(v)
            rates.append(optimizer.param_groups[0]["lr"])
        found.append(rates)
    assert found[0] == found[1]


def test_a_schedule_goes_on_from_its_state():
    optimizer = ng.optim.SGD([ng.tensor(W, requires_grad=True)], lr=0.2)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 7)
    for _ in range(3):
        schedule.step()
    saved = schedule.state_dict()
    schedule.step()
    wanted = schedule.get_last_lr()
    again = lr_scheduler.CosineAnnealingLR(ng.optim.SGD([ng.tensor(W, requires_grad=True)], lr=0.2), 7)
    again.load_state_dict(saved)
    again.step()
    assert again.get_last_lr() == wanted
