"""Convolution and pooling over any number of axes, arrays laid out as (batch, channels, *space).

A convolution is a sum over products of three arrays: the image ``x``, the weights ``w`` and the result ``y``. Given two
of them, the other is one of three primitives, and the gradients of each are the two others: any order of derivative.
All copy the windows of a few images into columns that stay in the cache, and leave the rest to BLAS. A maximum over
windows is found on arrays and taken by index; an average is a sum of windows, whose gradient spreads them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.arithmetic import divide
from numbagrad.ops.conversion import conj
from numbagrad.ops.indexing import take_along_axis
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.shape import reshape

COLUMN_BYTES = 1 << 20
"""Of the columns that are made and multiplied at a time: what a second-level cache holds."""


TURN_UP_TO = 4
"""Out channels per channel up to which the gradient of the image is a convolution: copying a window takes about a
seventh of adding it up."""


class Windows(NamedTuple):
    """How windows lie over the axes of space: one entry per axis, `padding` as (before, after)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    def padded(self, space: Sequence[int]) -> tuple[int, ...]:
        """Lengths with what is put around."""
        return tuple(n + before + after for n, (before, after) in zip(space, self.padding, strict=True))

    def counts(self, space: Sequence[int]) -> tuple[int, ...]:
        """How many windows fit along each axis."""
        reach = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        return tuple((n - r) // s + 1 for n, r, s in zip(self.padded(space), reach, self.stride, strict=True))

    def inner(self, space: Sequence[int]) -> tuple[Any, ...]:
        """Where the array lies within the padded one."""
        return (..., *(slice(before, before + n) for n, (before, _) in zip(space, self.padding, strict=True)))

    def over(self, padded: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """A view (batch, channels, *kernel, *counts) of the windows."""
        steps = padded.strides[2:]
        within = [d * step for d, step in zip(self.dilation, steps, strict=True)]
        between = [s * step for s, step in zip(self.stride, steps, strict=True)]
        shape = (*padded.shape[:2], *self.kernel, *counts)
        return as_strided(padded, shape, (*padded.strides[:2], *within, *between), writeable=False)

    def places(self, counts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """For each place in the kernel: its index, and where in the padded array it is over all windows."""
        for at in itertools.product(*map(range, self.kernel)):
            starts = [k * d for k, d in zip(at, self.dilation, strict=True)]
            axes = zip(starts, counts, self.stride, strict=True)
            yield at, (..., *(slice(start, start + (n - 1) * s + 1, s) for start, n, s in axes))


def _pad(x: np.ndarray, windows: Windows, value: Any = 0) -> np.ndarray:
    if not any(before or after for before, after in windows.padding):
        return x
    space = x.shape[2:]
    padded = np.full((*x.shape[:2], *windows.padded(space)), value, x.dtype)
    padded[windows.inner(space)] = x
    return padded


def _parts(images: int, bytes_each: int) -> Iterator[slice]:
    """Ranges of the batch whose columns fit into the cache."""
    step = max(1, COLUMN_BYTES // max(1, bytes_each))
    return (slice(start, min(start + step, images)) for start in range(0, images, step))


def _columns(x: np.ndarray, windows: Windows, groups: int, dtype: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """Ranges of the batch, and their windows as matrices (images, groups, channels and kernel, windows)."""
    counts = windows.counts(x.shape[2:])
    rows, length = x.shape[1] * math.prod(windows.kernel), math.prod(counts)
    memory = None
    for part in _parts(len(x), rows * length * np.dtype(dtype).itemsize):
        view = windows.over(_pad(x[part], windows), counts)
        if memory is None:
            memory = np.empty(view.shape, dtype)
        columns = memory[: len(view)]
        np.copyto(columns, view)
        yield part, columns.reshape(len(view), groups, rows // groups, length)


def _matrices(w: np.ndarray, groups: int) -> np.ndarray:
    """Weights as a matrix (out channels, in channels and kernel) for each group."""
    return w.reshape(groups, w.shape[0] // groups, -1)


@primitive(wide="all", casts="low")
def convolve_windows(x, w, *, windows, groups):
    """The result of a convolution."""
    counts = windows.counts(x.shape[2:])
    dtype = np.result_type(x, w)
    y = np.empty((len(x), groups, w.shape[0] // groups, math.prod(counts)), dtype)
    weights = _matrices(w.astype(dtype, copy=False), groups)
    for part, columns in _columns(x, windows, groups, dtype):
        np.matmul(weights, columns, out=y[part])
    return y.reshape(len(x), w.shape[0], *counts)


@primitive(wide="all", casts="low")
def convolved_image(y, w, *, windows, groups, space):
    """The image that a result came from, transposed: what each place of it adds up to."""
    turned = _turned(windows)
    if turned is not None and w.shape[0] <= TURN_UP_TO * w.shape[1] * groups:
        return convolve_windows.forward(y, _turned_weights(w, groups), windows=turned, groups=groups)
    counts, dtype = y.shape[2:], np.result_type(y, w)
    channels = w.shape[1] * groups
    weights = _matrices(w.astype(dtype, copy=False), groups).swapaxes(1, 2)
    results = y.reshape(len(y), groups, w.shape[0] // groups, math.prod(counts)).astype(dtype, copy=False)
    x = np.empty((len(y), channels, *space), dtype)
    per_image = channels * math.prod(windows.kernel) * math.prod(counts) * dtype.itemsize
    for part in _parts(len(y), per_image):
        columns = np.matmul(weights, results[part])
        x[part] = _spread(columns.reshape(-1, channels, *windows.kernel, *counts), windows, space)
    return x


@primitive(wide="all", casts="low")
def convolved_weights(x, y, *, windows, groups):
    """The weights that a result came from, transposed: what each of them adds up to."""
    dtype = np.result_type(x, y)
    results = y.reshape(len(y), groups, y.shape[1] // groups, math.prod(y.shape[2:])).astype(dtype, copy=False)
    rows = x.shape[1] // groups * math.prod(windows.kernel)
    w = np.zeros((groups, rows, y.shape[1] // groups), dtype)
    for part, columns in _columns(x, windows, groups, dtype):
        # In this order BLAS takes 0.6 of the time: the columns are many, the channels few.
        w += np.matmul(columns, results[part].swapaxes(-1, -2)).sum(0)
    return w.swapaxes(1, 2).reshape(y.shape[1], x.shape[1] // groups, *windows.kernel)


def _turned(windows: Windows) -> Windows | None:
    """The transpose of a convolution as one itself; None where there is a stride or too much padding."""
    reach = [d * (k - 1) for k, d in zip(windows.kernel, windows.dilation, strict=True)]
    padding = tuple((r - before, r - after) for r, (before, after) in zip(reach, windows.padding, strict=True))
    if set(windows.stride) != {1} or min(min(pair) for pair in padding) < 0:
        return None
    return windows._replace(padding=padding)


def _turned_weights(w: np.ndarray, groups: int) -> np.ndarray:
    """Weights from the result to the image: channels change places, space is reversed."""
    split = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).swapaxes(1, 2)
    turned = split.reshape(w.shape[1] * groups, w.shape[0] // groups, *w.shape[2:])
    return np.flip(turned, tuple(range(2, w.ndim)))


def _spread(columns: np.ndarray, windows: Windows, space: Sequence[int]) -> np.ndarray:
    """Add windows (batch, channels, *kernel, *counts) up where they lie."""
    counts = columns.shape[2 + len(windows.kernel) :]
    padded = np.zeros((*columns.shape[:2], *windows.padded(space)), columns.dtype)
    for at, where in windows.places(counts):
        padded[where] += columns[(slice(None), slice(None), *at)]
    return padded[windows.inner(space)]


@convolve_windows.vjp("x")
def _(g, w, x_shape, windows, groups):
    return convolved_image(g, conj(w), windows=windows, groups=groups, space=x_shape[2:])


@convolve_windows.vjp("w")
def _(g, x, windows, groups):
    return convolved_weights(conj(x), g, windows=windows, groups=groups)


@convolved_image.vjp("y")
def _(g, w, windows, groups):
    return convolve_windows(g, conj(w), windows=windows, groups=groups)


@convolved_image.vjp("w")
def _(g, y, windows, groups):
    return convolved_weights(g, conj(y), windows=windows, groups=groups)


@convolved_weights.vjp("x")
def _(g, y, x_shape, windows, groups):
    return convolved_image(conj(y), g, windows=windows, groups=groups, space=x_shape[2:])


@convolved_weights.vjp("y")
def _(g, x, windows, groups):
    return convolve_windows(conj(x), g, windows=windows, groups=groups)


# ----- What is given, checked -----


def _each_axis(value: Any, axes: int, what: str, least: int) -> tuple[int, ...]:
    """One integer for each axis of space."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * axes
    if len(values) == 1:
        values *= axes
    if len(values) != axes or any(isinstance(v, bool) or not isinstance(v, (int, np.integer)) for v in values):
        raise TypeError(f"{what} must be an int or {axes} ints, got {value!r}")
    if min(values) < least:
        raise ValueError(f"{what} must be at least {least}, got {value!r}")
    return tuple(int(v) for v in values)


def _padding(padding: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """(before, after) for each axis."""
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":
        if set(stride) != {1}:
            raise ValueError("padding='same' is not supported for strided convolutions")
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((t // 2, t - t // 2) for t in totals)
    if isinstance(padding, str):
        raise ValueError(f"padding must be 'same', 'valid' or ints, got {padding!r}")
    return tuple((p, p) for p in _each_axis(padding, len(kernel), "padding", 0))


def _check_fits(windows: Windows, space: Sequence[int]) -> None:
    if min(windows.counts(space), default=1) < 1:
        raise ValueError(
            f"windows of {windows.kernel} with dilation {windows.dilation} are larger than the padded input, "
            f"{windows.padded(space)}"
        )


def _check_channels(x: Tensor, w: Tensor, groups: int) -> None:
    if groups < 1 or w.shape[0] % groups or x.shape[1] != w.shape[1] * groups:
        raise ValueError(
            f"convolution with weight of shape {w.shape} and groups={groups} takes {w.shape[1] * groups} channels and "
            f"gives a multiple of groups, got input of shape {x.shape}"
        )


def convolution(x: Any, weight: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """Cross-correlate images with weights, as layers of neural networks do.

    Parameters
    ----------
    x : array_like
        (batch, channels, *space).
    weight : array_like
        (out channels, channels / groups, *kernel).
    stride, dilation : int or sequence of int
    padding : int, sequence of int, "same" or "valid"
    groups : int
        Parts of the channels that do not see each other.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If the shapes do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> from numbagrad.ops.convolution import convolution
    >>> convolution(np.ones((1, 1, 4, 4)), np.ones((1, 1, 3, 3))).shape
    (1, 1, 2, 2)
    """
    x, w = as_tensor(x, "x"), as_tensor(weight, "weight")
    if x.ndim < 3 or x.ndim != w.ndim:
        raise ValueError(
            f"convolution takes (batch, channels, *space) and weights with as many axes, got {x.shape} and {w.shape}"
        )
    _check_channels(x, w, groups)
    kernel, axes = w.shape[2:], x.ndim - 2
    stride, dilation = _each_axis(stride, axes, "stride", 1), _each_axis(dilation, axes, "dilation", 1)
    windows = Windows(kernel, stride, _padding(padding, kernel, stride, dilation), dilation)
    _check_fits(windows, x.shape[2:])
    return convolve_windows(x, w, windows=windows, groups=groups)


# ----- Pooling -----


@primitive(linear=True, wide="all")
def sum_windows(x, *, windows):
    """The sum of each window."""
    counts = windows.counts(x.shape[2:])
    padded = _pad(x, windows)
    total = np.zeros((*x.shape[:2], *counts), x.dtype)
    for _, where in windows.places(counts):
        total += padded[where]
    return total


@primitive(linear=True, wide="all")
def spread_windows(y, *, windows, space):
    """Each number added to all places of its window."""
    padded = np.zeros((*y.shape[:2], *windows.padded(space)), y.dtype)
    for _, where in windows.places(y.shape[2:]):
        padded[where] += y
    return padded[windows.inner(space)].copy()


@sum_windows.vjp("x")
def _(g, x_shape, windows):
    return spread_windows(g, windows=windows, space=x_shape[2:])


@spread_windows.vjp("y")
def _(g, windows):
    return sum_windows(g, windows=windows)


def _pooling(x: Any, axes: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Tensor, Windows]:
    x = as_tensor(x, "input")
    if x.ndim != axes + 2:
        raise ValueError(f"pooling over {axes} axes takes (batch, channels, *space), got shape {x.shape}")
    kernel = _each_axis(kernel, axes, "kernel_size", 1)
    stride = kernel if stride is None else _each_axis(stride, axes, "stride", 1)
    around = _each_axis(padding, axes, "padding", 0)
    if any(2 * p > k for p, k in zip(around, kernel, strict=True)):
        raise ValueError(f"pad should be at most half of the kernel size {kernel}, got padding={padding}")
    windows = Windows(kernel, stride, tuple((p, p) for p in around), _each_axis(dilation, axes, "dilation", 1))
    _check_fits(windows, x.shape[2:])
    return x, windows


def max_pool(x: Any, axes: int, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Tensor:
    """The largest number of each window; of equal ones the first gets the gradient, and nan counts as largest."""
    x, windows = _pooling(x, axes, kernel, stride, padding, dilation)
    if x.dtype.kind != "f":
        raise TypeError(f"max_pool takes floats, got {x.dtype}")
    where = _largest(x._data, windows)
    flat = reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))
    index = where.reshape(*x.shape[:2], math.prod(where.shape[2:]))
    return reshape(take_along_axis(flat, index, -1), where.shape)


def _largest(x: np.ndarray, windows: Windows) -> np.ndarray:
    """Where in the flattened space the largest of each window is."""
    space = x.shape[2:]
    counts = windows.counts(space)
    padded = _pad(x, windows, -np.inf)
    numbers = _pad(np.arange(math.prod(space)).reshape(1, 1, *space), windows, -1)
    best = np.full((*x.shape[:2], *counts), -np.inf, x.dtype)
    index = np.full(best.shape, -1)
    for _, where in windows.places(counts):
        here, number = padded[where], numbers[where]
        better = ((here > best) | (index < 0) | ((here != here) & (best == best))) & (number >= 0)
        np.copyto(best, here, where=better)
        np.copyto(index, number, where=better)
    return index


def avg_pool(
    x: Any,
    axes: int,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The average of each window; `count_include_pad` counts what was put around, too."""
    x, windows = _pooling(x, axes, kernel, stride, padding, 1)
    if divisor_override == 0:
        raise ValueError("divisor must be not zero")
    total = sum_windows(x, windows=windows)
    if divisor_override is not None:
        return divide(total, divisor_override)
    if count_include_pad:
        return divide(total, math.prod(windows.kernel))
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    return divide(total, sum_windows(ones, windows=windows))


__all__: list[str] = []
