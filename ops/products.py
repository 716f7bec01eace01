"""Products: matrices and vectors multiplied and contracted. BLAS gets transposes as views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.layout import dense_layout, kind_of
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.node import Node, inference, mark_new, next_seq, watches
from numbagrad.engine.tensor import Tensor, edge_of, wrap
from numbagrad.jit import memory
from numbagrad.ops.arithmetic import multiply
from numbagrad.ops.autocast import casting
from numbagrad.ops.conversion import astype, conj
from numbagrad.ops.diagonals import _onto_diagonal
from numbagrad.ops.einsum import einsum, outer_blocks, push_product, tensordot
from numbagrad.ops.indexing import getitem
from numbagrad.ops.joining import stack
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for
from numbagrad.ops.saved import check_saved, versions_of
from numbagrad.ops.shape import matrix_transpose, reshape, transpose

_new = object.__new__
_POOLED_ITEMS = memory.POOLED_FROM_BYTES // 8


# ----- Views that rules need: unless recorded, they need not know their base -----


def adjoint(x: Tensor) -> Tensor:
    """Conjugate transpose of the last two axes."""
    if grad_enabled():
        return matrix_transpose(conj(x))
    return wrap(x._data.swapaxes(-1, -2).conj() if x.dtype.kind == "c" else x._data.swapaxes(-1, -2))


def _as_rows(x: Tensor) -> Tensor:
    """All axes but the last in one."""
    return reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def column(x: Tensor) -> Tensor:
    """A last axis of length one."""
    return reshape(x, (*x.shape, 1)) if grad_enabled() else wrap(x._data[..., None])


def row(x: Tensor) -> Tensor:
    """A last but one axis of length one."""
    return reshape(x, (*x.shape[:-1], 1, x.shape[-1])) if grad_enabled() else wrap(x._data[..., None, :])


def scaled(x: Tensor, factor: Tensor) -> Tensor:
    """Each matrix of a stack times a number."""
    return multiply(column(column(factor)), x) if grad_enabled() else wrap(factor._data[..., None, None] * x._data)


def vector(x: Tensor) -> Tensor:
    """Without the last axis, which has length one."""
    return reshape(x, x.shape[:-1])


# ----- matmul -----


@primitive(name="matmul", wide="all", casts="low")
def _matmul(x, y):
    if x.ndim > 1 and y.ndim > 1:
        x, y = _for_blas(x), _for_blas(y)
    try:
        if x.ndim > 2 and 0 < y.ndim <= 2 and x.size and x.flags.c_contiguous and _worth_one_call(x, y):
            return np.matmul(x.reshape(-1, x.shape[-1]), y).reshape(x.shape[:-1] + y.shape[1:])
        return np.matmul(x, y)
    except ValueError:
        raise ValueError(
            f"matmul: cannot multiply shapes {x.shape} and {y.shape}; the last axis of the first must be as long as "
            "the last but one (or only) axis of the second, the axes before must broadcast, and neither may be 0-d"
        ) from None


def _worth_one_call(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether to multiply a whole stack by `y` at once.

    Tiny products would pay for a call each, large ones read `y` again for each. In between, OpenBLAS has a way for
    small matrices that takes 0.8 of the time.
    """
    return x.shape[-1] == y.shape[0] and not (y.ndim == 2 and 2048 <= x.shape[-2] * y.size <= 1_000_000)


def _for_blas(x: np.ndarray) -> np.ndarray:
    """`x`, copied if BLAS cannot read its matrices: NumPy's own loop for those takes ten times as long."""
    far, near = sorted(x.strides[-2:], reverse=True)
    length = x.shape[-1] if x.strides[-1] == near else x.shape[-2]
    fits = near == x.itemsize and far >= near * length
    return x if fits or kind_of(x.dtype) not in "fc" else np.ascontiguousarray(x)


@_matmul.vjp("x")
def _(g, y, x_shape):
    if len(y.shape) == 1:
        return multiply(column(g), conj(y)) if len(x_shape) > 1 else multiply(g, conj(y))
    if len(x_shape) == 1:
        return vector(_matmul(conj(y), column(g)))
    return _matmul(g, adjoint(y))


