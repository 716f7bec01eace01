"""Creation: tensors from data and from nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.operands import holds_tensor

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
        return _joined(data, dtype, requires_grad)
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

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor(2.0, requires_grad=True)
    >>> y = ng.array([x, x * x, 1.0])
    >>> y.backward([1.0, 1.0, 1.0])
    >>> x.grad
    tensor(5.)
    """
    from numbagrad.ops import conversion, shape

    if isinstance(object, Tensor):
        made = object if dtype is None else conversion.astype(object, number_dtype(dtype))
        made = conversion.clone(made) if copy and made is object else made
    elif holds_tensor(object):
        made = _joined(object, dtype, False)
    else:
        made = wrap(_array_of(object, dtype, copy, order))
    if made.ndim < ndmin:
        made = shape.reshape(made, (1,) * (ndmin - made.ndim) + made.shape)
    return made.requires_grad_() if requires_grad else made


def asarray(a: Any, dtype: Any = None, *, copy: bool | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
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
    if made.dtype.kind not in _KINDS:
        raise TypeError(
            f"a Tensor holds numbers, got {type(data).__name__} with dtype {made.dtype}; "
            "convert the data to a number dtype first"
        )
    return made


def _joined(data: Any, dtype: Any, requires_grad: bool) -> Tensor:
    """Nested lists with tensors among them, as one tensor that the gradients flow through."""
    from numbagrad.ops import conversion

    made = _stacked(*_leaves(data))
    if dtype is not None:
        made = conversion.astype(made, number_dtype(dtype))
    return made.requires_grad_() if requires_grad else made


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
    made = np.dtype(dtype)
    if made.kind not in _KINDS:
        raise TypeError(f"a Tensor holds numbers, so its dtype cannot be {made}; use a float, int, bool or complex dtype")
    return made


def check_device(device: str | None) -> None:
    """Refuse what is not here."""
    if device not in (None, "cpu"):
        raise ValueError(f"device {device!r} is not available: tensors live on 'cpu'")


def finish(made: np.ndarray, requires_grad: bool) -> Tensor:
    """Wrap a new array as a leaf."""
    out = wrap(made)
    return out.requires_grad_() if requires_grad else out


# ----- Filled -----


def zeros(shape: Any, dtype: Any = float, order: str = "C", *, requires_grad: bool = False, device: str | None = None) -> Tensor:
    """A tensor of zeros.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.zeros(3)
    tensor([0., 0., 0.])
    """
    check_device(device)
    return finish(np.zeros(shape, number_dtype(dtype), order), requires_grad)


def ones(shape: Any, dtype: Any = None, order: str = "C", *, requires_grad: bool = False, device: str | None = None) -> Tensor:
    """A tensor of ones.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ones((1, 2))
    tensor([[1., 1.]])
    """
    check_device(device)
    return finish(np.ones(shape, number_dtype(dtype), order), requires_grad)


METHODS: dict[str, Callable[..., Any]] = {}

__all__ = ["array", "asarray", "ones", "tensor", "zeros"]
