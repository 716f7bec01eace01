"""Contractions: einsum and tensordot. Every product of two tensors is one call of BLAS.

Labels are integers: each axis of an operand has one, axes with equal labels are multiplied element by element, and
labels that the output lacks are summed over.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
Term = tuple[Tensor, Labels]
Path = Sequence[tuple[int, ...]]


# ----- Two operands -----


@primitive(name="contract", wide="all", casts="low")
def _contract(x, y, *, left, right, kept):
    """Product of two tensors. No label repeats, and each is in two at least of `left`, `right` and `kept`."""
    plan = _plan(left, right, kept, x.size >= y.size)
    if plan is None:
        return np.multiply(_spaced(x, left, kept), _spaced(y, right, kept))
    if plan.swapped:
        x, y = y, x
    a, b = x.transpose(plan.axes_a), y.transpose(plan.axes_b)
    rows, columns = a.shape[: plan.rows], b.shape[plan.columns :]
    if not plan.one_each:
        k = math.prod(a.shape[plan.rows :])
        stack = a.shape[: plan.batch]
        a = a.reshape(*stack, math.prod(rows[plan.batch :]), k)
        b = b.reshape(*stack, k, math.prod(columns))
    product = a @ b if plan.batch else a.dot(b)
    if not plan.one_each:
        product = product.reshape(rows + columns)
    return product if plan.order is None else product.transpose(plan.order)


class _Plan(NamedTuple):
    """How to bring two tensors to matrices, stacked along `batch` axes."""

    swapped: bool
    axes_a: list[int]
    axes_b: list[int]
    batch: int
    rows: int
    """Number of axes of the first that are batch or rows; the rest is summed over."""
    columns: int
    """Number of axes of the second that are batch or summed over."""
    one_each: bool
    order: list[int] | None
    """Axes of the output among those of the product; None when they are the same."""


@functools.lru_cache(maxsize=1024)
def _plan(left: Labels, right: Labels, out: Labels, left_larger: bool) -> _Plan | None:
    """The plan, or None when nothing is summed over."""
    # The larger operand sets the order, so that it is less likely to be copied.
    summed = [k for k in (left if left_larger else right) if k in left and k in right and k not in out]
    if not summed:
        return None
    batch = [k for k in out if k in left and k in right]
    rows, columns = [k for k in out if k not in right], [k for k in out if k not in left]
    swapped = out == (*batch, *columns, *rows)
    if swapped:
        left, right, rows, columns = right, left, columns, rows
    order = (*batch, *rows, *columns)
    return _Plan(
        swapped,
        [left.index(k) for k in (*batch, *rows, *summed)],
        [right.index(k) for k in (*batch, *summed, *columns)],
        len(batch),
        len(batch) + len(rows),
        len(batch) + len(summed),
        len(rows) == len(columns) == len(summed) == 1,
        None if order == out else [order.index(k) for k in out],
    )


def _spaced(x: np.ndarray, labels: Labels, out: Labels) -> np.ndarray:
    """`x` with an axis for each label of `out`, of length one where it has none."""
    x = x.transpose([labels.index(label) for label in out if label in labels])
    return x[tuple(slice(None) if label in labels else None for label in out)]


@_contract.vjp("x")
def _(g, y, left, right, kept):
    return _contract(g, conj(y), left=kept, right=right, kept=left)


@_contract.vjp("y")
def _(g, x, left, right, kept):
    return _contract(conj(x), g, left=left, right=kept, kept=right)


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
def _take_diagonals(x, *, labels, kept):
    """Diagonals over the axes with equal labels."""
    return np.einsum(x, labels, kept)


@_take_diagonals.vjp("x")
def _(g, x_shape, labels, kept):
    return _put_diagonals(g, shape=x_shape, labels=labels, kept=kept)


@primitive(linear=True, name="put_diagonals")
def _put_diagonals(x, *, shape, labels, kept):
    made = np.zeros(shape, x.dtype)
    np.einsum(made, labels, kept)[...] = x
    return made


@_put_diagonals.vjp("x")
def _(g, labels, kept):
    return _take_diagonals(g, labels=labels, kept=kept)


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
            raise ValueError(
                f"einsum: output subscript {_name(label)} of {written!r} must be in an operand, and once in the output"
            )
    return inputs, out


def _expand(term: list[Any], ndim: int, nr: int, written: Any) -> Labels:
    missing = ndim - len(term) + 1 if Ellipsis in term else ndim - len(term)
    if missing < 0 or (missing and Ellipsis not in term):
        raise ValueError(
            f"einsum: operand {nr} has {ndim} axes, but {written!r} has "
            f"{len(term) - (Ellipsis in term)} subscripts for it"
        )
    return tuple(label for part in term for label in (_ellipsis_labels(missing) if part is Ellipsis else (part,)))


def _name(label: int) -> str:
    """How the user wrote a label."""
    return repr(chr(label)) if 64 < label < 128 else str(label)


def _read_sublists(args: Sequence[Any], ndims: Sequence[int]) -> tuple[tuple[Labels, ...], Labels]:
    """The same for the form (operand, labels, operand, labels, ..., labels of the output)."""
    terms, output = [list(t) for t in args[1::2]], list(args[-1]) if len(args) % 2 else None
    for label in (label for t in (*terms, output or []) for label in t):
        if label is not Ellipsis and not (isinstance(label, (int, np.integer)) and 0 <= label < _ELLIPSIS_LABELS // 2):
            raise ValueError(f"einsum: a label must be Ellipsis or an integer from 0 on, got {label!r}")
    return _complete(terms, output, ndims, [*terms, *([output] if output is not None else [])])


# ----- Any number of operands -----


def _sizes(tensors: Sequence[Tensor], inputs: Sequence[Labels]) -> dict[int, int]:
    """Length of each label; length one stretches."""
    sizes: dict[int, int] = {}
    for t, labels in zip(tensors, inputs, strict=True):
        for label, n in zip(labels, t.shape, strict=True):
            known = sizes.get(label, 1)
            if n != known and n != 1 and known != 1:
                shapes = " ".join(str(t.shape) for t in tensors)
                raise ValueError(
                    f"einsum: subscript {_name(label)} stands for axes of lengths {known} and {n}; "
                    f"operands have shapes {shapes}"
                )
            sizes[label] = n if known == 1 else known
    return sizes


def _without_repeats(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    unique = tuple(dict.fromkeys(labels))
    if unique == labels:
        return x, labels
    for label in unique:
        lengths = {n for n, other in zip(x.shape, labels, strict=True) if other == label}
        if len(lengths) > 1:
            raise ValueError(
                f"einsum: the axes of subscript {_name(label)} in one operand have lengths {sorted(lengths)}, "
                f"its shape is {x.shape}"
            )
    return _take_diagonals(x, labels=_small(labels, labels), kept=_small(unique, labels)), unique


def _small(labels: Labels, known: Iterable[int]) -> list[int]:
    """Labels from 0 on, as NumPy wants them."""
    numbers = {label: nr for nr, label in enumerate(dict.fromkeys(known))}
    return [numbers[label] for label in labels]


def _without_ones(x: Tensor, labels: Labels, sizes: Mapping[int, int], before: set[int]) -> tuple[Tensor, Labels]:
    """Leave out the axes of length one whose label another operand has: in full length, or earlier."""
    kept = tuple(k for k, n in zip(labels, x.shape, strict=True) if n == sizes[k] and not (n == 1 and k in before))
    if kept == labels:
        return x, labels
    return reshape(x, tuple(sizes[k] for k in kept)), kept


def _summed(x: Tensor, labels: Labels, others: set[int]) -> tuple[Tensor, Labels]:
    """Sum over the labels that nobody else has."""
    alone = tuple(axis for axis, k in enumerate(labels) if k not in others)
    if not alone:
        return x, labels
    return sum_over(x, axis=alone), tuple(k for k in labels if k in others)


def _prepared(tensors: Sequence[Tensor], inputs: Sequence[Labels], out: Labels) -> list[Term]:
    """Operands in which no label repeats or stretches, and each is in two at least of operands and output."""
    sizes = _sizes(tensors, inputs)
    terms: list[Term] = []
    for t, labels in zip(tensors, inputs, strict=True):
        before = {k for _, known in terms for k in known}
        terms.append(_without_ones(*_without_repeats(t, labels), sizes, before))
    for nr, (x, labels) in enumerate(terms):
        terms[nr] = _summed(x, labels, {*out, *_labels_of(terms[:nr]), *_labels_of(terms[nr + 1 :])})
    return terms


@functools.lru_cache(maxsize=1024)
def _is_plain(left: Labels, right: Labels, out: Labels, x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> bool:
    """Whether two operands are prepared already."""
    sizes = dict(zip(left, x_shape, strict=True))
    return (
        len(sizes) == len(left)
        and len({*right}) == len(right)
        and all(sizes.get(k, n) == n for k, n in zip(right, y_shape, strict=True))
        and all((k in left) + (k in right) + (k in out) > 1 for k in (*left, *right))
    )


def _labels_of(terms: Iterable[Term]) -> Iterator[int]:
    return (k for _, labels in terms for k in labels)


def _evaluate(terms: list[Term], out: Labels, path: Path) -> Tensor:
    for step in path:
        group = [terms[nr] for nr in step]
        terms = [t for nr, t in enumerate(terms) if nr not in step]
        while len(group) > 1:
            a, b, *group = group
            group = [_pair(a, b, {*out, *_labels_of(terms), *_labels_of(group)}, out), *group]
        terms += group
    ((x, labels),) = terms
    return x if labels == out else transpose(x, [labels.index(k) for k in out])


def _pair(a: Term, b: Term, needed: set[int], out: Labels) -> Term:
    (x, left), (y, right) = a, b
    labels = tuple(k for k in dict.fromkeys((*left, *right)) if k in needed)
    if {*labels} == {*out}:
        labels = out
    return _contract(x, y, left=left, right=right, kept=labels), labels


def _path(terms: Sequence[Term], out: Labels, optimize: Any) -> Path:
    """Which operands to multiply first."""
    if len(terms) < 3:
        return [tuple(range(len(terms)))]
    if isinstance(optimize, (list, tuple)) and optimize and optimize[0] == "einsum_path":
        return optimize[1:]
    known = (*_labels_of(terms), *out)
    how = "greedy" if optimize is False or optimize is True else optimize
    return _search_path(
        tuple(tuple(_small(labels, known)) for _, labels in terms),
        tuple(x.shape for x, _ in terms),
        tuple(_small(out, known)),
        how,
    )


@functools.lru_cache(maxsize=256)
def _search_path(inputs: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...], out: Labels, how: Any) -> Path:
    dummies = [np.broadcast_to(0.0, shape) for shape in shapes]
    pairs = [part for pair in zip(dummies, inputs, strict=True) for part in pair]
    return np.einsum_path(*pairs, out, optimize=how)[0][1:]


@stands_for(np.einsum)
def einsum(*operands: Any, dtype: Any = None, optimize: Any = False) -> Tensor:
    """Sum of products of axes named by letters.

    Parameters
    ----------
    *operands : str and array_like
        Subscripts such as ``"ij,jk->ik"``, then the arrays. Without ``->`` the output has the letters that occur once,
        in alphabetical order. ``...`` stands for all axes without a letter; these broadcast. Or each array followed by
        a list of integer labels, and last the labels of the output.
    dtype : dtype, optional
        Convert the operands first.
    optimize : bool, {"greedy", "optimal"} or path, optional
        Order of the products of three or more operands, as in :func:`numpy.einsum_path`. They are always multiplied
        in pairs; by default the order is found greedily.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If the subscripts do not fit the operands.

    See Also
    --------
    tensordot, matmul

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> y = ng.einsum("ij,j->", x, [1.0, 10.0])
    >>> y.backward()
    >>> x.grad
    tensor([[ 1., 10.],
            [ 1., 10.]])
    """
    if not operands:
        raise ValueError("einsum: give the subscripts and at least one operand, as in einsum('ij->ji', x)")
    subscripts, arrays = (
        (operands[0], operands[1:]) if isinstance(operands[0], str) else (None, operands[: len(operands) // 2 * 2 : 2])
    )
    tensors = [as_tensor(a, f"operand {nr}") for nr, a in enumerate(arrays)]
    if dtype is not None:
        tensors = [astype(t, dtype) for t in tensors]
    ndims = tuple(t.ndim for t in tensors)
    inputs, out = _read_sublists(operands, ndims) if subscripts is None else _read_subscripts(subscripts, ndims)
    if len(tensors) == 2 and _is_plain(*inputs, out, tensors[0].shape, tensors[1].shape):
        return _contract(*tensors, left=inputs[0], right=inputs[1], kept=out)
    terms = _prepared(tensors, inputs, out)
    return _evaluate(terms, out, _path(terms, out, optimize))


# ----- tensordot -----


@stands_for(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """Sum of products over pairs of axes.

    Parameters
    ----------
    a, b : array_like
    axes : int or (int or sequence of int, int or sequence of int)
        A number n: the last n axes of `a` with the first n of `b`. A pair: axes of `a`, and those of `b` that go with
        them. Negative axes count from the last.

    Returns
    -------
    Tensor
        Its axes are the other ones of `a`, then those of `b`.

    Raises
    ------
    ValueError
        If two axes that go together differ in length.

    Examples
    --------
    >>> import numbagrad as ng
    >>> a, b = ng.ones((2, 3, 4)), ng.ones((4, 3, 5))
    >>> ng.tensordot(a, b, axes=([1, 2], [1, 0])).shape
    (2, 5)
    """
    x, y = as_tensor(a, "a"), as_tensor(b, "b")
    of_x, of_y = _paired_axes(x, y, axes)
    left, right, out = _tensordot_labels(x.ndim, y.ndim, tuple(of_x), tuple(of_y))
    return _contract(x, y, left=left, right=right, kept=out)


@functools.lru_cache(maxsize=256)
def _tensordot_labels(ndim_x: int, ndim_y: int, of_x: Labels, of_y: Labels) -> tuple[Labels, Labels, Labels]:
    left = tuple(range(ndim_x))
    paired = dict(zip(of_y, of_x, strict=True))
    right = tuple(paired.get(j, ndim_x + j) for j in range(ndim_y))
    return left, right, tuple(k for k in (*left, *right) if (k in left) != (k in right))


def outer_blocks(x: Tensor, y: Tensor) -> Tensor:
    """Products of all elements of two tensors of as many axes; each axis of `x` is followed by that of `y`."""
    n = x.ndim
    out = tuple(axis for i in range(n) for axis in (i, n + i))
    return _contract(x, y, left=tuple(range(n)), right=tuple(range(n, 2 * n)), kept=out)


def _paired_axes(x: Tensor, y: Tensor, axes: Any) -> tuple[list[int], list[int]]:
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ValueError(
                f"tensordot: axes={axes} must be from 0 to the number of axes; shapes are {x.shape} and {y.shape}"
            )
        axes = range(x.ndim - axes, x.ndim), range(axes)
    first, second = ([k] if isinstance(k, (int, np.integer)) else k for k in axes)
    of_x = [normalize_axis_index(k, x.ndim) for k in first]
    of_y = [normalize_axis_index(k, y.ndim) for k in second]
    if [x.shape[i] for i in of_x] != [y.shape[j] for j in of_y]:
        raise ValueError(
            f"tensordot: shape-mismatch for sum, shapes {x.shape} and {y.shape} over axes {of_x} and {of_y}"
        )
    if len({*of_x}) < len(of_x) or len({*of_y}) < len(of_y):
        raise ValueError(f"tensordot: axes {of_x} and {of_y} must not name an axis twice")
    return of_x, of_y


__all__ = ["einsum", "tensordot"]
