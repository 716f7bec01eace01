"""One question at a time, asked of everything that reduces or accumulates along axes."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.special
from helpers import assert_gradients, laid_out, plain
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import numbagrad as ng
from numbagrad.ops.statistics import euclidean_norm

BACKENDS = ["cpu", "reference"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    with ng.use_backend(request.param):
        yield request.param


def norm(x, axis=None, keepdims=False):
    return np.sqrt(np.sum(np.abs(x) ** 2, axis=axis, keepdims=keepdims))


def log_sum_exp(x, axis=None, keepdims=False):
    with np.errstate(all="ignore"):
        return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def by_scipy(name):
    def function(x, axis=None, **kwargs):
        with np.errstate(all="ignore"):
            return getattr(scipy.special, name)(x, axis=axis, **kwargs)

    return function


# name -> oracle, what every call is given besides the axis, and what the function takes.
FOLDS = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "ptp": np.ptp,
    "var": np.var,
    "std": np.std,
    "logsumexp": log_sum_exp,
    "euclidean_norm": norm,
    "nansum": np.nansum,
    "nanprod": np.nanprod,
    "nanmean": np.nanmean,
    "nanvar": np.nanvar,
    "nanstd": np.nanstd,
    "nanmax": np.nanmax,
    "nanmin": np.nanmin,
}
"""Functions of (x, axis, keepdims) that take axes away, and have a gradient."""

FLAT = {"argmax": np.argmax, "argmin": np.argmin, "any": np.any, "all": np.all, "count_nonzero": np.count_nonzero}
"""The same, without gradient."""

WALKS = {"cumsum": np.cumsum, "cumprod": np.cumprod}
SOFT = {"softmax": by_scipy("softmax"), "log_softmax": by_scipy("log_softmax")}

SHAPES_AND_AXES = [
    ((), None),
    ((5,), None),
    ((5,), 0),
    ((1,), -1),
    ((4, 7), None),
    ((4, 7), 0),
    ((4, 7), -1),
    ((4, 7), (0, 1)),
    ((2, 3, 5), 1),
    ((2, 3, 5), (0, 2)),
    ((2, 3, 5), (1, 2)),
    ((2, 3, 5), (-1, 0)),
    ((3, 1, 4, 2), (0, 2)),
    ((3, 1, 4, 2), 1),
    ((3, 2, 2, 3), (1, 3)),
    ((2, 3), ()),
    ((70, 33), 0),
    ((33, 1100), 1),
]
ONE_AXIS = [case for case in SHAPES_AND_AXES if not isinstance(case[1], tuple)]


def ours(name):
    return euclidean_norm if name == "euclidean_norm" else getattr(ng, name)


def values(shape, dtype=np.float64, seed=0):
    """Values of both signs, no two alike."""
    rng = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.7
    if dtype.kind in "iu":
        return rng.integers(1, 5, shape).astype(dtype)
    x = rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape)
    if dtype.kind == "c":
        x = x + 1j * rng.uniform(-1, 1, shape)
    return x.astype(dtype)


def tolerance(dtype):
    eps = np.finfo(dtype).eps if np.dtype(dtype).kind in "fc" else np.finfo(float).eps
    return {"rtol": 30 * eps, "atol": 30 * eps}


def check(got, want, dtype=None):
    """Same shape, dtype and values; the tolerance is that of the narrower dtype."""
    got, want = plain(got), np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype == (want.dtype if dtype is None else dtype)
    limits = tolerance(got.dtype)
    limits["atol"] *= max([1, *np.abs(want[np.isfinite(want)]).ravel()])
    np.testing.assert_allclose(got, want, **limits)


def quietly(function, *args, **kwargs):
    """NumPy's result without its warnings; None where it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except ValueError:
            return None


def each(table):
    return pytest.mark.parametrize("name", list(table))


# ----- values -----


@each({**FOLDS, **FLAT})
def test_value_is_numpys_for_all_axes(name, backend):
    function = {**FOLDS, **FLAT}[name]
    for (shape, axis), keepdims in itertools.product(SHAPES_AND_AXES, [False, True]):
        if name in ("argmax", "argmin") and isinstance(axis, tuple):
            continue
        x = values(shape)
        check(ours(name)(ng.tensor(x), axis=axis, keepdims=keepdims), function(x, axis=axis, keepdims=keepdims))


