"""Writing in place: augmented assignment, ``x[index] = value`` and the methods that end in an underscore.

What is written is also what is recorded: the tensor gets the history of the result. A write through a view gives its
base a new history (`write_view`), and all views renew theirs from there when they are next used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.layout import code_of
from numbagrad.engine.mode import grad_enabled, mode
from numbagrad.engine.node import Storage, watches
from numbagrad.engine.tensor import Tensor, adopt, check_writable, share, snapshot, wrap
from numbagrad.engine.watch import user_line
from numbagrad.ops import arithmetic, conversion, indexing, shape
from numbagrad.ops.elementwise import Elementwise
from numbagrad.ops.operands import NUMBERS, as_tensor
from numbagrad.ops.primitive import primitive


@primitive(name="write_view")
def _write_view(base, part, *, steps):
    out = base.copy()
    _walk(wrap(out), steps)._data[...] = part
    return out


@_write_view.vjp("base")
def _(g, part_shape, part_dtype, steps):
    return _write_view(g, wrap(np.zeros(part_shape, part_dtype)), steps=steps)


@_write_view.vjp("part")
def _(g, steps):
    return conversion.clone(_walk(g, steps))


def _walk(base: Tensor, steps: tuple[Callable[[Any], Any], ...]) -> Tensor:
    for step in steps:
        base = step(base)
    return base


# ----- how every write ends -----


def _records(x: Tensor, *others: Any) -> bool:
    """Whether a write of `others` into `x` has to be recorded; raises where that cannot be."""
    storage = x._storage
    if storage is not None and type(storage) is not Storage:
        storage.refuse_writes()
    if not mode.enabled:
        return False
    check_writable(x)
    return x.requires_grad or any(isinstance(o, Tensor) and o.requires_grad for o in others)


def _written(x: Tensor) -> Tensor:
    storage = share(x)
    storage.version += 1
    if watches:
        storage.written_at = user_line()
    return x


def _take_over(x: Tensor, result: Tensor) -> Tensor:
    """`x`, whose memory holds the values of `result` by now, gets its history."""
    view = x._view
    if view is None:
        _written(x)
        adopt(x, result)
        return x
    before = snapshot(view.base)
    after = wrap(view.base._data)
    _write_view._record([before, result], [after], {"steps": view.steps}, True)
    _written(x)
    adopt(view.base, after)
    return x


def _fits(x: Tensor, value: Tensor, what: str) -> None:
    if value.shape != x.shape:
        raise ValueError(
            f"{what}: the result has shape {value.shape} and does not fit into the tensor of shape {x.shape}; "
            "write it without the in-place operator to get a new tensor"
        )
    if not np.can_cast(value.dtype, x.dtype, "same_kind"):
        raise TypeError(
            f"{what}: the result has dtype {value.dtype}, which cannot be cast to the tensor's {x.dtype} in place; "
            "convert the tensor first with astype"
        )


def _compute_and_store(x: Tensor, compute: Callable[[Tensor], Tensor], what: str, record: bool) -> Tensor:
    """Overwrite `x` with what `compute` makes of it."""
    before = snapshot(x) if record else wrap(x._data)
    if record and watches:
        # Whoever watches may keep the old value without the node's knowing.
        before._data, before._storage = before._data.copy(), None
    result = compute(before)
    _fits(x, result, what)
    if record:
        _keep_if_saved(before, result)
    x._data[...] = result._data
    if not record:
        return _written(x)
    return _take_over(x, result if result.dtype == x.dtype else conversion.astype(result, x.dtype))


def _keep_if_saved(before: Tensor, result: Tensor) -> None:
    """Give the old value memory of its own where backward needs it, as torch does for its in-place ops."""
    node = result.grad_fn
    if node is not None and any(value is before for value in node.saved):
        before._data = before._data.copy()
        before._storage = None


# ----- augmented assignment -----


def inplace(op: Any, symbol: str) -> Callable[..., Tensor]:
    """The in-place form of an op of one or two operands."""

    tables = op.tables if isinstance(op, Elementwise) and len(op.params) == 2 else {"TT": [None], "TN": [None]}
    tensors, numbers = tables["TT"], tables["TN"]

    def write(self: Tensor, *others: Any) -> Tensor:
        if (
            len(others) == 1
            and not (self._requires_grad and grad_enabled())
            and _write_fast(self, others[0], tensors, numbers)
        ):
            return self
        operands = [o if type(o) in NUMBERS else as_tensor(o) for o in others]
        record = _records(self, *operands)
        if not record and _run_into(op, self, operands):
            return _written(self)
        return _compute_and_store(self, lambda x: op(x, *operands), symbol, record)

    write.__name__ = write.__qualname__ = symbol
    write.__doc__ = f"In-place version of :func:`numbagrad.{op.name}`."
    return write


def _write_fast(x: Tensor, other: Any, tensors: list[Any], numbers: list[Any]) -> bool:
    """The usual case: `x` is small and dense, and `other` a number or another small tensor of its layout."""
    layout, kind = x._layout, type(other)
    if kind is Tensor and other._layout is layout and not (other._requires_grad and grad_enabled()):
        entry, value = tensors[layout.code], other._data
        if entry is None or _owner(value) is _owner(x._data):
            return False
    elif kind is float or kind is int:
        entry, value = numbers[layout.code], other
        if entry is None:
            return False
    else:
        return False
    if watches or type(share(x)) is not Storage:
        return False
    entry(x._data, value, x._data)
    _written(x)
    return True


def _owner(array: np.ndarray) -> Any:
    """Whose memory an array is: two arrays of different owners do not overlap."""
    base = array.base
    return array if base is None else base


def _run_into(op: Any, x: Tensor, operands: list[Any]) -> bool:
    """Let the kernel write into the memory of `x`; False where only a copy will do."""
    if not isinstance(op, Elementwise) or code_of(x.dtype) < 0 or not x._layout.dense or not x._data.flags.writeable:
        return False
    values = [o if type(o) in NUMBERS else o._data for o in operands]
    same = all(isinstance(v, (int, float)) or (v.dtype == x.dtype and _may_be_read(v, x)) for v in values)
    if not same or any(np.broadcast_shapes(np.shape(v), x.shape) != x.shape for v in values):
        return False
    op.map([x._data, *values], x.shape, x.dtype, out=[x._data])
    op._resolve([x, *operands], x.dtype, x.shape)
    return True


def _may_be_read(array: np.ndarray, x: Tensor) -> bool:
    """Whether reading `array` while `x` is written, element by element, reads each before it is written."""
    return (
        array is x._data
        or (array.shape == x.shape and array.ctypes.data == x._data.ctypes.data)
        or not np.may_share_memory(array, x._data)
    )


def inplace_power(self: Tensor, exponent: Any) -> Tensor:
    """In-place version of ``**``."""
    return _compute_and_store(self, lambda x: x**exponent, "**=", _records(self, exponent))


# ----- assignment -----


def setitem(x: Tensor, index: Any, value: Any) -> None:
    """``x[index] = value`` with NumPy's meaning, recorded."""
    value = as_tensor(value)
    index = indexing.plain_index(index, writing=True)
    record = _records(x, value)
    if value.dtype.kind == "c" and x.dtype.kind != "c":
        raise TypeError(f"cannot assign complex values into a tensor of dtype {x.dtype}; convert it first with astype")
    before = snapshot(x) if record else None
    x._data[index] = value._data
    if before is None:
        _written(x)
        return
    after = wrap(x._data)
    value = value if value.dtype == x.dtype else conversion.astype(value, x.dtype)
    indexing.index_put._record([before, value], [after], {"index": index}, True)
    _take_over(x, after)


