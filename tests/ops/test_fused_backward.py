"""Backward passes that come back run fused, and nobody can tell from the results."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import numbagrad as ng
from numbagrad.jit import memory
from numbagrad.jit.compile import stats
from numbagrad.ops import fused_backward

SHAPE = (3, 7001)
"""Large enough to leave the fast path."""


@pytest.fixture(autouse=True)
def _cpu():
    with ng.use_backend("cpu"):
        fused_backward.forget()
        yield
        fused_backward.forget()


@pytest.fixture
def fused(monkeypatch):
    """How many nodes each fused kernel stood for, in order."""
    counts = []
    run = fused_backward._Fused.__call__

    def counted(self, walk):
        counts.append(len(walk.nodes))
        run(self, walk)

    monkeypatch.setattr(fused_backward._Fused, "__call__", counted)
    return counts


def array(seed, shape=SHAPE, dtype="float64"):
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(dtype)


def leaves(count, dtype="float64"):
    return [ng.tensor(array(k, dtype=dtype), requires_grad=True) for k in range(count)]


def gradients(program, inputs, times=1):
    """The gradients of each of `times` runs."""
    found = []
    for _ in range(times):
        for x in inputs:
            x.grad = None
        program(*inputs).backward()
        found.append([None if x.grad is None else x.grad.numpy().copy() for x in inputs])
    return found


def assert_same_with_and_without(program, inputs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(fused_backward, "enabled", False)
        (plain,) = gradients(program, inputs)
    for run in gradients(program, inputs, times=fused_backward.SIGHTINGS + 1):
        for got, wanted in zip(run, plain, strict=True):
            np.testing.assert_array_equal(got, wanted)


def black_scholes(s, k, t, v):
    spread = v * ng.sqrt(t)
    d1 = (ng.log(s / k) + 0.5 * v * v * t) / spread
    d2 = d1 - spread
    return (s * ng.erf(d1) - k * ng.exp(-0.1 * t) * ng.erf(d2)).sum()


PROGRAMS = {
    "chain": lambda x, y: ng.tanh(ng.exp(x) * y).sum(),
    "leaf used often": lambda x, y: (x * x * y + ng.sin(x) - x / y).sum(),
    "mask": lambda x, y: ng.where(x > 1, ng.log(x) * y, ng.sqrt(y)).sum(),
    "nan not taken": lambda x, y: ng.where(x > 1, ng.log(x - 1) * 3.0, y * x).sum(),
    "clip and ties": lambda x, y: (ng.maximum(x, y) * ng.clip(x, 0.75, 1.25) + abs(y)).sum(),
    "sum goes twice": lambda x, y: (lambda z: (z * z).sum() + (z * 2.0).mean())(ng.tanh(x * y)),
    "row": lambda x, y: ng.tanh(ng.exp(x + y[:1]) * 2.0 + 1.0).sum(),
    "column factor": lambda x, y: (ng.tanh(x * y[:, :1]) * x * y).sum(),
    "transposes": lambda x, y: (ng.tanh(x.T * y.T) * x.T).sum(),
    "reduction between": lambda x, y: (lambda e: (e / e.sum(axis=1, keepdims=True) * y).sum())(ng.exp(x)),
    "only passes": lambda x, y: (x + y + x).sum(),
    "integers and numbers": lambda x, y: ((2 * x - 1) ** 3 / (4.0 + y)).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_the_same_bits(name, monkeypatch):
    assert_same_with_and_without(PROGRAMS[name], leaves(2), monkeypatch)


@pytest.mark.parametrize("name", ["mask", "row", "integers and numbers"])
def test_single_precision_gives_the_same_bits(name, monkeypatch):
    assert_same_with_and_without(PROGRAMS[name], leaves(2, "float32"), monkeypatch)


STEPS = {
    "exp": lambda a, b: ng.exp(-abs(a)),
    "tanh": lambda a, b: ng.tanh(a),
    "sqrt": lambda a, b: ng.sqrt(abs(a) + 0.5),
    "multiply": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "divide": lambda a, b: a / (b * b + 1.0),
    "maximum": lambda a, b: ng.maximum(a, b),
    "number": lambda a, b: 1.5 * a,
    "row": lambda a, b: a + b[:1],
    "detach": lambda a, b: a * b.detach(),
}


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=9)
)
def test_random_programs_give_the_same_bits(steps):
    def program(*inputs):
        values = list(inputs)
        for name, i, j in steps:
            values.append(STEPS[name](values[i % len(values)], values[j % len(values)]))
        return (values[-1] * values[-2]).sum()

    with pytest.MonkeyPatch.context() as patch:
        assert_same_with_and_without(program, leaves(2), patch)


def test_a_whole_tape_of_elementwise_ops_is_one_kernel(fused):
    gradients(black_scholes, leaves(4), times=5)
    assert fused == [18, 18, 18]


def test_from_the_fourth_step_on_nothing_is_compiled():
    inputs = leaves(4)
    gradients(black_scholes, inputs, times=3)
    before = stats().kernels_compiled
    gradients(black_scholes, inputs, times=3)
    assert stats().kernels_compiled == before


def test_other_sizes_share_the_kernel(fused):
    gradients(black_scholes, leaves(4), times=3)
    before = stats().kernels_compiled
    others = [ng.tensor(array(k, (20_011,)), requires_grad=True) for k in range(4)]
    gradients(black_scholes, others)
    assert len(fused) == 2
    assert stats().kernels_compiled == before


def test_no_gradient_between_the_nodes_takes_memory(monkeypatch):
    inputs = leaves(4)
    gradients(black_scholes, inputs, times=3)
    loss = black_scholes(*inputs)
    for x in inputs:
        x.grad = None
    made = []
    empty = memory.empty
    monkeypatch.setattr(memory, "empty", lambda shape, dtype: made.append(shape) or empty(shape, dtype))
    loss.backward()
    assert made == [SHAPE] * 4


def test_a_hook_sees_its_gradient_and_may_replace_it(fused):
    def program(x, y, seen):
        z = ng.exp(x) * y
        z.register_hook(lambda g: seen.append(g.numpy().copy()) or g * 2)
        return (ng.tanh(z) * z).sum()

    x, y = leaves(2)
    for _ in range(4):
        x.grad = y.grad = None
        seen = []
        program(x, y, seen).backward()
    a, b = (v.detach().numpy() for v in (x, y))
    z = np.exp(a) * b
    by_z = np.tanh(z) + z * (1 - np.tanh(z) ** 2)
    np.testing.assert_allclose(seen, [by_z], rtol=1e-12)
    np.testing.assert_allclose(y.grad.numpy(), 2 * by_z * np.exp(a), rtol=1e-12)
    assert fused
    assert max(fused) < 4


def test_kept_and_asked_for_gradients_between():
    x, y = leaves(2)
    for _ in range(4):
        z = ng.exp(x) * y
        z.retain_grad()
        (ng.tanh(z) * z).sum().backward()
        w = ng.exp(x) * y
        loss = (ng.tanh(w) * w).sum()
        gw, gx = ng.autograd.grad(loss, (w, x))
        np.testing.assert_array_equal(gw.numpy(), z.grad.numpy())
        np.testing.assert_allclose(gx.numpy(), gw.numpy() * (y * ng.exp(x)).detach().numpy(), rtol=1e-12)


def test_gradients_add_to_what_is_there(fused):
    x, y = leaves(2)
    (alone,) = gradients(PROGRAMS["leaf used often"], [x, y])
    x.grad = y.grad = None
    for times in range(1, 5):
        PROGRAMS["leaf used often"](x, y).backward()
        np.testing.assert_allclose(x.grad.numpy(), times * alone[0], rtol=1e-12)
    assert fused


def test_retained_graphs_run_again():
    x, y = leaves(2)
    for _ in range(4):
        x.grad = None
        loss = PROGRAMS["chain"](x, y)
        loss.backward(retain_graph=True)
        once = x.grad.numpy().copy()
        loss.backward()
        np.testing.assert_array_equal(x.grad.numpy(), 2 * once)
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_second_derivatives_are_recorded():
    (x,) = leaves(1)
    for _ in range(4):
        (g,) = ng.autograd.grad((ng.exp(x) * x).sum(), x, create_graph=True)
        (h,) = ng.autograd.grad(g.sum(), x)
        np.testing.assert_allclose(h.numpy(), (ng.exp(x) * (x + 2)).detach().numpy(), rtol=1e-12)


def test_a_written_value_is_noticed():
    x, y = leaves(2)
    for k in range(5):
        z = ng.exp(x) * 1.0
        loss = (ng.tanh(z * y) * z).sum()
        if k < 4:
            loss.backward()
            continue
        before = x.grad.numpy().copy()
        z += 1.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        np.testing.assert_array_equal(x.grad.numpy(), before)


def test_anomaly_mode_visits_every_node(fused):
    x, y = leaves(2)
    gradients(PROGRAMS["chain"], [x, y], times=3)
    seen = len(fused)
    with pytest.warns(UserWarning, match="Anomaly"), ng.autograd.detect_anomaly():
        gradients(PROGRAMS["chain"], [x, y])
    assert seen == 1
    assert len(fused) == 1


def test_the_reference_backend_visits_every_node(fused):
    with ng.use_backend("reference"):
        gradients(PROGRAMS["chain"], leaves(2), times=4)
    assert not fused


def test_structures_are_bounded(monkeypatch):
    monkeypatch.setattr(fused_backward, "STRUCTURES_AT_MOST", 3)
    (x,) = leaves(1)
    for n in range(8):
        gradients(lambda x, n=n: sum([ng.exp(x)] * 2 + [ng.tanh(x)] * n).sum(), [x])
        assert len(fused_backward._structures) <= 3


def test_long_chains_are_cut(fused):
    (x,) = leaves(1)

    def program(x):
        for _ in range(70):
            x = x * 1.01
        return x.sum()

    (*_, got) = gradients(program, [x], times=4)
    np.testing.assert_allclose(got[0], np.full(SHAPE, 1.01**70), rtol=1e-12)
    assert fused[-3:] == [32, 32, 6] or sum(fused[-3:]) == 70


def test_threads_share_kernels():
    inputs = leaves(4)
    (wanted,) = gradients(black_scholes, inputs)
    results = {}

    def work(k):
        own = [x.detach().clone().requires_grad_() for x in inputs]
        results[k] = gradients(black_scholes, own, times=6)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for runs in results.values():
        for run in runs:
            for got, want in zip(run, wanted, strict=True):
                np.testing.assert_array_equal(got, want)
    assert len(results) == 4
