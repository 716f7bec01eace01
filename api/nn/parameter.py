"""Parameters: tensors that modules find. They are plain Tensors with a mark, so ops treat them as fast as any."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, mark_parameter


class _Marked(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is Tensor and instance._extra is not None and instance._extra.parameter


class Parameter(metaclass=_Marked):
    """A tensor that becomes a parameter of the module that it is assigned to.

    Parameters
    ----------
    data : array_like
        The values; an array or a Tensor shares its memory.
    requires_grad : bool

    Returns
    -------
    Tensor
        For which ``isinstance(p, Parameter)`` is true.

    Examples
    --------
    >>> import numbagrad as ng
    >>> p = ng.nn.Parameter([1.0, 2.0])
    >>> p.requires_grad, isinstance(p, ng.nn.Parameter)
    (True, True)
    """

    def __new__(cls, data: Any, requires_grad: bool = True) -> Any:
        from numbagrad.ops.creation import asarray

        held = data.detach() if isinstance(data, Tensor) else asarray(np.asarray(data))
        made = mark_parameter(held)
        made.requires_grad = requires_grad
        return made


__all__ = ["Parameter"]