@_matmul.vjp("y")
def _(g, x, y_shape):
    if len(x.shape) == 1:
        return multiply(column(conj(x)), row(g)) if len(y_shape) > 1 else multiply(g, conj(x))
    if len(y_shape) == 1:
        return _matmul(adjoint(_as_rows(x)), reshape(g, (g.size,)))
    if len(y_shape) == 2 and len(x.shape) > 2:
        return _matmul(adjoint(_as_rows(x)), _as_rows(g))
    return _matmul(adjoint(x), g)


@_matmul.jvp
def _(node, tangents):
    return push_product(_matmul, node, tangents)


class _Plain:
    """The op of a product of two matrices of one real dtype: no broadcasting, no promotion, no conjugates.

    There is one for each choice of operands that want a gradient.
    """

    name = "matmul"

    def __init__(self, wants_x: bool, wants_y: bool) -> None:
        self.wants = wants_x, wants_y
        # A gradient needs the other operand.
        self.sources = [("in", nr) for nr, other in ((0, wants_y), (1, wants_x)) if other]

    def vjp(self, node: Node, grad: Tensor) -> Sequence[Tensor | None]:
        """Gradients of the wanted operands."""
        x, y = self._saved(node)
        if grad_enabled():
            return (
                _matmul(grad, matrix_transpose(y)) if self.wants[0] else None,
                _matmul(matrix_transpose(x), grad) if self.wants[1] else None,
            )
        g = grad._data
        return (
            None if y is None else _product(g, y._data.T),
            None if x is None else _product(x._data.T, g),
        )

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Tensor:
        """Tangent of the product."""
        x, y = self._saved(node)
        terms = [matmul(tangents[0], y)] if tangents[0] is not None else []
        if tangents[1] is not None:
            terms.append(matmul(x, tangents[1]))
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def _saved(self, node: Node) -> tuple[Tensor | None, Tensor | None]:
        saved = node.saved
        if saved is None or saved[0]._storage is not None or saved[-1]._storage is not None:
            saved = check_saved(node, self.sources)
        if len(saved) == 2:
            return saved
        return (None, saved[0]) if self.wants[0] else (saved[0], None)


_PLAIN = {(a, b): _Plain(a, b) for a, b in ((True, False), (False, True), (True, True))}


def _product(a: np.ndarray, b: np.ndarray) -> Tensor:
    """The product of two matrices as a tensor without history."""
    shape = (a.shape[0], b.shape[1])
    # ndarray.dot costs 0.6 µs less than np.matmul.
    out = a.dot(b) if shape[0] * shape[1] < _POOLED_ITEMS else a.dot(b, memory.empty(shape, a.dtype))
    tensor = _new(Tensor)
    tensor._data = out
    tensor._layout = dense_layout(shape, out.dtype)
    tensor._requires_grad = False
    tensor._grad = tensor._node = tensor._storage = tensor._view = tensor._extra = None
    if inference:
        mark_new(tensor)
    return tensor


def _record_plain(out: Tensor, x: Tensor, y: Tensor) -> None:
    edges = edge_of(x), edge_of(y)
    op = _PLAIN[edges[0] is not None, edges[1] is not None]
    node = _new(Node)
    node.op = op
    node.edges = edges
    node.saved = (x, y) if len(op.sources) == 2 else (x,) if op.wants[1] else (y,)
    node.seq = next_seq()
    node.layout = out._layout
    node.hooks = node.storage = node.statics = node.versions = None
    if x._storage is not None or y._storage is not None:
        node.versions = versions_of(node.saved)
    out._node = node
    out._requires_grad = True


@stands_for(np.matmul)
def matmul(x1: Any, x2: Any) -> Tensor:
    """Matrix product of two arrays; stacks of matrices broadcast.

    Parameters
    ----------
    x1, x2 : array_like
        Matrices in the last two axes; a 1-d `x1` counts as a row, a 1-d `x2` as a column. 0-d is refused.

    Returns
    -------
    Tensor
        The product; the axis that a vector lacks is left out, so two vectors give a 0-d tensor.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    See Also
    --------
    dot, einsum, tensordot

    Examples
    --------
    >>> import numbagrad as ng
    >>> w = ng.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> y = w @ ng.tensor([1.0, 10.0])
    >>> y.backward([1.0, 1.0])
    >>> w.grad
    tensor([[ 1., 10.],
            [ 1., 10.]])
    """
    if type(x1) is Tensor and type(x2) is Tensor:
        a, b = x1._layout, x2._layout
        if (
            not (watches or casting)
            and a.dtype is b.dtype
            and a.kind == "f"
            and a.dtype.itemsize > 2
            and len(a.shape) == 2 == len(b.shape)
            and a.shape[1] == b.shape[0]
        ):
            out = _product(x1._data, x2._data)
            if (x1._requires_grad or x2._requires_grad) and grad_enabled():
                _record_plain(out, x1, x2)
            return out
    return _matmul(as_tensor(x1, "x1"), as_tensor(x2, "x2"))


