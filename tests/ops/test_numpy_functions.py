"""NumPy's functions that are made of other ops: values and dtypes as NumPy's, gradients as differences say.

Each row calls one function of NumPy's with Tensors, through NumPy's own protocols.
"""

import warnings

import numpy as np
import pytest
from helpers import assert_gradients, parts, plain

import numbagrad as ng
import numbagrad.numpy as anp

RNG = np.random.default_rng(5)
V = RNG.normal(size=7)
W = RNG.normal(size=3)
M = RNG.normal(size=(3, 4))
N = RNG.normal(size=(5, 4, 3))
POS = RNG.uniform(0.5, 2.0, size=(2, 3))
UP = np.array([0.0, 0.7, 1.1, 2.0, 3.5, 3.9, 5.0])
WEIGHTS = RNG.uniform(0.2, 2.0, size=7)
HOLED = np.where(RNG.uniform(size=(4, 6)) < 0.3, np.nan, RNG.normal(size=(4, 6)))
METHODS = [
    *("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull"),
    *("linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest"),
]
Q = np.array([0.0, 0.12, 0.37, 0.5, 0.81, 1.0])

CALLS = {
    "float_power": (np.float_power, [POS, POS]),
    "divmod": (np.divmod, [POS * 7.3, POS]),
    "modf": (np.modf, [V * 3]),
    "frexp": (np.frexp, [V * 3]),
    "ldexp": (lambda x: np.ldexp(x, [1, -2, 3]), [W]),
    "nextafter": (lambda x: np.nextafter(x, 9.0), [V]),
    "fix": (np.fix, [V * 3]),
    "radians": (np.radians, [V]),
    "degrees": (np.degrees, [V]),
    "nan_to_num": (np.nan_to_num, [V]),
    "real_if_close": (np.real_if_close, [V]),
    "angle": (np.angle, [V]),
    "i0": (np.i0, [V]),
    "unwrap": (np.unwrap, [V * 9]),
    "unwrap along": (lambda x: np.unwrap(x, axis=0, period=2.5, discont=1.5), [M * 9]),
    "piecewise": (lambda x: np.piecewise(x, [x < -0.5, x > 0.5], [lambda v: v * v, 3.0, lambda v: -v]), [M]),
    "piecewise one condition": (lambda x: np.piecewise(x, x > 0.5, [lambda v: v * v]), [V]),
    "piecewise arguments": (lambda x: np.piecewise(x, [x > 0], [lambda v, k: v * k, 0.0], 4.0), [V]),
    "cumulative_sum": (lambda x: np.cumulative_sum(x, axis=1, include_initial=True), [M]),
    "cumulative_prod": (lambda x: np.cumulative_prod(x, axis=0, include_initial=True), [M]),
    "ediff1d": (lambda x, y: np.ediff1d(x, to_end=y, to_begin=[1.0]), [V, W]),
    "gradient": (np.gradient, [V]),
    "gradient axes": (lambda x: np.gradient(x, 0.5, axis=(0, 1)), [M]),
    "gradient edges": (lambda x: np.gradient(x, 2.0, edge_order=2), [V]),
    "gradient places": (lambda x, y: np.gradient(x, y), [V, UP]),
    "gradient places edges": (lambda x, y: np.gradient(x, y, edge_order=2), [V, UP]),
    "gradient spacings": (lambda x, h: np.gradient(x, h, np.array([0.0, 1.0, 3.0, 4.0])), [M, np.array(0.7)]),
    "convolve": (np.convolve, [V, W]),
    "convolve same": (lambda x, y: np.convolve(x, y, "same"), [V, W]),
    "convolve valid": (lambda x, y: np.convolve(x, y, "valid"), [V, W]),
    "convolve short": (lambda x, y: np.convolve(x, y, "same"), [W, RNG.normal(size=4)]),
    "correlate": (np.correlate, [V, W]),
    "correlate same": (lambda x, y: np.correlate(x, y, "same"), [V, RNG.normal(size=4)]),
    "correlate full": (lambda x, y: np.correlate(x, y, "full"), [W, V]),
    "correlate short same": (lambda x, y: np.correlate(x, y, "same"), [RNG.normal(size=4), V]),
    "correlate short valid": (lambda x, y: np.correlate(x, y, "valid"), [W, V]),
    "vander": (np.vander, [W]),
    "vander increasing": (lambda x: np.vander(x, 5, increasing=True), [W]),
    "polyval": (np.polyval, [W, V]),
    "polyadd": (np.polyadd, [W, V]),
    "polysub": (np.polysub, [V, W]),
    "polymul": (np.polymul, [W, V]),
    "polydiv": (np.polydiv, [V, W]),
    "polyder": (lambda p: np.polyder(p, 2), [V]),
    "polyint": (lambda p, k: np.polyint(p, 3, k), [V, W]),
    "poly": (np.poly, [W]),
    "polyfit": (lambda x, y: np.polyfit(x, y, 2), [UP, V]),
    "polyfit weights": (lambda x, y, w: np.polyfit(x, y, 2, w=w), [UP, V, WEIGHTS]),
    "polyfit columns": (lambda x, y: np.polyfit(x, y, 2), [UP, RNG.normal(size=(7, 2))]),
    "polyfit cov": (lambda x, y: np.polyfit(x, y, 2, cov="unscaled"), [UP, V]),
    "apply_along_axis": (lambda x: np.apply_along_axis(lambda v: v[:2] * v.sum(), 1, x), [N]),
    "apply_over_axes": (lambda x: np.apply_over_axes(np.sum, x, [0, 2]), [N]),
    "sliding_window_view": (lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 2)), [M]),
    "sliding_window_view axis": (lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=1), [N]),
    "bincount": (lambda w: np.bincount([0, 3, 1, 3, 3, 0, 1], w, 6), [V]),
    "histogram": (lambda w: np.histogram(UP, 4, weights=w), [WEIGHTS]),
    "histogram density": (lambda w: np.histogram(UP, [0, 1, 3, 4], weights=w, density=True), [WEIGHTS]),
    "cov": (np.cov, [M]),
    "cov of one": (np.cov, [V]),
    "cov columns": (lambda x, y: np.cov(x, y, rowvar=False, bias=True), [N[:, :, 0], N[:, :2, 1]]),
    "cov weights": (lambda x, a: np.cov(x, fweights=[1, 2, 3, 1], aweights=a), [M, WEIGHTS[:4]]),
    "corrcoef": (np.corrcoef, [M]),
    "corrcoef two": (np.corrcoef, [V, WEIGHTS]),
    "sort_complex": (lambda x: np.real(np.sort_complex(x)), [V]),
    "unique_all": (np.unique_all, [np.array([2.0, 1.0, 4.0])]),
    "unique_counts": (np.unique_counts, [np.array([2.0, 1.0, 4.0])]),
    "unique_inverse": (np.unique_inverse, [np.array([[2.0, 1.0, 4.0]])]),
    "unique_values": (np.unique_values, [V]),
    "interp period": (lambda x, xp, fp: np.interp(x, xp, fp, period=4.2), [V * 3, UP[:3], W]),
    "quantile of q": (lambda x, q: np.quantile(x, q, axis=1), [M, np.array([0.2, 0.75])]),
    "quantile weights": (
        lambda x: np.quantile(x, Q, weights=WEIGHTS, axis=0, method="inverted_cdf"),
        [RNG.normal(size=(7, 2))],
    ),
    "percentile": (lambda x: np.percentile(x, Q * 100, axis=(0, 2), keepdims=True), [N]),
    "astype": (lambda x: np.astype(x, np.float64), [V]),
    "fmax.reduce": (lambda x: np.fmax.reduce(x, axis=1), [M]),
    "logaddexp.reduce": (lambda x: np.logaddexp.reduce(x, axis=0, keepdims=True), [M]),
    "subtract.reduce": (np.subtract.reduce, [M]),
    "hypot.reduce": (lambda x: np.hypot.reduce(x, axis=1), [M]),
    "add.reduce": (lambda x: np.add.reduce(x, axis=None, initial=3.0, where=M > 0), [M]),
    "maximum.reduce": (lambda x: np.maximum.reduce(x, axis=(0, 1)), [M]),
    "maximum.accumulate": (np.maximum.accumulate, [M]),
    "minimum.accumulate": (lambda x: np.minimum.accumulate(x, axis=1), [M]),
    "divide.accumulate": (np.divide.accumulate, [POS]),
    "add.reduceat": (lambda x: np.add.reduceat(x, [1, 2, 5]), [V]),
    "add.reduceat falling": (lambda x: np.add.reduceat(x, [4, 1, 1, 3], axis=0), [V]),
    "multiply.reduceat": (lambda x: np.multiply.reduceat(x, [0, 3, 1], axis=1), [M]),
    "maximum.outer": (np.maximum.outer, [V, W]),
    **{f"quantile {m}": (lambda x, m=m: np.quantile(x, Q, axis=1, method=m), [N]) for m in METHODS},
    **{
        f"pad {mode} {key}": (lambda x, mode=mode, s=s: np.pad(x, ((2, 1), (0, 3)), mode, **s), [M])
        for mode, key, s in [
            ("linear_ramp", "", {}),
            ("linear_ramp", "to", {"end_values": ((1, 2), (3, 4))}),
            *((mode, "", {}) for mode in ("mean", "median", "maximum", "minimum")),
            *((mode, "of", {"stat_length": ((1, 2), (3, 2))}) for mode in ("mean", "median", "maximum", "minimum")),
            ("reflect", "odd", {"reflect_type": "odd"}),
            ("symmetric", "odd", {"reflect_type": "odd"}),
        ]
    },
}
FLAT_SLOPES = {"divmod", "fix"}
"""Their derivatives have none themselves."""


