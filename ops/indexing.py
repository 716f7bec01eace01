"""Indexing: taking, choosing and putting elements. Everything else that gathers is offered from here too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.gathering import along_index, getitem, plain_index
from numbagrad.ops.gathering import index_put as index_put
from numbagrad.ops.joining import stack
from numbagrad.ops.operands import as_tensor, broadcast_shape
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import broadcast_to, ravel, reshape

# ----- Taking -----


def _plain_integers(indices: Any, op: str) -> np.ndarray:
    made = np.asarray(plain_index(indices))
    if made.dtype.kind == "b":
        made = made.astype(np.intp)
    if made.dtype.kind not in "iu":
        raise TypeError(f"{op}: indices must be integers, got dtype {made.dtype}; cast them with astype(int)")
    return made


def _in_range(places: np.ndarray, n: int, mode: str, op: str) -> np.ndarray:
    """Places by the rule of `mode`; those of "raise" are checked when they are used."""
    if mode == "wrap":
        return places % n if n else places
    if mode == "clip":
        return np.clip(places, 0, n - 1)
    if mode != "raise":
        raise ValueError(f"{op}: clipmode must be one of 'clip', 'raise', or 'wrap', got {mode!r}")
    return places


@stands_for(np.take)
def take(a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise") -> Tensor:
    """Take elements along an axis, or from the flattened elements. Gradients of repeated indices add up.

    Parameters
    ----------
    a : array_like
    indices : array_like of int
    axis : int, optional
    mode : {"raise", "wrap", "clip"}, optional
        What an index out of bounds does.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.take(ng.tensor([10.0, 20.0, 30.0]), [2, 0, 2])
    tensor([30., 10., 30.])
    """
    if out is not None:
        raise TypeError("take: out= is not supported, because a gradient could be lost; assign to target[...] instead")
    x = as_tensor(a, "a")
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalize_axis_index(axis, x.ndim)
    places = _in_range(_plain_integers(indices, "take"), x.shape[axis], mode, "take")
    return getitem(x, places if axis == 0 else (slice(None),) * axis + (places,))


@stands_for(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Tensor:
    """Take elements by an index of its own for each line along an axis, such as `argsort` gives.

    Parameters
    ----------
    arr : array_like
    indices : array_like of int
        With as many axes as `arr`; the other axes broadcast.
    axis : int or None, optional
        None takes from the flattened elements.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([[3.0, 1.0], [2.0, 5.0]])
    >>> ng.take_along_axis(x, ng.argsort(x, axis=1), axis=1)
    tensor([[1., 3.],
            [2., 5.]])
    """
    x = as_tensor(arr, "arr")
    if axis is None:
        x, axis = ravel(x), 0
    return getitem(x, _line_index(x, indices, axis, "take_along_axis"))


def _line_index(x: Tensor, indices: Any, axis: int, op: str) -> Any:
    places = as_tensor(indices, "indices")._data
    if places.dtype.kind not in "iu":
        raise IndexError(f"{op}: `indices` must be an integer array, got dtype {places.dtype}")
    if places.ndim != x.ndim:
        raise ValueError(
            f"{op}: `indices` and `arr` must have the same number of dimensions, "
            f"got shapes {places.shape} and {x.shape}"
        )
    return along_index(x.shape, places, normalize_axis_index(axis, x.ndim))


@stands_for(np.compress)
def compress(condition: Any, a: Any, axis: int | None = None, out: None = None) -> Tensor:
    """The slices along an axis for which a condition holds.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.compress([True, False, True], ng.tensor([1.0, 2.0, 3.0]))
    tensor([1., 3.])
    """
    mask = as_tensor(condition, "condition")._data
    if mask.ndim != 1:
        raise ValueError(f"compress: condition must be a 1-d array, got shape {mask.shape}")
    return take(a, mask.nonzero()[0], axis, out)


@stands_for(np.extract)
def extract(condition: Any, arr: Any) -> Tensor:
    """The elements for which a condition holds.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> ng.extract(x > 2, x)
    tensor([3., 4.])
    """
    return getitem(ravel(as_tensor(arr, "arr")), as_tensor(condition, "condition")._data.reshape(-1).nonzero()[0])


# ----- Choosing -----


@stands_for(np.choose)
def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Tensor:
    """Element by element one of several tensors, by number.

    Parameters
    ----------
    a : array_like of int
        Which of the choices.
    choices : sequence of array_like
        They broadcast with `a`.
    mode : {"raise", "wrap", "clip"}, optional
        What a number out of bounds does.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.choose([1, 0], [ng.tensor([1.0, 2.0]), ng.tensor([10.0, 20.0])])
    tensor([10.,  2.])
    """
    if out is not None:
        raise TypeError("choose: out= is not supported, because a gradient could be lost")
    options = [as_tensor(c, "choices") for c in choices]
    numbers = _in_range(_plain_integers(a, "choose"), len(options), mode, "choose")
    if ((numbers < 0) | (numbers >= len(options))).any():
        raise ValueError(f"choose: invalid entry in choice array, the numbers must be below {len(options)}")
    return _choose(numbers, options, None, "choose")


def _choose(numbers: np.ndarray, options: list[Tensor], dtype: Any, op: str) -> Tensor:
    shape = broadcast_shape(op, [numbers.shape, *(o.shape for o in options)])
    table = stack([broadcast_to(o, shape) for o in options], dtype=dtype, casting="unsafe")
    flat = reshape(table, (len(options), -1)) if table.size else table
    if not table.size:
        return getitem(flat, 0)
    places = np.broadcast_to(numbers, shape).reshape(-1)
    return reshape(getitem(flat, (places, np.arange(places.size))), shape)


@stands_for(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Tensor:
    """Element by element the choice of the first condition that holds.

    Parameters
    ----------
    condlist : sequence of array_like of bool
    choicelist : sequence of array_like
        As many as conditions.
    default : array_like, optional
        Where no condition holds.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([-1.0, 0.5, 3.0])
    >>> ng.select([x < 0, x > 1], [-x, x * x])
    tensor([1., 0., 9.])
    """
    if len(condlist) != len(choicelist):
        raise ValueError(
            "select: list of cases must be same length as list of conditions, "
            f"got {len(choicelist)} and {len(condlist)}"
        )
    if not len(condlist):
        raise ValueError("select: select with an empty condition list is not possible")
    conditions = [as_tensor(c, "condlist")._data for c in condlist]
    for i, condition in enumerate(conditions):
        if condition.dtype != bool:
            raise TypeError(f"select: invalid entry {i} in condlist: should be boolean, got dtype {condition.dtype}")
    choices = [*choicelist, default]
    dtype = np.result_type(*(c if type(c) in (int, float, complex) else as_tensor(c)._data for c in choices))
    held = np.broadcast_arrays(*conditions, True)
    return _choose(np.argmax(held, axis=0), [as_tensor(c, "choicelist") for c in choices], dtype, "select")


# ----- Putting -----


@stands_for(np.put_along_axis)
def put_along_axis(arr: Tensor, indices: Any, values: Any, axis: int | None) -> None:
    """Write in place what `take_along_axis` reads.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.zeros((2, 2))
    >>> ng.put_along_axis(x, [[1], [0]], 5.0, axis=1)
    >>> x
    tensor([[0., 5.],
            [5., 0.]])
    """
    if axis is None:
        return _put_flat(arr, _line_index(ravel(arr), indices, 0, "put_along_axis"), as_tensor(values, "values"))
    arr[_line_index(arr, indices, axis, "put_along_axis")] = values
    return None


@stands_for(np.put)
def put(a: Tensor, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values in place at flat places; too few values start again.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.zeros(3)
    >>> ng.put(x, [0, 2], [7.0, 8.0])
    >>> x
    tensor([7., 0., 8.])
    """
    places = _in_range(_plain_integers(ind, "put"), a.size, mode, "put").reshape(-1)
    if places.size and (places.min() < -a.size or places.max() >= a.size):
        raise IndexError(f"put: an index is out of bounds for a tensor of size {a.size} (shape {a.shape})")
    _put_repeated(a, places, v)