# ----- Products of vectors -----


@stands_for(np.dot)
def dot(a: Any, b: Any) -> Tensor:
    """Sum of products over the last axis of `a` and the last but one (or only) axis of `b`.

    Unlike :func:`matmul` it multiplies by numbers, and stacks do not broadcast: each matrix of `a` meets each of `b`.

    Parameters
    ----------
    a, b : array_like

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If the two axes differ in length.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.dot(ng.tensor([1.0, 2.0]), [3.0, 4.0])
    tensor(11.)
    >>> ng.dot(ng.ones((2, 3, 4)), ng.ones((5, 4, 6))).shape
    (2, 3, 5, 6)
    """
    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    if not x.shape or not y.shape:
        return multiply(x, y)
    other = max(y.ndim - 2, 0)
    if x.shape[-1] != y.shape[other]:
        raise ValueError(f"dot: shapes {x.shape} and {y.shape} not aligned: {x.shape[-1]} != {y.shape[other]}")
    return matmul(x, y) if y.ndim < 3 else tensordot(x, y, (-1, other))


@stands_for(np.vdot)
def vdot(a: Any, b: Any, /) -> Tensor:
    """Sum of the products of all elements, those of `a` conjugated.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.vdot([1j, 2.0], ng.tensor([1j, 3.0]))
    tensor(7.+0.j)
    """
    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    if x.size != y.size:
        raise ValueError(f"vdot: shapes {x.shape} and {y.shape} must have the same number of elements")
    return matmul(conj(reshape(x, (x.size,))), reshape(y, (y.size,)))


@stands_for(np.inner)
def inner(a: Any, b: Any, /) -> Tensor:
    """Sum of products over the last axes of both; numbers are multiplied.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.inner(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), [1.0, 10.0])
    tensor([21., 43.])
    """
    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    if not x.shape or not y.shape:
        return multiply(x, y)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"inner: shapes {x.shape} and {y.shape} not aligned: {x.shape[-1]} != {y.shape[-1]}")
    return tensordot(x, y, (-1, -1))


@stands_for(np.outer)
def outer(a: Any, b: Any) -> Tensor:
    """Product of each element of `a` with each of `b`; both are flattened.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.outer(ng.tensor([1.0, 2.0]), [3.0, 4.0])
    tensor([[3., 4.],
            [6., 8.]])
    """
    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    return tensordot(reshape(x, (x.size,)), reshape(y, (y.size,)), 0)


