"""Joining and splitting: concatenate, stack, and what is built from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.conversion import clone
from numbagrad.ops.gathering import getitem
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import Handed, primitive
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import atleast_1d, atleast_2d, atleast_3d, broadcast_to, moveaxis, ravel, reshape

# ----- Primitives -----


@primitive(linear=True, name="stack", casts="widest")
def _stack(*xs, axis, dtype, casting):
    return np.stack(xs, axis, dtype=dtype, casting=casting)


@_stack.vjp("xs")
def _(g, i, axis):
    return getitem(g, (slice(None),) * axis + (i,))


@primitive(linear=True, name="concatenate", casts="widest")
def _concatenate(*xs, axis, dtype, casting):
    ends = tuple(itertools.accumulate(x.shape[axis] for x in xs))
    return Handed(np.concatenate(xs, axis, dtype=dtype, casting=casting), ends=ends)


@_concatenate.vjp("xs")
def _(g, i, axis, ends):
    return getitem(g, (slice(None),) * axis + (slice(ends[i - 1] if i else 0, ends[i]),))


# ----- Joining -----


def _tensors(arrays: Any, op: str) -> list[Tensor]:
    """The pieces to join: of a sequence, or of the first axis of one array."""
    if isinstance(arrays, Tensor) and arrays.ndim == 0:
        raise TypeError(f"{op}: wants a sequence of arrays, got a tensor without axes")
    tensors = [as_tensor(a, "arrays") for a in arrays]
    if not tensors:
        raise ValueError(f"{op}: need at least one array to {'stack' if 'stack' in op else 'concatenate'}")
    return tensors


def _no_out(out: Any, op: str) -> None:
    if out is not None:
        raise TypeError(f"{op}: out= is not supported, because a gradient could be lost; assign to target[...] instead")


def _shapes(tensors: list[Tensor]) -> str:
    return ", ".join(str(t.shape) for t in tensors[:8]) + (", ..." if len(tensors) > 8 else "")


@stands_for(np.concatenate)
def concatenate(
    arrays: Any, /, axis: int | None = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tensor:
    """Join tensors along an axis that they have.

    Parameters
    ----------
    arrays : sequence of array_like
        Of equal shape, except along the axis. The dtype of the result is the one they all fit into.
    axis : int or None, optional
        None flattens them first.
    dtype : dtype, optional
        Of the result.
    casting : str, optional
        What casts `dtype` may need.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.concatenate([ng.tensor([1.0, 2.0]), ng.tensor([3.0])])
    tensor([1., 2., 3.])
    """
    _no_out(out, "concatenate")
    tensors = _tensors(arrays, "concatenate")
    if axis is None:
        tensors, axis = [ravel(t) for t in tensors], 0
    if not all(t.ndim for t in tensors):
        raise ValueError("concatenate: zero-dimensional arrays cannot be concatenated; use stack")
    axis = normalize_axis_index(axis, tensors[0].ndim)
    try:
        return _concatenate(*tensors, axis=axis, dtype=dtype, casting=casting)
    except ValueError as error:
        raise ValueError(f"concatenate: {error}; the shapes are {_shapes(tensors)}, the axis is {axis}") from None


concat = concatenate


@stands_for(np.stack)
def stack(arrays: Any, axis: int = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Join tensors of one shape along a new axis.

    Parameters
    ----------
    arrays : sequence of array_like
    axis : int, optional
        Where the new axis stands in the result.
    dtype : dtype, optional
        Of the result.
    casting : str, optional
        What casts `dtype` may need.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.stack([ng.tensor([1.0, 2.0]), ng.tensor([3.0, 4.0])], axis=1)
    tensor([[1., 3.],
            [2., 4.]])
    """
    _no_out(out, "stack")
    tensors = _tensors(arrays, "stack")
    if len({t.shape for t in tensors}) > 1:
        raise ValueError(f"stack: all input arrays must have the same shape, got {_shapes(tensors)}")
    axis = normalize_axis_index(axis, tensors[0].ndim + 1)
    return _stack(*tensors, axis=axis, dtype=dtype, casting=casting)


