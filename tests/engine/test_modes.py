"""Inference mode, anomaly mode, and modes that are only accepted.

Tests that take `lib` run in PyTorch too, so that what they assert is its meaning.
"""

import threading
import warnings

import numpy as np
import pytest
from both import same

import numbagrad as ng


def leaf(data):
    return ng.tensor(np.asarray(data, float), requires_grad=True)


# ----- inference mode -----


def test_inference_tensors_stay_out_of_graphs(lib):
    w = lib.leaf([2.0, 3.0])
    with lib.inference_mode():
        y = w * 3
        made = lib.const([1.0, 1.0])
    assert not y.requires_grad and y.is_inference() and made.is_inference() and not w.is_inference()
    for t in (y, made):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            w * t
    (w + y).sum().backward()
    same(lib, w.grad, [1, 1])


def test_inference_tensors_and_writes(lib):
    with lib.inference_mode():
        y = lib.const([1.0, 2.0]) * 2
        y.add_(1)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        y.add_(1)
    with lib.no_grad(), pytest.raises(RuntimeError, match="Inplace update to inference tensor outside"):
        y.add_(1)
    if lib.name == "numbagrad":  # PyTorch writes before it raises
        same(lib, y, [3, 5])


def test_a_clone_is_a_normal_tensor(lib):
    with lib.inference_mode():
        y = lib.const([1.0, 2.0]) * 2
    z = y.clone()
    assert not z.is_inference()
    z.requires_grad_()
    (z * z).sum().backward()
    same(lib, z.grad, [4, 8])


def test_inference_tensors_cannot_require_grad_outside(lib):
    with lib.inference_mode():
        y = lib.const([1.0])
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode"):
        y.requires_grad_()


def test_views_of_inference_tensors_are_inference_tensors(lib):
    with lib.inference_mode():
        y = lib.const([1.0, 2.0])
    assert y[:1].is_inference()
    with lib.inference_mode():
        assert not lib.reshape(OUTSIDE[lib.name], 1, 2).is_inference()


OUTSIDE = {"numbagrad": ng.tensor([1.0, 2.0])}


@pytest.fixture(autouse=True)
def _outside(request):
    if "lib" in request.fixturenames:
        lib = request.getfixturevalue("lib")
        OUTSIDE.setdefault(lib.name, lib.const([1.0, 2.0]))


def test_normal_tensors_made_before_may_be_written_inside(lib):
    x = lib.const([1.0, 2.0])
    with lib.inference_mode():
        x.add_(1)
    same(lib, x, [2, 3])
    w = lib.leaf([1.0, 1.0])
    (w * x).sum().backward()
    same(lib, w.grad, [2, 3])


def test_inference_mode_as_decorator_and_nested(lib):
    enabled = lib.autograd.grad_mode.inference_mode if lib.name == "torch" else ng.inference_mode

    @enabled()
    def f(x):
        return x * 2

    @enabled
    def g(x):
        return x * 2

    x = lib.leaf([1.0])
    assert f(x).is_inference() and g(x).is_inference() and f.__name__ == "f"
    with lib.inference_mode():
        with lib.inference_mode(False):
            y = x * 2
            assert y.requires_grad and not y.is_inference()
        assert (x * 2).is_inference()
    assert not (x * 2).is_inference()


def test_inference_mode_records_nothing_even_with_grad_enabled(lib):
    x = lib.leaf([1.0])
    with lib.inference_mode():
        assert not (x * 2).requires_grad
        assert not lib.is_grad_enabled()
    assert lib.is_grad_enabled()


def test_inference_mode_belongs_to_its_thread():
    seen = []
    with ng.inference_mode():
        thread = threading.Thread(
            target=lambda: seen.append((ng.tensor([1.0]).is_inference(), ng.is_inference_mode_enabled()))
        )
        thread.start()
        thread.join()
    assert seen == [(False, False)]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x @ x,
        lambda x: x.sum(),
        lambda x: x.mean(axis=0),
        lambda x: ng.exp(x),
        lambda x: ng.concatenate([x, x]),
        lambda x: ng.zeros(3),
        lambda x: x[[0, 1]],
        lambda x: ng.linalg.inv(x),
    ],
)
def test_whatever_makes_a_tensor_makes_an_inference_tensor(make):
    with ng.inference_mode():
        assert make(ng.tensor(np.eye(2) * 2)).is_inference()


# ----- anomaly mode -----


@pytest.fixture
def anomaly():
    with ng.autograd.set_detect_anomaly(True):
        yield


def marked(function):
    """Where, in an error's message, the line of a function of this file stands."""
    return rf"{__file__}:\d+, in {function}"


def wrong_root(x):
    return ng.sqrt(x)


def wrong_log(x):
    return ng.log(x)


@pytest.mark.parametrize(("f", "at", "what"), [(wrong_root, -1.0, "nan"), (wrong_log, 0.0, "inf")])
@pytest.mark.usefixtures("anomaly")
def test_the_first_value_that_is_not_finite_is_named(f, at, what):
    match = rf"Function '{f.__name__[6:] if f is wrong_log else 'sqrt'}' returned {what} values.*{marked(f.__name__)}"
    with pytest.raises(RuntimeError, match=match):
        f(leaf([1.0, at])) * 2


