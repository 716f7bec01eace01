"""Custom functions. Tests that take `lib` run in PyTorch too, so that what they assert is its meaning."""

import gc
import warnings
import weakref

import numpy as np
import pytest
from both import same

import numbagrad as ng

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def define(lib, forward, backward, **more):
    """A Function of these two."""
    methods = {"forward": forward, "backward": backward, **more}
    return type("Made", (lib.autograd.Function,), {name: staticmethod(f) for name, f in methods.items()})


def double(ctx, x):
    return x * 2


def pass_double(ctx, g):
    return g * 2


# ----- the usual ways to write one -----


def test_forward_and_backward(lib):
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x**k

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k * x ** (ctx.k - 1), None

    x = lib.leaf([1.0, 2.0])
    y = define(lib, forward, backward).apply(x, 3)
    assert y.grad_fn.name() == "MadeBackward" and not y.is_leaf
    y.sum().backward()
    same(lib, x.grad, [3, 12])


def test_setup_context_and_defaults(lib):
    seen = []

    def setup_context(ctx, inputs, output):
        seen.append((inputs[1], lib.is_grad_enabled()))
        ctx.k = inputs[1]

    made = define(lib, lambda x, k=3: x * k, lambda ctx, g: (g * ctx.k, None), setup_context=setup_context)
    x = lib.leaf([1.0, 2.0])
    made.apply(x).sum().backward()
    made.apply(x, 5).sum().backward()
    assert seen == [(3, False), (5, False)]
    same(lib, x.grad, [8, 8])


def test_vjp_is_another_name_of_backward(lib):
    made = type("Made", (lib.autograd.Function,), {"forward": staticmethod(double), "vjp": staticmethod(pass_double)})
    x = lib.leaf([1.0, 2.0])
    made.apply(x).sum().backward()
    same(lib, x.grad, [2, 2])


