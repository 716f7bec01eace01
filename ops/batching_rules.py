"""Batching rules: what an op does when its operands have an axis of entries in front.

An elementwise op broadcasts. A primitive has a rule in `RULES` by its name, mostly one that moves the axes among its
settings by one; without a rule it goes through the entries one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.batching import Batched, Level, entries_of, innermost, run_batched
from numbagrad.ops.shape import broadcast_to, moveaxis, reshape, squeeze, transpose

Settings = dict[str, Any]
Rule = Callable[[Any, Sequence[Tensor], Settings], Any]
"""``(op, values, settings)``, where every value has the entries along its first axis."""

RULES: dict[str, Rule] = {}


def elementwise(op: Any, operands: Sequence[Any]) -> Any:
    """An elementwise op of which at least one operand is batched."""
    level = innermost(operands)
    return run_batched(_broadcast, level, op, operands) if level else None


def _broadcast(level: Level, op: Any, operands: Sequence[Any]) -> Any:
    from numbagrad.ops.operands import operand

    given = [operand(v, p) for v, p in zip(operands, op.params, strict=True)]
    ndim = max(v.ndim for v in given if isinstance(v, Tensor))
    return op.fast(*[_aligned(v, level, ndim) for v in given])


def _aligned(value: Any, level: Level, ndim: int) -> Any:
    """The value of a batched operand, its entries in the axis before the last `ndim`."""
    if type(value) is not Batched or value._level is not level:
        return value
    return _raised(value._value, ndim)


def _raised(entries: Tensor, ndim: int) -> Tensor:
    """`entries` whose items have `ndim` axes, by axes of length 1."""
    missing = ndim + 1 - entries.ndim
    if missing <= 0:
        return entries
    return reshape(entries, (entries.shape[0], *[1] * missing, *entries.shape[1:]))


def primitive(op: Any, tensors: Sequence[Tensor], settings: Settings) -> Any:
    """A primitive of which at least one tensor is batched."""
    level = innermost(tensors)
    return run_batched(_run, level, op, tensors, settings) if level else None


def _run(level: Level, op: Any, tensors: Sequence[Tensor], settings: Settings) -> Any:
    special = SPECIAL.get(op.name)
    if special is not None:
        out = special(op, level, tensors)
        if out is not None:
            return out
    rule = RULES.get(op.name)
    values = [entries_of(t, level) for t in tensors]
    out = None if rule is None else rule(op, values, settings)
    return _one_by_one(op, values, settings, level) if out is None else out


def _one_by_one(op: Any, values: Sequence[Tensor], settings: Settings, level: Level) -> Any:
    from numbagrad.ops.joining import stack

    if level.size == 0:
        raise ValueError(f"vmap: {op.name} has no batching rule, and without entries its result has no shape")
    level.slow(op.name)
    rows = [op(*[v[i] for v in values], **settings) for i in range(level.size)]  # type: ignore[index]
    if isinstance(rows[0], tuple):
        return tuple(stack(list(column)) for column in zip(*rows, strict=True))
    return stack(rows)


# ----- Rules of many -----


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def note(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return note


@_rule(
    "round_decimals", "modulus", "astype", "clone", "real", "imag", "conj", "root_or_zero", "modf", "arcsinh_complex"
)
@_rule("inv", "pinv", "det", "slogdet", "from_triangle", "cholesky", "qr", "svd", "svdvals")
@_rule("eigh", "eigvalsh", "eig", "eigvals", "divide_by_pairs")
def _in_front(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    """Ops on items, or on the matrices in the last two axes."""
    return op(*values, **settings)


@_rule("sum", "mean", "prod", "max", "min", "logsumexp", "softmax", "log_softmax", "var", "std", "euclidean_norm")
@_rule("power_norm", "logsumexp_backward", "softmax_backward", "log_softmax_backward", "var_backward")
@_rule("extreme_backward", "mean_of_extremes", "spread")
def _over_axes(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    moved = {**settings, "axes": tuple(a + 1 for a in settings["axes"])}
    if "shape" in settings:
        moved["shape"] = (values[0].shape[0], *settings["shape"])
    return op(*values, **moved)


@_rule("unstack", "stack", "concatenate", "cumsum", "cumprod", "products_before", "products_of_others", "recurrence")
@_rule("shift", "diff", "diff_transposed", "repeat", "fft", "rfft", "irfft", "resize_axis", "roll")
@_rule("unwrap", "add_reduceat")
def _along_axis(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    axis = settings["axis"]
    if axis is None:
        return None
    moved = tuple(a + 1 for a in axis) if isinstance(axis, tuple) else axis + 1
    return op(*values, **{**settings, "axis": moved})


@_rule("diagonal", "trace", "onto_diagonal")
def _over_two_axes(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    moved = {**settings, "axis1": settings["axis1"] + 1, "axis2": settings["axis2"] + 1}
    if settings["axis1"] < 0 or settings["axis2"] < 0:
        return None
    if "shape" in settings:
        moved["shape"] = (values[0].shape[0], *settings["shape"])
    return op(*values, **moved)


# ----- Rules of single ops -----


@_rule("tril", "triu")
def _triangle(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    return op(*values, **settings) if values[0].ndim > 2 else None


@_rule("reshape")
def _reshape(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    shape = settings["shape"]
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    x = values[0]
    if settings["order"] != "C" or (-1 in shape and not x.size):
        return None
    return op(x, shape=(x.shape[0], *shape), order="C")


@_rule("transpose")
def _transpose(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    ndim = values[0].ndim - 1
    axes = settings["axes"]
    order = range(ndim)[::-1] if axes is None else [a % ndim for a in axes]
    return op(values[0], axes=(0, *(a + 1 for a in order)))


@_rule("broadcast_to")
def _broadcast_to(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    shape = settings["shape"]
    return op(_raised(values[0], len(shape)), shape=(values[0].shape[0], *shape))


@_rule("mask")
def _mask(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    return op(values[0], **settings) if np.ndim(settings["kept"]) < values[0].ndim else None


@_rule("pad")
def _pad(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    value = settings["values"]
    if np.ndim(value):
        return None
    return op(values[0], pad_width=((0, 0), *settings["pad_width"]), values=value)


@_rule("tile")
def _tile(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    return op(values[0], times=(1, *settings["times"]))


@_rule("contract")
def _contract(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    entry = 1 + max((*settings["left"], *settings["right"], *settings["kept"]), default=0)
    return op(*values, **{key: (entry, *labels) for key, labels in settings.items()})


@_rule("take_diagonals", "put_diagonals")
def _diagonals(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    entry = 1 + max((*settings["labels"], *settings["kept"]), default=0)
    moved = {key: (entry, *settings[key]) for key in ("labels", "kept")}
    if "shape" in settings:
        moved["shape"] = (values[0].shape[0], *settings["shape"])
    return op(values[0], **moved)


@_rule("cross", "nextafter")
def _aligned_all(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    ndim = max(v.ndim for v in values) - 1
    return op(*[_raised(v, ndim) for v in values], **settings)


@_rule("divide_or_zero")
def _divide_or_zero(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    return _aligned_all(op, values, settings) if np.ndim(settings["tolerance"]) == 0 else None


@_rule("bessel_i")
def _of_one_order(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    return op(*values, **settings) if np.ndim(settings["order"]) == 0 else None


@_rule("solve")
def _solve(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    a, b = values
    if b.ndim == 2:
        return squeeze(op(a, reshape(b, (*b.shape, 1))), -1)
    return _aligned_all(op, values, settings)


@_rule("matmul")
def _matmul(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    x, y = values
    row, column = x.ndim == 2, y.ndim == 2
    if row:
        x = reshape(x, (x.shape[0], 1, x.shape[1]))
    if column:
        y = reshape(y, (*y.shape, 1))
    out = _aligned_all(op, (x, y), settings)
    dropped = tuple([-2] * row + [-1] * column)
    return squeeze(out, dropped) if dropped else out


def _shared_matmul(op: Any, level: Level, tensors: Sequence[Tensor]) -> Any:
    """A matrix that all entries share needs no copies: one product for all of them."""
    x, y = tensors
    own_x, own_y = (type(t) is Batched and t._level is level for t in tensors)
    if own_x and not own_y and 0 < y.ndim <= 2 and x.ndim > 0:
        return op(x._value, y)  # type: ignore[attr-defined]
    if own_y and not own_x and x.ndim == 2 and y.ndim == 1:
        return op(y._value, transpose(x))  # type: ignore[attr-defined]
    return None


SPECIAL: dict[str, Callable[[Any, Level, Sequence[Tensor]], Any]] = {"matmul": _shared_matmul}
"""Rules that look at which operands are batched; None leaves it to the others."""


# ----- Indices -----


def _items(index: Any) -> tuple[Any, ...]:
    return index if type(index) is tuple else (index,)


def _advanced_in_front(index: tuple[Any, ...]) -> int | None:
    """Where NumPy puts the axes of separated arrays in front of all others: their number."""
    arrays = [k for k, i in enumerate(index) if isinstance(i, (np.ndarray, int)) and not isinstance(i, bool)]
    if not any(isinstance(index[k], np.ndarray) for k in arrays) or arrays[-1] - arrays[0] + 1 == len(arrays):
        return None
    shapes = [index[k].nonzero()[0].shape if index[k].dtype == bool else index[k].shape
              for k in arrays if isinstance(index[k], np.ndarray)]  # fmt: skip
    return len(np.broadcast_shapes(*shapes))


@_rule("getitem", "gather")
def _getitem(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    index = _items(settings["index"])
    out = op(values[0], index=(slice(None), *index))
    front = _advanced_in_front(index)
    return out if front is None else moveaxis(out, front, 0)


@_rule("place", "scatter")
def _place(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    index = _items(settings["index"])
    front = _advanced_in_front(index)
    g = values[0] if front is None else moveaxis(values[0], 0, front)
    return op(g, shape=(g.shape[0], *settings["shape"]), index=(slice(None), *index))


@_rule("erase")
def _erase(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    return op(values[0], index=(slice(None), *_items(settings["index"])))


@_rule("index_put")
def _index_put(op: Any, values: Sequence[Tensor], settings: Settings) -> Any:
    index = _items(settings["index"])
    if _advanced_in_front(index) is not None:
        return None
    x, new = values
    shape = np.broadcast_to(np.empty(()), x.shape[1:])[index].shape
    new = _raised(new, len(shape))
    if new.ndim > len(shape) + 1:
        return None
    return op(x, broadcast_to(new, (x.shape[0], *shape)), index=(slice(None), *index))


__all__ = ["RULES", "elementwise", "primitive"]
