"""NumPy's protocols: ``np.tanh(tensor)``, ``ndarray * tensor``, ``np.sum(tensor)`` come to our ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops import products, reductions
from numbagrad.ops.registry import NUMPY

_REDUCE = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
}
"""The reduction that is a ufunc's ``reduce``."""

_ACCUMULATE = {np.add: "cumsum", np.multiply: "cumprod"}


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """A NumPy ufunc met a Tensor."""
    out = kwargs.pop("out", None)
    if method == "__call__":
        result = _call(ufunc, inputs, kwargs)
    elif method == "reduce":
        result = _from_table(_REDUCE, ufunc, method)(*inputs, **{"axis": 0, **_given(kwargs)})
    elif method == "accumulate":
        result = _from_table(_ACCUMULATE, ufunc, method)(*inputs, **{"axis": 0, **_given(kwargs)})
    elif method == "outer":
        result = _outer(ufunc, inputs, kwargs)
    else:
        raise TypeError(_unsupported(f"numpy.{ufunc.__name__}.{method}"))
    return result if out is None else _into(out, result, ufunc)


def _call(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    op = products.matmul if ufunc is np.matmul else NUMPY.get(ufunc)
    if op is None:
        raise TypeError(_unsupported(f"numpy.{ufunc.__name__}"))
    dtype = kwargs.pop("dtype", None)
    where = kwargs.pop("where", True)
    kwargs = {
        k: v for k, v in kwargs.items() if (k, v) not in (("casting", "same_kind"), ("order", "K"), ("subok", True))
    }
    if kwargs or where is not True:
        raise TypeError(
            f"numpy.{ufunc.__name__} on a Tensor does not take {', '.join(kwargs) or 'where'}; "
            "use numbagrad.where for a mask"
        )
    if dtype is not None:
        from numbagrad.ops.conversion import astype

        inputs = tuple(astype(i, dtype) for i in inputs)
    return op(*inputs)


def _outer(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from numbagrad.ops.operands import as_tensor
    from numbagrad.ops.shape import reshape

    x, y = map(as_tensor, inputs)
    return _call(ufunc, (reshape(x, x.shape + (1,) * y.ndim), y), kwargs)


def _given(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments without those that say what is usual anyway."""
    usual = {"dtype": None, "keepdims": False, "initial": np._NoValue, "where": True}
    return {k: v for k, v in kwargs.items() if k not in usual or v is not usual[k]}


def _from_table(table: dict[np.ufunc, str], ufunc: np.ufunc, method: str) -> Callable[..., Any]:
    if ufunc not in table:
        raise TypeError(_unsupported(f"numpy.{ufunc.__name__}.{method}"))
    return getattr(reductions, table[ufunc])


def _into(out: tuple[Any, ...], result: Any, ufunc: np.ufunc) -> Any:
    """``out=``: a Tensor is overwritten; for an ndarray the result is returned instead, so that ``a += t`` makes `a`
    a Tensor and the gradient lives."""
    (target,) = out
    if isinstance(target, Tensor):
        return target.copy_(result)  # type: ignore[attr-defined]
    if result.shape != target.shape or not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise ValueError(
            f"numpy.{ufunc.__name__}: the result of shape {result.shape} and dtype {result.dtype} does not fit into "
            f"out of shape {target.shape} and dtype {target.dtype}"
        )
    return result


def array_function(self: Tensor, function: Callable[..., Any], kinds: Any, args: Any, kwargs: Any) -> Any:
    """A function of NumPy met a Tensor."""
    ours = NUMPY.get(function)
    if ours is None:
        raise TypeError(_unsupported(f"{function.__module__}.{function.__name__}"))
    return ours(*args, **kwargs)


def _unsupported(name: str) -> str:
    return (
        f"{name} does not work on Tensors (its gradient would be lost); "
        "for the value alone pass tensor.detach().numpy()"
    )


METHODS: dict[str, Any] = {
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "__array_priority__": 1000.0,
}
