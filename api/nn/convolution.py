"""Layers over space: convolutions and pooling. Arguments and initial values are torch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.nn import functional as F
from numbagrad.nn import init
from numbagrad.nn.module import Module
from numbagrad.nn.parameter import Parameter


class _Convolution(Module):
    _axes: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{in_channels} and {out_channels} channels must be divisible by groups, got {groups}")
        kernel = tuple(kernel_size) if isinstance(kernel_size, Sequence) else (kernel_size,) * self._axes
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        shape = (out_channels, in_channels // groups, *kernel)
        kind = np.dtype(np.float64 if dtype is None else dtype)
        self.weight: Any = Parameter(np.zeros(shape, kind))
        self.register_parameter("bias", Parameter(np.zeros(out_channels, kind)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Any) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self._axes - 1]
        return convolve(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class Conv1d(_Convolution):
    """Cross-correlation over the last axis of (batch, channels, length)."""

    _axes = 1


class Conv2d(_Convolution):
    """Cross-correlation over the last two axes of (batch, channels, height, width).

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or sequence of int
    padding : int, sequence of int, "same" or "valid"
    groups : int
    bias : bool
    dtype : dtype, optional

    Examples
    --------
    >>> import numpy as np, numbagrad as ng
    >>> ng.nn.Conv2d(3, 8, kernel_size=3, padding=1)(np.ones((2, 3, 5, 5))).shape
    (2, 8, 5, 5)
    """

    _axes = 2


class Conv3d(_Convolution):
    """Cross-correlation over the last three axes."""

    _axes = 3


class _MaxPool(Module):
    _axes: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation

    def forward(self, input: Any) -> Tensor:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self._axes - 1]
        return pool(input, self.kernel_size, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool1d(_MaxPool):
    """The largest number of each window over one axis."""

    _axes = 1


class MaxPool2d(_MaxPool):
    """The largest number of each window over two axes."""

    _axes = 2


class MaxPool3d(_MaxPool):
    """The largest number of each window over three axes."""

    _axes = 3


class _AvgPool(Module):
    _axes: int

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.count_include_pad = padding, count_include_pad

    def forward(self, input: Any) -> Tensor:
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[self._axes - 1]
        return pool(input, self.kernel_size, self.stride, self.padding, count_include_pad=self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The average of each window over one axis."""

    _axes = 1


class AvgPool2d(_AvgPool):
    """The average of each window over two axes."""

    _axes = 2


class AvgPool3d(_AvgPool):
    """The average of each window over three axes."""

    _axes = 3
