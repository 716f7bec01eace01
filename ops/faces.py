"""Faces: the same ops as `numbagrad.numpy` shows them. Plain arrays in give plain arrays out, Tensors give Tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.operands import holds_tensor
from numbagrad.ops.registry import NUMPY


def face(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """`ours` when a Tensor is among the arguments, also inside lists, else `theirs`."""

    @functools.wraps(theirs)
    def function(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is Tensor:
            return ours(*args, **kwargs)
        if any(map(holds_tensor, args)) or any(map(holds_tensor, kwargs.values())):
            return ours(*args, **kwargs)
        return theirs(*args, **kwargs)

    function.__doc__ = f"{(getattr(ours, '__doc__', None) or theirs.__doc__ or '').strip()}"
    return function


def faces_of(module: ModuleType) -> dict[str, Any]:
    """For each public function of a NumPy module that we stand in for, its face."""
    found = {}
    for name in dir(module):
        theirs = getattr(module, name)
        if name.startswith("_") or not callable(theirs) or isinstance(theirs, type):
            continue
        try:
            ours = NUMPY.get(theirs)
        except TypeError:
            continue
        if ours is not None:
            found[name] = face(getattr(ours, "fast", ours), theirs)
    return found


def array_face(ours: Callable[..., Any]) -> Callable[..., Any]:
    """`numpy.array` and its kin: lists that hold Tensors become Tensors, everything else stays NumPy's."""
    return face(ours, getattr(np, ours.__name__))
