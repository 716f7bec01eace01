"""Creation: tensors from data and from nothing."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.layout import kind_of
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.operands import as_dtype, as_tensor, holds_tensor
from numbagrad.ops.registry import stands_for

_KINDS = "biufc"


# ----- From data -----


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False, device: str | None = None) -> Tensor:
    """A new tensor with a copy of the data.

    Parameters
    ----------
    data : array_like
        Numbers, arrays, tensors or (nested) lists of these. Tensors in a list are joined, and their gradients flow.
    dtype : dtype, optional
        Default: that of the data, by NumPy's rules (Python floats are float64).
    requires_grad : bool, optional
        Record what is done with the tensor.
    device : {"cpu"}, optional
        Where the memory is.

    Returns
    -------
    Tensor
        A leaf, unless `data` is a list that holds tensors.

    Raises
    ------
    TypeError
        If the data are not numbers.
    RuntimeError
        If `requires_grad` is asked of integers or booleans.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    tensor([[1., 2.],
            [3., 4.]], requires_grad=True)
    """
    check_device(device)
    if isinstance(data, Tensor):
        return finish(np.array(data._data, dtype=number_dtype(dtype)), requires_grad)
    if holds_tensor(data):
        made = _tracked(data, number_dtype(dtype), copy=True)
        return made.requires_grad_() if requires_grad else made
    return finish(_array_of(data, dtype, copy=True), requires_grad)


def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: str = "K",
    ndmin: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """NumPy's ``array``: a copy, through which the gradients of tensors flow.

    Parameters
    ----------
    object : array_like
        Numbers, arrays, tensors or (nested) lists of these.
    dtype : dtype, optional
    copy : bool or None, optional
        None copies only where it must, False raises there.
    order : {"K", "A", "C", "F"}, optional
        Order in memory of what is made from plain data.
    ndmin : int, optional
        Put axes of length one in front until there are so many.
    requires_grad : bool, optional

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor(2.0, requires_grad=True)
    >>> y = ng.array([x, x * x, 1.0])
    >>> y.backward([1.0, 1.0, 1.0])
    >>> x.grad
    tensor(5.)
    """
    from numbagrad.ops.shape import reshape

    if isinstance(object, Tensor) or holds_tensor(object):
        made = _tracked(object, number_dtype(dtype), copy)
    else:
        made = wrap(_array_of(object, dtype, copy, order))
    if made.ndim < ndmin:
        made = reshape(made, (1,) * (ndmin - made.ndim) + made.shape)
    return made.requires_grad_() if requires_grad else made


def _tracked(data: Any, dtype: np.dtype | None, copy: bool | None) -> Tensor:
    """A tensor, or a list that holds some, as a tensor that the gradients flow through."""
    from numbagrad.ops import conversion

    joined = not isinstance(data, Tensor)
    if copy is False and (joined or (dtype is not None and dtype != data.dtype)):
        raise ValueError("unable to avoid copy while making a Tensor: pass copy=None to copy where it must be")
    made = _joined(data) if joined else data
    if dtype is not None:
        made = conversion.astype(made, dtype)
    return conversion.clone(made) if copy and made is data else made


def asarray(
    a: Any,
    dtype: Any = None,
    *,
    copy: bool | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor that shares memory with `a` where it can; a Tensor is returned as it is.

    Examples
    --------
    >>> import numpy as np
    >>> import numbagrad as ng
    >>> a = np.zeros(2)
    >>> x = ng.asarray(a)
    >>> a[0] = 7.0
    >>> x
    tensor([7., 0.])
    """
    check_device(device)
    return array(a, dtype, copy=copy, requires_grad=requires_grad)


def _array_of(data: Any, dtype: Any, copy: bool | None, order: str = "K") -> np.ndarray:
    try:
        made = np.array(data, dtype=number_dtype(dtype), copy=copy, order=order)
    except ValueError as error:
        raise ValueError(f"cannot make a Tensor of {type(data).__name__}: {error}") from None
    if kind_of(made.dtype) not in _KINDS:
        raise TypeError(
            f"a Tensor holds numbers, got {type(data).__name__} with dtype {made.dtype}; "
            "convert the data to a number dtype first"
        )
    return made


