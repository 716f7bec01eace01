"""numbagrad.fx: what is traced computes what the function computes, and graphs are changed without breaking."""

import operator
import threading

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import fx
from numbagrad import numpy as nnp


def rng(shape=(3, 4), seed=0):
    return np.random.default_rng(seed).uniform(0.2, 0.9, shape)


PROGRAMS = {
    "operators": lambda x: (2 - x) * x / (1 + x) ** 2 - -x % 0.7 + abs(x) // 0.3,
    "reflected": lambda x: 2**x + 1 / x - (3 - x),
    "array on the left": lambda x: rng((4,), 1) * x + rng((3, 1), 2),
    "matrix product": lambda x: x @ x.T + rng((3, 4), 1) @ x.T,
    "indexing": lambda x: x[1:, ::2] + x[..., -1:][:2] + x[None, 0, :2],
    "array index": lambda x: x[np.array([0, 2, 0])],
    "methods": lambda x: x.sum(axis=1, keepdims=True) + x.mean() - x.reshape(4, 3).T.exp(),
    "our functions": lambda x: ng.where(x > 0.5, ng.log(x), ng.sqrt(x)) + ng.tanh(x),
    "lists of values": lambda x: ng.concatenate([x, ng.sin(x)], axis=1),
    "NumPy's functions": lambda x: np.concatenate((np.sin(x), np.exp(x))) + np.maximum(x, 0.5).sum(),
    "our numpy": lambda x: nnp.einsum("ij,kj->ik", x, nnp.cos(x)) + nnp.sum(x),
    "a ufunc's method of ours": lambda x: nnp.add.reduce(x, axis=0),
    "a ufunc's method": lambda x: np.add.reduce(x, axis=0),
    "linear algebra": lambda x: ng.linalg.inv(x @ x.T + np.eye(3)),
    "containers": lambda x: {"a": (x + 1, [x * 2]), "b": x},
    "unpacked": lambda x: (lambda rows: rows[0] * rows[1] + rows[2])(unpack(x)),
    "a shape": lambda x: x.reshape(x.shape[1], x.shape[0]) * x.shape[0],
    "special numbers": lambda x: ng.where(x > 0.5, ng.inf, x) + ng.where(x > 0.5, float("nan"), -ng.inf),
    "arguments named as functions": lambda x: helper(sum=x, np=x * 2),
}


def unpack(x):
    a, b, c = x
    return a, b, c


def helper(sum, np):
    return ng.sum(sum) + np


def same(got, want):
    if isinstance(want, dict):
        assert list(got) == list(want)
        got, want = list(got.values()), list(want.values())
    if isinstance(want, (tuple, list)):
        assert type(got) is type(want) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
        return
    assert type(got) is type(want)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(ng.asarray(got).detach().numpy(), ng.asarray(want).detach().numpy())


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("run", ["code", "interpreter", "transformer"])
def test_a_traced_function_computes_what_the_function_computes(name, run):
    f = PROGRAMS[name]
    traced = fx.symbolic_trace(f)
    traced.graph.lint()
    if run == "transformer":
        traced = fx.Transformer(traced).transform()
    call = fx.Interpreter(traced).run if run == "interpreter" else traced
    for shape_of_new_values in (0, 1):
        x = ng.tensor(rng(seed=shape_of_new_values))
        same(call(x), f(x))


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("containers", "special numbers", "a shape")])
def test_gradients_go_through_what_was_traced(name):
    f = PROGRAMS[name]
    found = []
    for call in (f, fx.symbolic_trace(f)):
        x = ng.tensor(rng(), requires_grad=True)
        call(x).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_plain_arrays_stay_plain_with_numpys_functions():
    traced = fx.symbolic_trace(lambda x: np.sin(x) * 2)
    assert type(traced(rng())) is np.ndarray


def test_signature_defaults_and_keywords_are_kept():
    def f(x, scale=3.0, *, shift):
        return x * scale + shift

    traced = fx.symbolic_trace(f)
    for one in (traced, fx.Transformer(traced).transform()):
        assert one(2.0, shift=1.0) == 7.0
        assert one(2.0, 1.0, shift=1.0) == 3.0
        with pytest.raises(TypeError):
            one(2.0, 1.0, 1.0)
        with pytest.raises(TypeError):
            one(2.0, wrong=1.0)


def test_concrete_arguments_decide_branches():
    def f(x, training, times):
        for _ in range(times):
            x = x * 2 if training else x
        return x

    traced = fx.symbolic_trace(f, {"training": True, "times": 3})
    assert [n.name for n in traced.graph.find_nodes(op="placeholder")] == ["x"]
    assert traced(1.0) == 8.0
    with pytest.raises(TypeError, match="nothing"):
        fx.symbolic_trace(f, {"nothing": 1})


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: x if x > 0 else -x, "truth"),
        (lambda x: [a + 1 for a in x], "iterated"),
        (lambda x: len(x), "length"),
        (lambda x: float(x), "number"),
        (lambda x: list(range(x)), "number"),
        (lambda x: 1 in x, "searched"),
        (lambda x: np.asarray(x), "array"),
        (lambda *x: x, "no fixed name"),
    ],
)
def test_what_a_graph_cannot_hold_is_refused_with_the_line(f, what):
    with pytest.raises(fx.TraceError, match=what) as caught:
        fx.symbolic_trace(f)
    assert what == "no fixed name" or f"test_fx.py:{f.__code__.co_firstlineno}" in str(caught.value)
    assert float(ng.sin(0.0)) == 0.0  # our functions are themselves again