def _put_repeated(a: Tensor, places: np.ndarray, v: Any, which: np.ndarray | None = None) -> None:
    """Write the values numbered `which` (by default in order), starting again when they run out."""
    values = ravel(as_tensor(v, "values"))
    if values.size == 0 or places.size == 0:
        return
    which = np.arange(places.size) if which is None else which
    _put_flat(a, places, getitem(values, which % values.size) if values.size > 1 else values)


def _put_flat(a: Tensor, places: np.ndarray, values: Tensor) -> None:
    a[np.unravel_index(np.where(places < 0, places + a.size, places), a.shape) if a.ndim else ()] = values


def _mask_of(a: Tensor, mask: Any, op: str) -> np.ndarray:
    made = as_tensor(mask, "mask")._data
    if made.size != a.size:
        raise ValueError(f"{op}: mask and data must be the same size, got shapes {made.shape} and {a.shape}")
    return made.reshape(-1).nonzero()[0]


@stands_for(np.place)
def place(arr: Tensor, mask: Any, vals: Any) -> None:
    """Write values in place where a mask holds, one after the other.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0, 3.0])
    >>> ng.place(x, x > 1, [7.0, 8.0])
    >>> x
    tensor([1., 7., 8.])
    """
    places = _mask_of(arr, mask, "place")
    if places.size and as_tensor(vals, "vals").size == 0:
        raise ValueError("place: cannot insert from an empty array")
    _put_repeated(arr, places, vals)


@stands_for(np.putmask)
def putmask(a: Tensor, mask: Any, values: Any) -> None:
    """Write values in place where a mask holds, each from its own place.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0, 3.0])
    >>> ng.putmask(x, x > 1, -x)
    >>> x
    tensor([ 1., -2., -3.])
    """
    places = _mask_of(a, mask, "putmask")
    _put_repeated(a, places, values, places)


@stands_for(np.fill_diagonal)
def fill_diagonal(a: Tensor, val: Any, wrap: bool = False) -> None:
    """Write the main diagonal in place.

    Parameters
    ----------
    a : Tensor
        With at least two axes; more than two must be of equal length.
    val : array_like
        Too few values start again.
    wrap : bool, optional
        Go on with the diagonal below the square part of a tall matrix.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.zeros((2, 2))
    >>> ng.fill_diagonal(x, 5.0)
    >>> x
    tensor([[5., 0.],
            [0., 5.]])
    """
    if a.ndim < 2:
        raise ValueError(f"fill_diagonal: array must be at least 2-d, got shape {a.shape}")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError(f"fill_diagonal: all dimensions of input must be of equal length, got shape {a.shape}")
    step = 1 + int(np.cumprod(a.shape[:0:-1]).sum())
    end = a.shape[1] ** 2 if a.ndim == 2 and not wrap else a.size
    _put_repeated(a, np.arange(0, min(end, a.size), step), val)


METHODS: dict[str, Callable[..., Any]] = {
    "__getitem__": getitem,
    "choose": choose,
    "compress": lambda self, condition, axis=None: compress(condition, self, axis),
    "put": put,
    "take": take,
}

__all__ = [
    "choose",
    "compress",
    "extract",
    "fill_diagonal",
    "place",
    "put",
    "put_along_axis",
    "putmask",
    "select",
    "take",
    "take_along_axis",
]