@pytest.mark.usefixtures("anomaly")
def test_infinities_that_were_given_are_no_anomaly():
    x = leaf([1.0, 2.0])
    masked = ng.where(ng.tensor([True, False]), x, -np.inf)
    ng.exp(masked).sum().backward()
    np.testing.assert_allclose(x.grad, [np.e, 0])


def root_at_zero(x):
    return ng.sqrt(x)


@pytest.mark.usefixtures("anomaly")
def test_a_gradient_that_is_not_finite_is_named_with_its_forward_line():
    x = leaf([0.0, 1.0])
    y = root_at_zero(x)
    match = rf"Function 'SqrtBackward' returned inf values in its 0th output.*{marked('root_at_zero')}"
    with pytest.raises(RuntimeError, match=match):
        y.sum().backward()
    assert x.grad is None


def test_nan_gradients_raise_as_in_torch(lib):
    made = type(
        "Made",
        (lib.autograd.Function,),
        {"forward": staticmethod(lambda ctx, x: x * 2), "backward": staticmethod(lambda ctx, g: g * float("nan"))},
    )
    x = lib.leaf([1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lib.autograd.detect_anomaly():
            y = made.apply(x).sum()
            with pytest.raises(RuntimeError, match="Function 'MadeBackward' returned nan values in its 0th output"):
                y.backward()
        with lib.autograd.detect_anomaly(check_nan=False):
            made.apply(x).sum().backward()


def fails(x):
    made = type(
        "Made",
        (ng.autograd.Function,),
        {"forward": staticmethod(lambda ctx, x: x * 2), "backward": staticmethod(lambda ctx, g: 1 / 0)},
    )
    return made.apply(x)


@pytest.mark.usefixtures("anomaly")
def test_an_error_in_backward_gets_the_forward_line():
    with pytest.raises(ZeroDivisionError) as raised:
        fails(leaf([1.0])).sum().backward()
    assert "MadeBackward" in raised.value.__notes__[0]
    assert ", in fails" in raised.value.__notes__[0]


def saves(y):
    return y * y


def writes(y):
    y += 1


def frees(y):
    y.backward()


@pytest.mark.usefixtures("anomaly")
def test_the_in_place_error_names_both_lines():
    x = leaf([1.0, 2.0])
    y = x * 1
    z = saves(y).sum()
    writes(y)
    match = rf"modified by an inplace operation.*made at {marked('saves')}.*written at {marked('writes')}"
    with pytest.raises(RuntimeError, match=match):
        z.backward()


@pytest.mark.usefixtures("anomaly")
def test_the_second_backward_names_both_lines():
    y = saves(leaf([1.0])).sum()
    frees(y)
    match = rf"second time.*made at {marked('saves')}, freed by the backward at {marked('frees')}"
    with pytest.raises(RuntimeError, match=match):
        y.backward()


@pytest.mark.usefixtures("anomaly")
def test_values_of_functions_sums_and_products_are_checked_too():
    big = leaf([1e308, 1e308])
    made = type(
        "Made",
        (ng.autograd.Function,),
        {"forward": staticmethod(lambda ctx, x: x * np.inf), "backward": staticmethod(lambda ctx, g: g)},
    )
    for name, f in [("sum", lambda x: x.sum()), ("matmul", lambda x: x[None] @ x[:, None]), ("Made", made.apply)]:
        with np.errstate(all="ignore"), pytest.raises(RuntimeError, match=f"Function '{name}' returned inf values"):
            f(big)


def test_gradients_are_the_same_with_hooks_inputs_and_higher_orders():
    def orders():
        x = leaf([0.5, 1.5])
        y = ng.exp(x * 2) @ leaf([1.0, 2.0])
        y.register_hook(lambda g: g * 2)
        y.grad_fn.register_hook(lambda grads, _: tuple(3 * g for g in grads))
        (g,) = ng.autograd.grad(y.sum(), x, create_graph=True)
        g.sum().backward(inputs=x)
        return g, x.grad

    plain = orders()
    with ng.autograd.set_detect_anomaly(True):
        checked = orders()
    for a, b in zip(plain, checked, strict=True):
        np.testing.assert_array_equal(a.detach(), b.detach())


def test_set_detect_anomaly(lib):
    set_detect = lib.autograd.set_detect_anomaly
    enabled = _enabled(lib)
    assert not enabled()
    set_detect(True)
    assert enabled()
    with set_detect(False):
        assert not enabled()
    assert enabled()
    set_detect(False)
    assert not enabled()


def _enabled(lib):
    if lib.name == "numbagrad":
        return ng.autograd.is_anomaly_enabled
    return pytest.importorskip("torch").is_anomaly_enabled


def test_nothing_is_noted_when_it_is_off():
    from numbagrad.engine.node import watches
    from numbagrad.engine.watch import origin_of

    assert watches == []
    assert origin_of((leaf([1.0]) * 2).grad_fn) is None


# ----- accepted -----


def test_multithreading_is_accepted(lib):
    x = lib.leaf([1.0])
    with lib.autograd.set_multithreading_enabled(False):
        (x * 2).sum().backward()
    same(lib, x.grad, [2])
