"""Autocast: within it some ops run in 16 bits, some in float32, whatever they are given.

Primitives say which (``casts="low"``, ``"single"`` or ``"widest"``), as PyTorch's lists for the CPU have it: products
of matrices and convolutions in 16 bits; decompositions, solvers, Fourier transforms, `prod`, `quantile` and losses in
float32; what joins tensors in the widest of their dtypes. All other ops take what comes; float64 is never touched.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import Any

import numpy as np

from numbagrad.engine.layout import is_half
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.tensor import Tensor

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)

KINDS = ("", "low", "single", "widest")
"""How an op casts: not at all, to the 16 bits of autocast, to float32, to the widest of its operands."""

casting: list[bool] = []
"""As many items as there are enabled autocasts entered, in any thread: empty on the hot path."""


class State:
    """One autocast that was entered."""

    __slots__ = ("cache", "caches", "dtype", "enabled")

    def __init__(self, enabled: bool, dtype: np.dtype | None, caches: bool, cache: dict[Any, Any]) -> None:
        self.enabled = enabled
        self.dtype = dtype
        self.caches = caches
        self.cache = cache


_state: ContextVar[State | None] = ContextVar("numbagrad_autocast", default=None)

current = _state.get
"""The innermost autocast of this thread (under asyncio, of this task), or None."""


def enter(enabled: bool, dtype: np.dtype | None, caches: bool | None) -> Token[State | None]:
    """Begin an autocast; casts that are kept are shared with those around it."""
    outer = current()
    if caches is None:
        caches = True if outer is None else outer.caches
    token = _state.set(State(enabled, dtype, caches, {} if outer is None else outer.cache))
    if enabled:
        casting.append(True)
    return token


def leave(token: Token[State | None]) -> None:
    """End an autocast. The outermost forgets the casts that were kept."""
    state = current()
    assert state is not None
    _state.reset(token)
    if state.enabled:
        casting.pop()
    if current() is None:
        state.cache.clear()


# ----- Casting -----


def cast(kind: str, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The operands of an op that casts in the way `kind`."""
    state = current()
    if state is None or not state.enabled:
        return tensors
    if kind == "low":
        return [_lowered(t, state) if _eligible(t) else t for t in tensors]
    if kind == "single":
        return [_astype(t, SINGLE) if is_half(t._layout.dtype) else t for t in tensors]
    dtypes = {t._layout.dtype for t in tensors if t._layout.kind == "f"}
    if len(dtypes) < 2:
        return tensors
    widest = DOUBLE if DOUBLE in dtypes else SINGLE
    return [_astype(t, widest) if t._layout.kind == "f" else t for t in tensors]


def _eligible(tensor: Tensor) -> bool:
    return tensor._layout.kind == "f" and tensor._layout.dtype != DOUBLE


def _lowered(tensor: Tensor, state: State) -> Tensor:
    """The tensor in 16 bits; casts of leaves that require grad, parameters, are kept as long as nobody writes there."""
    if tensor._layout.dtype == state.dtype:
        return tensor
    if not (state.caches and tensor.is_leaf and tensor.requires_grad and tensor._layout.dtype == SINGLE):
        return _astype(tensor, state.dtype)
    key = id(tensor), state.dtype, grad_enabled()
    made, owner, version, array = state.cache.get(key, (None, None, None, None))
    # Its `data` may have been given another array.
    if made is None or owner() is not tensor or version != tensor._version or array is not tensor._data:
        made = _astype(tensor, state.dtype)
        state.cache[key] = made, weakref.ref(tensor), tensor._version, tensor._data
    return made


def _astype(tensor: Tensor, dtype: Any) -> Tensor:
    from numbagrad.ops.conversion import astype

    return astype(tensor, dtype)


def in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: under autocast a function's tensors of 16 bits come to it as float32."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        state = current() if casting else None
        if state is None or not state.enabled:
            return function(*args, **kwargs)
        return function(*[_single(a) for a in args], **{k: _single(v) for k, v in kwargs.items()})

    return call


def _single(value: Any) -> Any:
    return _astype(value, SINGLE) if isinstance(value, Tensor) and is_half(value._layout.dtype) else value


def cast_nested(value: Any, dtype: np.dtype) -> Any:
    """Nested containers with every floating tensor in them, float64 aside, cast to `dtype`."""
    if isinstance(value, Tensor):
        return _astype(value, dtype) if _eligible(value) else value
    if isinstance(value, (str, bytes, np.ndarray)):
        return value
    if isinstance(value, dict):
        return {cast_nested(k, dtype): cast_nested(v, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        made = [cast_nested(v, dtype) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


__all__ = ["KINDS", "State", "cast", "cast_nested", "casting", "current", "enter", "in_single", "leave"]
