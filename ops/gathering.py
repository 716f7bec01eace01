"""Gathering and placing: what every index does, and its gradient.

Basic indices (integers, slices, None, Ellipsis) give views, arrays gather. The gradient of a gather adds into the
places it took from (`_scatter`), or just places where no position can occur twice (`_place`); each is the gradient of
the other, so derivatives of any order follow.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.layout import is_half
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.node import Node
from numbagrad.engine.tensor import Tensor, become_view, edge_of, wrap
from numbagrad.jit import memory
from numbagrad.jit.convert import convert
from numbagrad.jit.scatter import gather, scatter_add
from numbagrad.ops.batching import batching_rules
from numbagrad.ops.operands import as_tensor, holds_tensor, unbroadcast
from numbagrad.ops.primitive import Call, Primitive, primitive
from numbagrad.ops.registry import register

_BASIC = frozenset({int, slice, type(None), type(Ellipsis)})
_ALL = slice(None)


# ----- Indices -----


def plain_index(index: Any, writing: bool = False) -> Any:
    """`index` as NumPy takes it: tensors and lists become C-contiguous arrays, other integers ints.

    For `writing`, arrays are also broadcast against each other: only then is it sure that NumPy assigns in the order of
    the elements, so that the last value for a place stays.
    """
    if type(index) is not tuple:
        return _plain(index)
    items = tuple(map(_plain, index))
    return _broadcast_arrays(items) if writing else items


def _plain(item: Any) -> Any:
    kind = type(item)
    if kind is slice:
        return slice(_bound(item.start), _bound(item.stop), _bound(item.step))
    if kind in _BASIC:
        return item
    if isinstance(item, Tensor):
        item = item._data
    elif isinstance(item, np.integer):
        return int(item)
    elif isinstance(item, (list, tuple)):
        item = _array_of(item)
    elif isinstance(item, (bool, np.bool_)):
        item = np.asarray(item)
    # NumPy assigns in memory order.
    return item.copy() if isinstance(item, np.ndarray) and not item.flags.c_contiguous else item


def _bound(value: Any) -> int | None:
    return value if value is None else operator.index(value)


def _array_of(items: Any) -> np.ndarray:
    """A list in an index; an empty one holds integers."""
    if holds_tensor(items):
        items = [_array_of(i) if isinstance(i, (list, tuple)) else np.asarray(as_tensor(i)._data) for i in items]
    made = np.asarray(items)
    return made if made.size else made.astype(np.intp)


def _broadcast_arrays(items: tuple[Any, ...]) -> tuple[Any, ...]:
    arrays = [i for i in items if isinstance(i, np.ndarray) and i.dtype.kind in "iu"]
    if len({a.shape for a in arrays}) < 2:
        return items
    try:
        wide = iter([np.array(a) for a in np.broadcast_arrays(*arrays)])
    except ValueError:
        # NumPy refuses them with its own words.
        return items
    return tuple(next(wide) if isinstance(i, np.ndarray) and i.dtype.kind in "iu" else i for i in items)


def _is_basic(index: tuple[Any, ...]) -> bool:
    return all(type(i) in _BASIC for i in index)


def _is_unique(index: Any) -> bool:
    """Whether no position can be taken twice."""
    items = index if type(index) is tuple else (index,)
    return all(type(i) in _BASIC or (isinstance(i, np.ndarray) and (i.dtype.kind == "b" or i.size == 1)) for i in items)


def _axes_of(item: Any) -> int:
    """How many axes of the array an item of an index is about."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype.kind == "b" else 1


def _leading(index: Any, ndim: int) -> tuple[Any, ...]:
    """The index without the full slices at its end, and with its Ellipsis written out."""
    items = list(index) if type(index) is tuple else [index]
    at = next((k for k, item in enumerate(items) if item is Ellipsis), None)
    if at is not None:
        items[at : at + 1] = [_ALL] * (ndim - sum(map(_axes_of, items)))
    while items and type(items[-1]) is slice and items[-1] == _ALL:
        items.pop()
    return tuple(items)


def _places(shape: tuple[int, ...], index: Any) -> tuple[np.ndarray, int]:
    """Which rows an index takes, in the shape that it gives them, and how many elements make a row.

    Rows run over the axes that the index leaves whole at the end, and are numbered over all others; negative numbers
    count from the end.
    """
    items = _leading(index, len(shape))
    named = sum(map(_axes_of, items))
    rows, width = shape[:named], math.prod(shape[named:])
    first = items[0] if len(items) == 1 else None
    if isinstance(first, np.ndarray) and first.dtype.kind == "i":
        return first, width
    return np.arange(math.prod(rows)).reshape(rows)[items], width