@each(WALKS)
def test_walk_is_numpys_for_all_axes(name, backend):
    for shape, axis in ONE_AXIS:
        x = values(shape)
        check(ours(name)(ng.tensor(x), axis=axis), WALKS[name](x, axis=axis))


@each(SOFT)
def test_softmax_is_scipys_for_all_axes(name, backend):
    for shape, axis in SHAPES_AND_AXES:
        if axis != () and shape != ():
            x = 3 * values(shape)
            check(ours(name)(ng.tensor(x), axis=axis), SOFT[name](x, axis=axis))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "i8", "u1", "?", "c8", "c16", "g"])
@each({**FOLDS, **FLAT, **WALKS})
def test_dtype_is_numpys(name, dtype):
    x = values((4, 3), dtype)
    if name == "ptp" and dtype == "?":
        pytest.skip("NumPy does not subtract booleans")
    function = {**FOLDS, **FLAT, **WALKS}[name]
    for axis in (None, 0, 1):
        want = np.asarray(function(x, axis=axis))
        got = ours(name)(ng.tensor(x), axis=axis)
        if name in ("euclidean_norm", "logsumexp"):
            if dtype in ("c8", "c16") and name == "logsumexp":
                continue
            inexact = x if x.dtype.kind in "fc" else x.astype(float)
            want = np.asarray(function(inexact, axis=axis)).astype(np.abs(inexact).dtype)
        assert got.dtype == want.dtype
        limit = 2e-3 if dtype == "f2" else 1e-5 if dtype in ("f4", "c8") else 1e-12
        np.testing.assert_allclose(plain(got), want, rtol=limit, atol=limit)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "cumsum", "cumprod", "var", "std", "nansum"])
@pytest.mark.parametrize(("given", "wanted"), [("f4", "f8"), ("i4", "f4"), ("f8", "f4"), ("f4", "c8")])
def test_dtype_can_be_asked_for(name, given, wanted):
    if wanted == "c8" and name in ("var", "std"):
        pytest.skip("NumPy makes the variance complex, though it is real")
    x = values((5, 3), given)
    got = ours(name)(ng.tensor(x), axis=0, dtype=wanted)
    want = getattr(np, name)(x, axis=0, dtype=wanted)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(plain(got), want, rtol=1e-5, atol=1e-6)


def test_gradient_comes_back_in_the_dtype_of_the_input():
    x = ng.tensor(values((5,), "f4"), requires_grad=True)
    ng.sum(x, dtype=np.float64).backward()
    assert x.grad.dtype == np.float32


@pytest.mark.parametrize("layout", ["F", "strided", "reversed"])
@each({**FOLDS, **FLAT, **WALKS})
def test_layout_does_not_matter(name, layout, backend):
    function = {**FOLDS, **FLAT, **WALKS}[name]
    for dtype, axis in itertools.product(["f8", "f4"], [None, 0, 1, 2]):
        x = laid_out(values((3, 4, 5), dtype), layout)
        got, want = ours(name)(ng.asarray(x), axis=axis), function(x, axis=axis)
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(plain(got), want, **tolerance(dtype))


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
@each({**FOLDS, **SOFT})
def test_layout_does_not_matter_for_gradients(name, axis):
    x, weights = values((3, 4, 5)), values((3, 4, 5), seed=1)

    def gradient(x):
        x = ng.asarray(x).detach().requires_grad_()
        y = ours(name)(x, axis=axis)
        (y * weights[tuple(slice(n) for n in y.shape)].reshape(y.shape) if y.ndim == 3 else y).sum().backward()
        return x.grad

    want = gradient(x)
    for layout in ("F", "strided", "reversed"):
        check(gradient(laid_out(x, layout)), want)


