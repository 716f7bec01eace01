"""Checkpoints: the same gradients, less memory. Tests that take `lib` run in PyTorch too."""

import gc
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import numbagrad as ng


def checkpoint(lib, f, *args, **options):
    if lib.name == "numbagrad":
        return ng.checkpoint(f, *args, **options)
    from torch.utils.checkpoint import checkpoint as original

    return original(f, *args, use_reentrant=False, **options)


def block(lib, x, w):
    return lib.sin(lib.exp(x * w) * x)


def orders(lib, run):
    """First and second derivatives."""
    x, w = lib.leaf([0.3, -0.5, 1.0]), lib.leaf([0.7, 0.1, -0.2])
    first = lib.autograd.grad(run(x, w).sum(), (x, w), create_graph=True)
    second = lib.autograd.grad((first[0] * first[1]).sum(), (x, w))
    return [lib.values(g) for g in (*first, *second)]


def same_orders(lib, run, plain):
    for got, want in zip(orders(lib, run), orders(lib, plain), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_gradients_of_two_orders_are_the_same(lib):
    same_orders(lib, lambda x, w: checkpoint(lib, lambda x, w: block(lib, x, w), x, w), lambda x, w: block(lib, x, w))


def test_several_in_a_row_and_around(lib):
    def plain(x, w):
        for _ in range(3):
            x = block(lib, x, w) + x
        return x * x

    def run(x, w):
        for _ in range(3):
            x = checkpoint(lib, lambda x: block(lib, x, w), x) + x
        return x * x

    same_orders(lib, run, plain)


def test_nested(lib):
    def inner(x, w):
        return block(lib, x, w) * w

    def outer(call):
        def f(x, w):
            y = lib.exp(x) * w
            y = call(inner, y, w)
            return call(inner, lib.sin(y), w) * y

        return f

    def run(x, w):
        return checkpoint(lib, outer(lambda f, *args: checkpoint(lib, f, *args)), x, w)

    same_orders(lib, run, outer(lambda f, *args: f(*args)))


@pytest.mark.parametrize("early_stop", [True, False])
def test_the_function_runs_once_more_per_backward(early_stop):
    calls = []

    def f(x):
        calls.append(1)
        return ng.exp(ng.exp(x) * x)

    x = ng.tensor([0.5], requires_grad=True)
    y = ng.checkpoint(f, x, early_stop=early_stop)
    y.backward([1.0], retain_graph=True)
    assert len(calls) == 2
    y.backward([1.0])
    assert len(calls) == 3


def test_early_stop_skips_what_follows_the_last_saved_value(lib):
    reached = []

    def f(x):
        y = lib.exp(x)
        reached.append(1)
        return y + 1

    x = lib.leaf([1.0])
    checkpoint(lib, f, x).sum().backward()
    assert len(reached) == 1


def test_random_numbers_are_the_same_again():
    def f(x):
        return x * x * ng.tensor(np.random.rand(3))  # noqa: NPY002 - the state that is kept

    for preserve in (True, False):
        np.random.seed(0)  # noqa: NPY002
        x = ng.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = ng.checkpoint(f, x, preserve_rng_state=preserve)
        after = np.random.get_state()[2]  # noqa: NPY002
        y.sum().backward()
        agree = bool(np.allclose(x.grad, 2 * y.detach() / x.detach()))
        assert agree is preserve
        assert (np.random.get_state()[2] == after) is preserve  # noqa: NPY002


@pytest.mark.parametrize("change", ["count", "shape"])
def test_a_function_that_computes_something_else_again(lib, change):
    calls = []

    def f(x):
        calls.append(1)
        if len(calls) == 1:
            return lib.exp(x).sum() * lib.sin(x).sum()
        return x.sum() if change == "count" else lib.exp(x[:1]).sum() * lib.sin(x[:1]).sum()

    y = checkpoint(lib, f, lib.leaf([1.0, 2.0]))
    match = "different number of tensors|A different number" if change == "count" else "different metadata"
    with pytest.raises(RuntimeError, match=match) as raised:
        y.backward()
    assert type(raised.value).__name__ == "CheckpointError"


def test_keyword_and_other_arguments(lib):
    x = lib.leaf([1.0, 2.0])
    y = checkpoint(lib, lambda x, k, *, scale: x**k * scale, x, 3, scale=2.0)
    y.sum().backward()
    np.testing.assert_allclose(lib.values(x.grad), [6, 24])


def test_contexts_for_both_runs(lib):
    from contextlib import contextmanager

    seen = []

    @contextmanager
    def note(which):
        seen.append(which)
        yield

    x = lib.leaf([1.0])
    y = checkpoint(lib, lambda x: x * x, x, context_fn=lambda: (note("first"), note("again")))
    assert seen == ["first"]
    y.sum().backward()
    assert seen == ["first", "again"]


def test_without_grad_mode_it_only_calls(lib):
    with lib.no_grad():
        assert not checkpoint(lib, lambda x: x * x, lib.leaf([1.0])).requires_grad


def test_options_that_are_not_there():
    with pytest.raises(ValueError, match="use_reentrant=True is not here"):
        ng.checkpoint(lambda x: x, 1, use_reentrant=True)
    with pytest.raises(ValueError, match="must be 'default' or 'none'"):
        ng.checkpoint(lambda x: x, 1, determinism_check="some")


def test_intermediate_values_are_not_kept():
    size = 100_000

    def deep(x):
        for _ in range(20):
            x = ng.sin(x)
        return x

    def bytes_held(run):
        x = ng.tensor(np.ones(size), requires_grad=True)
        deep(x).sum()
        gc.collect()
        tracemalloc.start()
        y = run(x)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        y.sum().backward()
        assert x.grad is not None
        return held

    saved = lambda t: sum(s.nbytes for s in ng.graph.list_saved(t))
    x = ng.tensor(np.ones(size), requires_grad=True)
    assert saved(deep(x)) >= 20 * size * 8
    assert saved(ng.checkpoint(deep, x)) == 0
    assert bytes_held(lambda x: ng.checkpoint(deep, x)) < 4 * size * 8


def nested_once_back():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    y = ng.checkpoint(lambda x: ng.checkpoint(lambda x: ng.exp(x) * x, x * 2) * x, x).sum()
    y.backward(retain_graph=True)
    return y


def under_hooks():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    with ng.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return (ng.exp(x) * x).sum()


def under_anomaly_mode():
    with ng.autograd.set_detect_anomaly(True):
        y = ng.exp(ng.tensor([1.0, 2.0], requires_grad=True)).sum()
        y.backward(retain_graph=True)
        return y


@pytest.mark.parametrize("make", [nested_once_back, under_hooks, under_anomaly_mode])
def test_graphs_die_with_their_last_reference(make):
    make()
    gc.collect()
    gc.disable()
    try:
        y = make()
        refs = [weakref.ref(y), weakref.ref(y.grad_fn)]
        del y
        assert [r() for r in refs] == [None, None]
    finally:
        gc.enable()


def test_eight_threads_over_a_shared_leaf():
    x = ng.tensor(np.ones(50), requires_grad=True)
    found = {}

    def work(v):
        for _ in range(10):
            y = ng.checkpoint(lambda x: ng.sin(ng.exp(x) * x), x * v).sum()
            (found[v],) = ng.autograd.grad(y, x)

    threads = [threading.Thread(target=work, args=(float(i + 1),)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8]
    for v, g in found.items():
        y = ng.sin(ng.exp(x * v) * (x * v)).sum()
        np.testing.assert_allclose(g, ng.autograd.grad(y, x)[0], rtol=1e-12)
