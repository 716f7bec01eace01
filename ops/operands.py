"""Operands: what a user may pass where a tensor is wanted, and how gradients get back to its shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.engine.layout import Layout, is_bfloat16, is_half, kind_of
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.node import Edge, Node
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.jit.storage import TYPES, dtype_of

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
    if kind_of(made.dtype) not in "biufc":
        raise TypeError(
            f"{name} must be a Tensor, an array or a number, got {type(value).__name__} (dtype {made.dtype})"
        )
    return wrap(made)


def as_dtype(dtype: Any) -> np.dtype:
    """NumPy's dtype for whatever names one; "bfloat16" is the one of ml_dtypes."""
    return dtype_of(dtype) if isinstance(dtype, str) and dtype in TYPES else np.dtype(dtype)


def eps_of(dtype: np.dtype) -> float:
    """Distance from 1 to the next number of a dtype."""
    return 2.0**-7 if is_bfloat16(dtype) else float(np.finfo(dtype).eps)


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


def promoted_half(given: Sequence[Any]) -> np.dtype | None:
    """The dtype for operands of which one is bfloat16, where NumPy has no rule that serves; else None.

    Numbers are weak, as for every other dtype: ml_dtypes makes float32 of bfloat16 and a Python float. bfloat16 and
    float16, which have none between them, meet in float32. All else is as ml_dtypes has it.

    Parameters
    ----------
    given : sequence of dtype or type
        Dtypes of arrays and types of numbers.
    """
    dtypes = {g for g in given if isinstance(g, np.dtype)}
    if not any(is_bfloat16(d) for d in dtypes):
        return None
    rest = [np.dtype(np.float32) if is_half(d) else d for d in dtypes]
    if complex in given:
        rest.append(np.dtype(np.complex64))
    if len(dtypes) == 1 and complex not in given:
        return next(iter(dtypes))
    small = all(is_bfloat16(d) or (d.kind in "biu" and d.itemsize == 1) for d in dtypes)
    if small and complex not in given:
        return next(d for d in dtypes if is_bfloat16(d))
    return np.result_type(*rest)


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
    if grad._layout.code >= 0 and not is_half(grad.dtype) and not grad_enabled():
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