def test_transposed_and_cut_arrays_are_reduced_in_place():
    x = values((6, 40, 50), "f4")
    for view in (x.T, x.transpose(1, 0, 2), x[:, 5:30], x[:, :, 3:20], x[1::2], x[:, ::-1], x.transpose(2, 0, 1)[3:]):
        for axis in (None, 0, 1, 2, (0, 1), (0, 2), (1, 2)):
            for name in ("sum", "max", "mean"):
                check(ours(name)(ng.asarray(view), axis=axis), getattr(np, name)(view.astype("f8"), axis=axis), "f4")


@pytest.mark.parametrize("shape", [(0,), (0, 0), (0, 3), (3, 0), (2, 0, 3)])
@each({**FOLDS, **FLAT, **WALKS})
def test_empty_is_numpys(name, shape, backend):
    """Results, errors, and no warning where NumPy warns."""
    function = {**FOLDS, **FLAT, **WALKS}[name]
    x = np.zeros(shape)
    for axis in (None, *range(x.ndim)):
        want = quietly(function, x, axis=axis)
        if want is None:
            with pytest.raises(ValueError, match=r"zero-size|empty"):
                ours(name)(ng.tensor(x), axis=axis)
        else:
            check(ours(name)(ng.tensor(x), axis=axis), want)


@each({**FOLDS, **SOFT, **WALKS})
def test_gradient_of_nothing_is_empty(name):
    x = ng.tensor(np.zeros((0, 3)), requires_grad=True)
    y = ours(name)(x, axis=1)
    assert y.shape == ((0, 3) if name in (*SOFT, *WALKS) else (0,))
    y.sum().backward()
    assert x.grad.shape == (0, 3)


@given(
    x=hnp.arrays(np.float64, hnp.array_shapes(max_dims=4, max_side=5, min_side=0), elements=st.floats(-8, 8)),
    data=st.data(),
)
def test_sum_mean_and_max_of_any_shape_over_any_axes(x, data):
    axes = data.draw(st.sets(st.integers(-x.ndim, x.ndim - 1)).map(tuple)) if x.ndim else ()
    axis = data.draw(st.sampled_from([None, axes]))
    keepdims = data.draw(st.booleans())
    if axis is not None and len({a % x.ndim for a in axis}) < len(axis):
        with pytest.raises(ValueError, match="duplicate"):
            ng.sum(ng.tensor(x), axis=axis)
        return
    for name in ("sum", "mean", "max"):
        want = quietly(getattr(np, name), x, axis=axis, keepdims=keepdims)
        if want is None:
            with pytest.raises(ValueError, match=name):
                ours(name)(ng.tensor(x), axis=axis, keepdims=keepdims)
        else:
            check(ours(name)(ng.tensor(x), axis=axis, keepdims=keepdims), want)


# ----- where, initial, and the other arguments -----


@each(["sum", "prod", "mean", "var", "std", "nansum", "nanprod", "nanmean", "nanvar", "nanstd"])
def test_where_chooses_the_items(name, backend):
    x, mask = values((4, 5)), values((4, 5), bool)
    mask[0] = True
    for axis, keepdims in itertools.product([None, 0, 1], [False, True]):
        check(
            ours(name)(ng.tensor(x), axis=axis, keepdims=keepdims, where=mask),
            getattr(np, name)(x, axis=axis, keepdims=keepdims, where=mask),
        )
    row = np.array([True, False, True, True, False])
    check(ours(name)(ng.tensor(x), axis=1, where=row), getattr(np, name)(x, axis=1, where=row))
    assert_gradients(lambda t: ours(name)(t, axis=1, where=ng.tensor(row)), x)


@pytest.mark.parametrize("name", ["max", "min", "nanmax", "nanmin"])
def test_where_needs_initial_for_extremes(name):
    x, mask = values((4, 5)), values((4, 5), bool)
    check(
        ours(name)(ng.tensor(x), axis=1, where=mask, initial=0.1),
        getattr(np, name)(x, axis=1, where=mask, initial=0.1),
    )
    integers = values((4, 5), int)
    check(ng.max(ng.tensor(integers), where=mask, initial=-9), np.max(integers, where=mask, initial=-9))
    with pytest.raises(ValueError, match="initial"):
        ours(name)(ng.tensor(x), where=mask)


