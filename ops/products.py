"""Products: matrices and vectors multiplied and contracted. BLAS gets transposes as views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.layout import dense_layout
from numbagrad.engine.mode import mode
from numbagrad.engine.node import Node, next_seq
from numbagrad.engine.tensor import Tensor, edge_of
from numbagrad.jit import memory
from numbagrad.ops.arithmetic import multiply
from numbagrad.ops.conversion import conj
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for
from numbagrad.ops.saved import check_saved, versions_of

_new = object.__new__
_POOLED_ITEMS = memory.POOLED_FROM_BYTES // 8


# ---------------------------------------------------------------------- views that rules need
@primitive(linear=True, view=True)
def _swap_last(x):
    return np.swapaxes(x, -1, -2)


@_swap_last.vjp("x")
def _(g):
    return _swap_last(g)


@primitive(linear=True, view=True)
def _reshape(x, *, shape):
    return np.reshape(x, shape)


@_reshape.vjp("x")
def _(g, x_shape):
    return _reshape(g, shape=x_shape)


def _adjoint(x: Tensor) -> Tensor:
    """Conjugate transpose of the last two axes."""
    return _swap_last(conj(x))


def _as_rows(x: Tensor) -> Tensor:
    """All axes but the last in one."""
    return _reshape(x, shape=(-1, x.shape[-1]) if x.size else (int(np.prod(x.shape[:-1])), x.shape[-1]))


def _column(x: Tensor) -> Tensor:
    return _reshape(x, shape=(*x.shape, 1))


def _row(x: Tensor) -> Tensor:
    return _reshape(x, shape=(*x.shape[:-1], 1, x.shape[-1]))


# ---------------------------------------------------------------------- matmul
@primitive(name="matmul")
def _matmul(x, y):
    try:
        if x.ndim > 2 and 0 < y.ndim <= 2 and x.size and x.flags.c_contiguous and x.shape[-1] == y.shape[0]:
            # One call of BLAS for the whole stack.
            return np.matmul(x.reshape(-1, x.shape[-1]), y).reshape(x.shape[:-1] + y.shape[1:])
        return np.matmul(x, y)
    except ValueError:
        raise ValueError(
            f"matmul: cannot multiply shapes {x.shape} and {y.shape}; the last axis of the first must be as long as "
            "the last but one (or only) axis of the second, the axes before must broadcast, and neither may be 0-d"
        ) from None


@_matmul.vjp("x")
def _(g, y, x_shape):
    if len(y.shape) == 1:
        return multiply(_column(g), conj(y)) if len(x_shape) > 1 else multiply(g, conj(y))
    if len(x_shape) == 1:
        return _vector(_matmul(conj(y), _column(g)))
    return _matmul(g, _adjoint(y))


@_matmul.vjp("y")
def _(g, x, y_shape):
    if len(x.shape) == 1:
        return multiply(_column(conj(x)), _row(g)) if len(y_shape) > 1 else multiply(g, conj(x))
    if len(y_shape) == 1:
        return _matmul(_adjoint(_as_rows(x)), _reshape(g, shape=(g.size,)))
    if len(y_shape) == 2 and len(x.shape) > 2:
        return _matmul(_adjoint(_as_rows(x)), _as_rows(g))
    return _matmul(_adjoint(x), g)


def _vector(x: Tensor) -> Tensor:
    """Without the last axis, which has length 1."""
    return _reshape(x, shape=x.shape[:-1])


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
        if mode.enabled:
            return (
                _matmul(grad, _swap_last(y)) if self.wants[0] else None,
                _matmul(_swap_last(x), grad) if self.wants[1] else None,
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
        if saved is None or any(t._storage is not None for t in saved):
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
        if a.dtype is b.dtype and a.dtype.kind == "f" and len(a.shape) == 2 == len(b.shape) and a.shape[1] == b.shape[0]:
            out = _product(x1._data, x2._data)
            if (x1._requires_grad or x2._requires_grad) and mode.enabled:
                _record_plain(out, x1, x2)
            return out
    return _matmul(as_tensor(x1, "x1"), as_tensor(x2, "x2"))


_OPERANDS = (np.ndarray, Tensor, list, tuple)


def _operator(self: Tensor, other: Any) -> Any:
    return matmul(self, other) if isinstance(other, _OPERANDS) else NotImplemented


def _reflected(self: Tensor, other: Any) -> Any:
    return matmul(other, self) if isinstance(other, _OPERANDS) else NotImplemented


METHODS: dict[str, Callable[..., Any]] = {"__matmul__": _operator, "__rmatmul__": _reflected}

__all__ = ["matmul"]
