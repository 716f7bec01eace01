"""autograd.graph: edges, saved-tensor hooks, hooks on several tensors, what is kept and how it looks.

Tests that take `lib` run in PyTorch too, so that what they assert is its meaning.
"""

import gc
import shutil
import threading
import weakref

import numpy as np
import pytest
from both import same

import numbagrad as ng

graph = ng.autograd.graph


def leaf(data):
    return ng.tensor(np.asarray(data, float), requires_grad=True)


# ----- gradient edges -----


def test_an_edge_stands_for_its_tensor(lib):
    edge_of = lib.autograd.graph.get_gradient_edge
    x = lib.leaf([1.0, 2.0])
    y = x * 2
    loss = (y * y).sum()
    edge = edge_of(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    del y
    got = lib.autograd.grad(loss, [edge, edge_of(x)], retain_graph=True)
    same(lib, got[0], [4, 8])
    same(lib, got[1], [8, 16])
    lib.autograd.backward(edge_of(loss), lib.const(1.0))
    same(lib, x.grad, [8, 16])


def test_an_edge_of_one_of_several_outputs(lib):
    made = type(
        "Two",
        (lib.autograd.Function,),
        {
            "forward": staticmethod(lambda ctx, x: (x * 2, x * 3)),
            "backward": staticmethod(lambda ctx, g, h: 2 * g + 3 * h),
        },
    )
    x = lib.leaf([1.0])
    a, b = made.apply(x)
    edge = lib.autograd.graph.get_gradient_edge(b)
    assert edge.output_nr == 1
    (got,) = lib.autograd.grad((a * 5 + b * 7).sum(), edge, retain_graph=True)
    same(lib, got, [7])
    same(lib, lib.autograd.grad(edge, x, lib.const([1.0]))[0], [3])


def test_the_edge_of_a_leaf_is_where_gradients_accumulate(lib):
    edge = lib.autograd.graph.get_gradient_edge(lib.leaf([1.0]))
    assert "AccumulateGrad" in edge.node.name()


def test_a_constant_has_no_edge(lib):
    with pytest.raises(RuntimeError, match="not possible to get the gradient edge for a Tensor that does not require"):
        lib.autograd.graph.get_gradient_edge(lib.const([1.0]))


# ----- saved-tensor hooks -----


def test_every_saved_value_is_packed_and_unpacked_once(lib):
    events = []

    def pack(t):
        events.append("pack")
        assert not t.requires_grad or lib.name == "torch"
        return lib.values(t).copy()

    def unpack(array):
        events.append("unpack")
        return lib.const(array)

    x, w = lib.leaf([1.0, 2.0]), lib.leaf([3.0, 4.0])
    with lib.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = lib.exp(x) * w
    assert events == ["pack"] * 3
    y.sum().backward()
    assert events == ["pack"] * 3 + ["unpack"] * 3
    same(lib, x.grad, np.exp([1.0, 2.0]) * [3, 4])
    same(lib, w.grad, np.exp([1.0, 2.0]))


def test_what_unpack_gives_is_what_backward_uses(lib):
    x, w = lib.leaf([1.0]), lib.leaf([1.0])
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 10):
        y = x * w
    y.sum().backward()
    same(lib, x.grad, [10])


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x * x).sum(),
        lambda x: ng.exp(x * 2).sum(),
        lambda x: (ng.tanh(x)[1:] * x[:2]).mean(),
        lambda x: (ng.outer(x, x) @ x).sum(),
        lambda x: ng.linalg.norm(x),
        lambda x: ng.stack([x, x * x]).prod(),
        lambda x: ng.maximum(x, 0.5).cumsum().sum(),
        lambda x: ng.where(x > 1, x * x, x).sum(),
        lambda x: ng.einsum("i,j->", x, x),
        lambda x: ((x.reshape(3, 1) @ x.reshape(1, 3)) @ ng.ones((3, 3))).sum(),
        lambda x: (x.reshape(3, 1) / x).std(),
        lambda x: ng.sort(x * x)[::2].max(),
        lambda x: ng.linalg.inv(ng.outer(x, x) + ng.eye(3)).sum(),
        lambda x: (x * x).mean() * x.var(),
    ],
)
def test_hooks_change_no_gradient_of_any_order(program):
    def orders(roles=None):
        x = leaf([0.3, 1.2, 2.5])
        y = program(x)
        assert roles is None or {s.role for s in graph.list_saved(y)} == roles
        (g,) = ng.autograd.grad(y, x, create_graph=True)
        (h,) = ng.autograd.grad((g * g).sum(), x, allow_unused=True, materialize_grads=True)
        return g, h

    plain = orders()
    packed = []
    with graph.saved_tensors_hooks(
        lambda t: packed.append(t) or ("kept", np.array(t)), lambda kept: ng.tensor(kept[1])
    ):
        hooked = orders({"packed"})
    assert packed
    for a, b in zip(plain, hooked, strict=True):
        np.testing.assert_array_equal(a.detach(), b.detach())