def test_double_backward_through_inputs_and_outputs(lib):
    def forward(ctx, x):
        y = lib.exp(x)
        ctx.save_for_backward(x, y)
        return y * x

    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        return g * lib.exp(x) * (x + 1)

    x = lib.leaf([0.5, -1.0])
    y = define(lib, forward, backward).apply(x)
    (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = lib.autograd.grad(g.sum(), x)
    v = np.array([0.5, -1.0])
    same(lib, h, np.exp(v) * (v + 2))


def test_saved_output_is_differentiated_again(lib):
    def forward(ctx, x):
        y = lib.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y

    x = lib.leaf([0.5, -1.0])
    y = define(lib, forward, backward).apply(x)
    (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = lib.autograd.grad(g.sum(), x, create_graph=True)
    (k,) = lib.autograd.grad(h.sum(), x)
    same(lib, k, np.exp([0.5, -1.0]))


# ----- arguments and results -----


def test_needs_input_grad(lib):
    seen = []

    def forward(ctx, x, y, k):
        seen.append(ctx.needs_input_grad)
        return x * y

    made = define(lib, forward, lambda ctx, g: (g, None, None))
    made.apply(lib.leaf([1.0]), lib.const([1.0]), 3)
    with lib.no_grad():
        out = made.apply(lib.leaf([1.0]), lib.const([1.0]), 3)
    assert [tuple(s) for s in seen] == [(True, False, False)] * 2
    assert not out.requires_grad


def test_forward_records_nothing_and_sees_requires_grad(lib):
    seen = []

    def forward(ctx, x):
        y = x * 2
        seen.append((lib.is_grad_enabled(), x.requires_grad, y.requires_grad))
        return y

    define(lib, forward, pass_double).apply(lib.leaf([1.0]))
    assert seen == [(False, True, False)]


def test_several_outputs_with_zeros_for_the_unused(lib):
    seen = []

    def backward(ctx, g, h):
        seen.append((lib.values(g).tolist(), lib.values(h).tolist()))
        return g + h

    x = lib.leaf([1.0, 2.0])
    a, b = define(lib, lambda ctx, x: (x * 2, x * 3), backward).apply(x)
    assert (a.output_nr, b.output_nr) == (0, 1) and a.grad_fn is b.grad_fn
    a.sum().backward()
    assert seen == [([1, 1], [0, 0])]


def test_unused_outputs_may_stay_none(lib):
    seen = []

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx, g, h):
        seen.append((g is None, h is None))
        return g

    a, _ = define(lib, forward, backward).apply(lib.leaf([1.0]))
    a.sum().backward()
    assert seen == [(False, True)]


def test_results_that_are_no_tensors(lib):
    x = lib.leaf([1.0, 2.0])
    y, text, number, nothing = define(
        lib, lambda ctx, x: (x * 2, "a", 7, None), lambda ctx, *g: g[0] if g[1:] == (None,) * 3 else None
    ).apply(x)
    assert (text, number, nothing) == ("a", 7, None)
    y.sum().backward()
    same(lib, x.grad, [1, 1])


def test_non_differentiable_outputs(lib):
    def forward(ctx, x):
        a, b = x * 2, x * 3
        ctx.mark_non_differentiable(b)
        return a, b

    a, b = define(lib, forward, lambda ctx, g, h: g + h).apply(lib.leaf([1.0]))
    assert a.requires_grad and not b.requires_grad


def test_integer_outputs_need_no_mark():
    made = define(NG, lambda ctx, x: (x * 2, ng.argsort(x)), lambda ctx, g, h: g)
    a, order = made.apply(ng.tensor([2.0, 1.0], requires_grad=True))
    assert a.requires_grad and not order.requires_grad


def test_an_input_returned_as_it_is(lib):
    x = lib.leaf([1.0, 2.0])
    y = define(lib, lambda ctx, x: x, lambda ctx, g: g * 3).apply(x)
    assert y is not x
    y.sum().backward()
    same(lib, x.grad, [3, 3])


def test_a_gradient_may_be_none(lib):
    x = lib.leaf([1.0])
    define(lib, double, lambda ctx, g: None).apply(x).sum().backward()
    assert x.grad is None


def test_trailing_nones_are_allowed(lib):
    x = lib.leaf([1.0])
    define(lib, double, lambda ctx, g: (g, None, None)).apply(x).sum().backward()
    same(lib, x.grad, [1])


def test_a_gradient_is_summed_back_to_the_shape_of_its_input(lib):
    x = lib.leaf([1.0, 2.0])
    define(lib, double, lambda ctx, g: lib.const(np.ones((5, 2)))).apply(x).sum().backward()
    same(lib, x.grad, [5, 5])


def test_a_gradient_is_cast_to_the_dtype_of_its_input():
    x = ng.tensor(np.ones(2, np.float32), requires_grad=True)
    define(NG, double, lambda ctx, g: ng.tensor(np.ones(2))).apply(x).sum().backward()
    assert x.grad.dtype == np.float32


# ----- errors -----


def fail(lib, made, *args, match, error=RuntimeError):
    with pytest.raises(error, match=match):
        made.apply(*args or (lib.leaf([1.0, 2.0]),)).sum().backward()


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        ((), r"function MadeBackward returned an incorrect number of gradients \(expected 2, got 0\)"),
        ((1, 1, 1), r"incorrect number of gradients \(expected 2, got 3\)"),
        ((1, 1), "returned a gradient different than None at position 2, but the corresponding forward input was not"),
        ((3, None), r"returned an invalid gradient at index 0 - got \[3\] but expected shape compatible with \[2\]"),
        ((None, None), None),
    ],
)
def test_wrong_gradients(lib, returned, match):
    ones = {1: [1.0, 1.0], 3: [1.0, 1.0, 1.0]}
    made = define(lib, lambda ctx, x, k: x * 2, lambda ctx, g: tuple(r and lib.const(ones[r]) for r in returned))
    if match is None:
        made.apply(lib.leaf([1.0]), 3).sum().backward()
    else:
        fail(lib, made, lib.leaf([1.0, 2.0]), 3, match=match)


@pytest.mark.parametrize("returned", [3.0, "a", [1.0]])
def test_a_gradient_that_is_no_tensor(lib, returned):
    fail(lib, define(lib, double, lambda ctx, g: returned), match=r"expected Variable or None \(got ")


def test_methods_that_are_missing(lib):
    empty = type("Made", (lib.autograd.Function,), {})
    fail(lib, empty, match="You must implement the forward function", error=NotImplementedError)
    half = type("Made", (lib.autograd.Function,), {"forward": staticmethod(double)})
    fail(lib, half, match="must implement either the backward or vjp method", error=NotImplementedError)
    fail(lib, define(lib, double, pass_double, vjp=pass_double), match="Implementing both 'backward' and 'vjp'")


def test_calling_an_instance(lib):
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward"):
        define(lib, double, pass_double)()(lib.leaf([1.0]))


def test_what_is_saved_or_marked_must_be_a_tensor(lib):
    for method, error, match in [
        ("save_for_backward", TypeError, "can only save variables, but argument 0 is of type int"),
        ("mark_dirty", RuntimeError, "mark_dirty can only accept variables"),
        ("mark_non_differentiable", RuntimeError, "mark_non_differentiable only accepts variable arguments"),
    ]:
        made = define(lib, lambda ctx, x, method=method: getattr(ctx, method)(3), pass_double)
        fail(lib, made, match=match, error=error)