def test_a_failed_trace_leaves_our_functions_as_they_were():
    before = {name: vars(ng)[name] for name in ("sin", "sum", "where")}
    with pytest.raises(ZeroDivisionError):
        fx.symbolic_trace(lambda x: ng.sin(x) / (1 // 0))
    assert before == {name: vars(ng)[name] for name in before}


def test_a_value_kept_from_another_trace_is_refused():
    kept = []
    fx.symbolic_trace(lambda x: kept.append(x))
    with pytest.raises(fx.TraceError, match="another trace"):
        fx.symbolic_trace(lambda x: x + kept[0])


def test_a_constant_that_needs_a_gradient_of_its_own_is_refused():
    w = ng.tensor([1.0], requires_grad=True)
    with pytest.raises(fx.TraceError, match="outside of the trace"):
        fx.symbolic_trace(lambda x: x * (w * 2))
    traced = fx.symbolic_trace(lambda x: x * w)
    traced(ng.tensor([5.0])).sum().backward()
    assert w.grad.tolist() == [5.0]


def test_writing_is_kept_though_nobody_reads_the_result():
    def f(x):
        x[0] = 7.0
        unused = ng.sin(x)  # noqa: F841
        return x

    traced = fx.symbolic_trace(f)
    assert traced.graph.eliminate_dead_code()
    assert not traced.graph.eliminate_dead_code()
    traced.recompile()
    assert [n.target for n in traced.graph.find_nodes(op="call_function")] == [operator.setitem]
    assert traced(ng.tensor([1.0, 2.0])).tolist() == [7.0, 2.0]


def test_steps_are_inserted_replaced_and_erased():
    traced = fx.symbolic_trace(lambda x: ng.sin(x) + 1)
    graph = traced.graph
    (sin,) = graph.find_nodes(op="call_function", target=ng.sin)
    with pytest.raises(RuntimeError, match="used by add"):
        graph.erase_node(sin)
    with graph.inserting_after(sin):
        cos = graph.call_function(ng.cos, (sin.args[0],))
    assert sin.replace_all_uses_with(cos) == graph.find_nodes(op="call_function", target=operator.add)
    graph.erase_node(sin)
    with graph.inserting_before(cos):
        twice = graph.call_function(operator.mul, (cos.args[0], 2))
    cos.replace_input_with(cos.args[0], twice)
    traced.recompile()
    assert [n.name for n in graph] == ["x", "mul", "cos", "add", "output"]
    np.testing.assert_allclose(float(traced(0.5)), np.cos(1.0) + 1)
    with pytest.raises(ValueError, match="not of this graph"):
        graph.call_function(ng.sin, (sin,))


def test_lint_finds_what_cannot_run():
    graph = fx.symbolic_trace(lambda x: ng.sin(x) + 1).graph
    sin, add = graph.find_nodes(op="call_function")
    sin.args = (add,)
    with pytest.raises(RuntimeError, match="does not run before"):
        graph.lint()
    other = fx.Graph()
    sin.args = (other.placeholder("y"),)
    with pytest.raises(RuntimeError, match="not of this graph"):
        graph.lint()
    with pytest.raises(ValueError, match="opcodes are"):
        graph.create_node("call", "x")


def test_names_are_unique_and_no_keywords():
    def f(x):
        for _ in range(12):
            x = ng.add(x, x)
        return ng.sum(x)

    names = [n.name for n in fx.symbolic_trace(f).graph]
    assert len(set(names)) == len(names)
    assert "sum" not in names


def test_patterns_are_replaced_everywhere():
    def f(x, y):
        return ng.log(ng.exp(x) + ng.exp(y)) + ng.log(ng.exp(y) + ng.exp(x * 2))

    traced = fx.symbolic_trace(f)
    x, y = ng.tensor(rng()), ng.tensor(rng(seed=1))
    want = f(x, y).numpy()
    found = fx.replace_pattern(traced, lambda a, b: ng.log(ng.exp(a) + ng.exp(b)), lambda a, b: ng.logaddexp(a, b))
    assert len(found) == 2
    assert len(traced.graph.find_nodes(op="call_function", target=ng.logaddexp)) == 2
    assert not traced.graph.find_nodes(op="call_function", target=ng.exp)
    np.testing.assert_allclose(traced(x, y).numpy(), want, rtol=1e-14)


def test_a_pattern_in_a_chain_is_replaced_link_by_link():
    traced = fx.symbolic_trace(lambda x: ng.sin(ng.sin(ng.sin(x))))
    assert len(fx.replace_pattern(traced, lambda a: ng.sin(a), lambda a: ng.cos(a))) == 3
    np.testing.assert_allclose(float(traced(0.3)), np.cos(np.cos(np.cos(0.3))))


def test_what_is_used_outside_of_a_pattern_is_left():
    def f(x):
        e = ng.exp(x)
        return ng.log(e + 1) + e

    traced = fx.symbolic_trace(f)
    assert fx.replace_pattern(traced, lambda a: ng.log(ng.exp(a) + 1), lambda a: a) == []


def test_an_interpreter_says_where_an_error_was_traced():
    traced = fx.symbolic_trace(lambda x: x @ x)
    with pytest.raises(ValueError) as caught:
        fx.Interpreter(traced).run(ng.ones((2, 3)))
    assert any("while running" in n and "test_fx.py" in n for n in caught.value.__notes__)
    with pytest.raises(TypeError, match="takes 1 arguments, got 2"):
        fx.Interpreter(traced).run(ng.ones((2, 2)), 1)
    with pytest.raises(TypeError, match="wants an argument 'x'"):
        fx.Interpreter(traced).run()


def test_a_table_is_printed(capsys):
    fx.symbolic_trace(lambda x: ng.sin(x) + 1).graph.print_tabular()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert lines[3].split()[:3] == ["call_function", "sin", "sin"]


class Scale:
    """A module by its methods alone."""

    def __init__(self, weight, children=()):
        self.weight = weight
        for name, child in children:
            setattr(self, name, child)
        self._children = children

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, child in self._children:
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self):
        for prefix, module in self.named_modules():
            yield f"{prefix}.weight" if prefix else "weight", module.weight

    def __call__(self, x):
        return self.forward(x)

    def forward(self, x):
        for _, child in self._children:
            x = child(x)
        return x * self.weight


@pytest.mark.parametrize("leaf", [False, True])
def test_modules_are_traced(leaf):
    def weight(v):
        return ng.tensor(v, requires_grad=True)

    root = Scale(weight(2.0), (("inner", Scale(weight(3.0), (("deep", Scale(weight(5.0))),))),))
    tracer = type("T", (fx.Tracer,), {"is_leaf_module": lambda self, m, path: leaf})()
    graph = tracer.trace(root)
    traced = fx.GraphModule(root, graph)
    assert [n.target for n in graph.find_nodes(op="call_module")] == (["inner"] if leaf else [])
    attrs = {n.target for n in graph.find_nodes(op="get_attr")}
    assert attrs == ({"weight"} if leaf else {"weight", "inner.weight", "inner.deep.weight"})
    traced(1.0).backward()
    assert [p.grad.tolist() for p in traced.parameters()] == [15.0, 10.0, 6.0]
    graph.get_attr("nowhere")
    with pytest.raises(RuntimeError):
        graph.lint()


def test_threads_trace_and_compute_at_once():
    failed = []

    def work(seed):
        try:
            for _ in range(5):
                f = PROGRAMS["our functions"]
                x = ng.tensor(rng(seed=seed))
                same(fx.symbolic_trace(f)(x), f(x))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


class Model(ng.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = ng.nn.Sequential(ng.nn.Linear(4, 5), ng.nn.Tanh(), ng.nn.Linear(5, 4))
        self.scale = ng.nn.Parameter(np.full(4, 0.5))
        self.register_buffer("shift", ng.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x):
        return ng.nn.functional.gelu(self.layers(x) * self.scale + self.shift)


@pytest.mark.parametrize("inside", [False, True])
def test_models_of_nn_are_traced_with_their_parameters(inside):
    model = Model().double()
    tracer = type("T", (fx.Tracer,), {"is_leaf_module": lambda *_: False})() if inside else fx.Tracer()
    traced = fx.GraphModule(model, tracer.trace(model))
    calls = [n.target for n in traced.graph.find_nodes(op="call_module")]
    assert calls == ([] if inside else ["layers.0", "layers.1", "layers.2"])
    assert {n.target for n in traced.graph.find_nodes(op="get_attr")} >= {"scale", "shift"}
    x, found = ng.tensor(rng()), []
    for call in (model, traced, fx.Interpreter(traced).run, fx.Transformer(traced).transform()):
        model.zero_grad()
        out = call(x)
        out.sum().backward()
        found.append([out.detach().numpy(), *(p.grad.numpy() for p in model.parameters())])
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_the_step_at_the_place_of_insertion_can_be_erased():
    graph = fx.symbolic_trace(lambda x: (ng.sin(x), x)[1] + 1).graph
    (sin,) = graph.find_nodes(op="call_function", target=ng.sin)
    with graph.inserting_before(sin):
        graph.erase_node(sin)
        graph.call_function(ng.cos, graph.nodes[:1])
    graph.lint()
    assert [n.name for n in graph] == ["x", "cos", "add", "output"]


def test_every_op_is_caught_by_its_public_name():
    from numbagrad.ops import OPS

    names = [name for name in OPS if name in ng.__all__]
    assert len(names) > 100
    for name in names:
        graph = fx.symbolic_trace(lambda x, name=name: getattr(ng, name)(x), {"name": name}).graph
        assert [n.target for n in graph.find_nodes(op="call_function")] == [getattr(ng, name)], name
