"""Operands: what a user may pass where a tensor is wanted, and how gradients get back to its shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.engine.layout import Layout
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.node import Edge, Node
from numbagrad.engine.tensor import Tensor, wrap

NUMBERS = (float, int, bool, complex)
"""Python's number types, which are weak in promotion (NEP 50)."""

OPERANDS = (Tensor, np.ndarray, np.generic, int, float, complex, list, tuple)
"""What stands beside a tensor at an operator; any other type gets its own turn."""


def as_tensor(value: Any, name: str = "argument") -> Tensor:
    """A Tensor from a Tensor, array, number or (nested) list of these. Arrays share their memory."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (list, tuple)) and holds_tensor(value):
        from numbagrad.ops.creation import array

        return array(value)
    made = np.asarray(value)
    if made.dtype.kind not in "biufc":
        raise TypeError(
            f"{name} must be a Tensor, an array or a number, got {type(value).__name__} (dtype {made.dtype})"
        )
    return wrap(made)


def holds_tensor(value: Any) -> bool:
    """Whether a Tensor is somewhere inside nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return any(holds_tensor(v) for v in value)
    return isinstance(value, Tensor)


def operand(value: Any, name: str) -> Any:
    """A Tensor, or a Python number as it is."""
    if isinstance(value, Tensor) or type(value) in NUMBERS:
        return value
    return as_tensor(value, name)


def layout_at(edge: Any) -> Layout:
    """Layout of the tensor whose gradient goes along `edge`."""
    if type(edge) is Node:
        return edge.layout
    if type(edge) is Edge:
        return edge.node.layout[edge.nr]
    return edge._layout


def broadcast_shape(op: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape, or an error that names the op and the shapes."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(
            f"{op}: operands could not be broadcast together with shapes {' '.join(map(str, shapes))}; "
            "axes must have equal length, or length 1"
        ) from None


def stretched_axes(shape: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of `wide` that broadcasting added to or stretched in `shape`."""
    added = len(wide) - len(shape)
    return tuple(range(added)) + tuple(
        added + i for i, (n, m) in enumerate(zip(shape, wide[added:], strict=True)) if n != m
    )


def unbroadcast(grad: Tensor, layout: Layout) -> Tensor:
    """Sum `grad` over the axes that broadcasting stretched and give it the dtype, so that it fits `layout` again."""
    if grad._layout is layout:
        return grad
    if grad.shape != layout.shape:
        grad = sum_to(grad, layout.shape)
    if grad.dtype != layout.dtype:
        grad = cast_back(grad, layout.dtype)
    return grad


def sum_to(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum over what broadcasting from `shape` added."""
    from numbagrad.ops import reductions
    from numbagrad.ops import shape as shapes

    axes = stretched_axes(shape, grad.shape)
    if grad._layout.code >= 0 and not grad_enabled():
        return wrap(np.add.reduce(grad._data, axes, keepdims=True).reshape(shape))
    if axes:
        grad = reductions.sum(grad, axis=axes, keepdims=True)
    return grad if grad.shape == shape else shapes.reshape(grad, shape)


def cast_back(grad: Tensor, dtype: np.dtype) -> Tensor:
    """The gradient in the dtype of its input; the gradient of a real input is real."""
    from numbagrad.ops import conversion

    if grad.dtype.kind == "c" and dtype.kind != "c":
        grad = conversion.real(grad)
    return grad if grad.dtype == dtype else conversion.astype(grad, dtype)
