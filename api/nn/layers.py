"""Layers with parameters, and those that behave differently in training. Arguments and initial values are torch's.

Parameters are of `dtype`, by default float64, as NumPy's; ``model.float()`` makes them float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.nn import functional as F
from numbagrad.nn import init
from numbagrad.nn.module import Module
from numbagrad.nn.parameter import Parameter
from numbagrad.ops.operands import as_tensor


def _parameter(shape: tuple[int, ...], dtype: Any) -> Any:
    return Parameter(np.zeros(shape, np.float64 if dtype is None else dtype))


class Identity(Module):
    """What comes in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Module):
    """``x @ weight.T + bias``.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    dtype : dtype, optional

    Examples
    --------
    >>> import numpy as np, numbagrad as ng
    >>> ng.nn.Linear(3, 2)(np.ones((5, 3))).shape
    (5, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _parameter((out_features, in_features), dtype)
        self.register_parameter("bias", _parameter((out_features,), dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Any) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """``x1 @ weight[k] @ x2 + bias[k]``."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, dtype: Any = None
    ) -> None:
        super().__init__()
        self.weight = _parameter((out_features, in1_features, in2_features), dtype)
        self.register_parameter("bias", _parameter((out_features,), dtype) if bias else None)
        bound = 1 / math.sqrt(in1_features)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, input1: Any, input2: Any) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)


class Embedding(Module):
    """Rows of a table by integers."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"padding_idx {padding_idx} must be within num_embeddings {num_embeddings}")
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = _parameter((num_embeddings, embedding_dim), dtype)
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight._data[self.padding_idx] = 0

    def forward(self, input: Any) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Flatten(Module):
    """Axes from `start_dim` to `end_dim` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Any) -> Tensor:
        x = as_tensor(input)
        first, last = self.start_dim % x.ndim, self.end_dim % x.ndim
        return x.reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))  # type: ignore[attr-defined]


class Dropout(Module):
    """Zeros at random while training."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p

    def forward(self, input: Any) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


# ----- Norms -----


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.register_parameter("weight", _parameter(self.normalized_shape, dtype) if elementwise_affine else None)
        self.register_parameter(
            "bias", _parameter(self.normalized_shape, dtype) if elementwise_affine and bias else None
        )
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Any) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """Divided by the root mean square over the last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.register_parameter("weight", _parameter(self.normalized_shape, dtype) if elementwise_affine else None)
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Any) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Module):
    """Mean 0 and variance 1 over groups of channels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: Any = None
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels {num_channels} must be divisible by num_groups {num_groups}")
        self.num_groups, self.eps = num_groups, eps
        for name in ("weight", "bias"):
            self.register_parameter(name, _parameter((num_channels,), dtype) if affine else None)
        if affine:
            init.ones_(self.weight)

    def forward(self, input: Any) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _BatchNorm(Module):
    axes: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.track_running_stats = track_running_stats
        for name in ("weight", "bias"):
            self.register_parameter(name, _parameter((num_features,), dtype) if affine else None)
        if affine:
            init.ones_(self.weight)
        kind = np.float64 if dtype is None else dtype
        tracked = track_running_stats
        self.register_buffer("running_mean", wrap(np.zeros(num_features, kind)) if tracked else None)
        self.register_buffer("running_var", wrap(np.ones(num_features, kind)) if tracked else None)
        self.register_buffer("num_batches_tracked", wrap(np.zeros((), np.int64)) if tracked else None)

    def forward(self, input: Any) -> Tensor:
        x = as_tensor(input)
        if x.ndim not in self.axes:
            raise ValueError(f"expected {' or '.join(f'{n}D' for n in self.axes)} input (got {x.ndim}D input)")
        momentum = self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked._data[...] += 1
            momentum = 1.0 / int(self.num_batches_tracked._data) if momentum is None else momentum
        follows = self.training or self.running_mean is None
        running = (
            (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        )
        return F.batch_norm(
            x, *running, self.weight, self.bias, follows, 0.0 if momentum is None else momentum, self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(_BatchNorm):
    """Mean 0 and variance 1 per channel of (N, C) or (N, C, L)."""

    axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Mean 0 and variance 1 per channel of (N, C, H, W)."""

    axes = (4,)


class BatchNorm3d(_BatchNorm):
    """Mean 0 and variance 1 per channel of (N, C, D, H, W)."""

    axes = (5,)


class PReLU(Module):
    """x where positive, else a learned multiple of it."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = None) -> None:
        super().__init__()
        self.weight = Parameter(np.full(num_parameters, init, np.float64 if dtype is None else dtype))

    def forward(self, input: Any) -> Tensor:
        return F.prelu(input, self.weight)


__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "Linear",
    "PReLU",
    "RMSNorm",
]