def saver(lib, which="input"):
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(x if which == "input" else y)
        return y

    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

    return define(lib, forward, backward)


def test_saved_tensors_are_freed(lib):
    y = saver(lib).apply(lib.leaf([1.0])).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


def test_without_saved_tensors_backward_runs_again(lib):
    x = lib.leaf([1.0])
    y = define(lib, double, pass_double).apply(x)
    y.backward(lib.const([1.0]))
    y.backward(lib.const([1.0]))
    same(lib, x.grad, [4])


@pytest.mark.parametrize("which", ["input", "output"])
def test_saved_tensors_that_were_written(lib, which):
    x = lib.leaf([1.0]) * 1
    y = saver(lib, which).apply(x)
    loss = y.sum() * 1
    (x if which == "input" else y).add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*is at version 1; expected version 0"):
        loss.backward()


# ----- writing in place -----


def writer(lib, save=False):
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        if save:
            ctx.save_for_backward(x)
        return x

    def backward(ctx, g):
        return g * ctx.saved_tensors[0] if save else g * 2

    return define(lib, forward, backward)


@pytest.mark.parametrize("save", [False, True])
def test_a_dirty_input_is_the_result(lib, save):
    x = lib.leaf([1.0, 3.0])
    z = x * 1
    y = writer(lib, save).apply(z)
    assert y is z and z.grad_fn.name() == "MadeBackward"
    (y * y).sum().backward()
    same(lib, x.grad, 2 * np.array([2.0, 6.0]) * (np.array([2.0, 6.0]) if save else 2))


def test_a_dirty_view_gives_its_base_a_new_history(lib):
    x = lib.leaf([1.0, 3.0])
    z = x * 1
    writer(lib).apply(z[:1])
    (z * lib.const([10.0, 100.0])).sum().backward()
    same(lib, x.grad, [20, 100])


def test_a_dirty_input_must_be_returned(lib):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x * 2

    fail(lib, define(lib, forward, pass_double), lib.leaf([1.0]) * 1, match="Some elements marked as dirty")


def test_a_dirty_leaf(lib):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x

    match = "a leaf Variable that requires grad has been used in an in-place operation"
    fail(lib, define(lib, forward, pass_double), match=match)


def test_marking_something_else_dirty_warns(lib):
    def forward(ctx, x):
        y = x * 2
        ctx.mark_dirty(y)
        return y

    with pytest.warns(UserWarning, match="received a tensor that was not an input"):
        define(lib, forward, pass_double).apply(lib.leaf([1.0]))


@pytest.mark.parametrize("forward", ["view", "itself"])
@pytest.mark.parametrize("written", ["result", "input"])
def test_views_that_a_function_returns_refuse_writes(lib, forward, written):
    z = lib.leaf([1.0, 2.0]) * 1
    y = define(lib, lambda ctx, x: lib.reshape(x, 2, 1) if forward == "view" else x, lambda ctx, g: g).apply(z)

    def write():
        (y if written == "result" else z).add_(1)
        return y.grad_fn

    with pytest.raises(RuntimeError, match=r"modified inplace.*This view was created inside a custom Function"):
        write()


# ----- once_differentiable -----


def test_once_differentiable(lib):
    seen = []

    def backward(ctx, g):
        seen.append(lib.is_grad_enabled())
        return g * 2

    once = lib.autograd.function.once_differentiable
    made, x, w = define(lib, double, once(backward)), lib.leaf([1.0]), lib.leaf(3.0)
    (g,) = lib.autograd.grad(made.apply(x).sum(), x, create_graph=True)
    assert not g.requires_grad
    (g,) = lib.autograd.grad((made.apply(x) * w).sum(), x, create_graph=True)
    same(lib, g, [6])
    with pytest.raises(RuntimeError, match=r"trying to differentiate twice.*once_differentiable"):
        g.sum().backward()
    assert seen == [False, False]


# ----- re-entrance, memory, hooks -----


def test_backward_within_backward(lib):
    def forward(ctx, x):
        with lib.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = (ctx.x**3).sum()
        return ctx.y.detach()

    def backward(ctx, g):
        with lib.enable_grad():
            ctx.y.backward()
        return ctx.x.grad * g

    x = lib.leaf([1.0, 2.0])
    (define(lib, forward, backward).apply(x * 2) * 5).backward()
    same(lib, x.grad, 5 * 3 * np.array([2.0, 4.0]) ** 2 * 2)