def shown(result):
    return [plain(p) for p in parts(result)]


def tensors(arrays, requires_grad=True):
    return [ng.tensor(a, requires_grad=requires_grad and a.dtype.kind == "f") for a in arrays]


@pytest.mark.parametrize("name", CALLS)
def test_values_are_numpys(name):
    function, arrays = CALLS[name]
    got, want = shown(function(*tensors(arrays))), parts(function(*arrays))
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.shape, ours.dtype) == (np.shape(theirs), np.asarray(theirs).dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_differences(name):
    function, arrays = CALLS[name]
    order = 1 if name in FLAT_SLOPES else 2
    assert_gradients(function, *arrays, order=order, rtol=1e-5, atol=1e-6, h=1e-4)


@pytest.mark.parametrize("name", CALLS)
def test_every_float_result_is_in_the_graph(name):
    function, arrays = CALLS[name]
    results = parts(function(*tensors(arrays)))
    assert any(r.requires_grad for r in results if r.dtype.kind in "fc")


@pytest.mark.parametrize("trim", ["fb", "f", "b"])
@pytest.mark.parametrize("data", [[0, 0, 1.5, 0, 2.5, 0], [0, 0, 0], [[0, 0, 0], [0, 2.0, 3.0], [0, 0, 4.0]], []])
def test_trimmed_zeros(trim, data):
    a = np.array(data, float)
    x = ng.tensor(a, requires_grad=True)
    y = np.trim_zeros(x, trim)
    np.testing.assert_array_equal(plain(y), np.trim_zeros(a, trim))
    y.sum().backward()
    assert plain(x.grad).sum() == y.size and plain(x.grad)[a != 0].all()


NAN = {
    "nanmedian": lambda np, x: np.nanmedian(x, axis=1),
    "nanquantile": lambda np, x: np.nanquantile(x, Q, axis=1, keepdims=True),
    "nanpercentile": lambda np, x: np.nanpercentile(x, Q * 100),
    "nancumsum": lambda np, x: np.nancumsum(x, axis=0),
    "nancumprod": lambda np, x: np.nancumprod(x, axis=1),
    "nan_to_num": lambda np, x: np.nan_to_num(x, nan=-3.0),
    **{f"nanquantile {m}": (lambda np, x, m=m: np.nanquantile(x, Q, axis=0, method=m)) for m in METHODS},
}


@pytest.mark.parametrize("name", NAN)
def test_nan_is_left_out_and_gets_no_gradient(name):
    x = ng.tensor(HOLED, requires_grad=True)
    y = NAN[name](np, x)
    np.testing.assert_allclose(plain(y), NAN[name](np, HOLED), rtol=1e-12)
    holes = np.isnan(HOLED)

    def filled(v):
        return NAN[name](np, anp.where(holes, np.nan, v))

    y.sum().backward()
    assert np.isfinite(plain(x.grad)).all() and not plain(x.grad)[holes].any()
    assert_gradients(filled, np.nan_to_num(HOLED), order=1, rtol=1e-5, atol=1e-6)


def test_a_row_of_nan_warns_as_numpy_does():
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        assert np.isnan(np.nanmedian(ng.tensor([[np.nan], [1.0]]), axis=1)[0])


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        *(("sec", 0.5), ("csc", 0.5), ("cot", 0.5), ("sech", 0.5), ("csch", 0.5), ("coth", 0.5), ("arccot", 0.5)),
        *(("arcsec", 2.0), ("arccsc", -2.0), ("arccsch", 2.0), ("arccoth", 2.0), ("arccot", -0.5)),
    ],
)
def test_reciprocal_functions_are_those_of_mpmath(name, argument):
    mpmath = pytest.importorskip("mpmath")
    theirs = getattr(mpmath, name.replace("arc", "a"))
    x = ng.tensor(argument, requires_grad=True)
    y = getattr(ng, name)(x)
    y.backward()
    assert y.item() == pytest.approx(float(theirs(argument)), rel=1e-12)
    assert x.grad.item() == pytest.approx(float(mpmath.diff(theirs, argument)), rel=1e-9)


