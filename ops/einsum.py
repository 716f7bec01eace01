"""Contractions: einsum and tensordot. Every product of two tensors is one call of BLAS.

Labels are integers: each axis of an operand has one, axes with equal labels are multiplied element by element, and
labels that the output lacks are summed over.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.node import Node
from numbagrad.engine.tensor import Tensor
from numbagrad.ops.conversion import astype, conj
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import Primitive, primitive
from numbagrad.ops.reductions import sum as sum_over
from numbagrad.ops.registry import stands_for
from numbagrad.ops.saved import check_saved
from numbagrad.ops.shape import reshape, transpose

Labels = tuple[int, ...]


# ----- Two operands -----


@primitive(name="contract")
def _contract(x, y, *, left, right, out):
    """Product of two tensors. No label repeats, and each is in two at least of `left`, `right` and `out`."""
    summed = [label for label in (left if x.size >= y.size else right) if label in left and label in right and label not in out]
    if not summed:
        return np.multiply(_spaced(x, left, out), _spaced(y, right, out))
    batch = [label for label in out if label in left and label in right]
    rows = [label for label in out if label not in right]
    columns = [label for label in out if label not in left]
    if out == (*batch, *columns, *rows):
        x, y, left, right, rows, columns = y, x, right, left, columns, rows
    a = _as_matrices(x, left, batch, rows, summed)
    b = _as_matrices(y, right, batch, summed, columns)
    order = [*batch, *rows, *columns]
    sizes = dict(zip(left, x.shape, strict=True)) | dict(zip(right, y.shape, strict=True))
    product = (a @ b).reshape([sizes[label] for label in order])
    return product if order == list(out) else product.transpose([order.index(label) for label in out])


def _as_matrices(x: np.ndarray, labels: Labels, batch: list[int], rows: list[int], columns: list[int]) -> np.ndarray:
    """`x` with its axes in three groups, of which the last two are one axis each."""
    x = x.transpose([labels.index(label) for label in (*batch, *rows, *columns)])
    stacked, first = x.shape[: len(batch)], x.shape[len(batch) : len(batch) + len(rows)]
    return x.reshape(*stacked, math.prod(first), math.prod(x.shape[len(batch) + len(rows) :]))


def _spaced(x: np.ndarray, labels: Labels, out: Labels) -> np.ndarray:
    """`x` with an axis for each label of `out`, of length one where it has none."""
    x = x.transpose([labels.index(label) for label in out if label in labels])
    return x[tuple(slice(None) if label in labels else None for label in out)]


@_contract.vjp("x")
def _(g, y, left, right, out):
    return _contract(g, conj(y), left=out, right=right, out=left)


@_contract.vjp("y")
def _(g, x, left, right, out):
    return _contract(conj(x), g, left=left, right=out, out=right)


def push_product(op: Primitive, node: Node, tangents: Sequence[Tensor | None]) -> Tensor:
    """Forward mode of a product of two tensors: the product rule."""
    call = node.statics
    saved = dict(zip(call.saved_names, check_saved(node, call.saved_names), strict=True))
    terms = []
    if tangents[0] is not None:
        terms.append(op(tangents[0], saved["in", 1], **call.settings))
    if tangents[1] is not None:
        terms.append(op(saved["in", 0], tangents[1], **call.settings))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


@_contract.jvp
def _(node, tangents):
    return push_product(_contract, node, tangents)


# ----- One operand -----


@primitive(linear=True, view=True, name="take_diagonals")
def _take_diagonals(x, *, labels, out):
    """Diagonals over the axes with equal labels."""
    return np.einsum(x, labels, out)


@_take_diagonals.vjp("x")
def _(g, x_shape, labels, out):
    return _put_diagonals(g, shape=x_shape, labels=labels, out=out)


@primitive(linear=True, name="put_diagonals")
def _put_diagonals(x, *, shape, labels, out):
    made = np.zeros(shape, x.dtype)
    np.einsum(made, labels, out)[...] = x
    return made


@_put_diagonals.vjp("x")
def _(g, labels, out):
    return _take_diagonals(g, labels=labels, out=out)


def _transposed(x: Tensor, labels: Labels, out: Labels) -> Tensor:
    return x if labels == out else transpose(x, [labels.index(label) for label in out])


# ----- Subscripts -----

_ELLIPSIS_LABELS = 1000
"""Labels of the axes that an ellipsis stands for, counted from the last: -1 is 1000, -2 is 999. No letter is one."""


def _ellipsis_labels(count: int) -> Labels:
    return tuple(range(_ELLIPSIS_LABELS - count, _ELLIPSIS_LABELS))


@functools.lru_cache(maxsize=1024)
def _read_subscripts(subscripts: str, ndims: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of the operands and of the output."""
    written = subscripts.replace(" ", "")
    inputs, arrow, output = written.partition("->")
    terms = [_read_term(term, subscripts) for term in inputs.split(",")]
    return _complete(terms, _read_term(output, subscripts) if arrow else None, ndims, subscripts)


def _read_term(term: str, subscripts: str) -> list[Any]:
    """Labels of one term, with Ellipsis for the dots."""
    before, dots, after = term.partition("...")
    for letter in before + after:
        if not (letter.isascii() and letter.isalpha()):
            raise ValueError(f"einsum: invalid subscript {letter!r} in {subscripts!r}, subscripts must be letters")
    return [*map(ord, before), *([Ellipsis] if dots else []), *map(ord, after)]


