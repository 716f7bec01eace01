"""Functions of NumPy through which no gradient flows: they ask, count, compare or print.

Some answer with arrays, which come as Tensors without a graph; the others answer as NumPy does. An argument whose
gradient would be lost by that is refused by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.operands import holds_tensor
from numbagrad.ops.registry import NUMPY, stands_for


def without_graph(value: Any) -> Any:
    """The value with arrays in place of Tensors, also inside lists and tuples."""
    if isinstance(value, Tensor):
        return value._data
    if isinstance(value, (list, tuple)) and holds_tensor(value):
        return type(value)(map(without_graph, value))
    return value


def wrapped(result: Any) -> Any:
    """The result with Tensors in place of arrays and NumPy numbers."""
    if isinstance(result, (tuple, list)):
        made = [wrapped(r) for r in result]
        return type(result)(*made) if hasattr(result, "_fields") else type(result)(made)
    return wrap(np.asarray(result)) if isinstance(result, (np.ndarray, np.generic)) else result


def passing(theirs: Callable[..., Any], *, refused: tuple[str, ...] = (), tensors: bool = True) -> Callable[..., Any]:
    """`theirs`, taking Tensors. `refused` names the parameters that may not require grad."""
    signature = inspect.signature(theirs) if refused else None

    @functools.wraps(theirs)
    def function(*args: Any, **kwargs: Any) -> Any:
        if signature is not None:
            _refuse(theirs, signature.bind(*args, **kwargs).arguments, refused)
        result = theirs(*map(without_graph, args), **{k: without_graph(v) for k, v in kwargs.items()})
        return wrapped(result) if tensors else result

    if refused:
        lost = f" one that requires grad is refused as {', '.join(refused)}."
    else:
        lost = ""
    function.__doc__ = f"`numpy.{theirs.__name__}` of Tensors. No gradient flows through it.{lost}"
    NUMPY[theirs] = function
    return function


def _refuse(theirs: Any, given: dict[str, Any], refused: tuple[str, ...]) -> None:
    for name in refused:
        if _requires_grad(given.get(name)):
            raise TypeError(f"{theirs.__name__}: {name} requires grad, which would be lost here; pass {name}.detach()")


def _requires_grad(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_requires_grad, value))
    return isinstance(value, Tensor) and value.requires_grad


# Answers that are arrays.
isneginf, isposinf, iscomplex, isreal, isin = map(passing, (np.isneginf, np.isposinf, np.iscomplex, np.isreal, np.isin))
nanargmax, nanargmin, lexsort, digitize = map(passing, (np.nanargmax, np.nanargmin, np.lexsort, np.digitize))
histogram_bin_edges = passing(np.histogram_bin_edges)
histogram2d, histogramdd = (passing(f, refused=("weights",)) for f in (np.histogram2d, np.histogramdd))
for _theirs in (np.isnat, np.gcd, np.lcm, np.bitwise_count, np.spacing, np.packbits, np.unpackbits):
    passing(_theirs)

# Answers that are numbers, truth values, dtypes or texts.
iscomplexobj, isrealobj, array_equiv, can_cast, result_type, min_scalar_type, common_type = (
    passing(f, tensors=False)
    for f in (
        *(np.iscomplexobj, np.isrealobj, np.array_equiv),
        *(np.can_cast, np.result_type, np.min_scalar_type, np.common_type),
    )
)
shares_memory, may_share_memory = (passing(f, tensors=False) for f in (np.shares_memory, np.may_share_memory))
for _theirs in (np.array2string, np.array_repr, np.array_str, np.save, np.savez, np.savez_compressed, np.savetxt):
    passing(_theirs, tensors=False)
passing(np.einsum_path, tensors=False)


@stands_for(np.isscalar)
def isscalar(element: Any) -> bool:
    """Whether something is a number of Python or NumPy; a Tensor is none, as an array is none.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.isscalar(2.0), ng.isscalar(ng.tensor(2.0))
    (True, False)
    """
    return np.isscalar(element)


__all__ = [
    "array_equiv",
    "can_cast",
    "common_type",
    "digitize",
    "histogram2d",
    "histogram_bin_edges",
    "histogramdd",
    "iscomplex",
    "iscomplexobj",
    "isin",
    "isneginf",
    "isposinf",
    "isreal",
    "isrealobj",
    "isscalar",
    "lexsort",
    "may_share_memory",
    "min_scalar_type",
    "nanargmax",
    "nanargmin",
    "result_type",
    "shares_memory",
]