def test_roots_move_by_the_implicit_function():
    p = np.array([0.0, 1.0, -6.0, 11.0, -6.0, 0.0])
    x = ng.tensor(p, requires_grad=True)
    r = np.roots(x)
    np.testing.assert_allclose(np.sort(plain(r).real), [0, 1, 2, 3], atol=1e-9)
    assert_gradients(lambda c: anp.sort(np.roots(c).real), np.array([1.0, -6.0, 11.0, -6.0]), rtol=1e-4, atol=1e-5)


def test_a_characteristic_polynomial():
    assert_gradients(np.poly, RNG.normal(size=(3, 3)), rtol=1e-5, atol=1e-6)


def test_complex_sequences():
    a = RNG.normal(size=4) + 1j * RNG.normal(size=4)
    v = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    for function in (np.convolve, lambda a, v: np.correlate(a, v, "full")):
        x, y = ng.tensor(a, requires_grad=True), ng.tensor(v, requires_grad=True)
        np.testing.assert_allclose(plain(function(x, y)), function(a, v))
        assert ng.autograd.gradcheck(function, (x, y))
    z = ng.tensor(a, requires_grad=True)
    np.testing.assert_allclose(plain(np.angle(z)), np.angle(a))
    assert ng.autograd.gradcheck(np.angle, (z,))
    assert ng.autograd.gradcheck(lambda z: np.nan_to_num(z), (z,))


