"""What Tensor can do: operators, methods and attributes, attached from tables. The engine's Tensor has none itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.arithmetic import provide
from numbagrad.engine.tensor import Tensor
from numbagrad.jit import memory
from numbagrad.ops import (
    arithmetic,
    arranging,
    conversion,
    creation,
    diagonals,
    exponential,
    indexing,
    inplace,
    interchange,
    joining,
    logic,
    pointwise,
    products,
    protocols,
    reductions,
    shape,
    sorting,
    special,
    trigonometric,
    vectorizing,
)
from numbagrad.ops.operands import OPERANDS, unbroadcast
from numbagrad.ops.primitive import transposed_jvp


def _operator(function: Callable[..., Any], general: Callable[..., Any]) -> Callable[..., Any]:
    """An operator's method: `function` for tensors and numbers, and other types get their turn."""

    def method(self: Tensor, other: Any) -> Any:
        if isinstance(other, OPERANDS):
            return function(self, other)
        return NotImplemented

    method.__doc__ = general.__doc__
    return method


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return _operator(lambda self, other: function(other, self), function)


OPERATORS: dict[str, Any] = {
    "__add__": arithmetic.add.operator,
    "__radd__": arithmetic.add.reflected,
    "__sub__": arithmetic.subtract.operator,
    "__rsub__": arithmetic.subtract.reflected,
    "__mul__": arithmetic.multiply.operator,
    "__rmul__": arithmetic.multiply.reflected,
    "__truediv__": arithmetic.divide.operator,
    "__rtruediv__": arithmetic.divide.reflected,
    "__mod__": arithmetic.remainder.operator,
    "__rmod__": arithmetic.remainder.reflected,
    "__pow__": _operator(arithmetic._power_operator, arithmetic.power),
    "__rpow__": arithmetic.power.reflected,
    "__floordiv__": _operator(logic.floor_divide, logic.floor_divide),
    "__rfloordiv__": _reflected(logic.floor_divide),
    "__divmod__": _operator(pointwise.divmod, pointwise.divmod),
    "__rdivmod__": _reflected(pointwise.divmod),
    "__matmul__": _operator(products.matmul, products.matmul),
    "__rmatmul__": _reflected(products.matmul),
    "__neg__": arithmetic.negative.fast,
    "__pos__": arithmetic.positive,
    "__abs__": arithmetic.absolute,
    "__invert__": lambda self: logic.invert(self),
    "__eq__": _operator(logic.equal, logic.equal),
    "__ne__": _operator(logic.not_equal, logic.not_equal),
    "__lt__": _operator(logic.less, logic.less),
    "__le__": _operator(logic.less_equal, logic.less_equal),
    "__gt__": _operator(logic.greater, logic.greater),
    "__ge__": _operator(logic.greater_equal, logic.greater_equal),
    "__and__": _operator(logic.bitwise_and, logic.bitwise_and),
    "__rand__": _reflected(logic.bitwise_and),
    "__or__": _operator(logic.bitwise_or, logic.bitwise_or),
    "__ror__": _reflected(logic.bitwise_or),
    "__xor__": _operator(logic.bitwise_xor, logic.bitwise_xor),
    "__rxor__": _reflected(logic.bitwise_xor),
    "__lshift__": _operator(logic.left_shift, logic.left_shift),
    "__rshift__": _operator(logic.right_shift, logic.right_shift),
    "__rlshift__": _reflected(logic.left_shift),
    "__rrshift__": _reflected(logic.right_shift),
    "__hash__": object.__hash__,
}

ELEMENTWISE_METHODS = (
    *(arithmetic.sqrt, arithmetic.square, arithmetic.reciprocal),
    *(arithmetic.floor, arithmetic.ceil, arithmetic.trunc),
    *(exponential.exp, exponential.expm1, exponential.log, exponential.log1p, exponential.log2, exponential.log10),
    *(exponential.sigmoid, trigonometric.sin, trigonometric.cos, trigonometric.tan),
    *(trigonometric.tanh, trigonometric.sinh, trigonometric.cosh, special.erf, special.relu),
)
"""Ops that torch and NumPy people also call as methods: ``x.exp()``."""

OTHER_METHODS: dict[str, Any] = {
    "abs": arithmetic.absolute,
    "absolute": arithmetic.absolute,
    "round": arithmetic.round,
    "sign": arithmetic.sign,
    "clip": arithmetic.clip,
    "clamp": arithmetic.clip,
    "pow": arithmetic._power_operator,
    "astype": conversion.astype,
    "clone": conversion.clone,
    "copy": conversion.clone,
    "conj": conversion.conj,
    "conjugate": conversion.conj,
    "dim": lambda self: self.ndim,
    "numel": lambda self: self.size,
    "is_floating_point": lambda self: self._layout.kind == "f",
    "float": lambda self: conversion.astype(self, np.float32),
    "double": lambda self: conversion.astype(self, np.float64),
}

ATTRIBUTES: dict[str, Callable[[Tensor], Any]] = {
    "T": lambda self: shape.transpose(self),
    "mT": lambda self: shape.matrix_transpose(self),
    "real": conversion.real,
    "imag": conversion.imag,
    "flat": lambda self: iter(shape.ravel(self)),
}


def _norm(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Norm of the tensor; see :func:`numbagrad.linalg.norm`."""
    return importlib.import_module("numbagrad.ops.linalg").norm(self, *args, **kwargs)


def attach(table: dict[str, Any]) -> None:
    """Put the entries of `table` on Tensor."""
    for name, value in table.items():
        setattr(Tensor, name, value)


_ADDERS = arithmetic.add.tables["TT"]


def _add_into(total: Tensor, grad: Tensor) -> None:
    """Add into the memory of `total`, counted as a write where it has aliases."""
    layout = total._layout
    entry = _ADDERS[layout.code] if grad._layout is layout else None
    if entry is not None:
        entry(total._data, grad._data, total._data)
    else:
        np.add(total._data, grad._data, out=total._data, casting="same_kind")
    if total._storage is not None:
        total._storage.version += 1


def _attach_all() -> None:
    for op in ELEMENTWISE_METHODS:
        attach({op.name: op.fast})
    for module in (
        reductions,
        shape,
        arranging,
        joining,
        indexing,
        sorting,
        diagonals,
        products,
        creation,
        inplace,
        interchange,
        protocols,
    ):
        attach(getattr(module, "METHODS", {}))
    attach(OTHER_METHODS)
    attach({"norm": _norm})
    attach({name: property(getter) for name, getter in ATTRIBUTES.items()})
    attach(OPERATORS)
    provide(
        add=arithmetic.add.fast,
        add_into=_add_into,
        stack=joining.stack,
        owns_memory=memory.owns_memory,
        copy=memory.copy,
    )
    provide(fit=unbroadcast, rebase=inplace._take_over, transposed_jvp=transposed_jvp)
    provide(over_entries=vectorizing.over_entries)


_attach_all()
__all__ = ["ATTRIBUTES", "OPERATORS", "attach"]
