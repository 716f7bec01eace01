"""What training loops do with parameters, as torch.nn.utils."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from numbagrad import ops
from numbagrad.engine.mode import no_grad
from numbagrad.engine.tensor import Tensor, wrap


def _list(parameters: Any) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale the gradients together so that their norm is at most `max_norm`; returns the norm they had.

    Raises
    ------
    RuntimeError
        With `error_if_nonfinite`, if the norm is nan or infinite; the gradients are as they were.
    """
    grads = [p.grad._data for p in _list(parameters) if p.grad is not None]
    norms = [np.linalg.norm(g.reshape(-1).astype(np.float64), norm_type) for g in grads]
    total = float(np.linalg.norm(norms, norm_type)) if norms else 0.0
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} of the gradients is non-finite, so it cannot be clipped"
        )
    scale = max_norm / (total + 1e-6)
    if not scale >= 1:
        for g in grads:
            np.multiply(g, np.asarray(scale, g.dtype), out=g)
    return wrap(np.asarray(total))


def clip_grad_value_(parameters: Any, clip_value: float) -> None:
    """Clip every item of the gradients to [-clip_value, clip_value]."""
    for p in _list(parameters):
        if p.grad is not None:
            np.clip(p.grad._data, -clip_value, clip_value, out=p.grad._data)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector."""
    return ops.concatenate([ops.reshape(p, (-1,)) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the items of a vector into parameters."""
    given = list(parameters)
    total = sum(p.size for p in given)
    if vec.shape != (total,):
        raise ValueError(f"the parameters have {total} items, the vector has shape {vec.shape}")
    start = 0
    with no_grad():
        for p in given:
            p.copy_(vec._data[start : start + p.size].reshape(p.shape))  # type: ignore[attr-defined]
            start += p.size


__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters"]