def copy_(self: Tensor, source: Any) -> Tensor:
    """Overwrite with the values of `source`, broadcast and cast to this tensor; the gradient goes to `source`."""
    source = as_tensor(source)
    record = _records(self, source)
    value = shape.broadcast_to(source, self.shape)
    if not np.can_cast(value.dtype, self.dtype, "unsafe"):
        raise TypeError(f"copy_: {source.dtype} cannot be cast to {self.dtype}")
    value = conversion.astype(value, self.dtype)
    if value.requires_grad and value.is_leaf:
        value = conversion.clone(value)
    if record and not value.requires_grad:
        return _overwrite(self, value)
    return _compute_and_store(self, lambda _: value, "copy_", record)


def _overwrite(x: Tensor, value: Tensor) -> Tensor:
    """Write constants: what was there has no influence any more, but a base keeps its other parts."""
    x._data[...] = value._data
    return _take_over(x, value) if x._view is not None else _forget(x)


def _forget(x: Tensor) -> Tensor:
    _written(x)
    adopt(x, wrap(x._data))
    return x


def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to `value`."""
    return copy_(self, value)


def zero_(self: Tensor) -> Tensor:
    """Set every element to 0."""
    return copy_(self, 0)


def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Keep every element between bounds, in place."""
    return _compute_and_store(self, lambda x: arithmetic.clip(x, min, max), "clamp_", _records(self, min, max))


_BINARY = {
    "add": (arithmetic.add, "+="),
    "subtract": (arithmetic.subtract, "-="),
    "multiply": (arithmetic.multiply, "*="),
    "divide": (arithmetic.divide, "/="),
    "remainder": (arithmetic.remainder, "%="),
}

METHODS: dict[str, Any] = {
    "__iadd__": inplace(*_BINARY["add"]),
    "__isub__": inplace(*_BINARY["subtract"]),
    "__imul__": inplace(*_BINARY["multiply"]),
    "__itruediv__": inplace(*_BINARY["divide"]),
    "__imod__": inplace(*_BINARY["remainder"]),
    "__ipow__": inplace_power,
    "__setitem__": setitem,
    "add_": inplace(arithmetic.add, "add_"),
    "sub_": inplace(arithmetic.subtract, "sub_"),
    "mul_": inplace(arithmetic.multiply, "mul_"),
    "div_": inplace(arithmetic.divide, "div_"),
    "pow_": inplace_power,
    "copy_": copy_,
    "fill_": fill_,
    "zero_": zero_,
    "clamp_": clamp_,
}
__all__ = ["METHODS", "inplace", "setitem"]