# ----- Functions without a gradient -----

FLAT = {
    "isneginf": lambda x: np.isneginf(x),
    "isreal": lambda x: np.isreal(x),
    "iscomplex": lambda x: np.iscomplex(x),
    "isin": lambda x: np.isin(x, [x[0], 3.0]),
    "nanargmax": lambda x: np.nanargmax(x),
    "lexsort": lambda x: np.lexsort((x, x)),
    "digitize": lambda x: np.digitize(x, [0.0, 0.5]),
    "spacing": lambda x: np.spacing(x),
    "histogram": lambda x: np.histogram(x, 3),
    "histogram2d": lambda x: np.histogram2d(x, x, 3),
    "bincount": lambda x: np.bincount((x > 0).astype(int)),
    "logical_xor.reduce": lambda x: np.logical_xor.reduce(x > 0),
    "less.outer": lambda x: np.less.outer(x, x),
    "iscomplexobj": np.iscomplexobj,
    "array_equiv": lambda x: np.array_equiv(x, x),
    "can_cast": lambda x: np.can_cast(x.dtype, "f4"),
    "result_type": lambda x: np.result_type(x, np.float32),
    "shares_memory": lambda x: np.shares_memory(x, x[1:]),
    "array_repr": lambda x: np.array_repr(x),
    "isscalar": np.isscalar,
}


