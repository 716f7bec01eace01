"""Dual tensors. Tests that take `lib` run in PyTorch too; values are known derivatives."""

from importlib import import_module

import numpy as np
import pytest

import numbagrad as ng

# PyTorch's own, when it loads forward mode.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

X, V = np.array([0.5, 1.0, -2.0]), np.array([1.0, 10.0, 100.0])


@pytest.fixture
def fw(lib):
    return import_module(f"{lib.name}.autograd.forward_ad")


def close(lib, got, want):
    np.testing.assert_allclose(lib.values(got), want, rtol=1e-12, atol=1e-14)


def test_the_tangent_of_a_result(lib, fw):
    with fw.dual_level():
        x = fw.make_dual(lib.const(X), lib.const(V))
        y = fw.unpack_dual(lib.exp(x) * x + 1)
        close(lib, y.primal, np.exp(X) * X + 1)
        close(lib, y.tangent, np.exp(X) * (X + 1) * V)


def test_a_dual_tensor_unpacks_to_what_it_was_made_of(lib, fw):
    with fw.dual_level():
        primal, tangent = fw.unpack_dual(fw.make_dual(lib.const(X), lib.const(V)))
        close(lib, primal, X)
        close(lib, tangent, V)


def test_two_dual_tensors(lib, fw):
    with fw.dual_level():
        x, y = fw.make_dual(lib.const(X), lib.const(V)), fw.make_dual(lib.const(V), lib.const(X))
        close(lib, fw.unpack_dual(x * y).tangent, V * V + X * X)


def test_what_no_dual_tensor_led_to_has_no_tangent(lib, fw):
    with fw.dual_level():
        fw.make_dual(lib.const(X), lib.const(V))
        assert fw.unpack_dual(lib.const(X) * 2).tangent is None
        assert fw.unpack_dual(lib.leaf(X) * 2).tangent is None


def test_tangents_end_with_their_level(lib, fw):
    with fw.dual_level():
        y = fw.make_dual(lib.const(X), lib.const(V)) * 2
    assert fw.unpack_dual(y).tangent is None
    with fw.dual_level():
        assert fw.unpack_dual(y * 2).tangent is None


def test_the_tangent_can_be_differentiated_backward(lib, fw):
    x = lib.leaf(X)
    with fw.dual_level():
        y = (fw.make_dual(x, lib.const(V)) ** 3).sum()
        tangent = fw.unpack_dual(y).tangent
        (hvp,) = lib.autograd.grad(tangent, x)
    close(lib, hvp, 6 * X * V)


def test_forward_over_reverse(lib, fw):
    x = lib.leaf(X)
    with fw.dual_level():
        dual = fw.make_dual(x, lib.const(V))
        (g,) = lib.autograd.grad((dual**3).sum(), dual, create_graph=True)
        close(lib, fw.unpack_dual(g).tangent, 6 * X * V)


def test_backward_still_reaches_the_primal(lib, fw):
    x = lib.leaf(X)
    with fw.dual_level():
        (fw.make_dual(x, lib.const(V)) * 3).sum().backward()
    close(lib, x.grad, [3, 3, 3])


def test_in_place_ops_move_too(lib, fw):
    with fw.dual_level():
        x = fw.make_dual(lib.const(X), lib.const(V))
        y = x * 1
        y.mul_(x)
        y[:1].add_(x[1:2])
        close(lib, fw.unpack_dual(y).tangent, 2 * X * V + [V[1], 0, 0])


def test_results_do_not_ask_for_gradients(lib, fw):
    with fw.dual_level():
        y = fw.unpack_dual(fw.make_dual(lib.const(X), lib.const(V)) ** 2)
        assert not y.primal.requires_grad and not y.tangent.requires_grad


def test_under_no_grad(lib, fw):
    with lib.no_grad(), fw.dual_level():
        close(lib, fw.unpack_dual(fw.make_dual(lib.const(X), lib.const(V)) ** 2).tangent, 2 * X * V)
    assert lib.is_grad_enabled()


def test_enter_and_exit(lib, fw):
    level = fw.enter_dual_level()
    fw.make_dual(lib.const(X), lib.const(V))
    fw.exit_dual_level(level=level)
    with pytest.raises(RuntimeError, match="no level exists"):
        fw.make_dual(lib.const(X), lib.const(V))


def test_errors(lib, fw):
    with fw.dual_level():
        with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported"):
            fw.enter_dual_level()
        with pytest.raises(RuntimeError, match=r"Trying to set a forward gradient .* size"):
            fw.make_dual(lib.const(X), lib.const(V[:2]))
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            fw.make_dual(lib.const(X) > 0, lib.const(V))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: ng.tanh(x) @ x,
        lambda x: ng.stack([x, x * x])[1, ::-1].cumsum(),
        lambda x: ng.linalg.norm(x) * ng.maximum(x, 0),
        lambda x: ng.where(x > 0, ng.sqrt(abs(x)), x**2),
        lambda x: ng.linalg.inv(ng.outer(x, x) + ng.eye(3)).sum(axis=0),
    ],
)
def test_ops_agree_with_differences(f):
    from numbagrad.autograd import forward_ad

    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(ng.tensor(X), ng.tensor(V / 100)))).tangent
    h = 1e-6
    want = (np.asarray(f(ng.tensor(X + h * V / 100))) - np.asarray(f(ng.tensor(X - h * V / 100)))) / (2 * h)
    np.testing.assert_allclose(tangent, want, rtol=1e-7, atol=1e-9)


def test_a_custom_function_with_jvp(lib, fw):
    methods = {
        "forward": staticmethod(lambda ctx, x: x * 2),
        "backward": staticmethod(lambda ctx, g: g * 2),
        "jvp": staticmethod(lambda ctx, t: t * 2),
    }
    made = type("Made", (lib.autograd.Function,), methods)
    with fw.dual_level():
        close(lib, fw.unpack_dual(made.apply(fw.make_dual(lib.const(X), lib.const(V)))).tangent, 2 * V)