def along_index(shape: tuple[int, ...], places: np.ndarray, axis: int) -> Any:
    """The index that takes `places` along one axis and every position along the others."""
    if len(shape) == 1:
        return places
    lines = [np.arange(n).reshape((-1,) + (1,) * (len(shape) - k - 1)) for k, n in enumerate(shape)]
    return (*lines[:axis], places, *lines[axis + 1 :])


# ----- Primitives -----


class _Indexing(Primitive):
    """A primitive with a setting `index`, whose arrays it copies when recorded: they may change before backward."""

    def _record(self, tensors: Any, outs: Any, settings: Any, single: bool) -> None:
        super()._record(tensors, outs, {**settings, "index": _copied(settings["index"])}, single)


class Viewing(Primitive):
    """A linear primitive of one tensor that views its memory where it can. Its rule saves nothing.

    Called directly, without the loops over tensors and outputs that `Primitive` needs.
    """

    def __init__(self, forward: Callable[..., Any], name: str) -> None:
        super().__init__(forward, linear=True, view=True, name=name)

    def __call__(self, x: Any, **settings: Any) -> Tensor:
        if type(x) is not Tensor:
            x = as_tensor(x, "x")
            if type(x) is not Tensor and (out := batching_rules().primitive(self, [x], settings)) is not None:
                return out
        memory = x._data
        data = self.forward(memory, **settings)
        if type(data) is not np.ndarray:
            # A scalar of NumPy's.
            return self._recorded(x, wrap(np.asarray(data)), settings)
        out = self._recorded(x, wrap(data), settings)
        base = data.base
        if base is memory or data is memory or (base is not None and base is memory.base):
            become_view(out, x, lambda base: self(base, **settings))
        return out

    def _recorded(self, x: Tensor, out: Tensor, settings: Any) -> Tensor:
        if x._requires_grad and grad_enabled():
            out._node = Node(self, (edge_of(x),), (), out._layout, Call(settings, (x._layout,), ()))
            out._requires_grad = True
        return out

    def _run_rules(self, node: Node, grad: Any) -> Any:
        (layout,) = node.statics.layouts
        rule, names, _ = self.rules["x"]
        given = {"g": grad, "x_shape": layout.shape, **node.statics.settings}
        return (unbroadcast(rule(*[given[name] for name in names]), layout),)


def viewing(name: str) -> Callable[[Callable[..., Any]], Viewing]:
    """Declare a `Viewing` from its forward on arrays."""
    return lambda forward: register(Viewing(forward, name))


class _Slicing(Viewing):
    """The basic index, whose backward is written out: loops over ``x[i]`` are common."""

    def _run_rules(self, node: Node, grad: Any) -> Any:
        if grad_enabled():
            return super()._run_rules(node, grad)
        layout = node.statics.layouts[0]
        out = zeros(layout.shape, layout.dtype, grad.size)
        out[node.statics.settings["index"]] = grad._data
        return (wrap(out),)


def _copied(index: Any) -> Any:
    if type(index) is tuple:
        return tuple(i.copy() if isinstance(i, np.ndarray) else i for i in index)
    return index.copy() if isinstance(index, np.ndarray) else index


def zeros(shape: tuple[int, ...], dtype: Any, written: int | None = None) -> np.ndarray:
    """Zeros, in memory that is kept for reuse if it is large.

    Where few items are going to be `written`, fresh memory is better: the system zeroes its pages when they are used.
    """
    size = math.prod(shape)
    if size * dtype.itemsize < memory.POOLED_FROM_BYTES or (written is not None and written * 8 < size):
        return np.zeros(shape, dtype)
    out = memory.empty(shape, dtype)
    out.fill(0)
    return out


def _read_slice(x: np.ndarray, *, index: Any) -> np.ndarray:
    return x[index]


_slice = register(_Slicing(_read_slice, "getitem"))


@_slice.vjp("x")
def _(g, x_shape, index):
    return _place(g, shape=x_shape, index=index)