def test_the_innermost_pair_of_hooks_is_asked(lib):
    hooks, seen = lib.autograd.graph.saved_tensors_hooks, []
    x = lib.leaf([1.0])
    with hooks(lambda t: seen.append("outer") or t, lambda t: t):
        with hooks(lambda t: seen.append("inner") or t, lambda t: t):
            lib.exp(x)
        lib.exp(x)
    lib.exp(x)
    assert seen == ["inner", "outer"]


def test_functions_save_through_the_hooks(lib):
    seen = []

    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(x, None, y)
        return y

    def backward(ctx, g):
        x, nothing, y = ctx.saved_tensors
        assert nothing is None
        return g * x * y

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made = type("Made", (lib.autograd.Function,), methods)
    x = lib.leaf([3.0])
    with lib.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        y = made.apply(x)
    y.sum().backward()
    assert seen == [1, 1]
    same(lib, x.grad, [18])


def test_a_pack_hook_that_writes(lib):
    x = lib.leaf([1.0])

    def pack(t):
        t.mul_(2)
        return t

    writing = lib.autograd.graph.saved_tensors_hooks(pack, lambda t: t)
    with pytest.raises(RuntimeError, match="pack hook is modifying its input in place"), writing:
        (x * 1) * (x * 1)


def test_an_unpack_hook_that_gives_no_tensor(lib):
    x = lib.leaf([1.0])
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x * x
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor"):
        y.sum().backward()


def test_an_error_in_a_pack_hook_closes_the_context(lib):
    def pack(t):
        raise KeyError("mine")

    x = lib.leaf([2.0])
    with pytest.raises(KeyError), lib.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        x * x
    (x * x).sum().backward()
    same(lib, x.grad, [4])


def test_hooks_belong_to_their_thread():
    seen = []
    x = leaf([1.0])
    with graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        thread = threading.Thread(target=lambda: (x * x).sum().backward())
        thread.start()
        thread.join()
    assert not seen
    np.testing.assert_array_equal(x.grad, [2])


def test_hooks_can_be_refused(lib):
    def use():
        with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass

    with lib.autograd.graph.disable_saved_tensors_hooks("not today"), pytest.raises(RuntimeError, match="not today"):
        use()
    use()


def test_save_on_cpu_changes_nothing(lib):
    x = lib.leaf([1.0, 2.0])
    with lib.autograd.graph.save_on_cpu():
        y = (x * x * x).sum()
    y.backward()
    same(lib, x.grad, [3, 12])


# ----- writing into what was saved -----


def test_mutation_of_saved_tensors(lib):
    x = lib.leaf([1.0, 2.0])
    with lib.autograd.graph.allow_mutation_on_saved_tensors():
        y = x * 1
        z = y * y
        y.add_(100)
        (z.sum() + y.sum()).backward()
    same(lib, x.grad, [3, 5])


def test_mutation_of_a_saved_output(lib):
    x = lib.leaf([0.5, 1.0])
    with lib.autograd.graph.allow_mutation_on_saved_tensors():
        y = lib.exp(x)
        z = y.sum()
        y.mul_(2)
        z.backward()
    same(lib, x.grad, np.exp([0.5, 1.0]))


@pytest.mark.parametrize("write", ["mul_", "add_", "pow_"])
def test_in_place_ops_give_hooks_the_old_value(lib, write):
    x, w = lib.leaf([1.0, 2.0]), lib.leaf(3.0)
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x * 1
        getattr(y, write)(w)
    y.sum().backward()
    v = np.array([1.0, 2.0])
    want = {"mul_": v.sum(), "add_": 2, "pow_": (v**3 * np.log(v)).sum()}
    np.testing.assert_allclose(lib.values(w.grad), want[write])


