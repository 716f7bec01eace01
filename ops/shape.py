"""Shape: reshape, reorder and repeat axes. What NumPy returns as a view is a view here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for

Shape = int | tuple[int, ...]


# ----- Primitives -----


@primitive(linear=True, view=True, name="reshape")
def _reshape(x, *, shape, order):
    return x.reshape(shape, order=order)


@_reshape.vjp("x")
def _(g, x_shape, order):
    return _reshape(g, shape=x_shape, order=order)


@primitive(linear=True, view=True, name="transpose")
def _transpose(x, *, axes):
    return x.transpose(axes)


@_transpose.vjp("x")
def _(g, axes):
    return _transpose(g, axes=_inverse(axes))


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


@primitive(linear=True, view=True, name="broadcast_to")
def _broadcast_to(x, *, shape):
    return np.broadcast_to(x, shape)


@_broadcast_to.vjp("x")
def _(g):
    return g


# ----- Same elements, other axes -----


@stands_for(np.reshape)
def reshape(a: Any, /, shape: Shape, order: str = "C", *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape: a view where the memory allows it.

    Parameters
    ----------
    a : array_like
    shape : int or tuple of int
        One length may be -1: it follows from the others.
    order : {"C", "F", "A"}, optional
        Order in which elements are read and placed.
    copy : bool, optional
        True copies always; False raises where a copy is needed.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If the number of elements differs.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.reshape(ng.tensor([1.0, 2.0, 3.0, 4.0]), (2, -1))
    tensor([[1., 2.],
            [3., 4.]])
    """
    x = as_tensor(a, "a")
    if order == "A":
        order = "F" if x._data.flags.fnc else "C"
    try:
        if copy is not None:
            return _reshape_copying(x, shape, order, copy)
        return _reshape(x, shape=shape, order=order)
    except ValueError as error:
        raise ValueError(f"reshape: {error}; the tensor has shape {x.shape}, wanted was {shape}") from None


def _reshape_copying(x: Tensor, shape: Shape, order: str, copy: bool) -> Tensor:
    from numbagrad.ops.conversion import clone

    if copy:
        x = clone(x)
    elif not np.may_share_memory(x._data.reshape(shape, order=order), x._data):
        raise ValueError("unable to avoid creating a copy")
    return _reshape(x, shape=shape, order=order)


def _reshape_method(self: Tensor, *shape: Any, order: str = "C", copy: bool | None = None) -> Tensor:
    """`numbagrad.reshape`; lengths may be passed one by one."""
    return reshape(self, _unpacked(shape), order, copy=copy)


def _unpacked(args: tuple[Any, ...]) -> Any:
    """The tuple that was passed whole or item by item."""
    return args[0] if len(args) == 1 and not isinstance(args[0], int) else args


@stands_for(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Tensor:
    """Permute the axes; by default reverse them. A view.

    Parameters
    ----------
    a : array_like
    axes : sequence of int, optional
        Axis i of the result is axis ``axes[i]`` of `a`.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.transpose(ng.tensor([[1.0, 2.0]]))
    tensor([[1.],
            [2.]])
    """
    x = as_tensor(a, "a")
    if axes is None:
        return _transpose(x, axes=tuple(range(x.ndim))[::-1])
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    if len(axes) != x.ndim:
        raise ValueError(f"transpose: axes {axes} must name each of the {x.ndim} axes of shape {x.shape} once")
    return _transpose(x, axes=normalize_axis_tuple(axes, x.ndim, "axes"))


def _transpose_method(self: Tensor, *axes: Any) -> Tensor:
    """`numbagrad.transpose`; axes may be passed one by one."""
    return transpose(self, _unpacked(axes) if axes else None)


@stands_for(np.expand_dims)
def expand_dims(a: Any, axis: Shape) -> Tensor:
    """Insert axes of length one, so that they stand at `axis` in the result. A view.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.expand_dims(ng.tensor([1.0, 2.0]), (0, -1)).shape
    (1, 2, 1)
    """
    x = as_tensor(a, "a")
    wanted = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(wanted)
    inserted = normalize_axis_tuple(wanted, ndim, "axis")
    lengths = iter(x.shape)
    return _reshape(x, shape=tuple(1 if i in inserted else next(lengths) for i in range(ndim)), order="C")


@stands_for(np.squeeze)
def squeeze(a: Any, axis: Shape | None = None) -> Tensor:
    """Leave out axes of length one: all, or those named. A view.

    Raises
    ------
    ValueError
        If a named axis has another length.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.squeeze(ng.tensor([[1.0], [2.0]])).shape
    (2,)
    """
    x = as_tensor(a, "a")
    if axis is None:
        left = [n for n in x.shape if n != 1]
    else:
        out = normalize_axis_tuple(axis, x.ndim, "axis")
        if any(x.shape[i] != 1 for i in out):
            raise ValueError(
                f"squeeze: cannot select an axis to squeeze out which has size not equal to one: "
                f"axis {axis} of shape {x.shape}"
            )
        left = [n for i, n in enumerate(x.shape) if i not in out]
    return _reshape(x, shape=tuple(left), order="C")


# ----- Broadcasting -----


@stands_for(np.broadcast_to)
def broadcast_to(array: Any, shape: Shape, subok: bool = False) -> Tensor:
    """Stretch to a shape by NumPy's rules, without copying. The gradient is the sum over what was stretched.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.broadcast_to(ng.tensor([1.0, 2.0]), (2, 2))
    tensor([[1., 2.],
            [1., 2.]])
    """
    x = as_tensor(array, "array")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    try:
        return _broadcast_to(x, shape=shape)
    except ValueError:
        raise ValueError(
            f"broadcast_to: shape {x.shape} cannot be stretched to {shape}; its axes, counted from the last, must have "
            "the same length or length 1"
        ) from None


METHODS: dict[str, Callable[..., Any]] = {
    "reshape": _reshape_method,
    "squeeze": squeeze,
    "transpose": _transpose_method,
}

__all__ = ["broadcast_to", "expand_dims", "reshape", "squeeze", "transpose"]
