"""Shape: reshape, reorder and repeat axes. What NumPy returns as a view is a view here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.tensor import Tensor, become_view
from numbagrad.ops.batching import Batched
from numbagrad.ops.conversion import clone
from numbagrad.ops.gathering import getitem, viewing
from numbagrad.ops.operands import as_tensor, broadcast_shape
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for

Shape = int | tuple[int, ...]


# ----- Primitives -----


@viewing("reshape")
def _reshape(x, *, shape, order):
    return x.reshape(shape) if order == "C" else x.reshape(shape, order=order)


@_reshape.vjp("x")
def _(g, x_shape, order):
    return _reshape(g, shape=x_shape, order=order)


@viewing("transpose")
def _transpose(x, *, axes):
    return x.transpose(axes)


@_transpose.vjp("x")
def _(g, axes):
    return _transpose(g, axes=_inverse(axes))


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


@viewing("broadcast_to")
def _broadcast_to(x, *, shape):
    return np.broadcast_to(x, shape)


@_broadcast_to.vjp("x")
def _(g):
    return g


@primitive(linear=True, name="unstack")
def _unstack(x, *, axis):
    return tuple(np.moveaxis(x, axis, 0) if axis else x)


@_unstack.vjp("x")
def _(g, axis):
    from numbagrad.ops.joining import stack

    return stack(g, axis)


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


permute_dims = transpose


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


@stands_for(np.ravel)
def ravel(a: Any, order: str = "C") -> Tensor:
    """All elements along one axis, contiguous: a view where the memory allows it.

    Parameters
    ----------
    a : array_like
    order : {"C", "F", "A", "K"}, optional
        Order in which elements are read; "K" is the order in memory.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ravel(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), order="F")
    tensor([1., 3., 2., 4.])
    """
    x = as_tensor(a, "a")
    if order == "K":
        steps = [-abs(step) for step in x.strides]
        x, order = transpose(x, sorted(range(x.ndim), key=steps.__getitem__)), "C"
    flat = reshape(x, -1, order)
    # NumPy promises contiguous memory.
    return flat if type(flat) is Batched or flat._data.flags.c_contiguous else clone(flat)


def flatten(a: Any, order: str = "C") -> Tensor:
    """All elements along one axis, always as a copy.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.flatten(ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 2., 3., 4.])
    """
    x = as_tensor(a, "a")
    flat = ravel(x, order)
    return clone(flat) if flat is x or flat._view is not None else flat


@stands_for(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any) -> Tensor:
    """Swap the last two axes. A view.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.matrix_transpose(ng.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = as_tensor(x, "x")
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: the tensor must be at least 2-dimensional, got shape {x.shape}")
    return swapaxes(x, -1, -2)


@stands_for(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Tensor:
    """Swap two axes. A view.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.swapaxes(ng.ones((1, 2, 3)), 0, 2).shape
    (3, 2, 1)
    """
    x = as_tensor(a, "a")
    first = normalize_axis_index(axis1, x.ndim, "axis1")
    second = normalize_axis_index(axis2, x.ndim, "axis2")
    axes = list(range(x.ndim))
    axes[first], axes[second] = second, first
    return _transpose(x, axes=tuple(axes))


@stands_for(np.moveaxis)
def moveaxis(a: Any, source: Shape, destination: Shape) -> Tensor:
    """Move axes to other places; the rest keep their order. A view.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.moveaxis(ng.ones((1, 2, 3)), 0, -1).shape
    (2, 3, 1)
    """
    x = as_tensor(a, "a")
    moved = normalize_axis_tuple(source, x.ndim, "source")
    places = normalize_axis_tuple(destination, x.ndim, "destination")
    if len(moved) != len(places):
        raise ValueError(
            "moveaxis: `source` and `destination` arguments must have the same number of elements, "
            f"got {source} and {destination}"
        )
    axes = [axis for axis in range(x.ndim) if axis not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        axes.insert(place, axis)
    return _transpose(x, axes=tuple(axes))


@stands_for(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    """Move an axis backwards until it lies before position `start`. A view; `moveaxis` reads better.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.rollaxis(ng.ones((1, 2, 3)), 2).shape
    (3, 1, 2)
    """
    x = as_tensor(a, "a")
    axis = normalize_axis_index(axis, x.ndim)
    place = normalize_axis_index(start, x.ndim + 1, "start")
    axes = [i for i in range(x.ndim) if i != axis]
    axes.insert(place - (axis < place), axis)
    return _transpose(x, axes=tuple(axes))


def _each(function: Callable[[Any], Tensor], values: tuple[Any, ...]) -> Any:
    """One tensor for one value, a tuple for several."""
    return function(values[0]) if len(values) == 1 else tuple(map(function, values))


@stands_for(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    """Give scalars an axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.atleast_1d(ng.tensor(3.0))
    tensor([3.])
    """
    return _each(lambda a: _at_least(a, {0: (1,)}), arys)


@stands_for(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    """Put axes of length one in front until there are two.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.atleast_2d(ng.tensor([1.0, 2.0]))
    tensor([[1., 2.]])
    """
    return _each(lambda a: _at_least(a, {0: (1, 1), 1: (1, -1)}), arys)


@stands_for(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    """Put axes of length one around until there are three.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.atleast_3d(ng.ones((2, 3))).shape
    (2, 3, 1)
    """
    return _each(lambda a: _at_least(a, {0: (1, 1, 1), 1: (1, -1, 1), 2: (0, 1, 1)}), arys)


def _at_least(a: Any, shapes: dict[int, tuple[int, ...]]) -> Tensor:
    """`a` in the shape given for its number of axes, where one is given."""
    x = as_tensor(a, "arys")
    if x.ndim not in shapes:
        return x
    if x.ndim == 2:
        return _reshape(x, shape=(*x.shape, 1), order="C")
    return _reshape(x, shape=tuple(x.size if n == -1 else n for n in shapes[x.ndim]), order="C")


@stands_for(*([np.unstack] if hasattr(np, "unstack") else []))
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, as views.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.unstack(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1)
    (tensor([1., 3.]), tensor([2., 4.]))
    """
    x = as_tensor(x, "x")
    if x.ndim == 0:
        raise ValueError("unstack: the tensor must be at least 1-dimensional, got shape ()")
    axis = normalize_axis_index(axis, x.ndim)
    parts = _unstack(x, axis=axis) if x.shape[axis] else ()
    for i, part in enumerate(parts):
        if part.ndim and type(x) is not Batched:
            become_view(part, x, _slice_step(axis, i))
    return parts


def _slice_step(axis: int, i: int) -> Callable[[Any], Any]:
    index = (slice(None),) * axis + (i,)
    return lambda base: getitem(base, index)


def _iterate(self: Tensor) -> Iterator[Tensor]:
    """The slices along the first axis."""
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    if self.requires_grad and grad_enabled():
        return iter(unstack(self))
    return (getitem(self, i) for i in range(self.shape[0]))


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


@stands_for(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Tensor, ...]:
    """Stretch tensors against each other to one shape, without copying.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x, y = ng.broadcast_arrays(ng.ones((2, 1)), ng.ones(3))
    >>> x.shape, y.shape
    ((2, 3), (2, 3))
    """
    tensors = [as_tensor(a, "args") for a in args]
    shape = broadcast_shape("broadcast_arrays", [t.shape for t in tensors])
    return tuple(t if t.shape == shape else _broadcast_to(t, shape=shape) for t in tensors)


# ----- What NumPy asks -----


@stands_for(np.shape)
def _shape_of(a: Any) -> tuple[int, ...]:
    return as_tensor(a, "a").shape


@stands_for(np.ndim)
def _ndim_of(a: Any) -> int:
    return as_tensor(a, "a").ndim


@stands_for(np.size)
def _size_of(a: Any, axis: Shape | None = None) -> int:
    x = as_tensor(a, "a")
    return x.size if axis is None else math.prod(x.shape[i] for i in normalize_axis_tuple(axis, x.ndim))


METHODS: dict[str, Callable[..., Any]] = {
    "__iter__": _iterate,
    "flatten": flatten,
    "ravel": ravel,
    "reshape": _reshape_method,
    "squeeze": squeeze,
    "swapaxes": swapaxes,
    "transpose": _transpose_method,
}

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_to",
    "expand_dims",
    "flatten",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "rollaxis",
    "squeeze",
    "swapaxes",
    "transpose",
    "unstack",
]
