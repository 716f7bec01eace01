"""The array API standard 2024.12: names and signatures as array-api-strict has them, results as NumPy has them."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import assert_gradients, plain

import numbagrad as ng
import numbagrad.array_api as xp

strict = pytest.importorskip("array_api_strict")
LATER = {"broadcast_shapes", "isin"}
"""What array-api-strict has of the edition after 2024.12."""


def standard_names(module):
    flags = {"ArrayAPIStrictFlags", "Device", "linalg", "fft", *LATER}
    names = getattr(module, "__all__", None) or dir(module)
    return [n for n in names if not n.startswith("_") and n not in flags and "array_api_strict" not in n]


MODULES = {"": (strict, xp), "linalg": (strict.linalg, xp.linalg), "fft": (strict.fft, xp.fft)}
NAMES = [(where, name) for where, (theirs, _) in MODULES.items() for name in standard_names(theirs)]


@pytest.mark.parametrize(("where", "name"), NAMES)
def test_every_name_is_there_and_takes_the_standards_keywords(where, name):
    theirs, ours = (getattr(module, name) for module in MODULES[where])
    if not inspect.isfunction(theirs) or not inspect.isfunction(ours):
        return
    given = inspect.signature(ours).parameters
    if any(p.kind is p.VAR_KEYWORD for p in given.values()):
        return
    for p in inspect.signature(theirs).parameters.values():
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
            assert p.name in given, f"{name} takes no {p.name}"


REAL = {"float32": np.array([[0.5, -1.5], [2.0, 0.25]], "f4"), "float64": np.array([[0.5, -1.5], [2.0, 0.25]])}
INTS = {f"{k}{b}": np.array([[5, 1], [2, 9]], f"{k}{b}") for k in ("int", "uint") for b in (8, 16, 32, 64)}
COMPLEX = {"complex64": REAL["float32"] * (1 + 2j), "complex128": REAL["float64"] * (1 + 2j)}
ARRAYS = {
    **REAL,
    **INTS,
    **{k: v.astype(k) for k, v in COMPLEX.items()},
    "bool": np.array([[True, False], [True, True]]),
}
_ONE = """
abs acos acosh asin asinh atan atanh ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log log10
log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square tan tanh trunc
bitwise_invert all any argmax argmin count_nonzero max mean min prod sum std var nonzero matrix_transpose
unique_all unique_counts unique_inverse unique_values sort argsort tril triu flip squeeze diff
"""
ONE = _ONE.split()
_TWO = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum
minimum multiply nextafter not_equal pow remainder subtract matmul tensordot vecdot
"""
TWO = _TWO.split()


def answers(function, *arrays):
    """What a function gives, or the type of its error."""
    with np.errstate(all="ignore"):
        try:
            made = function(*arrays)
        except (TypeError, ValueError) as e:
            return type(e)
    return [np.asarray(plain(m)) for m in (made if isinstance(made, tuple) else (made,))]


def assert_same_answer(ours, theirs):
    if isinstance(theirs, type):
        return
    assert not isinstance(ours, type), ours
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=3e-6 if b.dtype.itemsize <= 8 else 1e-12, atol=1e-6, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ARRAYS)
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_array_answer_as_numpy(name, dtype):
    a = ARRAYS[dtype]
    if (name, dtype) == ("conj", "bool"):
        pytest.skip("the standard has no conjugate of booleans")
    if name == "squeeze":
        return assert_same_answer(answers(lambda x: xp.squeeze(x, axis=0), ng.tensor(a[:1])), [a[0]])
    # NumPy gives these in any order.
    theirs = answers(np.unique if name == "unique_values" else getattr(np, name), a)
    return assert_same_answer(answers(getattr(xp, name), ng.tensor(a)), theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ARRAYS)
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_arrays_answer_as_numpy(name, dtype):
    a = ARRAYS[dtype]
    b = np.abs(a[::-1]) if a.dtype != bool else a[::-1]
    b = b.astype(a.dtype)
    assert_same_answer(answers(getattr(xp, name), ng.tensor(a), ng.tensor(b)), answers(getattr(np, name), a, b))


