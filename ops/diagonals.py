"""Diagonals, triangles and grids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.conversion import clone
from numbagrad.ops.gathering import viewing, zeros
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import broadcast_to, ravel, reshape

# ----- Primitives -----


@viewing("diagonal")
def _diagonal(x, *, offset, axis1, axis2):
    return np.diagonal(x, offset, axis1, axis2)


@_diagonal.vjp("x")
def _(g, x_shape, offset, axis1, axis2):
    return _onto_diagonal(g, shape=x_shape, offset=offset, axis1=axis1, axis2=axis2)


@primitive(linear=True, name="onto_diagonal")
def _onto_diagonal(g, *, shape, offset, axis1, axis2):
    out = zeros(shape, g.dtype)
    line = np.diagonal(out, offset, axis1, axis2)
    line.flags.writeable = True
    line[...] = g
    return out


@_onto_diagonal.vjp("g")
def _(g, offset, axis1, axis2):
    return _diagonal(g, offset=offset, axis1=axis1, axis2=axis2)


@primitive(linear=True, name="tril")
def _tril(x, *, k):
    return np.tril(x, k)


@_tril.vjp("x")
def _(g, k):
    return _tril(g, k=k)


@primitive(linear=True, name="triu")
def _triu(x, *, k):
    return np.triu(x, k)


@_triu.vjp("x")
def _(g, k):
    return _triu(g, k=k)


# ----- Diagonals and triangles -----


@stands_for(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal in the plane of two axes, as the last axis of the result. A view that cannot be written.

    Parameters
    ----------
    a : array_like
    offset : int, optional
        How far above the main diagonal.
    axis1, axis2 : int, optional
        Rows and columns of the plane.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.diagonal(ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    x = as_tensor(a, "a")
    if x.ndim < 2:
        raise ValueError(f"diagonal: the tensor must have at least two dimensions, got shape {x.shape}")
    first, second = normalize_axis_index(axis1, x.ndim), normalize_axis_index(axis2, x.ndim)
    if first == second:
        raise ValueError(f"diagonal: axis1 and axis2 cannot be the same, both are {first}")
    return _diagonal(x, offset=offset, axis1=first, axis2=second)


@stands_for(np.diag)
def diag(v: Any, k: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix that has a vector on its diagonal.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.diag(ng.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    x = as_tensor(v, "v")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError(f"diag: input must be 1- or 2-d, got shape {x.shape}")
    n = x.size + abs(k)
    return _onto_diagonal(x, shape=(n, n), offset=k, axis1=0, axis2=1)


@stands_for(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Tensor:
    """The matrix that has the flattened elements on its diagonal.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.diagflat(ng.tensor([[1.0], [2.0]]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    return diag(ravel(v), k)


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Matrices with the last axis on their diagonals, as HIPS autograd's function of this name.

    Parameters
    ----------
    D : array_like
    offset : {0}, optional
    axis1, axis2 : int, optional
        Where the axes of the matrices are to stand: the last two, -2 and -1 (or 0 and 1 for one matrix).

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.make_diagonal([1.0, 2.0])
    tensor([[1., 0.],
            [0., 2.]])
    """
    x = as_tensor(D, "D")
    if offset != 0 or (axis1 % (x.ndim + 1), axis2 % (x.ndim + 1)) != (x.ndim - 1, x.ndim):
        raise NotImplementedError(
            f"make_diagonal: only offset=0, axis1=-2, axis2=-1 is here, got {offset}, {axis1}, {axis2}; use moveaxis"
        )
    n = x.shape[-1]
    return _onto_diagonal(x, shape=(*x.shape, n), offset=0, axis1=x.ndim - 1, axis2=x.ndim)


@stands_for(np.tril)
def tril(m: Any, k: int = 0) -> Tensor:
    """A copy with zeros above diagonal `k`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tril(ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[1., 0.],
            [3., 4.]])
    """
    return _tril(as_tensor(m, "m"), k=k)


@stands_for(np.triu)
def triu(m: Any, k: int = 0) -> Tensor:
    """A copy with zeros below diagonal `k`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.triu(ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[1., 2.],
            [0., 4.]])
    """
    return _triu(as_tensor(m, "m"), k=k)


# ----- Indices -----


def _wrapped(arrays: tuple[np.ndarray, ...]) -> tuple[Tensor, ...]:
    return tuple(map(wrap, arrays))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """Rows and columns of the elements on and below diagonal `k` of an (n, m) matrix.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tril_indices(2)
    (tensor([0, 1, 1]), tensor([0, 0, 1]))
    """
    return _wrapped(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """Rows and columns of the elements on and above diagonal `k` of an (n, m) matrix.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.triu_indices(2)
    (tensor([0, 0, 1]), tensor([0, 1, 1]))
    """
    return _wrapped(np.triu_indices(n, k, m))


@stands_for(np.tril_indices_from)
def tril_indices_from(arr: Any, k: int = 0) -> tuple[Tensor, ...]:
    """`tril_indices` for the shape of a matrix.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tril_indices_from(ng.ones((2, 1)))
    (tensor([0, 1]), tensor([0, 0]))
    """
    return _wrapped(np.tril_indices_from(as_tensor(arr, "arr")._data, k))


@stands_for(np.triu_indices_from)
def triu_indices_from(arr: Any, k: int = 0) -> tuple[Tensor, ...]:
    """`triu_indices` for the shape of a matrix.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.triu_indices_from(ng.ones((1, 2)))
    (tensor([0, 0]), tensor([0, 1]))
    """
    return _wrapped(np.triu_indices_from(as_tensor(arr, "arr")._data, k))


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """The index of the main diagonal of a tensor with `ndim` axes of length `n`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.diag_indices(2)
    (tensor([0, 1]), tensor([0, 1]))
    """
    return _wrapped(np.diag_indices(n, ndim))


@stands_for(np.diag_indices_from)
def diag_indices_from(arr: Any) -> tuple[Tensor, ...]:
    """`diag_indices` for the shape of a tensor.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.diag_indices_from(ng.ones((2, 2)))
    (tensor([0, 1]), tensor([0, 1]))
    """
    return _wrapped(np.diag_indices_from(as_tensor(arr, "arr")._data))


def indices(dimensions: tuple[int, ...], dtype: Any = int, sparse: bool = False) -> Any:
    """For each element of a shape its place, one tensor (or slice of one) per axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.indices((1, 2))
    tensor([[[0, 0]],
    <BLANKLINE>
            [[0, 1]]])
    """
    made = np.indices(dimensions, dtype, sparse)
    return _wrapped(made) if sparse else wrap(made)


@stands_for(np.ix_)
def ix_(*args: Any) -> tuple[Tensor, ...]:
    """The index that takes all combinations of places along several axes.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> x[ng.ix_([1], [0, 2])]
    tensor([[4., 6.]])
    """
    return _wrapped(np.ix_(*(a._data if isinstance(a, Tensor) else a for a in args)))


@stands_for(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Tensor, ...]:
    """The places along each axis of flat places.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.unravel_index(5, (2, 3))
    (tensor(1), tensor(2))
    """
    found = np.unravel_index(as_tensor(indices, "indices")._data, shape, order)
    return tuple(wrap(np.asarray(i)) for i in found)


@stands_for(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Tensor:
    """The flat places of places along each axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.ravel_multi_index((1, 2), (2, 3))
    tensor(5)
    """
    places = tuple(as_tensor(i, "multi_index")._data for i in multi_index)
    return wrap(np.asarray(np.ravel_multi_index(places, dims, mode, order)))


# ----- Grids -----


@stands_for(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of all points of a grid, one tensor per axis.

    Parameters
    ----------
    *xi : array_like
        The coordinates along each axis.
    copy : bool, optional
        False gives views that are not stretched in memory.
    sparse : bool, optional
        Leave axes of length one unstretched.
    indexing : {"xy", "ij"}, optional
        Whether the first two axes are columns and rows, or rows and columns.

    Returns
    -------
    tuple of Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> x, y = ng.meshgrid(ng.tensor([1.0, 2.0]), ng.tensor([3.0, 4.0]))
    >>> x
    tensor([[1., 2.],
            [1., 2.]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: valid values for `indexing` are 'xy' and 'ij', got {indexing!r}")
    lines = [ravel(x) for x in xi]
    axes = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        axes[0], axes[1] = 1, 0
    grid = [_along_axis(x, axis, len(lines)) for x, axis in zip(lines, axes, strict=True)]
    if not sparse:
        wide = tuple(lines[axes[i]].size for i in range(len(lines)))
        grid = [broadcast_to(x, wide) for x in grid]
    return tuple(clone(x) for x in grid) if copy else tuple(grid)


def _along_axis(line: Tensor, axis: int, ndim: int) -> Tensor:
    return reshape(line, (1,) * axis + (line.size,) + (1,) * (ndim - axis - 1))


METHODS: dict[str, Callable[..., Any]] = {"diagonal": diagonal}

__all__ = [
    "diag",
    "diag_indices",
    "diag_indices_from",
    "diagflat",
    "diagonal",
    "indices",
    "ix_",
    "make_diagonal",
    "meshgrid",
    "ravel_multi_index",
    "tril",
    "tril_indices",
    "tril_indices_from",
    "triu",
    "triu_indices",
    "triu_indices_from",
    "unravel_index",
]