@stands_for(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Put tensors below each other: one-dimensional ones are rows.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.vstack([ng.tensor([1.0, 2.0]), ng.tensor([3.0, 4.0])])
    tensor([[1., 2.],
            [3., 4.]])
    """
    return concatenate([atleast_2d(t) for t in _tensors(tup, "vstack")], 0, dtype=dtype, casting=casting)


row_stack = vstack


@stands_for(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Put tensors side by side: along the second axis, or the only one.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.hstack([ng.tensor([1.0, 2.0]), ng.tensor([3.0])])
    tensor([1., 2., 3.])
    """
    tensors = [atleast_1d(t) for t in _tensors(tup, "hstack")]
    return concatenate(tensors, 0 if tensors[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@stands_for(np.dstack)
def dstack(tup: Any) -> Tensor:
    """Put tensors behind each other, along the third axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.dstack([ng.tensor([1.0, 2.0]), ng.tensor([3.0, 4.0])]).shape
    (1, 2, 2)
    """
    return concatenate([atleast_3d(t) for t in _tensors(tup, "dstack")], 2)


@stands_for(np.column_stack)
def column_stack(tup: Any) -> Tensor:
    """Put tensors side by side: one-dimensional ones are columns.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.column_stack([ng.tensor([1.0, 2.0]), ng.tensor([3.0, 4.0])])
    tensor([[1., 3.],
            [2., 4.]])
    """
    columns = [reshape(t, (-1, 1)) if t.ndim < 2 else t for t in _tensors(tup, "column_stack")]
    return concatenate(columns, 1)


@stands_for(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Tensor:
    """Join two tensors; without an axis, both flattened.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.append(ng.tensor([1.0, 2.0]), 3.0)
    tensor([1., 2., 3.])
    """
    return concatenate([as_tensor(arr, "arr"), as_tensor(values, "values")], axis)


@stands_for(np.block)
def block(arrays: Any) -> Tensor:
    """A tensor from nested lists of blocks; the innermost lists are joined along the last axis.

    Parameters
    ----------
    arrays : array_like or nested lists of these
        All nested equally deep, and no tuples.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([[1.0]])
    >>> ng.block([[x, 2 * x], [3 * x, 4 * x]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    depths = set(_depths(arrays, 0))
    if len(depths) > 1:
        raise ValueError(f"block: list depths are mismatched, blocks are nested {sorted(depths)} lists deep")
    depth = depths.pop()
    ndim = max(depth, *(t.ndim for t in _blocks(arrays)), 0)
    joined = _join_blocks(arrays, depth, ndim)
    return clone(joined) if depth == 0 else joined


def _depths(arrays: Any, depth: int) -> Any:
    if isinstance(arrays, tuple):
        raise TypeError("block: a tuple was found among the lists; only lists are taken as nesting")
    if not isinstance(arrays, list):
        return [depth]
    if not arrays:
        raise ValueError("block: lists cannot be empty")
    return itertools.chain.from_iterable(_depths(a, depth + 1) for a in arrays)


def _blocks(arrays: Any) -> list[Tensor]:
    return [t for a in arrays for t in _blocks(a)] if isinstance(arrays, list) else [as_tensor(arrays, "arrays")]


def _join_blocks(arrays: Any, depth: int, ndim: int) -> Tensor:
    if depth == 0:
        x = as_tensor(arrays, "arrays")
        return reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    return concatenate([_join_blocks(a, depth - 1, ndim) for a in arrays], axis=ndim - depth)


# ----- Splitting -----


@stands_for(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Split along an axis; the first parts are one longer where the length does not divide.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.array_split(ng.tensor([1.0, 2.0, 3.0]), 2)
    [tensor([1., 2.]), tensor([3.])]
    """
    x = as_tensor(ary, "ary")
    axis = normalize_axis_index(axis, x.ndim)
    ends = _ends(x.shape[axis], indices_or_sections)
    starts = [0, *ends[:-1]]
    return [getitem(x, (slice(None),) * axis + (slice(a, b),)) for a, b in zip(starts, ends, strict=True)]


def _ends(length: int, indices_or_sections: Any) -> list[int]:
    """Where each part ends."""
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections._data
    if np.ndim(indices_or_sections):
        return [*map(int, indices_or_sections), length]
    sections = int(indices_or_sections)
    if sections <= 0:
        raise ValueError(f"array_split: number of sections must be larger than 0, got {sections}")
    each, longer = divmod(length, sections)
    return list(itertools.accumulate([each + 1] * longer + [each] * (sections - longer)))


@stands_for(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Split along an axis into equal parts, or at positions. The parts are views.

    Parameters
    ----------
    ary : array_like
    indices_or_sections : int or sequence of int
        The number of parts, or the positions at which to split.
    axis : int, optional

    Returns
    -------
    list of Tensor

    Raises
    ------
    ValueError
        If a number of parts does not divide the length; `array_split` takes any.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.split(ng.tensor([1.0, 2.0, 3.0]), [1])
    [tensor([1.]), tensor([2., 3.])]
    """
    x = as_tensor(ary, "ary")
    length = x.shape[normalize_axis_index(axis, x.ndim)]
    if not np.ndim(indices_or_sections) and indices_or_sections > 0 and length % int(indices_or_sections):
        raise ValueError(
            f"split: array split does not result in an equal division: axis {axis} of shape {x.shape} into "
            f"{indices_or_sections}; array_split allows that"
        )
    return array_split(x, indices_or_sections, axis)


@stands_for(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    """`split` along the first axis of at least two.

    Examples
    --------
    >>> import numbagrad as ng
    >>> [part.shape for part in ng.vsplit(ng.ones((4, 2)), 2)]
    [(2, 2), (2, 2)]
    """
    return split(_at_least(ary, 2, "vsplit"), indices_or_sections, 0)


@stands_for(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    """`split` along the second axis, or the only one.

    Examples
    --------
    >>> import numbagrad as ng
    >>> [part.shape for part in ng.hsplit(ng.ones((4, 2)), 2)]
    [(4, 1), (4, 1)]
    """
    x = _at_least(ary, 1, "hsplit")
    return split(x, indices_or_sections, 1 if x.ndim > 1 else 0)


@stands_for(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    """`split` along the third axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> [part.shape for part in ng.dsplit(ng.ones((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return split(_at_least(ary, 3, "dsplit"), indices_or_sections, 2)


def _at_least(value: Any, ndim: int, op: str) -> Tensor:
    x = as_tensor(value, "ary")
    if x.ndim < ndim:
        raise ValueError(f"{op} only works on arrays of {ndim} or more dimensions, got shape {x.shape}")
    return x


# ----- Taking out and putting in -----


@stands_for(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Tensor:
    """A copy without some positions along an axis, or of the flattened elements.

    Parameters
    ----------
    arr : array_like
    obj : int, slice, or array of int or bool
        The positions to leave out.
    axis : int, optional

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.delete(ng.tensor([1.0, 2.0, 3.0]), 1)
    tensor([1., 3.])
    """
    x, axis = _along(arr, axis)
    kept = np.delete(np.arange(x.shape[axis]), obj._data if isinstance(obj, Tensor) else obj)
    return getitem(x, (slice(None),) * axis + (kept,))


@stands_for(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """A copy with values put in before some positions along an axis, or of the flattened elements.

    Parameters
    ----------
    arr : array_like
    obj : int, slice, or array of int or bool
        The positions, counted in `arr`.
    values : array_like
        Cast to the dtype of `arr`.
    axis : int, optional

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.insert(ng.tensor([1.0, 2.0]), 1, 9.0)
    tensor([1., 9., 2.])
    """
    x, axis = _along(arr, axis)
    obj = obj._data if isinstance(obj, Tensor) else obj
    new = _new_values(x, as_tensor(values, "values"), obj, axis)
    n, k = x.shape[axis], new.shape[axis]
    order = np.insert(np.arange(n), obj, n + np.arange(k))
    both = concatenate([x, new], axis, dtype=x.dtype, casting="unsafe")
    return getitem(both, (slice(None),) * axis + (order,))


def _along(arr: Any, axis: int | None) -> tuple[Tensor, int]:
    x = as_tensor(arr, "arr")
    return (ravel(x), 0) if axis is None else (x, normalize_axis_index(axis, x.ndim))


def _new_values(x: Tensor, values: Tensor, obj: Any, axis: int) -> Tensor:
    """The values to insert, in the shape of `x` except along the axis."""
    values = reshape(values, (1,) * (x.ndim - values.ndim) + values.shape)
    places = np.arange(x.shape[axis])[obj] if isinstance(obj, slice) else np.asarray(obj)
    count = np.count_nonzero(places) if places.dtype == bool else places.size
    if places.ndim == 0:
        # NumPy's rule for one position: the first axis of the values goes to `axis`.
        values = moveaxis(values, 0, axis)
    if count == 1:
        count = values.shape[axis]
    return broadcast_to(values, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


METHODS: dict[str, Callable[..., Any]] = {}

__all__ = [
    "append",
    "array_split",
    "block",
    "column_stack",
    "concat",
    "concatenate",
    "delete",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "insert",
    "row_stack",
    "split",
    "stack",
    "vsplit",
    "vstack",
]