@pytest.mark.parametrize("name", FLAT)
def test_functions_without_a_gradient_answer_as_numpy(name):
    got = FLAT[name](ng.tensor(V, requires_grad=True))
    want = FLAT[name](V)
    for ours, theirs in zip(parts(got), parts(want), strict=True):
        if isinstance(theirs, (np.ndarray, np.generic)):
            assert isinstance(ours, ng.Tensor) and not ours.requires_grad
            np.testing.assert_array_equal(plain(ours), theirs)
        else:
            assert ours == theirs and type(ours) is type(theirs)


def test_what_would_be_lost_is_refused_by_name():
    x = ng.tensor(V, requires_grad=True)
    for call, name in (
        (lambda: np.histogram2d(V, V, weights=x), "weights"),
        (lambda: np.unwrap(x, period=ng.tensor(2.0, requires_grad=True)), "period"),
        (lambda: np.pad(x, 1, lambda *args: None), "function"),
        (lambda: np.sum(x, out=np.zeros(())), "out"),
        (lambda: np.add.at(np.zeros(7), [0], x), "target"),
        (lambda: np.copyto(np.zeros(7), x), "dst"),
    ):
        with pytest.raises((TypeError, NotImplementedError), match=name):
            call()


# ----- Bad input, as NumPy has it -----