def _joined(data: Any) -> Tensor:
    """Nested lists with tensors among them, as one tensor."""
    return _stacked(*_leaves(data))


def _leaves(data: Any) -> tuple[list[Any], tuple[int, ...]]:
    """The items of nested lists in order, and the shape in which they are nested."""
    if not isinstance(data, (list, tuple)) or not holds_tensor(data):
        return [data if isinstance(data, Tensor) else _array_of(data, None, None)], ()
    parts = [_leaves(item) for item in data]
    nests = {nest for _, nest in parts}
    if len(nests) > 1:
        parts = [([_stacked(*part)], ()) for part in parts]
        nests = {()}
    return [leaf for leaves, _ in parts for leaf in leaves], (len(data), *nests.pop())


def _stacked(leaves: list[Any], nest: tuple[int, ...]) -> Any:
    from numbagrad.ops import joining, shape

    if not nest:
        return leaves[0]
    flat = joining.stack(leaves)
    return flat if len(nest) == 1 else shape.reshape(flat, nest + flat.shape[1:])


def number_dtype(dtype: Any) -> np.dtype | None:
    """The dtype, if it is one of numbers; None stays None."""
    if dtype is None:
        return None
    made = as_dtype(dtype)
    if kind_of(made) not in _KINDS:
        raise TypeError(
            f"a Tensor holds numbers, so its dtype cannot be {made}; use a float, int, bool or complex dtype"
        )
    return made


def check_device(device: str | None) -> None:
    """Refuse what is not here."""
    if device not in (None, "cpu"):
        raise ValueError(f"device {device!r} is not available: tensors live on 'cpu'")


def finish(made: np.ndarray, requires_grad: bool) -> Tensor:
    """Wrap a new array as a leaf."""
    out = wrap(made)
    return out.requires_grad_() if requires_grad else out


def from_numpy(a: np.ndarray) -> Tensor:
    """A tensor that shares the memory of an ndarray.

    Raises
    ------
    TypeError
        If `a` is no ndarray of numbers; `asarray` takes more.

    Examples
    --------
    >>> import numpy as np
    >>> import numbagrad as ng
    >>> a = np.zeros(2)
    >>> x = ng.from_numpy(a)
    >>> x[0] = 5.0
    >>> a
    array([5., 0.])
    """
    if not isinstance(a, np.ndarray):
        raise TypeError(f"from_numpy wants an ndarray, got {type(a).__name__}; numbagrad.tensor takes any data")
    return wrap(_array_of(a, None, copy=None))


@stands_for(np.ascontiguousarray)
def ascontiguousarray(a: Any, dtype: Any = None) -> Tensor:
    """A tensor whose memory is C-contiguous and that has at least one axis; `a` itself if it is so.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ascontiguousarray(ng.ones((2, 3)).T).strides
    (16, 8)
    """
    from numbagrad.ops import conversion, shape

    x = shape.atleast_1d(asarray(a, dtype))
    return x if x._data.flags.c_contiguous else conversion.clone(x, order="C")


# ----- Filled -----


