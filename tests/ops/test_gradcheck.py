"""gradcheck finds wrong gradients and passes right ones. Tests that take `lib` run in PyTorch too."""

import numpy as np
import pytest

import numbagrad as ng

# PyTorch's own, when it loads forward mode.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def check(lib, f, *inputs, second=False, **options):
    from importlib import import_module

    package = "numbagrad" if lib.name == "numbagrad" else "torch"
    module = import_module(f"{package}.autograd.gradcheck")
    return (module.gradgradcheck if second else module.gradcheck)(f, inputs, **options)


def define(lib, forward, backward):
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Made", (lib.autograd.Function,), methods).apply


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("modes", [{}, {"check_forward_ad": True}, {"check_batched_grad": True}])
def test_right_gradients_pass(lib, fast_mode, modes):
    x, y = lib.leaf([[0.5, 1.5], [2.0, -1.0]]), lib.leaf([0.3, 0.7])
    assert check(lib, lambda x, y: (lib.exp(x) * y, x.sum() * y), x, y, fast_mode=fast_mode, **modes)
    assert check(lib, lambda x, y: lib.exp(x * y), x, y, second=True, fast_mode=fast_mode)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_wrong_gradient_is_found(lib, fast_mode):
    wrong = define(lib, lambda ctx, x: x * 2, lambda ctx, g: g * 3)
    x = lib.leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="mismatch for output 0 with respect to input 0") as raised:
        check(lib, wrong, x, fast_mode=fast_mode)
    assert type(raised.value).__name__ == "GradcheckError"
    text = str(raised.value)
    assert "numerical:" in text and "analytical:" in text and "2." in text and "3." in text
    assert check(lib, wrong, x, fast_mode=fast_mode, raise_exception=False) is False


def test_a_wrong_second_derivative_is_found(lib):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    cube = define(lib, forward, lambda ctx, g: g * 3 * ctx.saved_tensors[0].detach() ** 2)
    x = lib.leaf([1.0, 2.0])
    assert check(lib, cube, x)
    with pytest.raises(RuntimeError, match="mismatch"):
        check(lib, cube, x, second=True)


def test_an_error_in_one_entry_is_found(lib):
    def backward(ctx, g):
        out = g * 2
        out[1] = 0
        return out

    with pytest.raises(RuntimeError, match="mismatch"):
        check(lib, define(lib, lambda ctx, x: x * 2, backward), lib.leaf([1.0, 2.0, 3.0]), fast_mode=True)


def test_backward_that_forgets_the_output_gradient(lib):
    def forward(ctx, x):
        return x * 2

    with pytest.raises(RuntimeError, match=r"mismatch|not multiplied by grad_output"):
        check(lib, define(lib, forward, lambda ctx, g: lib.const([2.0])), lib.leaf([1.0]))


def test_backward_that_changes_from_run_to_run(lib):
    count = [0]

    def backward(ctx, g):
        count[0] += 1
        return g * 2 * (1 + 1e-9 * count[0])

    noisy = define(lib, lambda ctx, x: x * 2, backward)
    with pytest.raises(RuntimeError, match="Backward is not reentrant"):
        check(lib, noisy, lib.leaf([1.0]))
    assert check(lib, noisy, lib.leaf([1.0]), nondet_tol=1e-3)


def test_undefined_output_gradients(lib):
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx, g, h):
        if g is None or h is None:
            return None if g is None and h is None else (g if g is not None else h) * 5
        return 2 * g + 3 * h

    with pytest.raises(RuntimeError):
        check(lib, define(lib, forward, backward), lib.leaf([1.0]))


def test_nothing_requires_grad(lib):
    with pytest.raises(ValueError, match="expects at least one input tensor to require gradient"):
        check(lib, lambda x: x * 2, lib.const([1.0]))


def test_a_result_without_graph_must_be_constant(lib):
    x = lib.leaf([1.0, 2.0])
    assert check(lib, lambda x: x.detach() * 0, x)
    with pytest.raises(RuntimeError, match="Numerical gradient for function expected to be zero"):
        check(lib, lambda x: x.detach() * 2, x)


def test_no_mode_at_all(lib):
    with pytest.raises(AssertionError, match="at least one of check_forward_ad or check_backward_ad"):
        check(lib, lambda x: x, lib.leaf([1.0]), check_backward_ad=False)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_wrong_jvp_is_found(fast_mode):
    class Wrong(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def jvp(ctx, t):
            return t * 5

    x = ng.tensor([1.0, 2.0], requires_grad=True)
    assert ng.autograd.gradcheck(Wrong.apply, (x,))
    with pytest.raises(ng.autograd.GradcheckError, match="computed with forward mode mismatch"):
        ng.autograd.gradcheck(Wrong.apply, (x,), check_forward_ad=True, fast_mode=fast_mode)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_complex_functions(fast_mode, second):
    rng = np.random.default_rng(0)
    z = ng.tensor(rng.normal(size=3) + 1j * rng.normal(size=3), requires_grad=True)
    x = ng.tensor(rng.normal(size=3), requires_grad=True)
    run = ng.autograd.gradgradcheck if second else ng.autograd.gradcheck
    assert run(lambda z, x: (z * z * x, ng.conj(z) * z), (z, x), fast_mode=fast_mode)
    assert run(lambda z: ng.abs(z), (z,), fast_mode=fast_mode)
    if not second:
        assert run(lambda z, x: ng.exp(z) * x, (z, x), fast_mode=fast_mode, check_forward_ad=True)


def test_a_wrong_complex_gradient_names_the_part():
    wrong = define(NG, lambda ctx, z: z * 2j, lambda ctx, g: g * 2j)
    z = ng.tensor([1 + 2j], requires_grad=True)
    with pytest.raises(ng.autograd.GradcheckError, match="While considering the real part of complex"):
        ng.autograd.gradcheck(wrong, (z,))


def test_single_precision_warns():
    x = ng.tensor(np.ones(2, np.float32), requires_grad=True)
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision"):
        ng.autograd.gradcheck(lambda x: x * 2, (x,), eps=1e-2, atol=1e-2)


def test_forward_over_reverse():
    x = ng.tensor([0.5, 1.5], requires_grad=True)
    assert ng.autograd.gradgradcheck(lambda x: ng.sin(x) * x, (x,), check_fwd_over_rev=True)


def test_inputs_are_left_as_they_were():
    x = ng.tensor([0.5, 1.5], requires_grad=True)
    ng.autograd.gradcheck(ng.sin, (x, *()))
    np.testing.assert_array_equal(x.detach(), [0.5, 1.5])
    assert x.grad is None


def test_other_arguments_are_passed_on():
    x = ng.tensor([0.5, 1.5], requires_grad=True)
    assert ng.autograd.gradcheck(lambda x, k, flag: x**k if flag else x, (x, 3, True))


class NG:
    """numbagrad alone."""

    name = "numbagrad"
    autograd = ng.autograd
