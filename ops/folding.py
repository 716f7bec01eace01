"""Folding axes away: what all reductions share, and the sum and the mean, which the gradients of all ops need."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.anomaly import check_values
from numbagrad.engine.layout import CODES, FAST_DTYPES, dense_layout
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.node import Node, inference, mark_new, watches
from numbagrad.engine.tensor import Tensor, edge_of, wrap
from numbagrad.jit import backend, rows
from numbagrad.jit.expr import symbol
from numbagrad.jit.reduce import Fold, RowProgram, Stage, kernel
from numbagrad.ops.conversion import astype
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import OPS, stands_for

Axes = tuple[int, ...]

Unset: Any = np._NoValue
"""What NumPy's signatures have where an argument was not given."""


# ----- What the user may pass -----


def axes_of(axis: Any, ndim: int) -> Axes:
    """The axes that `axis` means, as a sorted tuple of numbers from 0 on; NumPy's errors for others."""
    if axis is None:
        return tuple(range(ndim))
    if ndim == 0 and axis in (0, -1):
        # NumPy reduces a number over the axis that it does not have.
        return ()
    if not isinstance(axis, tuple):
        return (normalize_axis_index(axis, ndim),)
    axes = tuple(sorted(normalize_axis_index(a, ndim) for a in axis))
    if len(set(axes)) < len(axes):
        raise ValueError(f"duplicate value in 'axis': {axis} for {ndim} axes")
    return axes


def refuse_out(out: Any, op: str) -> None:
    """A result that requires grad cannot live in memory that was given."""
    if out is not None:
        raise TypeError(f"{op}: out= is not supported, results are new Tensors; write y[...] = {op}(x) instead")


def mask_of(where: Any, shape: tuple[int, ...], op: str) -> np.ndarray:
    """The mask `where`, broadcast to `shape`."""
    mask = as_tensor(where, "where")._data
    if mask.dtype != bool:
        raise TypeError(f"{op}: where must be boolean, got {mask.dtype}; compare, as in where=(x > 0)")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"{op}: where of shape {mask.shape} does not broadcast to the shape {shape} of a") from None


def masked(x: Tensor, where: Any, fill: Any, op: str) -> Tensor:
    """`x`, with `fill` where the mask `where` is not set."""
    if where is Unset or where is True:
        return x
    mask, fill = mask_of(where, x.shape, op), np.asarray(fill, x.dtype)
    if x._layout.kind not in "fc":
        return wrap(np.where(mask, x._data, fill))
    return OPS["where"](wrap(mask), x, fill)


def count_of(shape: tuple[int, ...], axes: Axes) -> int:
    """How many items are folded into one."""
    return math.prod(shape[axis] for axis in axes)