@stands_for(np.vecdot)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Dot products of vectors along an axis, those of `x1` conjugated; the other axes broadcast.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.vecdot(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), [1.0, 10.0])
    tensor([21., 43.])
    """
    x, y = _last(as_tensor(x1, "x1"), axis), _last(as_tensor(x2, "x2"), axis)
    _check_core("vecdot", x, y, x.shape[-1:], y.shape[-1:])
    return vector(vector(matmul(row(conj(x)), column(y))))


def _last(x: Tensor, axis: int) -> Tensor:
    """`x` with one axis moved to the end."""
    if axis == -1:
        return x
    at = normalize_axis_index(axis, x.ndim)
    return transpose(x, [i for i in range(x.ndim) if i != at] + [at])


def _check_core(name: str, x: Tensor, y: Tensor, have: tuple[int, ...], want: tuple[int, ...]) -> None:
    if not have or have != want:
        raise ValueError(
            f"{name}: shapes {x.shape} and {y.shape} do not fit: the axes to sum over must be equally long"
        )


@stands_for(np.matvec)
def matvec(x1: Any, x2: Any, /) -> Tensor:
    """Matrices times vectors; stacks of both broadcast.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.matvec(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), [[1.0, 0.0], [0.0, 1.0]])
    tensor([[1., 3.],
            [2., 4.]])
    """
    x, y = as_tensor(x1, "x1"), as_tensor(x2, "x2")
    _check_core("matvec", x, y, x.shape[1:][-1:], y.shape[-1:])
    return vector(matmul(x, column(y)))


@stands_for(np.vecmat)
def vecmat(x1: Any, x2: Any, /) -> Tensor:
    """Vectors, conjugated, times matrices; stacks of both broadcast.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.vecmat([1.0, 10.0], ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([31., 42.])
    """
    x, y = as_tensor(x1, "x1"), as_tensor(x2, "x2")
    _check_core("vecmat", x, y, x.shape[-1:], y.shape[-2:-1])
    return vector(matrix_transpose(matmul(row(conj(x)), y)))


@stands_for(np.kron)
def kron(a: Any, b: Any) -> Tensor:
    """Kronecker product: `b` multiplied by each element of `a`, in blocks.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.kron(ng.tensor([1.0, 10.0]), [1.0, 2.0])
    tensor([ 1.,  2., 10., 20.])
    """
    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    ndim = max(x.ndim, y.ndim)
    first = (1,) * (ndim - x.ndim) + x.shape
    second = (1,) * (ndim - y.ndim) + y.shape
    blocks = outer_blocks(reshape(x, first), reshape(y, second))
    return reshape(blocks, tuple(n * m for n, m in zip(first, second, strict=True)))


@primitive(name="cross", wide="all")
def _cross(x, y):
    """Cross product of vectors of length three in the last axis."""
    return np.cross(x, y)


@_cross.vjp("x")
def _(g, y):
    return _cross(conj(y), g)


@_cross.vjp("y")
def _(g, x):
    return _cross(g, conj(x))


@_cross.jvp
def _(node, tangents):
    return push_product(_cross, node, tangents)


@stands_for(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    """Cross product of vectors of length three (or two, whose third component is 0).

    Parameters
    ----------
    a, b : array_like
    axisa, axisb : int, optional
        The axes that hold the vectors.
    axisc : int, optional
        Where the result holds them. Two vectors of length two give their third component only.
    axis : int, optional
        All three at once.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If a vector has another length.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.cross(ng.tensor([1.0, 0.0, 0.0]), [0.0, 1.0, 0.0])
    tensor([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = _last(as_tensor(a, "a"), axisa), _last(as_tensor(b, "b"), axisb)
    lengths = x.shape[-1:], y.shape[-1:]
    if not {*lengths} <= {(2,), (3,)}:
        raise ValueError(
            "cross: incompatible dimensions for cross product (dimension must be 2 or 3), got shapes "
            f"{x.shape} and {y.shape}"
        )
    out = _cross(_in_space(x), _in_space(y))
    if lengths == ((2,), (2,)):
        return getitem(out, (..., 2))
    at = normalize_axis_index(axisc, out.ndim)
    axes = list(range(out.ndim - 1))
    return out if at == out.ndim - 1 else transpose(out, [*axes[:at], out.ndim - 1, *axes[at:]])


def _in_space(x: Tensor) -> Tensor:
    """Vectors of length two with a third component, 0."""
    if x.shape[-1] == 3:
        return x
    first, second = getitem(x, (..., 0)), getitem(x, (..., 1))
    return stack([first, second, np.zeros(first.shape, x.dtype)], axis=-1)


@primitive(linear=True, name="trace", wide="all", casts="single")
def _trace(x, *, offset, axis1, axis2):
    return np.trace(x, offset, axis1, axis2)


@_trace.vjp("x")
def _(g, x_shape, offset, axis1, axis2):
    return _onto_diagonal(column(g), shape=x_shape, offset=offset, axis1=axis1, axis2=axis2)


@stands_for(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """Sum along a diagonal.

    Parameters
    ----------
    a : array_like
    offset : int, optional
        Which diagonal: positive ones lie above the main one.
    axis1, axis2 : int, optional
        Axes of the matrices; the others remain.
    dtype : dtype, optional
        Convert to it first.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.trace(ng.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    x = as_tensor(a, "a")
    return _trace(x if dtype is None else astype(x, dtype), offset=offset, axis1=axis1, axis2=axis2)


METHODS: dict[str, Callable[..., Any]] = {"dot": dot, "trace": trace}

__all__ = [
    "cross",
    "dot",
    "einsum",
    "inner",
    "kron",
    "matmul",
    "matvec",
    "outer",
    "tensordot",
    "trace",
    "vdot",
    "vecdot",
    "vecmat",
]
