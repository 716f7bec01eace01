"""One question at a time, asked of every elementwise op of the table."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import numbagrad as ng
from numbagrad.jit.kernel import Kernel, KernelSpec, kernel_for
from numbagrad.ops.elementwise import Elementwise
from numbagrad.ops.registry import OPS

ELEMENTWISE = [op for op in OPS.values() if isinstance(op, Elementwise)]
DIFFERENTIABLE = [op for op in ELEMENTWISE if any(op.partial(0, i) is not None for i in range(len(op.params)))]
DTYPES = [np.float64, np.float32]
BACKENDS = ["cpu", "reference"]


def every(ops):
    return pytest.mark.parametrize("op", ops, ids=lambda op: op.name)


def arguments(op, shape=(7,), dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, *map(ord, op.name)])
    out = []
    for i, name in enumerate(op.params):
        low, high = op.sampling.of(i)
        out.append(rng.random(shape) < 0.5 if name in op.conditions else rng.uniform(low, high, shape).astype(dtype))
    return out


def tensors(op, arrays):
    return [ng.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]


def value(op, arrays):
    return np.asarray(op(*map(ng.tensor, arrays)))


def gradients(op, arrays, weights, create_graph=False):
    """Gradients of sum(weights * op(*arrays)) with respect to every floating argument."""
    leaves = tensors(op, arrays)
    wanted = [t for t in leaves if t.requires_grad]
    out = op(*leaves)
    return ng.autograd.grad(out, wanted, weights, create_graph=create_graph), wanted


def differences(f, arrays, which, h=1e-4):
    """Fourth-order central differences of the elementwise function `f` by one argument."""

    def at(step):
        moved = list(arrays)
        moved[which] = moved[which] + step
        return f(moved)

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


@pytest.fixture(params=BACKENDS)
def backend(request):
    with ng.use_backend(request.param):
        yield request.param


# ----- values -----


@pytest.mark.parametrize("dtype", DTYPES)
@every([op for op in ELEMENTWISE if isinstance(op.numpy, np.ufunc)])
def test_value_is_numpys(op, dtype, backend):
    arrays = arguments(op, (4, 9), dtype)
    want = op.numpy(*arrays)
    got = value(op, arrays)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@every(ELEMENTWISE)
def test_reference_and_compiled_agree(op, dtype):
    arrays = arguments(op, (33,), dtype)
    weights = np.linspace(-1, 2, 33).astype(dtype)
    found = {}
    for name in BACKENDS:
        with ng.use_backend(name):
            found[name] = [value(op, arrays), *map(np.asarray, gradients(op, arrays, weights)[0])]
    for compiled, reference in zip(found["cpu"], found["reference"], strict=True):
        assert compiled.dtype == reference.dtype == dtype
        np.testing.assert_allclose(compiled, reference, rtol=200 * np.finfo(dtype).eps, atol=50 * np.finfo(dtype).eps)


PROMOTIONS = list(itertools.product([np.float64, np.float32, np.int64, np.int8, np.bool_], repeat=2))


@pytest.mark.parametrize(("left", "right"), PROMOTIONS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum", "power", "hypot"])
def test_promotion_is_numpys(name, left, right):
    op = OPS[name]
    x, y = np.ones(3, left), np.ones(3, right)
    want = op.numpy(x, y)
    got = op(ng.tensor(x), ng.tensor(y))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("number", [2, 2.5, True], ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32, np.complex64])
def test_python_numbers_are_weak(number, dtype):
    x = np.array([1, 2, 3], dtype)
    for got, want in [
        (ng.tensor(x) * number, x * number),
        (number - ng.tensor(x), number - x),
        (ng.tensor(x) / number, x / number),
        (ng.tensor(x) ** 2, x**2),
    ]:
        assert got.dtype == want.dtype
        np.testing.assert_allclose(np.asarray(got), want)


@pytest.mark.parametrize("dtype", [np.int64, np.float16])
@pytest.mark.parametrize("name", ["exp", "tanh", "sqrt", "sigmoid", "relu", "erf"])
def test_other_dtypes_go_the_way_of_numpy(name, dtype):
    x = np.array([0, 1, 2], dtype)
    got = OPS[name](ng.tensor(x))
    assert got.dtype == (np.float64 if dtype == np.int64 else np.float16)
    np.testing.assert_allclose(np.asarray(got), np.asarray(OPS[name](ng.tensor(x.astype(float)))), rtol=2e-3)


# ----- derivatives -----


@every(DIFFERENTIABLE)
def test_gradient_is_the_limit_of_differences(op, backend):
    arrays, weights = arguments(op), np.linspace(0.5, 1.5, 7)
    got, _ = gradients(op, arrays, weights)
    wanted = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    for g, i in zip(got, wanted, strict=True):
        want = weights * differences(lambda moved: value(op, moved), arrays, i)
        np.testing.assert_allclose(np.asarray(g), want, rtol=1e-7, atol=1e-8)


@every([op for op in DIFFERENTIABLE if op.sampling.order >= 2])
def test_second_derivatives_are_the_limit_of_differences(op):
    arrays, weights = arguments(op), np.linspace(0.5, 1.5, 7)
    wanted = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    first, leaves = gradients(op, arrays, weights, create_graph=True)
    for k, g in enumerate(first):
        if not g.requires_grad:
            continue
        seconds = ng.autograd.grad(g.sum(), leaves, materialize_grads=True, retain_graph=True)
        for second, i in zip(seconds, wanted, strict=True):
            want = differences(lambda moved, k=k: np.asarray(gradients(op, moved, weights)[0][k]), arrays, i)
            np.testing.assert_allclose(np.asarray(second), want, rtol=1e-6, atol=1e-7)


@every(DIFFERENTIABLE)
def test_forward_mode_is_the_limit_of_differences(op):
    arrays = arguments(op)
    for i, a in enumerate(arrays):
        if a.dtype.kind != "f":
            continue
        direction = np.linspace(-1, 1, 7)

        def along(x, i=i):
            return op(*arrays[:i], x, *arrays[i + 1 :])

        _, tangent = ng.jvp(along, (a,), (direction,))
        want = direction * differences(lambda moved: value(op, moved), arrays, i)
        np.testing.assert_allclose(tangent, want, rtol=1e-7, atol=1e-8)


@every(DIFFERENTIABLE)
def test_float32_stays_float32(op):
    arrays = arguments(op, dtype=np.float32)
    got, _ = gradients(op, arrays, np.ones(7, np.float32))
    assert value(op, arrays).dtype == np.float32
    assert all(g.dtype == np.float32 for g in got)
    for name in ("float64", "double"):
        for plan in op._plans.values():
            assert (
                name
                not in Kernel(
                    plan.op.program.spec("flat", ["dense"] * len(plan.op.params), "float32"), kernel_for.definitions
                ).source
            )


@pytest.mark.parametrize("name", ["multiply", "divide", "power", "hypot", "maximum"])
def test_mixed_precision_gradients_have_the_dtype_of_their_input(name):
    x = ng.tensor(np.array([0.5, 1.5], np.float32), requires_grad=True)
    y = ng.tensor(np.array([0.7, 0.9]), requires_grad=True)
    OPS[name](x, y).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (np.float32, np.float64)


# ----- layouts -----

LAYOUTS = {
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "fortran": np.asfortranarray,
    "transposed": lambda a: a.T.copy().T,
    "read only": lambda a: np.broadcast_to(a, a.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["exp", "multiply", "where", "clip_between", "erf", "power"])
def test_layouts_do_not_matter(name, layout):
    op = OPS[name]
    arrays = arguments(op, (5, 4))
    turned = [LAYOUTS[layout](a) for a in arrays]
    for a, t in zip(arrays, turned, strict=True):
        np.testing.assert_array_equal(a, t)
    leaves = [ng.asarray(t) for t in turned]
    for leaf in leaves:
        leaf.requires_grad = leaf.dtype.kind == "f"
    out = op(*leaves)
    np.testing.assert_allclose(np.asarray(out.detach()), value(op, arrays), rtol=1e-15)
    weights = np.linspace(-1, 1, 20).reshape(5, 4)
    wanted = [t for t in leaves if t.requires_grad]
    got = ng.autograd.grad(out, wanted, LAYOUTS[layout](weights))
    for g, w in zip(got, gradients(op, arrays, weights)[0], strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-15)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1), (2, 3, 4)])
@every([OPS[n] for n in ("sin", "multiply", "where", "hypot")])
def test_shapes_from_empty_to_many_axes(op, shape):
    arrays = arguments(op, shape)
    got = value(op, arrays)
    assert got.shape == shape
    grads, leaves = gradients(op, arrays, np.ones(shape))
    assert all(g.shape == leaf.shape for g, leaf in zip(grads, leaves, strict=True))


@given(
    hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4), st.sampled_from(["multiply", "arctan2"])
)
def test_broadcasting_sums_the_gradient_back(shapes, name):
    op = OPS[name]
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.5, 2, s) for s in shapes.input_shapes)
    leaves = tensors(op, [x, y])
    out = op(*leaves)
    np.testing.assert_allclose(np.asarray(out.detach()), op.numpy(x, y), rtol=1e-14)
    got = ng.autograd.grad(out.sum(), leaves)
    full = np.broadcast_arrays(x, y)
    whole = gradients(op, [np.array(a) for a in full], np.ones(shapes.result_shape))[0]
    for g, w, a in zip(got, whole, (x, y), strict=True):
        assert g.shape == a.shape
        added = tuple(range(len(shapes.result_shape) - a.ndim))
        kept = tuple(i for i, n in enumerate(a.shape, len(added)) if n == 1)
        want = np.asarray(w).sum(axis=added + kept, keepdims=True).reshape(a.shape)
        np.testing.assert_allclose(np.asarray(g), want, rtol=1e-12, atol=1e-12)


def test_shapes_that_do_not_fit_name_the_op_and_the_shapes():
    x = ng.tensor(np.ones((2, 3)), requires_grad=True)
    with pytest.raises(ValueError, match=r"multiply.*\(2, 3\) \(4,\)"):
        x * np.ones(4)
    assert x.grad is None


@pytest.mark.parametrize("threads", [1, 3])
def test_large_arrays_are_cut_into_the_same_pieces(threads):
    before = ng.get_num_threads()
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(700, 501)), rng.normal(size=(700, 1))
    try:
        ng.set_num_threads(threads)
        tx, tw = ng.tensor(x, requires_grad=True), ng.tensor(w, requires_grad=True)
        (ng.tanh(tx * tw)).sum().backward()
    finally:
        ng.set_num_threads(before)
    d = 1 - np.tanh(x * w) ** 2
    np.testing.assert_allclose(np.asarray(tx.grad), d * w, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(np.asarray(tw.grad), (d * x).sum(1, keepdims=True), rtol=1e-11)


# ----- special values -----

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-320, 1e300, -1e300, 50.0, -50.0, 800.0, -800.0]


@every([op for op in ELEMENTWISE if isinstance(op.numpy, np.ufunc) and len(op.params) == 1])
def test_special_values_are_numpys(op):
    x = np.array(SPECIAL)
    with np.errstate(all="ignore"):
        want = op.numpy(x)
    np.testing.assert_allclose(value(op, [x]), want, rtol=1e-14, atol=0)


@every([op for op in ELEMENTWISE if isinstance(op.numpy, np.ufunc) and len(op.params) == 2])
def test_special_pairs_are_numpys(op):
    pairs = np.array(list(itertools.product(SPECIAL, repeat=2)))
    with np.errstate(all="ignore"):
        want = op.numpy(pairs[:, 0], pairs[:, 1])
    np.testing.assert_allclose(value(op, [pairs[:, 0], pairs[:, 1]]), want, rtol=1e-13, atol=0)


@every([op for op in DIFFERENTIABLE if len(op.params) == 1])
def test_a_zero_cotangent_absorbs_everything(op):
    x = ng.tensor(SPECIAL, requires_grad=True)
    (g,) = ng.autograd.grad(op(x), x, np.zeros(len(SPECIAL)))
    np.testing.assert_array_equal(np.asarray(g), 0)


BRANCHES = {
    "log": (ng.log, lambda x: 1 / x),
    "sqrt": (ng.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "arccosh": (lambda t: ng.arccosh(1 + t), lambda x: 1 / np.sqrt(x * (x + 2))),
    "power": (lambda t: t**-1.5, lambda x: -1.5 * x**-2.5),
    "divide": (lambda t: 1 / t, lambda x: -1 / x**2),
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_nan_from_the_branch_not_taken(name, dtype, backend):
    function, derivative = BRANCHES[name]
    x = np.array([-4.0, 0.0, 9.0], dtype)
    t = ng.tensor(x, requires_grad=True)
    out = ng.where(t > 0, function(t), 2 * t)
    (first,) = ng.autograd.grad(out.sum(), t, create_graph=True)
    np.testing.assert_allclose(np.asarray(first.detach()), [2, 2, derivative(x[2])], rtol=1e-5)
    (second,) = ng.autograd.grad(first.sum(), t)
    assert np.isfinite(np.asarray(second)).all()


# ----- declarations and arguments -----


@every(ELEMENTWISE)
def test_every_op_has_a_docstring_and_a_range(op):
    assert op.summary.endswith(".") and "Derivative of an op" not in op.summary
    assert "Partial derivatives" in op.fast.__doc__ or op.fast == op.call
    assert len(op.sampling.ranges) in (1, len(op.params))


@pytest.mark.parametrize("bad", ["abc", object(), {"a": 1}, [object()]])
def test_operands_that_are_no_numbers(bad):
    x = ng.tensor([1.0], requires_grad=True)
    with pytest.raises(TypeError):
        ng.multiply(x, bad)
    with pytest.raises(TypeError):
        x * bad
    assert x.grad is None


def test_wrong_number_of_arguments():
    with pytest.raises(TypeError):
        ng.exp()
    with pytest.raises(TypeError):
        ng.exp(1.0, 2.0)
    with pytest.raises(TypeError):
        ng.multiply(1.0)


def test_from_the_second_identical_step_nothing_is_compiled():
    def step(seed):
        x = ng.tensor(np.random.default_rng(seed).normal(size=(8, 3)), requires_grad=True)
        w = ng.tensor(np.ones(3), requires_grad=True)
        loss = (ng.tanh(x * w + 0.1 * seed) ** 2).mean()
        (g,) = ng.autograd.grad(loss, x, create_graph=True)
        (g * g).sum().backward()

    step(0)
    step(1)
    before = (ng.stats().kernels_compiled + ng.stats().kernels_loaded, len(kernel_for))
    for seed in range(2, 6):
        step(seed)
    assert (ng.stats().kernels_compiled + ng.stats().kernels_loaded, len(kernel_for)) == before


def test_specs_prove_themselves():
    op = OPS["multiply"]
    with pytest.raises(ValueError, match="loop"):
        KernelSpec("x", "spiral", (), op.exprs, ("float64",), "float64")
    with pytest.raises(ValueError, match="compute in"):
        KernelSpec("x", "flat", (), op.exprs, ("int8",), "int8")
    with pytest.raises(ValueError, match="output dtypes"):
        KernelSpec("x", "flat", (), op.exprs, (), "float64")
