"""vmap of every op is the stack of its calls, and so are gradients; Jacobians in one sweep are those of loops."""

import itertools
import warnings

import numpy as np
import pytest
from every_op import PRIMITIVES, WITHOUT_CALL, arguments, elementwise_ops, primitives

import numbagrad as ng
from numbagrad.ops.registry import OPS
from numbagrad.ops.vectorizing import BatchingWarning

RTOL = 1e-9
# No batching rule: it goes through the entries one by one.
SLOW = {"add_reduceat", "lstsq", "ldexp", "convolve", "roots", "bincount", "sums_at"}

every_primitive = pytest.mark.parametrize("name", list(PRIMITIVES))
every_elementwise = pytest.mark.parametrize("op", elementwise_ops(), ids=lambda op: op.name)


def calls_of(name):
    f, *shapes = PRIMITIVES[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    return f, [rng.uniform(0.5, 1.5, size=(3, *shape)) for shape in shapes]


def looped(f, args):
    return np.stack([np.asarray(f(*entry)) for entry in zip(*args, strict=True)])


def loss_of(f):
    return lambda *args: ng.sum(f(*args) ** 2)


def quiet(name):
    """No warning is expected, except of ops that have no batching rule."""
    if name in SLOW:
        warnings.simplefilter("ignore", BatchingWarning)


def close(got, want):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=RTOL, atol=1e-11)


def graph_names(f, args):
    """Ops in the graphs of a result and of its first derivatives."""
    leaves = [ng.tensor(a[0], requires_grad=True) for a in args]
    out = ng.sum(f(*leaves) ** 2)
    grads = ng.autograd.grad(out, leaves, create_graph=True, allow_unused=True)
    ng.autograd.grad(sum((g * g).sum() for g in grads if g is not None), leaves, retain_graph=True, allow_unused=True)
    found, stack = set(), [t.grad_fn for t in [out, *grads] if t is not None and t.grad_fn is not None]
    seen = set()
    while stack:
        node = stack.pop()
        if node in seen or not hasattr(node, "op"):
            continue
        seen.add(node)
        found.add(node.op.name)
        stack += [n for n, _ in node.next_functions if n is not None]
    return found


def test_every_op_has_a_call():
    assert set(primitives()) == set(PRIMITIVES) | set(WITHOUT_CALL)


@every_primitive
def test_the_call_uses_the_op(name):
    f, args = calls_of(name)
    used = set()
    original = type(OPS[name]).__call__

    def spy(self, *a, **k):
        used.add(self.name)
        return original(self, *a, **k)

    type(OPS[name]).__call__ = spy
    try:
        names = graph_names(f, args)
    finally:
        type(OPS[name]).__call__ = original
    assert name in used | names


@every_primitive
def test_primitives_are_batched(name):
    f, args = calls_of(name)
    with warnings.catch_warnings():
        quiet(name)
        close(ng.vmap(f)(*args), looped(f, args))


@every_primitive
def test_gradients_of_primitives_are_batched(name):
    f, args = calls_of(name)
    gradient = ng.grad(loss_of(f))
    with warnings.catch_warnings():
        quiet(name)
        close(ng.vmap(gradient)(*args), looped(gradient, args))
        shared = ng.vmap(gradient, (0, *[None] * (len(args) - 1)))(args[0], *[a[0] for a in args[1:]])
    close(shared, looped(gradient, [args[0], *[np.repeat(a[:1], 3, axis=0) for a in args[1:]]]))


@every_primitive
def test_gradients_through_vmap(name):
    f, args = calls_of(name)
    with warnings.catch_warnings():
        quiet(name)
        got = ng.grad(lambda x: ng.sum(ng.vmap(f)(x, *args[1:]) ** 2))(args[0])
    close(got, looped(ng.grad(loss_of(f)), args))


@every_primitive
def test_jacobians_in_one_sweep(name):
    f, args = calls_of(name)
    args = [a[0] for a in args]
    want = ng.jacobian(f)(*args)
    close(ng.jacrev(f)(*args), want)
    close(ng.jacfwd(f)(*args), want)


@every_elementwise
def test_elementwise_ops_are_batched(op):
    rng = np.random.default_rng(0)
    args = arguments(op, rng)
    f = op.fast
    close(ng.vmap(f)(*args), looped(f, args))
    # A batch of vectors beside a shared matrix: the entries stay in front.
    wide = [np.stack([a, a[::-1]]) for a in args]
    for shared in range(1, len(args)):
        axes = [None if i == shared else 0 for i in range(len(args))]
        given = [wide[i] if a is None else np.stack([args[i]] * 2) for i, a in enumerate(axes)]
        want = np.stack(
            [np.asarray(f(*[g if a is None else g[k] for g, a in zip(given, axes, strict=True)])) for k in range(2)]
        )
        close(ng.vmap(f, tuple(axes))(*given), want)


