"""The tape: what PyTorch's documentation promises of backward and grad, and what it costs."""

import gc
import threading
import weakref

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.engine.node import AccumulateGrad


def leaf(data):
    return ng.tensor(np.asarray(data, dtype=float), requires_grad=True)


def same(got, want):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=0)


# ----- the examples that everybody starts with -----


def test_mean_of_three_y_squared():
    x = leaf(np.ones((2, 2)))
    y = x + 2
    out = (y * y * 3).mean()
    out.backward()
    same(x.grad, np.full((2, 2), 4.5))


def test_vector_jacobian_product_of_repeated_doubling():
    x = leaf([0.3, -0.7, 0.2])
    y, factor = x * 2, 2.0
    while y.data.norm() < 1000:
        y, factor = y * 2, factor * 2
    y.backward([0.1, 1.0, 0.0001])
    assert factor >= 1024
    same(x.grad, factor * np.array([0.1, 1.0, 0.0001]))


def test_doubling_ten_times_gives_the_documented_numbers():
    x = leaf([0.5, 0.6, 0.7])
    y = x * 2
    for _ in range(10):
        y = y * 2
    y.backward([0.1, 1.0, 0.0001])
    same(x.grad, [204.8, 2048.0, 0.2048])


def test_autograd_backward_equals_the_method():
    a, b = leaf([1, 2]), leaf([1, 2])
    (a * a).sum().backward()
    ng.autograd.backward((b * b).sum())
    same(a.grad, np.asarray(b.grad))


def test_grad_accumulates_over_calls():
    x = leaf([1, 2])
    for _ in range(3):
        (x * x).sum().backward()
    same(x.grad, [6, 12])


def test_accumulation_happens_in_place_in_the_same_tensor():
    x = leaf([1, 2])
    (x * x).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    assert x.grad is first


# ----- roots and seeds -----


def test_a_non_scalar_root_says_what_to_pass():
    x = leaf([1, 2])
    with pytest.raises(RuntimeError, match=r"implicitly created only for scalar outputs.*pass gradient"):
        (x * 2).backward()
    assert x.grad is None


@pytest.mark.parametrize(
    ("gradient", "error"),
    [([1.0], RuntimeError), ([[1.0, 1.0]], RuntimeError), ("ab", TypeError), ([1j, 1j], RuntimeError)],
)
def test_a_gradient_that_does_not_fit_is_refused(gradient, error):
    x = leaf([1, 2])
    y = x * x
    with pytest.raises(error):
        y.backward(gradient)
    assert x.grad is None
    y.backward([1.0, 1.0])
    same(x.grad, [2, 4])


def test_nothing_to_differentiate():
    with pytest.raises(RuntimeError, match="does not require grad"):
        ng.tensor([1.0]).sum().backward()


@pytest.mark.parametrize("loss", [None, 3.0, np.ones(2)])
def test_a_loss_that_is_no_tensor(loss):
    with pytest.raises(TypeError, match="wants a Tensor"):
        ng.autograd.backward(loss)


def test_several_roots_with_their_gradients():
    x = leaf([1, 2, 3])
    ng.autograd.backward([x.sum(), x * x], [None, ng.tensor([1.0, 0.0, 2.0])])
    same(x.grad, [3, 1, 13])


def test_deprecated_grad_variables():
    x = leaf([1, 2])
    with pytest.warns(FutureWarning, match="grad_variables"):
        ng.autograd.backward(x * 3, grad_variables=[1.0, 1.0])
    same(x.grad, [3, 3])
    assert ng.autograd.Variable is ng.Tensor


def test_a_float32_root_takes_a_float64_gradient():
    x = ng.tensor(np.ones(2, np.float32), requires_grad=True)
    (x * 2).backward(np.ones(2))
    assert x.grad.dtype == np.float32


# ----- freeing -----


def test_a_second_backward_names_the_node():
    x = leaf([1, 2])
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match=r"second time.*retain_graph=True.*Multiply"):
        y.backward()
    same(x.grad, [2, 4])


def test_retain_graph_keeps_the_graph():
    x = leaf([1, 2])
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    same(x.grad, [4, 8])


