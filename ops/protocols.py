"""NumPy's protocols: ``np.tanh(tensor)``, ``ndarray * tensor``, ``np.sum(tensor)`` come to our ops."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.arithmetic import where as choose
from numbagrad.ops.conversion import astype
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.registry import NUMPY, stands_for
from numbagrad.ops.ufuncs import METHODS_OF_UFUNCS, unsupported


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """A NumPy ufunc met a Tensor."""
    return METHODS_OF_UFUNCS[method](ufunc, inputs, kwargs)


def array_function(self: Tensor, function: Callable[..., Any], kinds: Any, args: Any, kwargs: Any) -> Any:
    """A function of NumPy met a Tensor."""
    ours = NUMPY.get(function)
    if ours is None:
        raise TypeError(unsupported(f"{function.__module__}.{function.__name__}"))
    return call_with_out(ours, function, args, kwargs)


def call_with_out(ours: Callable[..., Any], theirs: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`ours` with NumPy's arguments; what it computes is written to an ``out=`` that is a Tensor.

    An ndarray cannot hold a gradient, so it is filled only by a result that requires none.
    """
    place = place_of_out(theirs)
    if "out" in kwargs:
        kwargs = dict(kwargs)
        out = kwargs.pop("out")
    elif place is not None and len(args) > place:
        out, args = args[place], (*args[:place], None, *args[place + 1 :])
    else:
        return ours(*args, **kwargs)
    result = ours(*args, **kwargs)
    return result if out is None else _write(out, result, theirs.__name__)


@functools.cache
def place_of_out(function: Callable[..., Any]) -> int | None:
    """Where `out` stands among the positional parameters."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names.index("out") if "out" in names else None


def _write(out: Any, result: Any, name: str) -> Any:
    (out,) = out if isinstance(out, tuple) else (out,)
    if not isinstance(result, Tensor) or not isinstance(out, (Tensor, np.ndarray)):
        raise TypeError(f"{name}: out must be a Tensor or an array for one result, got {type(out).__name__}")
    if out.shape != result.shape:
        raise ValueError(f"{name}: out has shape {out.shape}, the result {result.shape}")
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise TypeError(f"{name}: cannot cast the result from {result.dtype} to the {out.dtype} of out")
    if isinstance(out, Tensor):
        return out.copy_(result)  # type: ignore[attr-defined]
    if result.requires_grad:
        raise TypeError(f"{name}: out is an ndarray, where the gradient would be lost; pass a Tensor, or leave it out")
    out[...] = result._data
    return out


@stands_for(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Overwrite a tensor with values that are broadcast to it; its gradient goes to them."""
    source = as_tensor(src, "src")
    if not isinstance(dst, Tensor):
        raise TypeError(
            "copyto: dst is an ndarray, where the gradient of src would be lost; make it a Tensor with asarray"
        )
    if not np.can_cast(source.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast array data from {source.dtype} to {dst.dtype} according to the rule {casting!r}")
    dst[...] = astype(source if where is True else choose(where, source, dst), dst.dtype)


METHODS: dict[str, Any] = {
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "__array_priority__": 1000.0,
}