@every_elementwise
def test_gradients_of_elementwise_ops_are_batched(op):
    args = arguments(op, np.random.default_rng(1))
    wanted = [i for i in range(len(args)) if op.params[i] not in op.conditions and op.partial(0, i) is not None]
    if not wanted or op.fast(*[ng.tensor(a) for a in args]).dtype.kind != "f":
        return
    gradient = ng.grad(lambda *a: ng.sum(op.fast(*a)), wanted[0])
    close(ng.vmap(gradient)(*args), looped(gradient, args))
    close(ng.jacrev(op.fast, wanted[0])(*args), ng.jacobian(op.fast, wanted[0])(*args))
    close(ng.jacfwd(op.fast, wanted[0])(*args), ng.jacobian(op.fast, wanted[0])(*args))


# ----- axes and containers -----

X = np.random.default_rng(2).normal(size=(4, 3, 5))


@pytest.mark.parametrize(("inner", "outer"), list(itertools.product([0, 1, 2, -1], repeat=2)))
def test_axes_in_and_out(inner, outer):
    got = ng.vmap(lambda x: x * 2, inner, outer)(X)
    close(got, np.moveaxis(X * 2, inner, outer))


def test_nested_maps():
    a, b = X[0], X[1]
    table = ng.vmap(ng.vmap(lambda x, y: x @ y, (None, 0)), (0, None))(a, b)
    close(table, a @ b.T)
    close(ng.vmap(ng.vmap(lambda x: x.sum(), 1), 2)(X), X.sum(axis=0).T)


def test_containers_in_and_out():
    f = ng.vmap(lambda d, k: {"sum": d["a"] + d["b"], "pair": (d["a"] * k, 1.0)}, ({"a": 0, "b": None}, None))
    out = f({"a": X[0], "b": X[1, 0]}, 2)
    close(out["sum"], X[0] + X[1, 0])
    close(out["pair"][0], X[0] * 2)
    close(out["pair"][1], np.ones(3))


def test_what_comes_back():
    assert type(ng.vmap(lambda x: x * 2)(X)) is np.ndarray
    assert type(ng.vmap(lambda x: x * 2)(ng.tensor(X))) is ng.Tensor
    w = ng.tensor(2.0, requires_grad=True)
    ng.vmap(lambda x: x * w)(X).sum().backward()
    close(w.grad, X.sum())


def test_gradients_of_each_example():
    rng = np.random.default_rng(3)
    w, b, xs = rng.normal(size=(5, 2)), rng.normal(size=2), X[0]

    def loss(params, x):
        return ng.sum(ng.tanh(x @ params["w"] + params["b"]) ** 2)

    got = ng.vmap(ng.grad(loss), (None, 0))({"w": w, "b": b}, xs)
    for i, x in enumerate(xs):
        want = ng.grad(loss)({"w": w, "b": b}, x)
        close(got["w"][i], want["w"])
        close(got["b"][i], want["b"])


def test_transforms_nest_in_any_order():
    def f(x):
        return ng.sum(ng.sin(x) * x[::-1] ** 2)

    rows = X[0]
    close(ng.vmap(ng.hessian(f))(rows), [ng.hessian(f)(r) for r in rows])
    close(ng.vmap(ng.jacfwd(ng.jacrev(f)))(rows), [ng.hessian(f)(r) for r in rows])
    close(ng.jacfwd(ng.jacfwd(f))(rows[0]), ng.hessian(f)(rows[0]))
    close(ng.jacrev(ng.jacfwd(f))(rows[0]), ng.hessian(f)(rows[0]))
    v = X[1]
    hvp = ng.vmap(lambda x, t: ng.jvp(ng.grad(f), (x,), (t,))[1])(rows, v)
    close(hvp, [ng.hessian(f)(r) @ t for r, t in zip(rows, v, strict=True)])
    inside = ng.grad(lambda x: ng.sum(ng.vmap(ng.grad(f))(x) ** 2))(rows)
    close(inside, [2 * ng.hessian(f)(r) @ ng.grad(f)(r) for r in rows])


def test_complex_jacobians():
    z = X[0, 0] + 1j * X[1, 0]
    f = lambda z: z * z.sum() ** 2
    close(ng.jacrev(f)(z), ng.jacobian(f)(z))
    close(ng.vmap(f)(np.stack([z, z * 2])), [f(z), f(z * 2)])