def _read(x: np.ndarray, *, index: Any) -> np.ndarray:
    if isinstance(index, np.ndarray) and x.flags.c_contiguous and x.ndim:
        # Four times as fast as indexing.
        if index.dtype.kind == "b" and index.shape == x.shape:
            return x.reshape(-1).take(index.reshape(-1).nonzero()[0])
        if index.dtype.kind == "i":
            return gather(x, index)
    return x[index]


_gather = register(_Indexing(_read, linear=True, view=False, name="gather"))


@_gather.vjp("x")
def _(g, x_shape, index):
    return (_place if _is_unique(index) else _scatter)(g, shape=x_shape, index=index)


def _write(g: np.ndarray, *, shape: tuple[int, ...], index: Any) -> np.ndarray:
    out = zeros(shape, g.dtype, g.size)
    if isinstance(index, np.ndarray) and index.dtype.kind == "b" and index.shape == shape:
        out.reshape(-1)[index.reshape(-1).nonzero()[0]] = g
    else:
        out[index] = g
    return out


_place = register(_Indexing(_write, linear=True, view=False, name="place"))


@_place.vjp("g")
def _(g, index):
    return getitem(g, index)


def _add_up(g: np.ndarray, *, shape: tuple[int, ...], index: Any) -> np.ndarray:
    half = is_half(g.dtype)
    out = zeros(shape, np.dtype(np.float32) if half else g.dtype, g.size)
    if out.size and g.size:
        places, width = _places(shape, index)
        rows = convert(g, out.dtype) if half else g
        scatter_add(places.reshape(-1), rows.reshape(places.size, width), out.reshape(-1, width))
    return convert(out, g.dtype) if half else out


_scatter = register(_Indexing(_add_up, linear=True, view=False, name="scatter"))


@_scatter.vjp("g")
def _(g, index):
    return getitem(g, index)


def _overwrite(x: np.ndarray, values: np.ndarray, *, index: Any) -> np.ndarray:
    out = x.copy()
    out[index] = values
    return out


index_put = register(_Indexing(_overwrite, linear=True, view=False, name="index_put"))
"""``index_put(x, values, index=index)``: a copy of `x` with ``x[index] = values``. Of several values for one place the
last stays, and alone gets a gradient."""


@index_put.vjp("x")
def _(g, index):
    return _erase(g, index=index)


@index_put.vjp("values")
def _(g, values_shape, index):
    from numbagrad.ops.shape import reshape

    part, kept = getitem(g, index), _kept(g.shape, index)
    if kept is not None:
        part = _mask(part, kept=kept.reshape(kept.shape + (1,) * (part.ndim - kept.ndim)))
    # Assignment takes values with more axes of length one in front than the place has.
    missing = len(values_shape) - part.ndim
    return reshape(part, (1,) * missing + part.shape) if missing > 0 else part


def _kept(shape: tuple[int, ...], index: Any) -> np.ndarray | None:
    """Which values stay after an assignment, or None for all."""
    if _is_unique(index):
        return None
    places, width = _places(shape, index)
    if places.size * width == 0:
        return None
    numbers = np.arange(places.size)
    last = np.full(math.prod(shape) // width, -1)
    last[places.reshape(-1)] = numbers
    kept = last[places] == numbers.reshape(places.shape)
    return None if kept.all() else kept


def _zero_at(g: np.ndarray, *, index: Any) -> np.ndarray:
    out = g.copy()
    out[index] = 0
    return out


_erase = register(_Indexing(_zero_at, linear=True, view=False, name="erase"))


@_erase.vjp("g")
def _(g, index):
    return _erase(g, index=index)


@primitive(linear=True, name="mask")
def _mask(x, *, kept):
    return np.where(kept, x, x.dtype.type(0))


@_mask.vjp("x")
def _(g, kept):
    return _mask(g, kept=kept)


# ----- x[index] -----


def getitem(x: Tensor, index: Any) -> Tensor:
    """``x[index]`` with every index that NumPy knows: basic ones give views.

    A full set of integers gives a copy of the element, as in NumPy, where it is a scalar.
    """
    kind = type(index)
    try:
        if kind in _BASIC or (kind is tuple and _is_basic(index)):
            return _slice(x, index=index)
        index = plain_index(index)
        if type(index) in _BASIC or (type(index) is tuple and _is_basic(index)):
            return _slice(x, index=index)
        return _gather(x, index=index)
    except IndexError as error:
        raise IndexError(f"{error}; the index is for a tensor of shape {x.shape}") from None


__all__ = ["along_index", "getitem", "index_put", "plain_index", "viewing", "zeros"]