def test_creation_functions_make_tensors():
    made = [
        *(xp.zeros((2, 3)), xp.ones(2, dtype=xp.int8), xp.empty((0,)), xp.full(3, 2.5), xp.eye(2, 3, k=1)),
        *(xp.arange(3), xp.arange(1, 4, 2, dtype=xp.float32), xp.linspace(0, 1, 3, endpoint=False)),
        *(xp.asarray([[1, 2]]), xp.asarray(np.ones(2), copy=True), xp.fft.fftfreq(4), xp.fft.rfftfreq(4, d=0.5)),
    ]
    x = made[0]
    made += [xp.zeros_like(x), xp.ones_like(x), xp.empty_like(x), xp.full_like(x, 3)]
    assert all(isinstance(m, ng.Tensor) for m in made)
    assert xp.arange(3).dtype == np.int64 and xp.zeros(2).dtype == np.float64
    with pytest.raises(ValueError, match="cuda"):
        xp.zeros(2, device="cuda")


def test_descending_sorts_are_stable():
    a = np.array([2.0, 1.0, 2.0, 3.0])
    x = ng.tensor(a, requires_grad=True)
    assert plain(xp.argsort(x, descending=True)).tolist() == [3, 0, 2, 1]
    y = xp.sort(x, descending=True)
    assert plain(y).tolist() == [3, 2, 2, 1]
    y.backward([1.0, 10.0, 100.0, 1000.0])
    assert plain(x.grad).tolist() == [10, 1000, 100, 1]


def test_what_the_namespace_says_of_itself():
    info = xp.__array_namespace_info__()
    assert info.default_device() == "cpu" and info.devices() == ["cpu"]
    assert info.default_dtypes()["real floating"] == np.float64
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert xp.finfo(xp.float32).bits == 32 and xp.iinfo(ng.tensor([1])).max == 2**63 - 1
    assert xp.isdtype(xp.float32, "real floating") and xp.__array_api_version__ == "2024.12"


def test_versions_of_the_standard():
    x = ng.tensor([1.0])
    assert x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match="2019"):
        x.__array_namespace__(api_version="2019.12")
    assert x.to_device("cpu") is x
    with pytest.raises(ValueError, match="stream"):
        x.to_device("cpu", stream=1)


def test_gradients_flow_through_the_namespace():
    x = ng.tensor([[4.0, 1.0], [1.0, 3.0]], requires_grad=True)
    y = xp.linalg.slogdet(x).logabsdet + xp.sum(xp.real(xp.fft.fft(x))) + xp.clip(x, 2, 3.5)[0, 1]
    y.backward()
    want = np.linalg.inv(plain(x)).T + [[2.0, 0.0], [2.0, 0.0]]
    np.testing.assert_allclose(plain(x.grad), want)


# ----- Other libraries -----


def test_array_api_compat_takes_tensors():
    compat = pytest.importorskip("array_api_compat")
    x = ng.tensor([1.0, 2.0])
    assert compat.array_namespace(x, x) is xp and compat.is_array_api_obj(x) and compat.device(x) == "cpu"
    assert compat.size(x) == 2


def test_opt_einsum_contracts_tensors():
    contract = pytest.importorskip("opt_einsum").contract
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    x = ng.tensor(a, requires_grad=True)
    y = contract("ij,j,kj->ki", x, ng.tensor(b), x)
    np.testing.assert_allclose(plain(y), np.einsum("ij,j,kj->ki", a, b, a))
    y.sum().backward()
    np.testing.assert_allclose(plain(x.grad), np.tile(2 * a.sum(0) * b, (2, 1)))


def test_xarray_holds_tensors():
    xarray = pytest.importorskip("xarray")
    x = ng.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = (xarray.DataArray(x, dims=("a", "b")) * 2.0).sum("a").data
    assert isinstance(y, ng.Tensor)
    y.backward([1.0, 10.0])
    assert plain(x.grad).tolist() == [[2, 20], [2, 20]]