# ----- what cannot be batched -----


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: ng.sort(x),
        lambda x: x * float(x[0]),
        lambda x: ng.take_along_axis(x, ng.argsort(x), 0),
        lambda x: _written(x),
    ],
    ids=["control flow", "sort", "number", "index", "write"],
)
def test_a_function_that_asks_for_values_runs_entry_by_entry(f):
    with pytest.warns(BatchingWarning, match="one by one"):
        got = ng.vmap(f)(X[0])
    close(got, looped(lambda x: f(ng.tensor(x)), [X[0]]))
    with pytest.warns(BatchingWarning):
        got = ng.vmap(ng.grad(lambda x: ng.sum(f(x) * x)))(X[0])
    close(got, [ng.grad(lambda x: ng.sum(f(x) * x))(x) for x in X[0]])


def _written(x):
    y = x * 1
    y[0] = 5.0
    return y * x


def test_backward_within_the_function():
    def gradient(x):
        leaf = ng.tensor(np.asarray(x), requires_grad=True)
        (leaf**3).sum().backward()
        return leaf.grad

    with pytest.warns(BatchingWarning):
        close(ng.vmap(gradient)(X[0]), 3 * X[0] ** 2)


def test_a_tensor_that_escapes_says_what_it_is():
    kept = []
    ng.vmap(lambda x: kept.append(x) or x)(X[0])
    with pytest.raises(RuntimeError, match="return the tensor from the function instead"):
        kept[0].numpy()
    assert "3 entries of a vmap" in repr(kept[0])


def test_random_numbers():
    def noisy(x):
        return x + np.random.normal()  # noqa: NPY002

    with pytest.raises(RuntimeError, match="drew random numbers"):
        ng.vmap(noisy)(np.zeros(3))
    assert len(set(ng.vmap(noisy, randomness="same")(np.zeros(3)))) == 1
    assert len(set(ng.vmap(noisy, randomness="different")(np.zeros(3)))) == 3
    with pytest.warns(BatchingWarning):
        same = ng.vmap(lambda x: noisy(x) if x >= 0 else x, randomness="same")(np.zeros(3))
    assert len(set(same)) == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ng.vmap(ng.sin, 3)(X), ValueError, "in_axes 3 is out of range"),
        (lambda: ng.vmap(ng.sin, 0, 4)(X), ValueError, "out_axes 4 is out of range"),
        (lambda: ng.vmap(ng.add)(X, X[:2]), ValueError, "counts of entries differ"),
        (lambda: ng.vmap(ng.sin, None)(X), ValueError, "no argument has an axis of entries"),
        (lambda: ng.vmap(ng.add, (0, 0, 0))(X, X), ValueError, "does not fit"),
        (lambda: ng.vmap(ng.sin, 0, None)(X), ValueError, "depends on the entry"),
        (lambda: ng.vmap(ng.sin, randomness="often"), ValueError, "randomness is one of"),
        (lambda: ng.vmap(ng.sin)(2.0), ValueError, "out of range for shape"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_no_entries_at_all():
    assert ng.vmap(lambda x: x @ x)(np.zeros((0, 3))).shape == (0,)
    with pytest.warns(BatchingWarning), pytest.raises(ValueError, match="there are none"):
        ng.vmap(ng.sort)(np.zeros((0, 3)))


# ----- batched backward -----


def test_batched_gradients_take_one_sweep():
    x = ng.tensor(X[0], requires_grad=True)
    runs = []
    h = ng.tanh(x)
    h.register_hook(lambda g: runs.append(g.shape))
    y = (h @ X[1, 0]) * 2
    seeds = np.eye(3)
    (got,) = ng.autograd.grad(y, x, seeds, is_grads_batched=True, retain_graph=True)
    assert runs == [(3, 5)]
    want = [np.asarray(ng.autograd.grad(y, x, s, retain_graph=True)[0]) for s in seeds]
    close(got, want)
    ng.autograd.grad(y, x, seeds, is_grads_batched=True)
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_batched_gradients_can_be_differentiated():
    torch = pytest.importorskip("torch")

    def second(lib, x, seeds):
        y = x**3
        (g,) = lib.autograd.grad(y, x, seeds, is_grads_batched=True, create_graph=True)
        return lib.autograd.grad((g * g).sum(), x)[0]

    seeds = np.random.default_rng(4).normal(size=(2, 3))
    ours = second(ng, ng.tensor(X[0, 0, :3], requires_grad=True), ng.tensor(seeds))
    theirs = second(torch, torch.tensor(X[0, 0, :3], requires_grad=True), torch.tensor(seeds))
    close(ours, theirs.numpy())


def test_a_function_in_the_graph_goes_entry_by_entry_when_it_must():
    class Cube(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return ng.tensor(np.asarray(g.detach())) * 3 * x**2

    x = ng.tensor(X[0, 0], requires_grad=True)
    (got,) = ng.autograd.grad(Cube.apply(x), x, np.eye(5), is_grads_batched=True)
    close(got, np.diag(3 * X[0, 0] ** 2))