BAD = {
    "convolve of nothing": lambda x: np.convolve(x[:0], x),
    "convolve of a matrix": lambda x: np.convolve(x.reshape(1, 7), x),
    "convolve in another mode": lambda x: np.convolve(x, x, "some"),
    "gradient of one": lambda x: np.gradient(x[:1]),
    "gradient of order 3": lambda x: np.gradient(x, edge_order=3),
    "gradient with too many spacings": lambda x: np.gradient(x, 1.0, 2.0),
    "gradient places of another length": lambda x: np.gradient(x, x[:3]),
    "vander of a matrix": lambda x: np.vander(x.reshape(1, 7)),
    "polyder by a negative order": lambda x: np.polyder(x, -1),
    "polyfit of two lengths": lambda x: np.polyfit(x, x[:3], 1),
    "cov with negative weights": lambda x: np.cov(x, aweights=-np.ones(7)),
    "cov with a fraction": lambda x: np.cov(x, ddof=1.5),
    "quantile above 1": lambda x: np.quantile(x, 1.5),
    "quantile of another method": lambda x: np.quantile(x, 0.5, method="best"),
    "quantile with weights": lambda x: np.quantile(x, 0.5, weights=np.ones(7)),
    "cumulative_sum of a matrix": lambda x: np.cumulative_sum(x.reshape(1, 7)),
    "piecewise with too few functions": lambda x: np.piecewise(x, [x > 0, x < 0], [1.0]),
    "trim_zeros at another end": lambda x: np.trim_zeros(x, "x"),
    "sliding_window_view too long": lambda x: np.lib.stride_tricks.sliding_window_view(x, 8),
    "subtract.reduce of two axes": lambda x: np.subtract.reduce(x.reshape(1, 7), axis=(0, 1)),
    "minimum.reduce of nothing": lambda x: np.fmin.reduce(x[:0]),
    "interp by period 0": lambda x: np.interp(x, x, x, period=0),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_raises_numpys_type(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as theirs:
            BAD[name](V)
        with pytest.raises(theirs.type):
            BAD[name](ng.tensor(V, requires_grad=True))


def test_real_functions_refuse_complex_numbers():
    z = ng.tensor([0.3 + 0.2j, -0.1j])
    for function in (ng.sigmoid, ng.relu, ng.elu, ng.gelu, ng.silu, ng.softmax, ng.log_softmax, ng.leaky_relu):
        with pytest.raises(TypeError, match="real numbers only"):
            function(z, *([0.1] if function in (ng.elu, ng.leaky_relu) else []))


def test_complex_directions_and_inverse_sines():
    z = ng.tensor([0.3 + 0.2j, 0.4 - 0.1j, -2.0 + 1j], requires_grad=True)
    for function in (np.sign, np.arcsinh, np.median, np.sort_complex, ng.arccsch):
        assert ng.autograd.gradcheck(function, (z,))
    np.testing.assert_allclose(plain(np.sign(z)), np.sign(plain(z)), rtol=1e-15)
    np.testing.assert_allclose(plain(np.median(z)), np.median(plain(z)))
    with pytest.raises(TypeError, match="real"):
        np.quantile(z, 0.5, method="midpoint")


# ----- Protocols -----


def test_add_at_adds_as_often_as_an_index_occurs():
    v, w = ng.tensor([1.0, 2.0, 3.0], requires_grad=True), np.array([10.0, 20.0, 30.0])
    for ufunc in (np.add, np.subtract, np.multiply, np.maximum):
        x = ng.tensor(w, requires_grad=True) * 1.0
        want = w.copy()
        ufunc.at(want, [0, 2, 0], plain(v))
        ufunc.at(x, [0, 2, 0], v)
        np.testing.assert_allclose(plain(x), want)

    def written(ufunc, target, values):
        out = target * 1.0
        ufunc.at(out, (np.array([0, 1, 0]), np.array([1, 1, 1])), values)
        return out

    for ufunc in (np.add, np.multiply, np.divide):
        assert_gradients(lambda t, u, f=ufunc: written(f, t, u), POS, W**2 + 1)


def test_where_chooses_between_result_and_out():
    x, out = ng.tensor([1.0, 2.0], requires_grad=True), ng.tensor([5.0, 6.0], requires_grad=True)
    target = out * 1.0
    y = np.multiply(x, 3.0, out=target, where=[True, False])
    assert y is target and plain(y).tolist() == [3.0, 6.0]
    y.backward([1.0, 1.0])
    assert plain(x.grad).tolist() == [3.0, 0.0] and plain(out.grad).tolist() == [0.0, 1.0]


def test_out_is_overwritten_where_that_keeps_the_gradient():
    x = ng.tensor(M, requires_grad=True)
    for call in (
        lambda out: np.sum(x, axis=1, out=out),
        lambda out: np.mean(x, 1, None, out),
        lambda out: np.max(x, axis=1, out=out),
        lambda out: anp.sum(x, axis=1, out=out),
        lambda out: np.add.reduce(x, axis=1, out=out),
    ):
        out = ng.zeros(3)
        assert call(out) is out and out.requires_grad
    plain_out = np.zeros(3)
    assert np.sum(x.detach(), axis=1, out=plain_out) is plain_out and plain_out.any()
    with pytest.raises(ValueError, match="shape"):
        np.sum(x, axis=1, out=ng.zeros(4))
    with pytest.raises(TypeError, match="cast"):
        np.sum(x, axis=1, out=ng.zeros(3, dtype=int))


def test_an_ndarray_becomes_a_tensor_by_adding_one():
    x, a = ng.tensor([1.0, 2.0], requires_grad=True), np.array([3.0, 4.0])
    kept = a
    a += x
    assert isinstance(a, ng.Tensor) and kept.tolist() == [3.0, 4.0]
    a.backward([1.0, 10.0])
    assert plain(x.grad).tolist() == [1.0, 10.0]


def test_leaving_the_graph_follows_one_rule_each():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    for call in (lambda: np.asarray(x), lambda: np.array([1.0, 2.0]).dot(x), lambda: np.array(x)):
        with pytest.raises(RuntimeError, match="gradient would be lost"):
            call()
    assert np.asarray(x.detach()).tolist() == [1.0, 2.0]
    assert np.array([1.0, 2.0]).dot(x.detach()) == 5.0
    # A number was asked for by name, as with item().
    assert float(x[1]) == 2.0
    assert isinstance(np.dot([1.0, 2.0], x), ng.Tensor)


def test_ufunc_methods_of_the_face():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    assert anp.add.reduce([1.0, 2.0]) == 3.0 and not isinstance(anp.add.reduce([1.0]), ng.Tensor)
    y = anp.add.reduce([x, x * x]).sum() + anp.multiply.outer([x[0], 3.0], x).sum() + anp.maximum.reduce(x)
    y.backward()
    assert plain(x.grad).tolist() == [1 + 2 + 2 + 3 + 2, 1 + 4 + 1 + 3 + 1]


NESTED = {
    "concatenate": lambda np, x: np.concatenate([[x[0], 1.0], x]),
    "stack": lambda np, x: np.stack([[x[0], 1.0], [2.0, x[1]]]),
    "block": lambda np, x: np.block([[x, 1.0], [2.0, x]]),
    "sum": lambda np, x: np.sum([x[0], 2.0, x[1] * x[1]]),
    "array": lambda np, x: np.array([[x[0], 2.0], [3.0, x[1]]]),
    "multi_dot": lambda np, x: np.linalg.multi_dot([[[x[0], 1.0]], [[2.0, x[1]], [x[1], 3.0]], [[1.0], [x[0]]]]),
    "choose": lambda np, x: np.choose([1, 0], [[x[0], 1.0], [2.0, x[1]]]),
    "polyval": lambda np, x: np.polyval([x[0], 2.0, x[1]], 3.0),
    "cov": lambda np, x: np.cov([[x[0], 1.0, 2.0], [x[1], 3.0, x[0]]]),
    "det": lambda np, x: np.linalg.det([[x[0], 2.0], [3.0, x[1]]]),
    "where": lambda np, x: np.where([True, False], [x[0], 1.0], x),
    "maximum": lambda np, x: np.maximum([x[0], 0.0], [1.0, x[1]]),
    "convolve": lambda np, x: np.convolve([x[0], 1.0], [x[1], 2.0]),
    "fft": lambda np, x: np.real(np.fft.fft([x[0], 2.0, x[1]])),
    "r_": lambda np, x: np.r_[x[0], 2.0, x],
    "c_": lambda np, x: np.c_[x, [1.0, 2.0]],
}


@pytest.mark.parametrize("name", NESTED)
def test_lists_that_hold_tensors_are_tracked(name):
    at = np.array([1.5, 2.5])
    got = NESTED[name](anp, ng.tensor(at, requires_grad=True))
    assert isinstance(got, ng.Tensor) and got.requires_grad
    np.testing.assert_allclose(plain(got), NESTED[name](np, at), rtol=1e-12)
    assert_gradients(lambda x: NESTED[name](anp, x), at)


def test_operators_that_ndarrays_have_too():
    x, a = ng.tensor([7.5, -7.0], requires_grad=True), np.array([2.0, 3.0])
    for got, want in ((divmod(x, a), divmod(plain(x), a)), (divmod(a, x), divmod(a, plain(x)))):
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(plain(ours), theirs)
    i = ng.tensor([1, 2])
    assert plain(3 << i).tolist() == [6, 12] and plain(12 >> i).tolist() == [6, 3]
    assert plain(~i).tolist() == [-2, -3]


def test_creation_like_a_tensor_makes_tensors():
    x = ng.tensor([1.0])
    made = [
        *(np.zeros(2, like=x), np.ones((2, 1), like=x), np.eye(2, like=x), np.arange(3, like=x)),
        *(np.array([1, 2], like=x), np.asarray([1.5], like=x), np.full(2, 3.0, like=x), np.identity(2, like=x)),
    ]
    assert all(isinstance(m, ng.Tensor) for m in made)
    assert not isinstance(anp.zeros(2), ng.Tensor) and not isinstance(anp.arange(3), ng.Tensor)
