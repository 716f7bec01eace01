"""NumPy's ufuncs on Tensors: calls with ``out=``, ``where=``, ``dtype=``; reduce, accumulate, outer, reduceat and at.

A ufunc that has a reduction of its own name uses it; any other is applied step by step, so that the gradient is that
of the steps. Ufuncs through which no gradient flows are NumPy's on plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops import cumulative, products, reductions
from numbagrad.ops.arithmetic import where
from numbagrad.ops.conversion import astype
from numbagrad.ops.gathering import getitem, plain_index
from numbagrad.ops.indexing import take_along_axis
from numbagrad.ops.joining import concatenate, stack
from numbagrad.ops.logic import Flat
from numbagrad.ops.operands import as_tensor, broadcast_shape
from numbagrad.ops.passing import without_graph, wrapped
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import NUMPY
from numbagrad.ops.shape import broadcast_to, moveaxis, reshape

REDUCE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: reductions.sum,
    np.multiply: reductions.prod,
    np.maximum: reductions.max,
    np.minimum: reductions.min,
    np.logical_and: reductions.all,
    np.logical_or: reductions.any,
}
"""The reduction that is a ufunc's ``reduce``."""

ACCUMULATE: dict[np.ufunc, Callable[..., Any]] = {np.add: cumulative.cumsum, np.multiply: cumulative.cumprod}

_USUAL = {"casting": "same_kind", "order": "K", "subok": True, "signature": None}
"""Keyword arguments of every ufunc, and the values that say nothing."""


def op_of(ufunc: np.ufunc) -> Callable[..., Any]:
    """Our op for a ufunc."""
    op = products.matmul if ufunc is np.matmul else NUMPY.get(ufunc)
    if op is None:
        raise TypeError(unsupported(f"numpy.{ufunc.__name__}"))
    return op


def unsupported(name: str) -> str:
    """What is said where a gradient would be lost."""
    return (
        f"{name} does not work on Tensors (its gradient would be lost); "
        "for the value alone pass tensor.detach().numpy()"
    )


# ----- Calls -----