def _keywords(function: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
    """Give a function that makes arrays the keywords `requires_grad` and `device`, and its dtype the checks."""

    @functools.wraps(function)
    def make(*args: Any, requires_grad: bool = False, device: str | None = None, **kwargs: Any) -> Tensor:
        check_device(device)
        return finish(function(*args, **kwargs), requires_grad)

    parameters = [*inspect.signature(function).parameters.values()]
    make.__signature__ = inspect.Signature([*parameters, *_OWN_KEYWORDS], return_annotation=Tensor)  # type: ignore[attr-defined]
    return make


_OWN_KEYWORDS = [
    inspect.Parameter("requires_grad", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool),
    inspect.Parameter("device", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=str | None),
]


def _plain(value: Any) -> Any:
    """The values of a Tensor. What is made from it by counting or copying shapes has no gradient."""
    return value._data if isinstance(value, Tensor) else value


@_keywords
def zeros(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """A tensor of zeros.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.zeros(3)
    tensor([0., 0., 0.])
    """
    return np.zeros(shape, number_dtype(dtype), order)


@_keywords
def ones(shape: Any, dtype: Any = None, order: str = "C") -> np.ndarray:
    """A tensor of ones.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ones((1, 2))
    tensor([[1., 1.]])
    """
    return np.ones(shape, number_dtype(dtype), order)


@_keywords
def empty(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """A tensor whose values are whatever the memory held.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.empty((2, 3)).shape
    (2, 3)
    """
    return np.empty(shape, number_dtype(dtype), order)


@stands_for(np.full)
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    *,
    requires_grad: bool = False,
    device: str | None = None,
) -> Tensor:
    """A tensor of one value. A gradient flows back to a Tensor that is the value.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.full(3, 7.0)
    tensor([7., 7., 7.])
    """
    check_device(device)
    if isinstance(fill_value, Tensor):
        return _filled(fill_value, shape, dtype, requires_grad)
    return finish(np.full(shape, fill_value, number_dtype(dtype), order), requires_grad)


def _filled(value: Tensor, shape: Any, dtype: Any, requires_grad: bool) -> Tensor:
    from numbagrad.ops import conversion
    from numbagrad.ops.shape import broadcast_to

    wide = conversion.clone(broadcast_to(value, shape))
    made = wide if dtype is None else conversion.astype(wide, number_dtype(dtype))
    return made.requires_grad_() if requires_grad else made


@stands_for(np.zeros_like)
@_keywords
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> np.ndarray:
    """Zeros of the shape and dtype of another tensor.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.zeros_like(ng.tensor([1, 2]))
    tensor([0, 0])
    """
    return np.zeros_like(_plain(a), number_dtype(dtype), order, subok, shape)


@stands_for(np.ones_like)
@_keywords
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> np.ndarray:
    """Ones of the shape and dtype of another tensor.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ones_like(ng.tensor([1.5, 2.5]))
    tensor([1., 1.])
    """
    return np.ones_like(_plain(a), number_dtype(dtype), order, subok, shape)


@stands_for(np.empty_like)
@_keywords
def empty_like(
    prototype: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> np.ndarray:
    """Uninitialised, of the shape and dtype of another tensor.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.empty_like(ng.ones((2, 3))).shape
    (2, 3)
    """
    return np.empty_like(_plain(prototype), number_dtype(dtype), order, subok, shape)


@stands_for(np.full_like)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    requires_grad: bool = False,
    device: str | None = None,
) -> Tensor:
    """One value, in the shape and dtype of another tensor. A gradient flows back to a Tensor that is the value.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.full_like(ng.tensor([1.0, 2.0]), 5)
    tensor([5., 5.])
    """
    check_device(device)
    like = np.asarray(_plain(a))
    if isinstance(fill_value, Tensor):
        return _filled(fill_value, like.shape if shape is None else shape, dtype or like.dtype, requires_grad)
    return finish(np.full_like(like, fill_value, number_dtype(dtype), order, subok, shape), requires_grad)


# ----- Ranges and matrices -----


@_keywords
def arange(start: Any = None, stop: Any = None, step: Any = None, dtype: Any = None) -> np.ndarray:
    """Evenly spaced values from `start` up to, but without, `stop`; a single number is the `stop`.

    Parameters
    ----------
    start, stop, step : number
        By default from 0 in steps of 1.
    dtype : dtype, optional
        Default: what the numbers have.
    requires_grad : bool, optional

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.arange(3.0)
    tensor([0., 1., 2.])
    """
    if start is None and stop is None:
        raise TypeError("arange: stop is missing; write arange(stop) or arange(start, stop)")
    if start is None or stop is None:
        start, stop = 0, stop if start is None else start
    return np.arange(_plain(start), _plain(stop), _plain(step), number_dtype(dtype))


@stands_for(np.linspace)
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    requires_grad: bool = False,
    device: str | None = None,
) -> Any:
    """`num` evenly spaced values between two. Gradients flow back to `start` and `stop`.

    Parameters
    ----------
    start, stop : array_like
    num : int, optional
    endpoint : bool, optional
        Whether `stop` is the last value.
    retstep : bool, optional
        Also return the step.
    dtype : dtype, optional
    axis : int, optional
        Where the new axis stands when the ends are arrays.
    requires_grad : bool, optional

    Returns
    -------
    Tensor, or (Tensor, step)

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.linspace(0, 1, 3)
    tensor([0. , 0.5, 1. ])
    """
    check_device(device)
    if any(isinstance(end, Tensor) and end.requires_grad for end in (start, stop)):
        return _tracked_line(start, stop, num, endpoint, retstep, dtype, axis)
    made = np.linspace(_plain(start), _plain(stop), num, endpoint, retstep, number_dtype(dtype), axis)
    return (finish(made[0], requires_grad), made[1]) if retstep else finish(made, requires_grad)


def _tracked_line(start: Any, stop: Any, num: int, endpoint: bool, retstep: bool, dtype: Any, axis: int) -> Any:
    from numbagrad.ops import conversion, shape

    start, stop = as_tensor(start, "start"), as_tensor(stop, "stop")
    real = np.result_type(start.dtype, stop.dtype, np.float32)
    ndim = max(start.ndim, stop.ndim)
    weights = np.linspace(0, 1, num, endpoint).astype(real).reshape((-1,) + (1,) * ndim)
    line = shape.moveaxis(start * (1 - weights) + stop * weights, 0, axis)
    line = line if dtype is None else conversion.astype(line, number_dtype(dtype))
    return (line, (stop - start) / max(num - endpoint, 1)) if retstep else line


@stands_for(np.logspace)
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
    *,
    requires_grad: bool = False,
    device: str | None = None,
) -> Tensor:
    """`num` values from ``base**start`` to ``base**stop``, evenly spaced on a log scale. Gradients flow to all three.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    check_device(device)
    if not any(map(_is_tracked, (start, stop, base))):
        ends = _plain(start), _plain(stop)
        return finish(np.logspace(*ends, num, endpoint, _plain(base), number_dtype(dtype), axis), requires_grad)
    from numbagrad.ops.arithmetic import power

    return _cast(power(base, linspace(start, stop, num, endpoint, axis=axis)), dtype)


@stands_for(np.geomspace)
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
    *,
    requires_grad: bool = False,
    device: str | None = None,
) -> Tensor:
    """`num` values between two, each the same multiple of the one before. Gradients flow to both.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.geomspace(1, 16, 3)
    tensor([ 1.,  4., 16.])
    """
    check_device(device)
    values = np.geomspace(_plain(start), _plain(stop), num, endpoint, number_dtype(dtype), axis)
    if not _is_tracked(start) and not _is_tracked(stop):
        return finish(values, requires_grad)
    from numbagrad.ops.arithmetic import power
    from numbagrad.ops.shape import moveaxis

    first, last = as_tensor(start, "start") + 0.0, as_tensor(stop, "stop") + 0.0
    shares = np.linspace(0, 1, num, endpoint).reshape((-1,) + (1,) * (values.ndim - 1))
    return _cast(moveaxis(first * power(last / first, shares), 0, axis), dtype)


def _is_tracked(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _cast(made: Tensor, dtype: Any) -> Tensor:
    from numbagrad.ops.conversion import astype

    return made if dtype is None else astype(made, number_dtype(dtype))


@_keywords
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C") -> np.ndarray:
    """Ones on diagonal `k`, zeros elsewhere.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    return np.eye(N, M, k, number_dtype(dtype), order)


@_keywords
def identity(n: int, dtype: Any = None) -> np.ndarray:
    """The identity matrix.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.identity(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    return np.identity(n, number_dtype(dtype))


@_keywords
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float) -> np.ndarray:
    """Ones on and below diagonal `k`, zeros above.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tri(2)
    tensor([[1., 0.],
            [1., 1.]])
    """
    return np.tri(N, M, k, number_dtype(dtype))


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """Call a function with the coordinates of all elements of a shape, as tensors.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.fromfunction(lambda i, j: i + 10 * j, (2, 2))
    tensor([[ 0., 10.],
            [ 1., 11.]])
    """
    return function(*map(wrap, np.indices(shape, number_dtype(dtype))), **kwargs)


METHODS: dict[str, Callable[..., Any]] = {}

__all__ = [
    "arange",
    "array",
    "asarray",
    "ascontiguousarray",
    "empty",
    "empty_like",
    "eye",
    "from_numpy",
    "fromfunction",
    "full",
    "full_like",
    "geomspace",
    "identity",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "tensor",
    "tri",
    "zeros",
    "zeros_like",
]
