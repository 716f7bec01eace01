"""einops on Tensors: the backend that einops looks up by the type of an array."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops import creation, reductions
from numbagrad.ops.einsum import einsum
from numbagrad.ops.folding import mean
from numbagrad.ops.folding import sum as summed
from numbagrad.ops.joining import concatenate, stack
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.shape import broadcast_to, expand_dims, reshape, transpose

_REDUCTIONS = {
    "all": reductions.all,
    "any": reductions.any,
    "max": reductions.max,
    "mean": mean,
    "min": reductions.min,
    "prod": reductions.prod,
    "sum": summed,
}


@functools.cache
def register_einops() -> None:
    """Let einops take Tensors; a second call changes nothing.

    Raises
    ------
    ImportError
        If einops is not installed.
    """
    try:
        from einops._backends import AbstractBackend
    except ImportError:
        raise ImportError("register_einops needs einops: pip install einops") from None
    # einops finds the subclasses of its base class.
    _backend_on(AbstractBackend)


def _backend_on(base: type) -> type:
    body = {name: value for name, value in vars(_Backend).items() if not name.startswith("__")}
    return type("NumbagradBackend", (base,), body)


class _Backend:
    """What einops asks of a framework."""

    framework_name = "numbagrad"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray) -> Tensor:
        return as_tensor(x)

    def to_numpy(self, x: Tensor) -> np.ndarray:
        return x.numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return creation.arange(start, stop)

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return x.shape

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return reshape(x, tuple(shape))

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return transpose(x, tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        return _REDUCTIONS[operation](x, axis=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Tensor:
        return stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return expand_dims(x, new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        for position in sorted(pos2len):
            x = expand_dims(x, position)
        return broadcast_to(x, tuple(pos2len.get(i, n) for i, n in enumerate(x.shape)))

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        from numbagrad.ops.arranging import tile

        return tile(x, tuple(repeats))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        return concatenate(tensors, axis=axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x._layout.kind == "f"

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return einsum(pattern, *x)


__all__ = ["register_einops"]