@pytest.mark.parametrize("name", ["any", "all"])
def test_where_chooses_what_is_asked(name):
    x, mask = values((4, 5), bool), values((4, 5), bool, seed=3)
    for axis in (None, 0, (0, 1)):
        check(ours(name)(ng.tensor(x), axis=axis, where=mask), getattr(np, name)(x, axis=axis, where=mask))


@pytest.mark.parametrize(
    ("name", "initial"), [("sum", 10.0), ("prod", -2.0), ("max", 0.9), ("min", -0.9), ("max", 99.0)]
)
def test_initial_takes_part(name, initial, backend):
    x = values((4, 5))
    check(ours(name)(ng.tensor(x), axis=0, initial=initial), getattr(np, name)(x, axis=0, initial=initial))
    check(ours(name)(ng.zeros((0,)), initial=initial), getattr(np, name)(np.zeros(0), initial=initial))
    assert_gradients(lambda t: ours(name)(t, axis=0, initial=initial), x)


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_variance_takes_numpys_arguments(name):
    x = values((6, 5))
    function, theirs = ours(name), getattr(np, name)
    for ddof in (0, 1, 2.5):
        check(function(ng.tensor(x), axis=0, ddof=ddof), theirs(x, axis=0, ddof=ddof))
        check(function(ng.tensor(x), axis=0, correction=ddof), theirs(x, axis=0, correction=ddof))
        assert_gradients(lambda t, ddof=ddof: function(t, axis=0, ddof=ddof), x)
    center = np.mean(x, axis=0, keepdims=True)
    check(function(ng.tensor(x), axis=0, mean=ng.tensor(center)), theirs(x, axis=0, mean=center))
    with pytest.raises(ValueError, match="simultaneously"):
        function(ng.tensor(x), ddof=1, correction=1)


@pytest.mark.parametrize(("ddof", "want"), [(1, np.nan), (3, np.nan)])
def test_variance_of_too_few_is_nan_without_a_warning(ddof, want):
    x = ng.tensor([2.0], requires_grad=True)
    np.testing.assert_equal(plain(ng.var(x, ddof=ddof)), np.float64(want))


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_variance_of_complex_numbers_is_real(dtype):
    x = values((4, 5), dtype)
    for name in ("var", "std"):
        got, want = ours(name)(ng.tensor(x), axis=0), getattr(np, name)(x, axis=0)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(plain(got), want, rtol=1e-5)


def test_average_is_numpys():
    x, w = values((4, 5)), np.abs(values((4, 5), seed=1))
    check(ng.average(ng.tensor(x)), np.average(x))
    check(ng.average(ng.tensor(x), axis=0, weights=w), np.average(x, axis=0, weights=w))
    given = {"axis": 1, "weights": w[0], "keepdims": True}
    check(ng.average(ng.tensor(x), **given), np.average(x, **given))
    check(ng.average(ng.tensor(x), axis=(1, 0), weights=w.T), np.average(x, axis=(1, 0), weights=w.T))
    for got, want in zip(ng.average(ng.tensor(x), 0, w, True), np.average(x, 0, w, True), strict=True):
        check(got, want)
    assert_gradients(lambda t, v: ng.average(t, axis=1, weights=v), x, w[0])
    with pytest.raises(ZeroDivisionError):
        ng.average(ng.tensor(x), axis=1, weights=np.zeros(5))
    with pytest.raises(TypeError, match="axis"):
        ng.average(ng.tensor(x), weights=w[0])
    with pytest.raises(ValueError, match="consistent"):
        ng.average(ng.tensor(x), axis=0, weights=w[0])


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_diff_is_numpys(n, axis, backend):
    x = values((5, 6))
    check(ng.diff(ng.tensor(x), n, axis), np.diff(x, n, axis))
    ends = {"prepend": 0.5, "append": x[:1] if axis == 0 else x[:, :2]}
    check(ng.diff(ng.tensor(x), n, axis, **ends), np.diff(x, n, axis, **ends))
    assert_gradients(lambda t: ng.diff(t, n, axis, prepend=0.5), x)