def kept_shape(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    """The shape with length 1 for the axes that are folded."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def with_axes(x: Tensor, shape: tuple[int, ...], axes: Axes) -> Tensor:
    """A result, with the folded axes of `shape` put back as length 1."""
    from numbagrad.ops.shape import reshape

    wanted = kept_shape(shape, axes)
    return x if x.shape == wanted else reshape(x, wanted)


# ----- Running row programs -----


def run(
    program: RowProgram,
    items: Sequence[np.ndarray],
    axes: Axes,
    keepdims: bool = False,
    per_row: Sequence[np.ndarray] = (),
    numbers: Sequence[float] = (),
) -> list[np.ndarray]:
    """What `program` puts out."""
    return rows.run(program, items, axes, keepdims=keepdims, rows=per_row, numbers=numbers)


def fold(
    program: RowProgram,
    otherwise: Callable[..., Any],
    x: np.ndarray,
    axes: Axes,
    keepdims: bool,
    numbers: Sequence[float] = (),
) -> Any:
    """One number per row: by the kernel for floats, by NumPy's function for other dtypes and empty arrays."""
    if x.size <= _DENSE_AT_MOST and not x.flags.c_contiguous:
        # That costs less than finding out how to walk over it.
        x = x.copy(order="C")
    if rows.runs_natively(x) and x.size and axes:
        return run(program, [x], axes, keepdims, numbers=numbers)[0]
    with np.errstate(all="ignore"):
        return otherwise(x, axis=axes, keepdims=keepdims)


def folding(name: str, kind: str) -> RowProgram:
    """The program of one fold."""
    return RowProgram(name, ("x",), (Stage((Fold("result", kind, symbol("x")),)),), ("result",))


# ----- Sum -----

SUM = folding("sum", "sum")


@primitive(linear=True, name="sum")
def sum_axes(x, *, axes, keepdims):
    """The sum over `axes`."""
    return fold(SUM, np.sum, x, axes, keepdims)


@sum_axes.vjp("x")
def _(g, x_shape, axes, keepdims):
    return spread(g, shape=x_shape, axes=axes, keepdims=keepdims)


@primitive(linear=True)
def spread(x, *, shape, axes, keepdims):
    """The transpose of the sum: each number for all items of its row. Large results take no memory."""
    if not keepdims:
        x = x.reshape(kept_shape(shape, axes))
    if math.prod(shape) > _DENSE_AT_MOST:
        return np.broadcast_to(x, shape)
    wide = np.empty(shape, x.dtype)
    wide[...] = x
    return wide


@spread.vjp("x")
def _(g, axes, keepdims):
    return sum_axes(g, axes=axes, keepdims=keepdims)


# Small gradients are written out: ops are faster on arrays of one layout.
_DENSE_AT_MOST = 16384


@stands_for(np.sum)
def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = Unset,
    initial: Any = Unset,
    where: Any = Unset,
) -> Tensor:
    """Sum over axes.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to sum over; None for all.
    dtype : dtype, optional
        Convert to this first. Default: the dtype of `a`, but at least the platform's int for integers and booleans.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axes, with length 1.
    initial : array_like, optional
        Added to the sum.
    where : array_like of bool, optional
        Sum these only.

    Returns
    -------
    Tensor
        float32 is added up in float64, whatever the order of the memory.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.sum(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    tensor([4., 6.])
    """
    if axis is dtype is out is None and keepdims is initial is where is Unset and type(a) is Tensor:
        entry = _whole_sum.entries[a._layout.code]
        if entry is not None:
            return _whole_sum(a, entry)
    refuse_out(out, "sum")
    x = as_tensor(a, "a")
    x = masked(x if dtype is None else astype(x, dtype), where, 0, "sum")
    total = sum_axes(x, axes=axes_of(axis, x.ndim), keepdims=keepdims is not Unset and bool(keepdims))
    _whole_sum.resolve(x._layout.code)
    return total if initial is Unset else total + initial


# ----- Mean -----

MEAN = RowProgram(
    "mean",
    ("x",),
    (Stage((Fold("total", "sum", symbol("x")),), after=(("mean", symbol("total") / symbol("count")),)),),
    ("mean",),
    numbers=("count",),
)


@primitive(linear=True, name="mean")
def mean_axes(x, *, axes, keepdims):
    """The mean over `axes`; of nothing it is nan."""
    count = count_of(x.shape, axes)

    def by_numpy(x: np.ndarray, axis: Axes, keepdims: bool) -> np.ndarray:
        return np.asarray(np.sum(x, axis=axis, keepdims=keepdims) / np.asarray(count, x.dtype))

    return fold(MEAN, by_numpy, x, axes, keepdims, (count,))


@mean_axes.vjp("x")
def _(g, x_shape, axes, keepdims):
    return spread(g / count_of(x_shape, axes), shape=x_shape, axes=axes, keepdims=keepdims)