def call(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ufunc(*inputs, **kwargs)``."""
    op = op_of(ufunc)
    out, mask, dtype = kwargs.pop("out", None), kwargs.pop("where", True), kwargs.pop("dtype", None)
    unusual = {k: v for k, v in kwargs.items() if k in ("axes", "axis", "keepdims") or v != _USUAL.get(k, v)}
    if unusual and ufunc not in (np.vecdot, np.matvec, np.vecmat):
        raise TypeError(
            f"numpy.{ufunc.__name__} on a Tensor does not take {', '.join(unusual)}; cast with astype first"
        )
    if dtype is not None:
        inputs = tuple(astype(i, dtype) for i in inputs)
    result = op(*inputs, **unusual)
    if mask is not True:
        result = _where(ufunc, mask, result, out)
    return result if out is None else into(out, result, ufunc.__name__)


def _where(ufunc: np.ufunc, mask: Any, result: Any, out: Any) -> Any:
    if out is None or isinstance(result, tuple):
        raise TypeError(
            f"numpy.{ufunc.__name__} on a Tensor takes where only together with out, which has the other values; "
            "or choose with numbagrad.where"
        )
    return where(mask, result, as_tensor(out[0], "out"))


def into(out: tuple[Any, ...], result: Any, name: str) -> Any:
    """``out=``: a Tensor is overwritten; for an ndarray the result is returned instead, so that ``a += t`` makes `a`
    a Tensor and the gradient lives."""
    if isinstance(result, tuple):
        return tuple(r if o is None else into((o,), r, name) for o, r in zip(out, result, strict=True))
    (target,) = out
    if result.shape != target.shape or not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise ValueError(
            f"numpy.{name}: the result of shape {result.shape} and dtype {result.dtype} does not fit into "
            f"out of shape {target.shape} and dtype {target.dtype}"
        )
    return target.copy_(result) if isinstance(target, Tensor) else result


# ----- Reducing -----


def reduce(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ufunc.reduce(array, axis=0, dtype=None, keepdims=False, initial=..., where=True)``."""
    names = ("array", "axis", "dtype", "out", "keepdims", "initial", "where")
    given = {"axis": 0, **dict(zip(names[1:], inputs[1:], strict=False)), **kwargs}
    out = given.pop("out", None)
    out = out if isinstance(out, tuple) or out is None else (out,)
    kept = _given(given)
    op = op_of(ufunc)
    if ufunc in REDUCE:
        made = _reduced_by_name(ufunc, inputs[0], kept)
    elif type(op) is Flat:
        made = wrapped(ufunc.reduce(without_graph(inputs[0]), **{k: without_graph(v) for k, v in kept.items()}))
    else:
        made = _reduced_by_steps(ufunc, as_tensor(inputs[0]), **kept)
    return made if out is None or out == (None,) else into(out, made, f"{ufunc.__name__}.reduce")


def _given(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments without those that say what is usual anyway."""
    usual = {"dtype": None, "keepdims": False, "initial": np._NoValue, "where": True}
    return {k: v for k, v in kwargs.items() if k not in usual or v is not usual[k]}


def _reduced_by_name(ufunc: np.ufunc, x: Any, kwargs: dict[str, Any]) -> Any:
    dtype = kwargs.pop("dtype", None)
    if dtype is not None and ufunc in (np.add, np.multiply):
        kwargs["dtype"] = dtype
    elif dtype is not None:
        x = astype(x, dtype)
    return REDUCE[ufunc](x, **kwargs)


def _reduced_by_steps(
    ufunc: np.ufunc, x: Tensor, axis: Any, dtype: Any = None, keepdims: bool = False, initial: Any = None, **other: Any
) -> Tensor:
    if other:
        raise TypeError(f"numpy.{ufunc.__name__}.reduce on a Tensor does not take {', '.join(other)}")
    if ufunc.nin != 2 or ufunc.nout != 1:
        raise ValueError("reduce only supported for binary functions")
    x = x if dtype is None else astype(x, dtype)
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(normalize_axis_index(one, x.ndim) for one in axes)
    if len(axes) > 1 and ufunc.identity is None and ufunc not in (np.hypot, np.logaddexp, np.fmax, np.fmin):
        raise ValueError(
            f"reduction operation '{ufunc.__name__}' is not reorderable, so at most one axis may be specified"
        )
    for one in sorted(axes, reverse=True):
        x = _fold(ufunc, x, one)
    if initial is not None:
        x = op_of(ufunc)(initial, x)
    return reshape(x, _kept(x.shape, axes)) if keepdims else x


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    made = list(shape)
    for one in sorted(axes):
        made.insert(one, 1)
    return tuple(made)


def _fold(ufunc: np.ufunc, x: Tensor, axis: int) -> Tensor:
    items = _items(x, axis)
    if not items:
        if ufunc.identity is None:
            raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
        return wrap(np.full(x.shape[:axis] + x.shape[axis + 1 :], ufunc.identity, x.dtype))
    op, total = op_of(ufunc), items[0]
    for item in items[1:]:
        total = op(total, item)
    return total


def _items(x: Tensor, axis: int) -> list[Tensor]:
    moved = moveaxis(x, axis, 0)
    return [moved[i] for i in range(moved.shape[0])]


# ----- Accumulating -----


def accumulate(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ufunc.accumulate(array, axis=0, dtype=None)``."""
    given = {"axis": 0, **dict(zip(("axis", "dtype", "out"), inputs[1:], strict=False)), **kwargs}
    out = given.pop("out", None)
    out = out if isinstance(out, tuple) or out is None else (out,)
    x, op = as_tensor(inputs[0]), op_of(ufunc)
    if x.ndim == 0:
        raise TypeError("cannot accumulate on a scalar")
    axis, dtype = normalize_axis_index(given["axis"], x.ndim), given.get("dtype")
    if ufunc in ACCUMULATE:
        made = ACCUMULATE[ufunc](x, axis=axis, dtype=dtype)
    else:
        x = x if dtype is None else astype(x, dtype)
        if ufunc in (np.maximum, np.minimum):
            made = _running_extreme(ufunc, x, axis)
        elif type(op) is Flat or x.size == 0:
            made = wrap(ufunc.accumulate(x._data, axis))
        else:
            made = _running(op, x, axis)
    return made if out is None or out == (None,) else into(out, made, f"{ufunc.__name__}.accumulate")


def _running_extreme(ufunc: np.ufunc, x: Tensor, axis: int) -> Tensor:
    """A gather: each result came from the last place that held it."""
    tops = ufunc.accumulate(x._data, axis)
    attained = (x._data == tops) | np.isnan(x._data)
    numbers = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return take_along_axis(x, np.maximum.accumulate(np.where(attained, numbers, 0), axis), axis)


def _running(op: Callable[..., Any], x: Tensor, axis: int) -> Tensor:
    items = _items(x, axis)
    totals = items[:1]
    for item in items[1:]:
        totals.append(op(totals[-1], item))
    return stack(totals, axis=axis)


# ----- Outer products and segments -----


def outer(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ufunc.outer(x, y)``: every element with every one."""
    x, y = map(as_tensor, inputs)
    return call(ufunc, (reshape(x, x.shape + (1,) * y.ndim), y), kwargs)


@primitive(linear=True, name="add_reduceat")
def _add_segments(x, *, starts, axis):
    return np.add.reduceat(x, starts, axis)


@_add_segments.vjp("x")
def _(g, x_shape, starts, axis):
    lengths = np.diff(starts, append=x_shape[axis])
    places = np.repeat(np.arange(starts.size), lengths)
    spread = getitem(g, (slice(None),) * axis + (places,))
    if not starts.size or starts[0] == 0:
        return spread
    zeros = np.zeros((*x_shape[:axis], starts[0], *x_shape[axis + 1 :]), g.dtype)
    return concatenate([zeros, spread], axis=axis)


def reduceat(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ufunc.reduceat(array, indices, axis=0, dtype=None)``: one result per segment."""
    given = {"axis": 0, **dict(zip(("indices", "axis", "dtype", "out"), inputs[1:], strict=False)), **kwargs}
    out = given.get("out")
    out = out if isinstance(out, tuple) or out is None else (out,)
    x, starts = as_tensor(inputs[0]), np.asarray(plain_index(given["indices"]))
    axis = normalize_axis_index(given["axis"], x.ndim)
    x = x if given.get("dtype") is None else astype(x, given["dtype"])
    plain = ufunc.reduceat(x._data, starts, axis)
    if type(op_of(ufunc)) is Flat or not x.requires_grad:
        made = wrap(plain)
    elif ufunc is np.add and (np.diff(starts) > 0).all():
        made = _add_segments(x, starts=starts, axis=axis)
    else:
        made = stack([_segment(ufunc, x, axis, a, b) for a, b in _ends(starts, x.shape[axis])], axis=axis)
    return made if out is None or out == (None,) else into(out, made, f"{ufunc.__name__}.reduceat")


def _ends(starts: np.ndarray, n: int) -> Iterator[tuple[int, int]]:
    """First and end of each segment; one that does not rise is a single element."""
    stops = [*starts[1:].tolist(), n]
    return ((a, b if b > a else a + 1) for a, b in zip(starts.tolist(), stops, strict=True))


def _segment(ufunc: np.ufunc, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return reduce(ufunc, (getitem(x, (slice(None),) * axis + (slice(start, stop),)),), {"axis": axis})


# ----- In place at indices -----


def at(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``ufunc.at(tensor, indices, b)``: as often as an index occurs."""
    target, index, *operand = inputs
    if not isinstance(target, Tensor):
        raise TypeError(
            f"{ufunc.__name__}.at: the target is an ndarray and an operand a Tensor, whose gradient would be lost: "
            "make the target a Tensor with numbagrad.asarray"
        )
    places = np.arange(target.size).reshape(target.shape)[plain_index(index)]
    values = [broadcast_to(as_tensor(v), places.shape).reshape(-1) for v in operand]
    _check_at(target, places, operand, ufunc)
    flat = places.reshape(-1)
    if ufunc in (np.add, np.subtract) and target._layout.kind in "fc":
        total = _gathered(astype(values[0], target.dtype), flat, target)
        target[...] = target + total if ufunc is np.add else target - total
        return
    for turn in _turns(flat):
        where_to = np.unravel_index(flat[turn], target.shape)
        target[where_to] = call(ufunc, (target[where_to], *[v[turn] for v in values]), {})


def _check_at(target: Tensor, places: np.ndarray, operand: list[Any], ufunc: np.ufunc) -> None:
    for value in operand:
        shape = as_tensor(value).shape
        if broadcast_shape(f"{ufunc.__name__}.at", [places.shape, shape]) != places.shape:
            raise ValueError(
                f"{ufunc.__name__}.at: shape {shape} does not broadcast to the {places.shape} of the indices"
            )


def _gathered(values: Tensor, flat: np.ndarray, target: Tensor) -> Tensor:
    """What is added to each element of the target."""
    return reshape(_sums_at(values, places=flat, size=target.size), target.shape)


@primitive(linear=True, name="sums_at")
def _sums_at(values, *, places, size):
    out = np.zeros(size, values.dtype)
    np.add.at(out, places, values)
    return out


@_sums_at.vjp("values")
def _(g, places):
    return getitem(g, places)


def _turns(flat: np.ndarray) -> Iterator[np.ndarray]:
    """The positions of each index's first occurrence, then of the second, and so on."""
    order = np.argsort(flat, kind="stable")
    in_order = flat[order]
    starts = np.r_[True, in_order[1:] != in_order[:-1]] if flat.size else np.zeros(0, bool)
    occurrence = np.arange(flat.size) - np.maximum.accumulate(np.where(starts, np.arange(flat.size), 0))
    for turn in range(int(occurrence.max(initial=-1)) + 1):
        yield np.sort(order[occurrence == turn])


METHODS_OF_UFUNCS: dict[str, Callable[..., Any]] = {
    "__call__": call,
    "accumulate": accumulate,
    "at": at,
    "outer": outer,
    "reduce": reduce,
    "reduceat": reduceat,
}
