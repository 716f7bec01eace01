"""What the tape keeps, and for how long. Counted, not timed."""

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import numbagrad as ng


def leaf(data):
    return ng.tensor(np.asarray(data, dtype=float), requires_grad=True)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def train(steps, params, x, y):
    for _ in range(steps):
        hidden = ng.tanh(x @ params[0] + params[1])
        loss = ((hidden @ params[2] - y) ** 2).mean()
        loss.backward()
        with ng.no_grad():
            for p in params:
                p -= 0.01 * p.grad
                p.grad = None


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_training_leaves_no_objects_behind(without_collector):
    rng = np.random.default_rng(0)
    params = [leaf(rng.normal(size=s)) for s in ((4, 8), (8,), (8, 1))]
    x, y = ng.tensor(rng.normal(size=(16, 4))), ng.tensor(rng.normal(size=(16, 1)))
    train(20, params, x, y)
    before = len(gc.get_objects())
    train(300, params, x, y)
    assert len(gc.get_objects()) - before < 50


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_resident_memory_does_not_grow_with_the_steps():
    rng = np.random.default_rng(0)
    params = [leaf(rng.normal(size=s)) for s in ((64, 128), (128,), (128, 1))]
    x, y = ng.tensor(rng.normal(size=(256, 64))), ng.tensor(rng.normal(size=(256, 1)))
    train(100, params, x, y)
    before = resident_bytes()
    train(900, params, x, y)
    assert resident_bytes() - before < 4e6


def test_second_derivatives_leave_no_cycle(without_collector):
    x = leaf([1.0, 2.0])

    def penalty():
        y = ng.exp(x * x).sum()
        (g,) = ng.autograd.grad(y, x, create_graph=True)
        loss = (g * g).sum()
        loss.backward()
        x.grad = None
        return weakref.ref(loss), weakref.ref(g.grad_fn)

    for _ in range(3):
        assert [r() for r in penalty()] == [None, None]


def test_backward_frees_what_was_saved_as_it_goes():
    x = leaf(np.ones(10))
    y = x
    nodes = []
    for _ in range(5):
        y = ng.exp(y * 0.1)
        nodes.append(y.grad_fn)
    assert all(node.saved for node in nodes)
    y.sum().backward()
    assert not any(node.saved for node in nodes)


def test_what_no_gradient_needs_is_not_saved():
    x, c = leaf(np.ones(10)), ng.tensor(np.ones(10))
    assert (x + c).grad_fn.saved == ()
    assert [s is c for s in (x * c).grad_fn.saved] == [True]
    assert [s is x for s in ng.sin(x).grad_fn.saved] == [True]
    y = ng.tanh(x)
    assert y.grad_fn.saved[0] is y._data
    assert x.sum().grad_fn.saved == ()


def test_gradients_are_handed_on_and_not_copied():
    x = leaf(np.ones(100_000))
    y = x * 2.0
    kept = []
    y.register_hook(lambda g: kept.append(g._data.strides))
    y.sum().backward()
    # The gradient of a large sum is one number seen everywhere.
    assert kept == [(0,)]
    assert x.grad._data.strides == (8,)