def test_writes_by_other_means_can_be_told(lib):
    y = lib.leaf([1.0, 2.0]) * 1
    z = (y * y).sum()
    lib.autograd.graph.increment_version(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    lib.autograd.graph.increment_version([lib.const(1.0), lib.const(2.0)])


# ----- hooks on several tensors -----


def test_multi_grad_hook_waits_for_all(lib):
    seen = []
    a, b, c = (lib.leaf([float(i + 1)]) for i in range(3))
    m = a * b
    handle = lib.autograd.graph.register_multi_grad_hook(
        (a, m, c), lambda grads: seen.append([None if g is None else lib.values(g).tolist() for g in grads])
    )
    (m * 5).sum().backward()
    assert seen == [[[10], [5], None]]
    (a * b + c).sum().backward()
    assert seen[1:] == [[[2], None, [1]]]
    handle.remove()
    (a * b + c).sum().backward()
    assert len(seen) == 2


def test_multi_grad_hook_knows_what_grad_asks_for(lib):
    seen = []
    a, b = lib.leaf([2.0]), lib.leaf([3.0])
    m = a * 1
    lib.autograd.graph.register_multi_grad_hook((m, b), lambda grads: seen.append([g is None for g in grads]))
    lib.autograd.grad((m * b).sum(), a)
    assert seen == [[False, True]]


def test_multi_grad_hook_when_a_node_gets_no_gradient(lib):
    seen = []
    stop = type(
        "Stop",
        (lib.autograd.Function,),
        {"forward": staticmethod(lambda ctx, x: x * 2), "backward": staticmethod(lambda ctx, g: None)},
    )
    a = lib.leaf([2.0])
    m = a * 3
    n = stop.apply(m)
    lib.autograd.graph.register_multi_grad_hook((m, n), lambda grads: seen.append([g is None for g in grads]))
    n.sum().backward()
    assert seen == [[True, False]]


def test_multi_grad_hook_for_any(lib):
    seen = []
    a, b = lib.leaf([2.0]), lib.leaf([3.0])
    m = a * b
    lib.autograd.graph.register_multi_grad_hook((a, m), lambda g: seen.append(lib.values(g).tolist()), mode="any")
    for _ in range(2):
        (m * 7).sum().backward(retain_graph=True)
    assert seen == [[7], [7]]


def test_multi_grad_hook_of_another_mode(lib):
    with pytest.raises(ValueError, match="one of"):
        lib.autograd.graph.register_multi_grad_hook((), print, mode="some")


def test_multi_grad_hook_keeps_no_graph_alive():
    gc.collect()
    gc.disable()
    try:
        y = leaf([1.0]) * 2
        graph.register_multi_grad_hook([y], print)
        ref = weakref.ref(y)
        del y
        assert ref() is None
    finally:
        gc.enable()


# ----- what is kept -----


def test_list_saved_counts_memory_once():
    x = leaf(np.ones(1000))
    y = ng.exp(x)
    z = (y * y).sum()
    saved = graph.list_saved(z)
    assert [s.op for s in saved] == ["multiply", "multiply", "exp"]
    assert sum(s.nbytes for s in saved) == 8000
    assert {s.role for s in saved} == {"input", "output"}
    assert saved[0].shape == (1000,) and saved[0].dtype == np.float64
    z.backward()
    assert graph.list_saved(z) == []


def test_list_saved_sees_what_views_keep():
    big = leaf(np.ones((100, 100)))
    row = (big * 1)[0]
    assert sum(s.nbytes for s in graph.list_saved(row * row)) == 80_000


def test_list_saved_names_lines_under_anomaly_mode():
    with pytest.warns(UserWarning, match="Anomaly"), ng.autograd.detect_anomaly():
        y = leaf([1.0, 2.0]) ** 3
    (saved,) = graph.list_saved(y)
    assert saved.line.startswith(__file__) and saved.line.endswith("test_list_saved_names_lines_under_anomaly_mode")


def test_list_saved_of_hooked_values():
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = ng.exp(leaf(np.ones(10)))
    (saved,) = graph.list_saved(y)
    assert (saved.role, saved.shape, saved.nbytes) == ("packed", (10,), 80)


# ----- pictures -----


def test_draw_as_text():
    x, w = leaf(np.ones((2, 3))), leaf(np.ones(3))
    text = graph.draw(ng.tanh(x @ w).sum())
    assert [line.split()[0] for line in text.splitlines()] == ["sum", "tanh", "matmul", "leaf", "leaf"]
    assert "(2, 3) float64" in text and "keeps 72 bytes" in text


def test_draw_tells_equal_ops_apart():
    x = leaf(1.0)
    assert graph.draw(ng.exp(ng.exp(x))).splitlines()[0].startswith("exp.1 () float64 <- exp.0")


def test_draw_as_dot():
    text = graph.draw((leaf([1.0]) * 2).sum(), "dot")
    assert text.startswith("digraph {") and text.endswith("}")
    assert '"multiply" -> "sum"' in text and '"leaf 0" -> "multiply"' in text


def test_draw_leaves_and_constants():
    assert graph.draw(leaf([1.0])) == "leaf 0: (1,) float64"
    assert graph.draw(ng.tensor(1.0)) == ""


@pytest.mark.parametrize("format", ["svg", "png"])
def test_draw_as_picture(format):
    y = leaf([1.0]) * 2
    if shutil.which("dot"):
        assert len(graph.draw(y, format)) > 100
    else:
        with pytest.raises(RuntimeError, match="needs graphviz's program dot"):
            graph.draw(y, format)


def test_draw_in_another_format():
    with pytest.raises(ValueError, match="text, dot, svg, png, not 'gif'"):
        graph.draw(leaf([1.0]) * 2, "gif")