def test_a_graph_dies_with_its_last_reference():
    gc.collect()
    gc.disable()
    try:
        x = leaf(np.ones(4))
        middle = ng.exp(x)
        y = (middle * ng.tanh(middle)[1:].sum()).sum()
        refs = [weakref.ref(middle), weakref.ref(middle.grad_fn), weakref.ref(y.grad_fn)]
        del middle, y
        assert [r() for r in refs] == [None, None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("retain", [False, True])
def test_a_million_chained_ops(retain):
    x = leaf(1.0)
    y = x
    for _ in range(1_000_000):
        y = y + x
    y.backward(retain_graph=retain)
    same(x.grad, 1_000_001)
    del y
    gc.collect()


def test_ladder_of_two_to_the_sixty_paths():
    x = leaf(1.0)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    same(x.grad, 2.0**60)


# ----- autograd.grad -----


def test_grad_returns_a_tuple_and_leaves_the_attribute_alone():
    x, y = leaf([1, 2]), leaf([3, 4])
    got = ng.autograd.grad((x * y).sum(), [x, y])
    assert isinstance(got, tuple)
    same(got[0], [3, 4])
    same(got[1], [1, 2])
    assert x.grad is None and y.grad is None


def test_gradient_of_a_non_leaf():
    x = leaf([1, 2])
    y = x * 2
    (g,) = ng.autograd.grad((y * y).sum(), y)
    same(g, [4, 8])


def test_unused_inputs():
    x, y = leaf([1, 2]), leaf([3, 4])
    with pytest.raises(RuntimeError, match=r"not have been used in the graph.*allow_unused"):
        ng.autograd.grad((x * x).sum(), [x, y])
    z = (x * x).sum()
    assert ng.autograd.grad(z, [x, y], allow_unused=True)[1] is None
    z = (x * x).sum()
    same(ng.autograd.grad(z, [x, y], materialize_grads=True)[1], [0, 0])
    with pytest.raises(ValueError, match="materialize_grads"):
        ng.autograd.grad(z, [x, y], allow_unused=False, materialize_grads=True)


def test_input_that_does_not_require_grad():
    x = leaf([1, 2])
    with pytest.raises(RuntimeError, match="does not require grad"):
        ng.autograd.grad((x * 2).sum(), ng.tensor([1.0]))


def test_gradients_do_not_share_memory():
    x, y = leaf([1, 2]), leaf([3, 4])
    gx, gy = ng.autograd.grad((x + y).sum(), [x, y])
    gx[0] = 50.0
    same(gy, [1, 1])


def test_only_the_nodes_on_the_way_run():
    x, y = leaf([1, 2]), leaf([3, 4])
    seen = []
    side = y * 2
    side.register_hook(lambda g: seen.append("side"))
    z = (x * x + side).sum()
    ng.autograd.grad(z, x, retain_graph=True)
    assert seen == []
    ng.autograd.grad(z, y)
    assert seen == ["side"]


def test_target_behind_another_target():
    x = leaf([1, 2])
    y = x * 3
    z = (y * y).sum()
    gy, gx = ng.autograd.grad(z, [y, x])
    same(gy, [6, 12])
    same(gx, [18, 36])


def test_batched_gradients_are_the_jacobian():
    x = leaf([1, 2, 3])
    y = x * x
    (jacobian,) = ng.autograd.grad(y, x, ng.tensor(np.eye(3)), is_grads_batched=True)
    same(jacobian, np.diag([2.0, 4, 6]))


# ----- higher derivatives -----


def test_derivatives_of_a_power_to_the_fourth_order():
    x = leaf(2.0)
    y = x**5
    for want in (80.0, 160.0, 240.0, 240.0, 120.0):
        (y,) = ng.autograd.grad(y, x, create_graph=True)
        same(y.detach(), want)


def test_create_graph_backward_gives_grads_that_have_a_graph():
    x = leaf([1, 2])
    (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    x.grad.sum().backward()
    same(x.grad.detach(), [3 + 6, 12 + 12])


# ----- inputs= -----


def test_backward_into_some_inputs_only():
    x, y = leaf([1, 2]), leaf([3, 4])
    (x * y).sum().backward(inputs=[x])
    same(x.grad, [3, 4])
    assert y.grad is None
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (x * y).sum().backward(inputs=[])


def test_backward_into_a_non_leaf():
    x = leaf([1, 2])
    y = x * 2
    (y * y).sum().backward(inputs=y)
    same(y.grad, [4, 8])
    assert x.grad is None


# ----- what a tensor knows -----


def test_nodes_and_edges():
    x, c = leaf([1, 2]), ng.tensor([3.0, 4.0])
    y = x * c
    node = y.grad_fn
    assert node.name() == "MultiplyBackward"
    (into_x, nr), (into_c, _) = node.next_functions
    assert isinstance(into_x, AccumulateGrad) and into_x.variable is x and nr == 0
    assert into_c is None
    z = y.sum()
    assert z.grad_fn.next_functions[0][0] is node
    assert (x.is_leaf, y.is_leaf, c.is_leaf) == (True, False, True)
    assert y.output_nr == 0


def test_requires_grad_follows_the_operands():
    x, c = leaf([1, 2]), ng.tensor([3.0, 4.0])
    assert (x * c).requires_grad and not (c * c).requires_grad
    assert not (x > 0).requires_grad
    with pytest.raises(RuntimeError, match="leaf"):
        (x * c).requires_grad = False


@pytest.mark.parametrize("data", [[1, 2], [True], np.array([1], np.uint8)])
def test_integers_cannot_require_grad(data):
    with pytest.raises(RuntimeError, match="floating point and complex"):
        ng.tensor(data, requires_grad=True)


def test_grad_of_a_non_leaf_is_not_kept_unless_asked_for():
    x = leaf([1, 2])
    y, z = x * 2, x * 3
    z.retain_grad()
    assert z.retains_grad and not y.retains_grad
    (y * z).sum().backward()
    assert y.grad is None
    same(z.grad, [2, 4])


def test_setting_grad_is_checked():
    x = leaf([1, 2])
    x.grad = ng.tensor([1.0, 2.0])
    x.grad = None
    for wrong, error in (
        (ng.tensor([1.0]), RuntimeError),
        (ng.tensor(np.ones(2, np.float32)), RuntimeError),
        ([1, 2], TypeError),
        (x, RuntimeError),
    ):
        with pytest.raises(error):
            x.grad = wrong
    assert x.grad is None


def test_data_hides_from_the_graph_and_detach_does_not():
    x = leaf([1, 2])
    y = x * x
    x.data[0] = 10.0
    y.sum().backward()
    same(x.grad, [20, 4])
    y = x * x
    x.detach()[0] = 1.0
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*MultiplyBackward.*multiply"):
        y.sum().backward()


def test_numpy_and_array_refuse_to_lose_the_gradient():
    x = leaf([1, 2])
    with pytest.raises(RuntimeError, match="detach"):
        x.numpy()
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(x)
    assert np.shares_memory(x.detach().numpy(), x.detach().numpy())


# ----- grad mode -----


def test_no_grad_in_all_its_forms():
    x = leaf([1, 2])
    quiet = ng.no_grad()
    with quiet, quiet:
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad

    @ng.no_grad()
    def f():
        return x * 2

    @ng.no_grad
    def g():
        return x * 2

    assert not f().requires_grad and not g().requires_grad
    with ng.no_grad(), ng.enable_grad():
        assert (x * 2).requires_grad
    ng.set_grad_enabled(False)
    assert not ng.is_grad_enabled()
    ng.set_grad_enabled(True)
    with ng.set_grad_enabled(False):
        assert not ng.is_grad_enabled()
    assert ng.is_grad_enabled()


def test_no_grad_holds_while_a_generator_runs_and_not_between():
    @ng.no_grad()
    def steps():
        yield ng.is_grad_enabled()
        yield ng.is_grad_enabled()

    inside = []
    for state in steps():
        inside.append(state)
        assert ng.is_grad_enabled()
    assert inside == [False, False]


def test_mode_is_restored_after_an_exception():
    with pytest.raises(KeyError), ng.no_grad():
        raise KeyError
    assert ng.is_grad_enabled()


def test_grad_mode_belongs_to_the_thread():
    states = []
    with ng.no_grad():
        thread = threading.Thread(target=lambda: states.append(ng.is_grad_enabled()))
        thread.start()
        thread.join()
    assert states == [True]


def test_backward_from_many_threads_onto_a_shared_leaf():
    x = leaf(np.ones(100))
    errors = []

    def work():
        try:
            w = leaf(np.ones(100))
            for _ in range(50):
                (w * x.detach() * w).sum().backward()
            same(w.grad, np.full(100, 100.0))
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


# ----- hooks -----


def test_hooks_run_in_order_and_can_be_removed():
    seen = []
    x = leaf([1, 2])
    y = x * 3
    first = y.register_hook(lambda g: (seen.append("a"), g * 10)[1])
    y.register_hook(lambda g: (seen.append("b"), g + 1)[1])
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    assert seen == ["a", "b"]
    same(y.grad, [11, 11])
    same(x.grad, [33, 33])
    first.remove()
    y.sum().backward()
    assert seen == ["a", "b", "b"]


def test_hook_of_a_leaf_sees_the_whole_gradient_once():
    x = leaf([1, 2])
    seen = []
    x.register_hook(lambda g: seen.append(np.array(g)))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(np.array(t.grad)))
    (x * 2 + x * 3).sum().backward()
    assert [list(s) for s in seen] == [[5, 5], [5, 5]]


def test_node_hooks():
    x = leaf([1, 2])
    y = x * 3
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    y.grad_fn.register_hook(lambda ins, outs: (ins[0] + 1, ins[1]))
    y.sum().backward()
    same(x.grad, [7, 7])


@pytest.mark.parametrize(
    ("hook", "error"),
    [
        (lambda g: 1.0, TypeError),
        (lambda g: g[:1], RuntimeError),
        (lambda g: g.astype(np.float32), RuntimeError),
        (lambda g: {}["missing"], KeyError),
    ],
)
def test_a_hook_that_fails_leaves_every_grad_as_it_was(hook, error):
    x, w = leaf([1, 2]), leaf([3, 4])
    (x * w).sum().backward()
    y = x * w
    y.register_hook(hook)
    with pytest.raises(error):
        (y + w).sum().backward()
    same(x.grad, [3, 4])
    same(w.grad, [1, 2])


def test_hooks_run_in_double_backward_too():
    x = leaf([2.0])
    y = x * x
    calls = []
    y.register_hook(lambda g: calls.append(1))
    (g,) = ng.autograd.grad(y * y, x, [1.0], create_graph=True)
    ng.autograd.grad(g, x, [1.0])
    assert len(calls) == 2