@stands_for(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = Unset, *, where: Any = Unset
) -> Tensor:
    """Mean over axes.

    Parameters
    ----------
    a : array_like
    axis : int or tuple of int, optional
        The axes to average over; None for all.
    dtype : dtype, optional
        Convert to this first. Default: the dtype of `a`, float64 for integers and booleans.
    out : None
        Not supported.
    keepdims : bool, optional
        Keep the axes, with length 1.
    where : array_like of bool, optional
        Average these only.

    Returns
    -------
    Tensor
        nan where nothing was averaged; no warning is given.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.mean(ng.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1)
    tensor([1.5, 3.5])
    """
    if axis is dtype is out is None and keepdims is where is Unset and type(a) is Tensor:
        entry = _whole_mean.entries[a._layout.code]
        if entry is not None:
            return _whole_mean(a, entry)
    refuse_out(out, "mean")
    x = inexact(as_tensor(a, "a"), dtype)
    axes, keep = axes_of(axis, x.ndim), keepdims is not Unset and bool(keepdims)
    if where is Unset or where is True:
        _whole_mean.resolve(x._layout.code)
        return mean_axes(x, axes=axes, keepdims=keep)
    count = np.sum(mask_of(where, x.shape, "mean"), axis=axes, keepdims=keep)
    return sum_axes(masked(x, where, 0, "mean"), axes=axes, keepdims=keep) / np.asarray(count, x.dtype)


def inexact(x: Tensor, dtype: Any = None) -> Tensor:
    """`x` as floating or complex numbers, of `dtype` if one is given."""
    if dtype is not None:
        return astype(x, dtype)
    return x if x._layout.kind in "fc" else astype(x, np.float64)


# ----- Sum and mean of a whole small array, which end most programs -----


class _Whole:
    """The fold of all items of a small array to one number, with nothing looked up; also the op of its nodes."""

    def __init__(self, op: Any, program: RowProgram) -> None:
        self.name = op.name
        self.op = op
        self.program = program
        # By layout code; the last one, for layouts that have no code, stays None.
        self.entries: list[Any] = [None] * (CODES + 1)
        backend.on_switch(self._forget)

    def resolve(self, code: int) -> None:
        """Find the entry point for layouts of this code."""
        if code >= 0 and self.entries[code] is None and backend.current() != "reference":
            self.entries[code] = kernel(self.program, "whole", FAST_DTYPES[code].name).entry

    def _forget(self) -> None:
        self.entries[:] = [None] * len(self.entries)

    def __call__(self, x: Tensor, entry: Callable[..., Any]) -> Tensor:
        layout = x._layout
        scalar = dense_layout((), layout.dtype)
        out = np.empty((), scalar.dtype)
        if self.program.numbers:
            entry(x._data, layout.size, out)
        else:
            entry(x._data, out)
        tensor = object.__new__(Tensor)
        tensor._data = out
        tensor._layout = scalar
        tensor._grad = tensor._storage = tensor._view = tensor._extra = tensor._node = None
        tensor._requires_grad = False
        if x._requires_grad and grad_enabled():
            tensor._node = Node(self, (edge_of(x),), (), scalar, layout)
            tensor._requires_grad = True
            if watches:
                check_values(tensor._node, (x,), (tensor,))
        elif inference:
            mark_new(tensor)
        return tensor

    def vjp(self, node: Node, grad: Tensor) -> Sequence[Tensor | None]:
        """The gradient for every item."""
        layout = node.statics
        if grad_enabled() or grad._layout is not node.layout:
            shape = layout.shape
            grad = grad / layout.size if self.program.numbers else grad
            return (spread(grad, shape=shape, axes=tuple(range(len(shape))), keepdims=False),)
        wide = np.empty(layout.shape, layout.dtype)
        wide.fill(grad._data / layout.size if self.program.numbers else grad._data)
        return (wrap(wide),)

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Tensor:
        """The fold is linear."""
        (tangent,) = tangents
        assert tangent is not None
        return self.op(tangent, axes=tuple(range(tangent.ndim)), keepdims=False)


_whole_sum, _whole_mean = _Whole(sum_axes, SUM), _Whole(mean_axes, MEAN)
