"""Faces: the same ops as `numbagrad.numpy` shows them. Plain arrays in give plain arrays out, Tensors give Tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.operands import as_tensor, holds_tensor
from numbagrad.ops.protocols import call_with_out, place_of_out
from numbagrad.ops.registry import NUMPY


def face(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """`ours` when a Tensor is among the arguments, also inside lists, else `theirs`."""
    if isinstance(theirs, np.ufunc):
        return _face_of_ufunc(ours, theirs)
    place = place_of_out(theirs)

    @functools.wraps(theirs)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not _among(args, kwargs):
            return theirs(*args, **kwargs)
        if "out" in kwargs or (place is not None and len(args) > place):
            return call_with_out(ours, theirs, args, kwargs)
        return ours(*args, **kwargs)

    return _documented(function, ours, theirs)


def _among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a Tensor is among the arguments."""
    if args and type(args[0]) is Tensor:
        return True
    return any(map(holds_tensor, args)) or (bool(kwargs) and any(map(holds_tensor, kwargs.values())))


def _documented(function: Any, ours: Any, theirs: Any) -> Any:
    function.__doc__ = f"{(getattr(ours, '__doc__', None) or theirs.__doc__ or '').strip()}"
    return function


def _face_of_ufunc(ours: Callable[..., Any], theirs: np.ufunc) -> Callable[..., Any]:
    """As `face`; what only ufuncs take goes to NumPy, which hands it to our side of the protocol."""

    @functools.wraps(theirs)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not _among(args, kwargs):
            return theirs(*args, **kwargs)
        if kwargs or len(args) > theirs.nin:
            return theirs(*map(_joined, args), **kwargs)
        return ours(*args)

    for name in ("reduce", "accumulate", "reduceat", "outer", "at"):
        setattr(function, name, _method(getattr(theirs, name)))
    for name in ("nin", "nout", "nargs", "identity", "types", "ntypes", "signature"):
        setattr(function, name, getattr(theirs, name))
    return _documented(function, ours, theirs)


def _method(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def method(*args: Any, **kwargs: Any) -> Any:
        return theirs(*map(_joined, args), **kwargs)

    return method


def _joined(value: Any) -> Any:
    """Lists that hold Tensors as one Tensor, which NumPy takes notice of."""
    return as_tensor(value) if isinstance(value, (list, tuple)) and holds_tensor(value) else value


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


def array_face(ours: Callable[..., Any], theirs: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """`numpy.array` and its kin: lists that hold Tensors become Tensors, everything else stays NumPy's."""
    return face(ours, theirs or getattr(np, ours.__name__))


def own_face(ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function that NumPy lacks: plain arrays in give plain arrays out here too."""

    @functools.wraps(ours)
    def function(*args: Any, **kwargs: Any) -> Any:
        made = ours(*args, **kwargs)
        return made if _among(args, kwargs) else made._data

    return function