def test_a_hundred_nested_backwards(lib):
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x.clone()

    def backward(ctx, g):
        if ctx.depth > 0:
            with lib.enable_grad():
                inner = lib.leaf([1.0])
                made.apply(inner, ctx.depth - 1).sum().backward()
                return g + inner.grad, None
        return g, None

    made = define(lib, forward, backward)
    x = lib.leaf([1.0])
    made.apply(x, 50).sum().backward()
    same(lib, x.grad, [51])


def test_the_memory_of_a_returned_gradient_stays_the_users(lib):
    kept = lib.const([1.0, 1.0])
    x = lib.leaf([1.0, 2.0])
    made = define(lib, double, lambda ctx, g: kept)
    made.apply(x).sum().backward()
    made.apply(x).sum().backward()
    x.grad.add_(10)
    same(lib, kept, [1, 1])
    if lib.name == "numbagrad":  # PyTorch's autograd.grad hands out the user's memory
        (g,) = lib.autograd.grad(made.apply(x).sum(), x)
        g.add_(1)
        same(lib, kept, [1, 1])


def test_hooks_see_the_functions_gradients(lib):
    x = lib.leaf([1.0])
    y = define(lib, double, pass_double).apply(x)
    seen = []
    y.register_hook(lambda g: seen.append("tensor") or g * 10)
    y.grad_fn.register_prehook(lambda g: seen.append("before"))
    y.grad_fn.register_hook(lambda gi, go: seen.append("after"))
    y.sum().backward()
    assert seen == ["tensor", "before", "after"]
    same(lib, x.grad, [20])


def test_an_error_in_backward_keeps_its_type_and_leaves_no_gradient(lib):
    def backward(ctx, g):
        raise KeyError("mine")

    x = lib.leaf([1.0])
    with pytest.raises(KeyError, match="mine"):
        define(lib, double, backward).apply(x).sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("which", ["input", "output"])
def test_a_function_leaves_no_cycles(which):
    gc.collect()
    gc.disable()
    try:
        y = saver(NG, which).apply(ng.tensor([1.0], requires_grad=True))
        refs = [weakref.ref(y), weakref.ref(y.grad_fn)]
        del y
        assert [r() for r in refs] == [None, None]
    finally:
        gc.enable()


def test_saved_tensors_are_read_from_the_node(lib):
    y = saver(lib).apply(lib.leaf([5.0]))
    same(lib, y.grad_fn.saved_tensors[0], [5])


def test_instances_are_deprecated():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeprecationWarning, match="should not be instantiated"):
            define(NG, double, pass_double)()


# ----- forward mode -----


def push(ctx, t, k):
    return t * ctx.k


def test_jvp_of_ones_own():
    made = define(NG, *scale, jvp=push)
    _, tangent = ng.jvp(lambda x: made.apply(x, 3.0), (ng.tensor([1.0, 2.0]),), (ng.tensor([1.0, 10.0]),))
    same(NG, tangent, [3, 30])


def test_forward_mode_is_derived_from_backward():
    made = define(NG, *scale)
    _, tangent = ng.jvp(lambda x: made.apply(x, 3.0), (ng.tensor([1.0, 2.0]),), (ng.tensor([1.0, 10.0]),))
    same(NG, tangent, [3, 30])


def test_jvp_reads_what_was_saved_for_it():
    def forward(ctx, x):
        ctx.save_for_forward(x)
        return x * x

    made = define(NG, forward, lambda ctx, g: None, jvp=lambda ctx, t: 2 * ctx.saved_tensors[0] * t)
    _, tangent = ng.jvp(made.apply, (ng.tensor([1.0, 2.0]),), (ng.tensor([1.0, 10.0]),))
    same(NG, tangent, [2, 40])


def test_jvp_of_a_wrong_shape():
    made = define(NG, *scale, jvp=lambda ctx, t, k: ng.tensor([1.0, 1.0, 1.0]))
    with pytest.raises(RuntimeError, match=r"jvp returned \(3,\) as tangent 0, expected a Tensor of shape \(2,\)"):
        ng.jvp(lambda x: made.apply(x, 3.0), (ng.tensor([1.0, 2.0]),), (ng.tensor([1.0, 10.0]),))


def _scale(ctx, x, k):
    ctx.k = k
    return x * k


scale = (_scale, lambda ctx, g: (g * ctx.k, None))


class NG:
    """numbagrad alone, for what PyTorch has not."""

    name = "numbagrad"
    autograd = ng.autograd
    values = staticmethod(lambda t: np.asarray(t.detach()))
