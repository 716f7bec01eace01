"""Sorting and searching: gathers whose places the values decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.conversion import astype
from numbagrad.ops.gathering import along_index, getitem
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import ravel


def _sorted(a: Any, axis: int | None, plain: Callable[..., Any], order_of: Callable[..., Any]) -> Tensor:
    """`plain` where no gradient is wanted, else a gather in the order that `order_of` finds."""
    x = as_tensor(a, "a")
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalize_axis_index(axis, x.ndim)
    if not (grad_enabled() and x.requires_grad):
        return wrap(plain(x._data, axis=axis))
    return getitem(x, along_index(x.shape, order_of(x._data, axis=axis), axis))


@stands_for(np.sort)
def sort(
    a: Any, axis: int | None = -1, kind: str | None = None, order: None = None, *, stable: bool | None = None
) -> Tensor:
    """Sort along an axis; None sorts the flattened elements. The gradient goes back to where each value came from.

    Parameters
    ----------
    a : array_like
    axis : int or None, optional
    kind : {"quicksort", "mergesort", "heapsort", "stable"}, optional
    stable : bool, optional
        Keep equal elements in their order.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([3.0, 1.0, 2.0], requires_grad=True)
    >>> ng.sort(x).backward([1.0, 10.0, 100.0])
    >>> x.grad
    tensor([100.,   1.,  10.])
    """
    how = {"kind": kind, "order": order, "stable": stable}
    return _sorted(a, axis, lambda x, axis: np.sort(x, axis, **how), lambda x, axis: np.argsort(x, axis, **how))


@stands_for(np.argsort)
def argsort(
    a: Any, axis: int | None = -1, kind: str | None = None, order: None = None, *, stable: bool | None = None
) -> Tensor:
    """The places of the elements in sorted order. Integers, without gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.argsort(ng.tensor([3.0, 1.0, 2.0]))
    tensor([1, 2, 0])
    """
    return wrap(np.argsort(as_tensor(a, "a")._data, axis, kind, order, stable=stable))


@stands_for(np.partition)
def partition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None) -> Tensor:
    """Put the element of rank `kth` in its place, smaller ones before and larger ones behind it.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.partition(ng.tensor([3.0, 1.0, 2.0]), 1)
    tensor([1., 2., 3.])
    """
    return _sorted(
        a,
        axis,
        lambda x, axis: np.partition(x, kth, axis, kind, order),
        lambda x, axis: np.argpartition(x, kth, axis, kind, order),
    )


@stands_for(np.argpartition)
def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None) -> Tensor:
    """The places of the elements as `partition` puts them. Integers, without gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.argpartition(ng.tensor([3.0, 1.0, 2.0]), 0)[0]
    tensor(1)
    """
    return wrap(np.argpartition(as_tensor(a, "a")._data, kth, axis, kind, order))


@stands_for(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    """Where to insert values so that order stays. Integers, without gradient.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.searchsorted(ng.tensor([1.0, 2.0, 4.0]), 3.0)
    tensor(2)
    """
    order = as_tensor(sorter, "sorter")._data if sorter is not None else None
    return wrap(np.asarray(np.searchsorted(as_tensor(a, "a")._data, as_tensor(v, "v")._data, side, order)))


@stands_for(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """The different values, sorted. The gradient goes to the first of equal elements.

    Parameters
    ----------
    ar : array_like
    return_index, return_inverse, return_counts : bool, optional
        Also give the place of each value in `ar`, the place of each element among the values, and how often each
        value occurs.
    axis : int, optional
        Compare the slices along this axis instead of elements.
    equal_nan : bool, optional
        Take all nan as one value.
    sorted : bool, optional
        The values are sorted in any case.

    Returns
    -------
    Tensor or tuple of Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.unique(ng.tensor([2.0, 1.0, 2.0]))
    tensor([1., 2.])
    """
    x = as_tensor(ar, "ar")
    asked = (return_index, return_inverse, return_counts)
    _, index, *others = np.unique(x._data, True, *asked[1:], axis=axis, equal_nan=equal_nan)
    values = getitem(ravel(x), index) if axis is None else _slices(x, index, normalize_axis_index(axis, x.ndim))
    more = [wrap(i) for i in ([index] if return_index else []) + others]
    return (values, *more) if more else values


class UniqueAllResult(NamedTuple):
    """What `unique_all` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` returns."""

    values: Tensor
    inverse_indices: Tensor


@stands_for(np.unique_all)
def unique_all(x: Any) -> UniqueAllResult:
    """The different values, the place of the first of each, the number of each element's value, and the counts.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.unique_all([2.0, 1.0, 2.0]).counts
    tensor([1, 2])
    """
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False))


@stands_for(np.unique_counts)
def unique_counts(x: Any) -> UniqueCountsResult:
    """The different values and how often each occurs.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.unique_counts([2.0, 1.0, 2.0]).values
    tensor([1., 2.])
    """
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False))


@stands_for(np.unique_inverse)
def unique_inverse(x: Any) -> UniqueInverseResult:
    """The different values and, for each element, the number of its value.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.unique_inverse([2.0, 1.0, 2.0]).inverse_indices
    tensor([1, 0, 1])
    """
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False))


@stands_for(np.unique_values)
def unique_values(x: Any) -> Tensor:
    """The different values, sorted.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.unique_values([2.0, 1.0, 2.0])
    tensor([1., 2.])
    """
    return unique(x, equal_nan=False)


@stands_for(np.sort_complex)
def sort_complex(a: Any) -> Tensor:
    """Sort by the real part, then by the imaginary one; the result is complex.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.sort_complex([2.0, 1.0])
    tensor([1.+0.j, 2.+0.j])
    """
    x = sort(as_tensor(a, "a"))
    if x._layout.kind == "c":
        return x
    return astype(x, np.complex64 if x.dtype.char in "bhBHf" else np.complex128)


def _slices(x: Tensor, index: np.ndarray, axis: int) -> Tensor:
    return getitem(x, (slice(None),) * axis + (index,))


@stands_for(np.nonzero)
def nonzero(a: Any) -> tuple[Tensor, ...]:
    """The places of elements that are not zero, one tensor of integers per axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.nonzero(ng.tensor([0.0, 3.0, 4.0]))
    (tensor([1, 2]),)
    """
    return tuple(map(wrap, np.nonzero(as_tensor(a, "a")._data)))


@stands_for(np.flatnonzero)
def flatnonzero(a: Any) -> Tensor:
    """The places of elements that are not zero among the flattened elements.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.flatnonzero(ng.tensor([[0.0, 3.0], [4.0, 0.0]]))
    tensor([1, 2])
    """
    return wrap(np.flatnonzero(as_tensor(a, "a")._data))


@stands_for(np.argwhere)
def argwhere(a: Any) -> Tensor:
    """The places of elements that are not zero, one row each.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.argwhere(ng.tensor([[0.0, 3.0], [4.0, 0.0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return wrap(np.argwhere(as_tensor(a, "a")._data))


def _sort_in_place(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Sort in place; see `numbagrad.sort`, which returns a copy."""
    self[...] = sort(self, *args, **kwargs)


def _partition_in_place(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Partition in place; see `numbagrad.partition`, which returns a copy."""
    self[...] = partition(self, *args, **kwargs)


METHODS: dict[str, Callable[..., Any]] = {
    "argpartition": argpartition,
    "argsort": argsort,
    "nonzero": nonzero,
    "partition": _partition_in_place,
    "searchsorted": searchsorted,
    "sort": _sort_in_place,
}

__all__ = [
    "argpartition",
    "argsort",
    "argwhere",
    "flatnonzero",
    "nonzero",
    "partition",
    "searchsorted",
    "sort",
    "sort_complex",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]