def _complete(
    terms: Sequence[list[Any]], output: list[Any] | None, ndims: Sequence[int], written: Any
) -> tuple[tuple[Labels, ...], Labels]:
    """Check the terms against the operands, name the axes of ellipses, and work out an output that was left out."""
    if len(terms) != len(ndims):
        raise ValueError(f"einsum: {written!r} has subscripts for {len(terms)} operands, got {len(ndims)}")
    inputs = tuple(_expand(t, ndim, nr, written) for nr, (t, ndim) in enumerate(zip(terms, ndims, strict=True)))
    dots = [ndim - len(t) + 1 for t, ndim in zip(terms, ndims, strict=True) if Ellipsis in t]
    widest = _ellipsis_labels(max(dots, default=0))
    if output is None:
        flat = [label for labels in inputs for label in labels]
        return inputs, (*widest, *sorted(label for label in {*flat} - {*widest} if flat.count(label) == 1))
    if widest and Ellipsis not in output:
        raise ValueError(f"einsum: the output of {written!r} must have an ellipsis, as the operands have")
    out = tuple(label for part in output for label in (widest if part is Ellipsis else (part,)))
    for label in out:
        if out.count(label) > 1 or not any(label in labels for labels in inputs):
            raise ValueError(f"einsum: output subscript {_name(label)} of {written!r} must be in an operand, and once in the output")
    return inputs, out


def _expand(term: list[Any], ndim: int, nr: int, written: Any) -> Labels:
    missing = ndim - len(term) + 1 if Ellipsis in term else ndim - len(term)
    if missing < 0 or (missing and Ellipsis not in term):
        raise ValueError(f"einsum: operand {nr} has {ndim} axes, but {written!r} has {len(term) - (Ellipsis in term)} subscripts for it")
    return tuple(label for part in term for label in (_ellipsis_labels(missing) if part is Ellipsis else (part,)))


def _name(label: int) -> str:
    """How the user wrote a label."""
    return repr(chr(label)) if 64 < label < 128 else str(label)


def _read_sublists(args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The form (operand, labels, operand, labels, ..., output labels): operands, and terms with the output's or None."""
    operands, terms = list(args[0 : len(args) - 1 : 2]), [list(t) for t in args[1::2]]
    output = list(args[-1]) if len(args) % 2 else None
    for label in (label for t in (*terms, output or []) for label in t):
        if label is not Ellipsis and not (isinstance(label, (int, np.integer)) and 0 <= label < 52):
            raise ValueError(f"einsum: a label must be Ellipsis or an integer from 0 to 51, got {label!r}")
    return operands, [*terms, output]


# ----- Any number of operands -----


def _sizes(tensors: Sequence[Tensor], inputs: Sequence[Labels]) -> dict[int, int]:
    """Length of each label; length one stretches."""
    sizes: dict[int, int] = {}
    for t, labels in zip(tensors, inputs, strict=True):
        for label, n in zip(labels, t.shape, strict=True):
            known = sizes.get(label, 1)
            if n != known and n != 1 and known != 1:
                shapes = " ".join(str(t.shape) for t in tensors)
                raise ValueError(f"einsum: subscript {_name(label)} stands for axes of lengths {known} and {n}; operands have shapes {shapes}")
            sizes[label] = n if known == 1 else known
    return sizes


def _without_repeats(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    unique = tuple(dict.fromkeys(labels))
    if unique == labels:
        return x, labels
    for label in unique:
        lengths = {n for n, other in zip(x.shape, labels, strict=True) if other == label}
        if len(lengths) > 1:
            raise ValueError(f"einsum: the axes of subscript {_name(label)} in one operand have lengths {sorted(lengths)}, shape {x.shape}")
    return _take_diagonals(x, labels=_small(labels, labels), out=_small(unique, labels)), unique


def _small(labels: Labels, known: Iterable[int]) -> list[int]:
    """Labels from 0 on, as NumPy wants them."""
    numbers = {label: nr for nr, label in enumerate(dict.fromkeys(known))}
    return [numbers[label] for label in labels]


def _reduced(x: Tensor, labels: Labels, sizes: Mapping[int, int], before: set[int], others: set[int]) -> tuple[Tensor, Labels]:
    """Leave out axes of length one that other operands have too, and sum over those that nobody else has."""
    dropped = {k for k, n in zip(labels, x.shape, strict=True) if n == 1 and (sizes[k] > 1 or k in before or k not in others)}
    if dropped:
        x = reshape(x, tuple(n for k, n in zip(labels, x.shape, strict=True) if k not in dropped))
        labels = tuple(k for k in labels if k not in dropped)
    alone = tuple(axis for axis, k in enumerate(labels) if k not in others)
    if alone:
        x = sum_over(x, axis=alone)
        labels = tuple(k for k in labels if k in others)
    return x, labels


def _evaluate(tensors: Sequence[Tensor], inputs: Sequence[Labels], out: Labels, optimize: Any) -> Tensor:
    sizes = _sizes(tensors, inputs)
    terms = [_without_repeats(t, labels) for t, labels in zip(tensors, inputs, strict=True)]
    for nr, (x, labels) in enumerate(terms):
        before = {k for _, other in terms[:nr] for k in other}
        others = {*out, *(k for i, (_, other) in enumerate(terms) for k in other if i != nr)}
        terms[nr] = _reduced(x, labels, sizes, before, others)
    for step in _path(terms, out, optimize):
        group = [terms.pop(nr) for nr in sorted(step, reverse=True)][::-1]
        terms.append(functools.reduce(lambda a, b: _pair(a, b, [*terms, *group], out), group))
    ((x, labels),) = terms if len(terms) == 1 else [functools.reduce(lambda a, b: _pair(a, b, terms, out), terms)]
    return _transposed(x, labels, out)


def _pair(a: tuple[Tensor, Labels], b: tuple[Tensor, Labels], around: Sequence[tuple[Tensor, Labels]], out: Labels) -> tuple[Tensor, Labels]:
    raise NotImplementedError
