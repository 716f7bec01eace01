"""The Python array API standard, edition 2024.12: what differs there from NumPy's functions of the same name.

All else of the standard's namespace is taken from the table of NumPy's functions, which follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops import creation, sorting, statistics
from numbagrad.ops.conversion import astype as converted
from numbagrad.ops.creation import check_device
from numbagrad.ops.operands import as_tensor, holds_tensor
from numbagrad.ops.registry import NUMPY

DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)

CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")

FROM_NUMPY = (
    # elementwise
    *("abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert"),
    *("bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "conj", "copysign"),
    *("cos", "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot"),
    *("imag", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp"),
    *("logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative"),
    *("nextafter", "not_equal", "positive", "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit"),
    *("sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc"),
    # products, indexing, shapes
    *("matmul", "matrix_transpose", "tensordot", "vecdot", "take", "take_along_axis", "nonzero", "searchsorted"),
    *("broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat"),
    *("reshape", "roll", "squeeze", "stack", "tile", "unstack", "where", "meshgrid", "tril", "triu"),
    # reductions
    *("all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean"),
    *("min", "prod", "sum", "unique_all", "unique_counts", "unique_inverse", "unique_values"),
    # dtypes
    *("can_cast", "result_type"),
)
"""Names of the standard that NumPy's namespace gives its meaning."""

LINALG = (
    *("cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power"),
    *("matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot"),
    *("trace", "vecdot", "vector_norm"),
)

FFT = (*("fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft", "fftshift", "ifftshift"),)


def taken(names: tuple[str, ...], module: Any) -> dict[str, Callable[..., Any]]:
    """Our functions under the standard's names."""
    found = {}
    for name in names:
        ours = NUMPY[getattr(module, name)]
        found[name] = getattr(ours, "fast", ours)
    return found


# ----- Creation -----


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A Tensor of numbers, arrays, nested sequences or whatever exports its memory."""
    check_device(device)
    if not isinstance(obj, (Tensor, np.ndarray)) and hasattr(obj, "__dlpack__") and not holds_tensor(obj):
        obj = np.from_dlpack(obj)
    return creation.array(obj, dtype, copy=copy)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Evenly spaced numbers."""
    check_device(device)
    return wrap(np.arange(0, start, step, dtype) if stop is None else np.arange(start, stop, step, dtype))


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Uninitialised."""
    check_device(device)
    return wrap(np.empty(shape, dtype))


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Uninitialised, as another."""
    check_device(device)
    return wrap(np.empty_like(as_tensor(x)._data, dtype))


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on a diagonal."""
    check_device(device)
    return wrap(np.eye(n_rows, n_cols, k, dtype))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value."""
    return creation.full(shape, fill_value, dtype, device=device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value, as another."""
    return creation.full_like(x, fill_value, dtype, device=device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """So many numbers from one to another."""
    check_device(device)
    return creation.linspace(start, stop, num, endpoint=endpoint, dtype=dtype)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones."""
    check_device(device)
    return wrap(np.ones(shape, dtype))


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones, as another."""
    check_device(device)
    return wrap(np.ones_like(as_tensor(x)._data, dtype))


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros."""
    check_device(device)
    return wrap(np.zeros(shape, dtype))


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros, as another."""
    check_device(device)
    return wrap(np.zeros_like(as_tensor(x)._data, dtype))


# ----- Dtypes -----


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """Another dtype; copied unless `copy` is False and nothing changes."""
    check_device(device)
    return converted(x, dtype, copy)


def finfo(type: Any, /) -> Any:
    """Limits of a floating dtype, or of a Tensor's."""
    return np.finfo(type.dtype if isinstance(type, Tensor) else type)


def iinfo(type: Any, /) -> Any:
    """Limits of an integer dtype, or of a Tensor's."""
    return np.iinfo(type.dtype if isinstance(type, Tensor) else type)


# ----- Functions with other parameters -----


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Values between bounds, in the dtype of `x`."""
    from numbagrad.ops.arithmetic import clip as clipped

    x = as_tensor(x, "x")
    if min is None and max is None:
        return x.copy()
    bounds = [b if b is None or isinstance(b, (int, float)) else converted(b, x.dtype) for b in (min, max)]
    return clipped(x, *bounds)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sorted along an axis."""
    if not descending:
        return sorting.sort(x, axis=axis, stable=stable)
    from numbagrad.ops.indexing import take_along_axis

    return take_along_axis(x, argsort(x, axis=axis, descending=True, stable=stable), axis)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places in sorted order; equal elements keep their order, also when descending."""
    plain = as_tensor(x, "x")._data
    if not descending:
        return wrap(np.argsort(plain, axis=axis, stable=stable))
    found = np.flip(np.argsort(np.flip(plain, axis), axis=axis, stable=stable), axis)
    return wrap(plain.shape[axis] - 1 - found)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviation."""
    return statistics.std(x, axis=axis, ddof=correction, keepdims=keepdims)


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance."""
    return statistics.var(x, axis=axis, ddof=correction, keepdims=keepdims)


def _frequencies(theirs: Callable[..., Any]) -> Callable[..., Tensor]:
    def function(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
        check_device(device)
        made = theirs(n, d=d)
        return wrap(made if dtype is None else made.astype(dtype))

    function.__name__ = function.__qualname__ = theirs.__name__
    function.__doc__ = f"`numpy.fft.{theirs.__name__}`, as a Tensor."
    return function


fftfreq, rfftfreq = _frequencies(np.fft.fftfreq), _frequencies(np.fft.rfftfreq)


class Info:
    """What the namespace can do: `__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """What is optional in the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Where tensors are made."""
        return "cpu"

    def devices(self) -> list[str]:
        """Where tensors can be."""
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """What is made where no dtype is given."""
        check_device(device)
        return np.__array_namespace_info__().default_dtypes()

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """All dtypes, or those of some kinds."""
        check_device(device)
        return np.__array_namespace_info__().dtypes(kind=kind)


__all__ = [
    "arange",
    "argsort",
    "asarray",
    "astype",
    "clip",
    "empty",
    "empty_like",
    "eye",
    "finfo",
    "full",
    "full_like",
    "iinfo",
    "linspace",
    "ones",
    "ones_like",
    "sort",
    "std",
    "var",
    "zeros",
    "zeros_like",
]