# ----- DLPack -----


def test_dlpack_shares_memory_with_numpy():
    x = ng.tensor([1.0, 2.0])
    a = np.from_dlpack(x)
    x[0] = 7.0
    assert a.tolist() == [7, 2]
    back = ng.from_dlpack(a)
    assert np.shares_memory(back, x)
    assert not np.shares_memory(ng.from_dlpack(a, copy=True), x)


def test_dlpack_exchanges_with_torch():
    torch = pytest.importorskip("torch")
    t = torch.arange(3.0)
    x = ng.from_dlpack(t)
    t[0] = 9.0
    assert plain(x).tolist() == [9, 1, 2] and x.dtype == np.float32
    x[1] = 5.0
    assert torch.from_dlpack(x).tolist() == [9, 5, 2]
    with pytest.raises(Exception, match="require"):
        ng.from_dlpack(torch.ones(2, requires_grad=True))


def test_dlpack_of_a_tensor_that_requires_grad_is_refused():
    x = ng.tensor([1.0], requires_grad=True)
    with pytest.raises(BufferError, match="detach"):
        np.from_dlpack(x)
    assert np.from_dlpack(x.detach()).tolist() == [1]


def test_dlpack_of_read_only_memory():
    a = np.arange(3.0)
    a.flags.writeable = False
    x = ng.from_dlpack(ng.asarray(a))
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 1.0
    assert ng.from_dlpack(ng.asarray(a), copy=True)._data.flags.writeable


SCIPY = """
import numpy as np, scipy.special, scipy.stats, scipy.fft, scipy.optimize, numbagrad as ng
from helpers import assert_gradients
a = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, 1.5]])
for function in (
    lambda x: scipy.special.logsumexp(x, axis=1),
    lambda x: scipy.special.softmax(x, axis=0),
    lambda x: scipy.stats.kurtosis(x, axis=1),
    lambda x: scipy.stats.gmean(x, axis=1),
    lambda x: scipy.stats.skew(x, axis=1),
    lambda x: scipy.stats.sem(x, axis=1),
    lambda x: scipy.stats.moment(x, 2, axis=1),
    lambda x: scipy.optimize.rosen(x[0]),
    lambda x: scipy.fft.fft(x).real,
):
    value = function(ng.tensor(a, requires_grad=True))
    assert isinstance(value, ng.Tensor) and value.requires_grad
    np.testing.assert_allclose(value.detach(), function(a), rtol=1e-9)
    assert_gradients(function, a, rtol=1e-5, atol=1e-6, order=1)
try:
    scipy.integrate.simpson(ng.tensor(a, requires_grad=True))
except RuntimeError as e:
    assert "gradient would be lost" in str(e)
"""


def test_scipys_array_api_takes_tensors_and_gradients_flow():
    pytest.importorskip("scipy")
    here = Path(__file__).parent
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": str(here)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCIPY], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_einops_takes_tensors_once_registered():
    einops = pytest.importorskip("einops")
    from numbagrad.interop import register_einops

    register_einops()
    a = np.arange(24.0).reshape(2, 3, 4)
    for function in (
        lambda x: einops.rearrange(x, "a b c -> c (a b)"),
        lambda x: einops.rearrange(x, "a b (c d) -> d a b c", d=2),
        lambda x: einops.reduce(x, "a b c -> b", "mean"),
        lambda x: einops.reduce(x, "a b c -> a 1 c", "max"),
        lambda x: einops.repeat(x, "a b c -> a 2 b c"),
        lambda x: einops.einsum(x, x, "a b c, a d c -> b d"),
        lambda x: einops.rearrange([x, x], "n a b c -> a n b c"),
    ):
        np.testing.assert_allclose(plain(function(ng.tensor(a, requires_grad=True))), function(a))
        assert_gradients(function, a / 7)