def test_diff_of_integers_and_booleans():
    for x in (values((5,), int), values((5,), bool), values((2,), int)):
        check(ng.diff(ng.tensor(x)), np.diff(x))
    assert ng.diff(ng.tensor([1.0, 2.0]), n=5).shape == (0,)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_trapezoid_is_numpys(axis):
    y, x = values((5, 5)), np.cumsum(np.abs(values((5, 5), seed=1)), axis=axis)
    check(ng.trapezoid(ng.tensor(y), axis=axis), np.trapezoid(y, axis=axis))
    check(ng.trapezoid(ng.tensor(y), dx=0.25, axis=axis), np.trapezoid(y, dx=0.25, axis=axis))
    check(ng.trapezoid(ng.tensor(y), ng.tensor(x), axis=axis), np.trapezoid(y, x, axis=axis))
    check(ng.trapezoid(ng.tensor(y), x[0], axis=axis), np.trapezoid(y, x[0], axis=axis))
    assert_gradients(lambda y, x: ng.trapezoid(y, x, axis=axis), y, x[0])


def test_numpys_functions_and_methods_come_here():
    x = ng.tensor(values((3, 4)), requires_grad=True)
    for name in [*FOLDS, *FLAT, *WALKS, "amax", "amin", "average", "diff", "trapezoid"]:
        if name not in ("logsumexp", "euclidean_norm"):
            assert isinstance(getattr(np, name)(x), ng.Tensor)
    for name in [*WALKS, *FLAT, *SOFT, "sum", "mean", "prod", "max", "min", "var", "std", "logsumexp"]:
        check(getattr(x, name)(axis=1), ours(name)(x, axis=1).detach())
    check(np.add.reduce(x), np.add.reduce(plain(x)))
    check(np.maximum.reduce(x, axis=1), np.max(plain(x), axis=1))


# ----- derivatives -----

DERIVATIVE_CASES = [((5,), None), ((3, 4), 0), ((3, 4), 1), ((3, 4), None), ((2, 3, 2), (0, 2)), ((2, 3, 2), 1)]


@pytest.mark.parametrize(("shape", "axis"), DERIVATIVE_CASES)
@each({**FOLDS, **SOFT})
def test_derivatives_are_the_limit_of_differences(name, shape, axis, backend):
    assert_gradients(lambda t: ours(name)(t, axis=axis), values(shape))


@pytest.mark.parametrize(("shape", "axis"), [case for case in DERIVATIVE_CASES if not isinstance(case[1], tuple)])
@each(WALKS)
def test_derivatives_of_walks_are_the_limit_of_differences(name, shape, axis, backend):
    assert_gradients(lambda t: ours(name)(t, axis=axis), values(shape))


@each({**FOLDS, **SOFT})
def test_keepdims_has_the_same_derivatives(name):
    if name not in SOFT:
        assert_gradients(lambda t: ours(name)(t, axis=(0, 2), keepdims=True), values((2, 3, 2)))


@pytest.mark.parametrize("zeros", [(), (0,), (2,), (1, 3), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("name", ["prod", "cumprod", "nanprod"])
def test_products_with_zeros_have_all_derivatives(name, zeros, backend):
    x = values((4,))
    x[list(zeros)] = 0
    assert_gradients(lambda t: ours(name)(t), x)
    assert_gradients(lambda t: ours(name)(t, axis=0), np.stack([x, x[::-1]], axis=1))


def test_third_derivatives_of_products_with_zeros():
    def product(x):
        return ng.prod(x) if x.ndim == 1 else None

    x = np.array([2.0, 0.0, 0.0, 0.0, 3.0])
    third = ng.grad(lambda t: ng.grad(lambda u: ng.grad(product)(u)[1])(t)[2])(x)
    np.testing.assert_allclose(third, [0, 0, 0, 6, 0])
    third = ng.grad(lambda t: ng.grad(lambda u: ng.grad(lambda v: ng.cumprod(v)[-1])(u)[1])(t)[2])(x)
    np.testing.assert_allclose(third, [0, 0, 0, 6, 0])


@each({**FOLDS, **SOFT, **WALKS})
def test_forward_mode_agrees_with_backward(name, backend):
    x, t = values((3, 4)), values((3, 4), seed=5)
    f = lambda v: ours(name)(v, axis=1)
    value, tangent = ng.jvp(f, (x,), (t,))
    w = values(np.shape(value), seed=7)
    leaf = ng.tensor(x, requires_grad=True)
    (g,) = ng.autograd.grad(f(leaf), leaf, w)
    np.testing.assert_allclose(np.sum(plain(tangent) * w), np.sum(plain(g) * t), rtol=1e-10)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum", "cumprod", "euclidean_norm", "var", "std"])
def test_gradient_of_complex_numbers_is_pytorchs(name, backend):
    """Of a real loss: the derivative by the real part plus i times that by the imaginary one."""
    z, w = values((3, 4), "c16"), values((3, 4), "c16", seed=2)

    def loss(z):
        y = ours(name)(z, axis=1)
        w_ = w if y.ndim == 2 else w[:, 0]
        return ng.real(y * w_).sum()

    leaf = ng.tensor(z, requires_grad=True)
    loss(leaf).backward()
    h = 1e-6
    for place in np.ndindex(z.shape):
        step = np.zeros_like(z)
        step[place] = h
        along = [(loss(ng.tensor(z + s)).item() - loss(ng.tensor(z - s)).item()) / (2 * h) for s in (step, 1j * step)]
        np.testing.assert_allclose(leaf.grad.numpy()[place], along[0] + 1j * along[1], rtol=1e-6, atol=1e-8)


def test_large_gradients_of_sums_take_no_memory():
    x = ng.tensor(np.ones((300, 400), "f4"), requires_grad=True)
    seen = []
    y = x * 1.0
    y.register_hook(lambda g: seen.append(g.strides))
    y.sum().backward()
    y = x * 1.0
    y.register_hook(lambda g: seen.append(g.strides))
    y.sum(axis=1).backward(np.ones(300, "f4"))
    assert seen == [(0, 0), (4, 0)]
    assert (x.grad.numpy() == 2).all()


# ----- special values and conventions -----


@each([name for name in FOLDS if not name.startswith("nan")])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("length", [3, 40, 3000])
def test_nan_and_infinities_are_numpys(name, dtype, length, backend):
    function = FOLDS[name]
    for special in ([np.nan], [-np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [np.inf, np.nan], [-0.0, 0.0]):
        for place in (0, length // 2, length - len(special)):
            x = values((length,), dtype)
            x[place : place + len(special)] = special
            for view, axis in ((x, None), (np.stack([x, x]), 1), (np.stack([x, x], 1), 0)):
                with np.errstate(all="ignore"):
                    want = function(view, axis=axis)
                np.testing.assert_allclose(plain(ours(name)(ng.tensor(view), axis=axis)), want, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_sum_of_negative_zeros_is_negative(dtype):
    for shape, axis in (((4,), None), ((3, 4), 0), ((3, 4), 1), ((2000,), 0)):
        assert np.signbit(plain(ng.sum(ng.tensor(np.full(shape, -0.0, dtype)), axis=axis))).all()
    ng.sum(ng.tensor(np.ones(3, dtype)))
    assert not np.signbit(plain(ng.sum(ng.tensor(np.ones(0, dtype)))))


@pytest.mark.parametrize("name", ["max", "min", "nanmax", "nanmin"])
def test_ties_share_the_gradient_evenly(name, backend):
    x = np.array([[2.0, 2.0, 2.0, 1.0], [3.0, 1.0, 1.0, 1.0]])
    x = x if "max" in name else -x
    leaf = ng.tensor(x, requires_grad=True)
    ours(name)(leaf, axis=1).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), [[1 / 3, 1 / 3, 1 / 3, 0], [1, 0, 0, 0]])


@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_takes_the_gradient_of_an_extreme(name, backend):
    leaf = ng.tensor([[1.0, np.nan, 5.0], [1.0, 2.0, 3.0]], requires_grad=True)
    ours(name)(leaf, axis=1).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy()[0], [0, 1, 0])


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_nan_functions_leave_nan_out(dtype, backend):
    x = values((4, 5), dtype)
    x[[0, 1, 3], [2, 0, 4]] = np.nan
    for name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin"):
        for axis in (None, 0, 1):
            want = getattr(np, name)(x, axis=axis)
            np.testing.assert_allclose(plain(ours(name)(ng.tensor(x), axis=axis)), want, rtol=1e-5)
        leaf = ng.tensor(x, requires_grad=True)
        ours(name)(leaf, axis=1).sum().backward()
        assert (leaf.grad.numpy()[np.isnan(x)] == 0).all()
        assert np.isfinite(leaf.grad.numpy()).all()


@pytest.mark.parametrize("name", ["nanmean", "nanmax", "nanmin", "nanvar", "nanstd"])
def test_only_nan_gives_nan_without_a_warning(name, backend):
    x = np.array([[np.nan, np.nan], [1.0, 3.0]])
    check(ours(name)(ng.tensor(x), axis=1), quietly(getattr(np, name), x, axis=1))
    leaf = ng.tensor(x, requires_grad=True)
    ours(name)(leaf, axis=1)[1].backward()
    assert (leaf.grad.numpy()[0] == 0).all()


@pytest.mark.parametrize("name", ["std", "euclidean_norm", "nanstd"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_gradient_is_zero_where_the_root_is(name, dtype, backend):
    x = np.zeros((3, 4), dtype) if name == "euclidean_norm" else np.full((3, 4), 5.0, dtype)
    x[1] = values((4,), dtype)
    leaf = ng.tensor(x, requires_grad=True)
    y = ours(name)(leaf, axis=1)
    (g,) = ng.autograd.grad(y.sum(), leaf, create_graph=True)
    assert (plain(g)[[0, 2]] == 0).all() and (plain(g)[1] != 0).any()
    (second,) = ng.autograd.grad(g.sum(), leaf)
    assert np.isfinite(plain(second)).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_length_of_large_and_small_vectors(dtype, backend):
    info = np.finfo(dtype)
    for scale in (info.max / 8, info.tiny * 64, 1.0):
        x = np.array([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]], dtype) * dtype_of(scale, dtype)
        want = np.array([5.0, 0.0, 1.0]) * float(scale)
        np.testing.assert_allclose(plain(euclidean_norm(ng.tensor(x), axis=1)), want, rtol=1e-6)
        leaf = ng.tensor(x, requires_grad=True)
        euclidean_norm(leaf, axis=1).sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), [[0.6, 0.8], [0, 0], [1, 0]], rtol=1e-6)


def dtype_of(value, dtype):
    return np.dtype(dtype).type(value)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_logits_far_apart_or_infinite(dtype, backend):
    inf = np.inf
    x = np.array([[0, 1000, -1000], [-inf, 0, 1], [1e30, 0, -1e30], [-inf, -inf, 5]], dtype)
    p = np.array([[0, 1, 0], [0, 1 / (1 + np.e), np.e / (1 + np.e)], [1, 0, 0], [0, 0, 1]])
    top = np.array([1000, np.log(1 + np.e), 1e30, 5])
    leaf = ng.tensor(x, requires_grad=True)
    np.testing.assert_allclose(plain(ng.softmax(leaf)), p, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(plain(ng.logsumexp(leaf, axis=1)), top, rtol=1e-6)
    np.testing.assert_allclose(plain(ng.log_softmax(leaf))[0], [-1000, 0, -2000])
    np.testing.assert_allclose(plain(ng.log_softmax(leaf))[3], [-inf, -inf, 0])
    (g,) = ng.autograd.grad(ng.logsumexp(leaf, axis=1).sum(), leaf)
    np.testing.assert_allclose(plain(g), p, rtol=1e-6, atol=1e-12)
    w = values((4, 3), dtype)
    (g,) = ng.autograd.grad(ng.softmax(leaf), leaf, w)
    np.testing.assert_allclose(plain(g), p * (w - (p * w).sum(1, keepdims=True)), rtol=1e-5, atol=1e-7)
    (g,) = ng.autograd.grad(ng.log_softmax(leaf), leaf, w)
    np.testing.assert_allclose(plain(g), w - p * w.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_logsumexp_of_nothing_but_minus_infinity(backend):
    leaf = ng.tensor(np.full((2, 3), -np.inf), requires_grad=True)
    y = ng.logsumexp(leaf, axis=1)
    assert (plain(y) == -np.inf).all()
    y.sum().backward()
    assert (leaf.grad.numpy() == 0).all()
    assert plain(ng.logsumexp(ng.tensor([np.inf, 1.0]))) == np.inf
    assert plain(ng.logsumexp(ng.zeros((0,)))) == -np.inf


def test_log_softmax_keeps_the_digits_of_large_logits():
    x = np.array([1000.0, 1000.5, 999.25], "f4")
    want = scipy.special.log_softmax(x.astype("f8"))
    np.testing.assert_allclose(plain(ng.log_softmax(ng.tensor(x))), want, rtol=3e-7)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_places_are_the_first_of_equals_and_of_nan(dtype, backend):
    x = values((6, 5, 4), dtype).round(1)
    x[2, 1] = np.nan
    x[4, 3, 2] = np.nan
    for name, axis in itertools.product(["argmax", "argmin"], [None, 0, 1, 2, -3]):
        for keepdims in (False, True):
            given = {"axis": axis, "keepdims": keepdims}
            check(ours(name)(ng.tensor(x), **given), getattr(np, name)(x, **given))


# ----- what torch gives -----


TORCH_NAMES = {
    "sum": "sum",
    "mean": "mean",
    "prod": "prod",
    "max": "amax",
    "min": "amin",
    "logsumexp": "logsumexp",
    "softmax": "softmax",
    "log_softmax": "log_softmax",
    "cumsum": "cumsum",
    "cumprod": "cumprod",
}


@pytest.mark.parametrize("name", list(TORCH_NAMES))
def test_gradients_are_torchs(name):
    torch = pytest.importorskip("torch")
    x = values((6, 7)).round(0)
    x[0, :2] = 0
    for axis in (0, 1):
        mine, theirs = ng.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        y, z = ours(name)(mine, axis=axis), getattr(theirs, TORCH_NAMES[name])(dim=axis)
        w = values(y.shape, seed=9)
        np.testing.assert_allclose(plain(y), z.detach().numpy(), rtol=1e-12)
        y.backward(w)
        z.backward(torch.tensor(w))
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-10, atol=1e-12)


# ----- errors -----


@each({**FOLDS, **FLAT, **WALKS, **SOFT})
def test_bad_axes_are_numpys_errors(name):
    x = ng.tensor(values((3, 4)), requires_grad=True)
    for axis in (2, -3):
        with pytest.raises(np.exceptions.AxisError):
            ours(name)(x, axis=axis)
    with pytest.raises(TypeError):
        ours(name)(x, axis="rows")
    if name not in (*WALKS, "argmax", "argmin"):
        with pytest.raises(ValueError, match="duplicate"):
            ours(name)(x, axis=(0, 0))
    with pytest.raises(TypeError):
        ours(name)(x, axes=0)


@each([n for n in (*FOLDS, *FLAT, *WALKS) if n not in ("logsumexp", "euclidean_norm", "count_nonzero")])
def test_out_is_refused(name):
    with pytest.raises(TypeError, match="out= is not supported"):
        ours(name)(ng.tensor([1.0]), out=np.zeros(()))


def test_masks_must_be_boolean_and_fit():
    x = ng.tensor(values((3, 4)))
    with pytest.raises(TypeError, match="boolean"):
        ng.sum(x, where=np.ones((3, 4)))
    with pytest.raises(ValueError, match="broadcast"):
        ng.sum(x, where=np.ones((3, 5), bool))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "var", "softmax", "cumsum"])
def test_array_likes_are_taken(name):
    check(ours(name)([[1.0, 2.0], [3.0, 4.0]], axis=0), plain(ours(name)(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)))
    x = ng.tensor(2.0, requires_grad=True)
    y = ours(name)([x, 3 * x], axis=0)
    (g,) = ng.autograd.grad(y.sum(), x)
    assert np.isfinite(plain(g))


def test_saved_values_are_checked():
    x = ng.tensor([1.0, 2.0], requires_grad=True) * 1
    y = ng.var(x)
    x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
