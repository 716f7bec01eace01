"""Discrete Fourier transforms under NumPy's names (`numpy.fft`).

Each is linear. The gradient is the adjoint: that of a forward transform is the inverse one with the other
normalisation, and the other way round; what was padded is cut off, what was cut off is padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from numbagrad.engine.tensor import Tensor
from numbagrad.ops.arranging import roll
from numbagrad.ops.conversion import conj
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.primitive import primitive
from numbagrad.ops.registry import stands_for

_OTHER = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The normalisation of the adjoint."""


@primitive(linear=True, name="fft", wide="all", casts="single")
def _fft(x, *, n, axis, norm, inverse):
    return (np.fft.ifft if inverse else np.fft.fft)(x, n, axis, norm)


@_fft.vjp("x")
def _(g, x_shape, n, axis, norm, inverse):
    back = _fft(g, n=n, axis=axis, norm=_OTHER[norm], inverse=not inverse)
    return _resized(back, x_shape[axis], axis)


@primitive(linear=True, name="rfft", wide="all", casts="single")
def _rfft(x, *, n, axis, norm):
    return np.fft.rfft(x, n, axis, norm)


@_rfft.vjp("x")
def _(g, x_shape, n, axis, norm):
    # Not Hermitian: each frequency that was put out counts once.
    back = _fft(_resized(g, n, axis), n=n, axis=axis, norm=_OTHER[norm], inverse=True)
    return _resized(back, x_shape[axis], axis)


@primitive(name="irfft", wide="all", casts="single")
def _irfft(x, *, n, axis, norm):
    return np.fft.irfft(x, n, axis, norm)


@_irfft.vjp("x")
def _(g, x_shape, n, axis, norm):
    back = _rfft(g, n=n, axis=axis, norm=_OTHER[norm])
    # All frequencies but the first and, for even n, the last stand for their conjugates too.
    weights = np.full(n // 2 + 1, 2.0, g.dtype)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    ends = (-1,) + (1,) * (len(x_shape) - 1 - axis)
    return _resized(back * weights.reshape(ends), x_shape[axis], axis)


@_irfft.jvp
def _(node, tangents):
    return _irfft(tangents[0], **node.statics.settings)


@primitive(linear=True, name="resize_axis")
def _resize_axis(x, *, n, axis):
    shape = list(x.shape)
    shape[axis] = n
    out = np.zeros(shape, x.dtype)
    kept = (slice(None),) * axis + (slice(0, min(n, x.shape[axis])),)
    out[kept] = x[kept]
    return out


@_resize_axis.vjp("x")
def _(g, x_shape, axis):
    return _resize_axis(g, n=x_shape[axis], axis=axis)


def _resized(x: Tensor, n: int, axis: int) -> Tensor:
    """Cut or padded with zeros to length `n`."""
    return x if x.shape[axis] == n else _resize_axis(x, n=n, axis=axis)


def _checked(a: Any, n: int | None, axis: int, norm: str | None, out: Any) -> tuple[Tensor, int, int, str]:
    x = as_tensor(a)
    if out is not None:
        raise TypeError("out= is not supported for Tensors; assign the result instead")
    if norm not in (None, *_OTHER):
        raise ValueError(f"norm is {norm!r}, wanted one of {', '.join(_OTHER)} or None")
    axis = normalize_axis_index(axis, x.ndim)
    length = x.shape[axis] if n is None else int(n)
    if length < 1:
        raise ValueError(f"Invalid number of FFT data points ({length}) specified; wanted at least 1")
    return x, length, axis, norm or "backward"


_NOTES = """

    Parameters
    ----------
    a : array_like
    {lengths}
    norm : {{"backward", "ortho", "forward"}}, optional
        Which direction is scaled, as in NumPy.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If the length is below 1 or `norm` is not known.

    Examples
    --------
    >>> import numbagrad.numpy as np
    >>> np.fft.{name}(np.ones({example})).shape
    {shape}
    """
_ONE = (
    "n : int, optional\n        Length of the transform: the input is cut, or padded with zeros.\n"
    "    axis : int, optional"
)
_MANY = "s : sequence of int, optional\n        Length along each axis.\n    axes : sequence of int, optional"


def _documented(summary: str, name: str, many: bool, example: str, shape: str) -> Callable[[Any], Any]:
    def note(function: Any) -> Any:
        function.__name__ = function.__qualname__ = name
        lengths = _MANY if many else _ONE
        function.__doc__ = summary + _NOTES.format(lengths=lengths, name=name, example=example, shape=shape)
        return stands_for(getattr(np.fft, name))(function)

    return note


@_documented("Discrete Fourier transform along one axis.", "fft", False, "4", "(4,)")
def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Tensor:
    x, n, axis, norm = _checked(a, n, axis, norm, out)
    return _fft(x, n=n, axis=axis, norm=norm, inverse=False)


@_documented("Inverse of `fft`.", "ifft", False, "4", "(4,)")
def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Tensor:
    x, n, axis, norm = _checked(a, n, axis, norm, out)
    return _fft(x, n=n, axis=axis, norm=norm, inverse=True)


@_documented("Discrete Fourier transform of real input: the frequencies from 0 up.", "rfft", False, "4", "(3,)")
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Tensor:
    x, n, axis, norm = _checked(a, n, axis, norm, out)
    if x.dtype.kind == "c":
        raise TypeError(f"rfft takes real input, got {x.dtype}; use fft")
    return _rfft(x, n=n, axis=axis, norm=norm)


@_documented("Inverse of `rfft`.", "irfft", False, "3", "(4,)")
def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Tensor:
    x = as_tensor(a)
    full = 2 * (x.shape[axis] - 1) if n is None else n
    x, n, axis, norm = _checked(x, full, axis, norm, out)
    return _irfft(x, n=n, axis=axis, norm=norm)


@_documented("Transform of input whose spectrum is real (Hermitian input).", "hfft", False, "3", "(4,)")
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Tensor:
    return irfft(conj(as_tensor(a)), n, axis, _OTHER[norm or "backward"], out)


@_documented("Inverse of `hfft`.", "ihfft", False, "4", "(3,)")
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Tensor:
    return conj(rfft(a, n, axis, _OTHER[norm or "backward"], out))


# ----- Several axes: one after the other -----


def _pairs(x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[tuple[int | None, int]]:
    """(length, axis) for each transform."""
    if axes is None:
        axes = range(-len(s), 0) if s is not None else range(x.ndim)
    axes = [normalize_axis_index(axis, x.ndim) for axis in axes]
    lengths = [None] * len(axes) if s is None else list(s)
    if len(lengths) != len(axes):
        raise ValueError(f"Shape and axes have different lengths: s is {s}, axes {tuple(axes)}")
    return [(x.shape[axis] if n == -1 else n, axis) for n, axis in zip(lengths, axes, strict=True)]


def _each(one: Callable[..., Tensor], a: Any, s: Any, axes: Any, norm: str | None, out: Any) -> Tensor:
    x = as_tensor(a)
    for n, axis in reversed(_pairs(x, s, axes)):
        x = one(x, n, axis, norm, out)
    return x


@_documented("Discrete Fourier transform along several axes.", "fftn", True, "(2, 4)", "(2, 4)")
def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: None = None) -> Tensor:
    return _each(fft, a, s, axes, norm, out)


@_documented("Inverse of `fftn`.", "ifftn", True, "(2, 4)", "(2, 4)")
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: None = None) -> Tensor:
    return _each(ifft, a, s, axes, norm, out)


@_documented("Discrete Fourier transform along two axes.", "fft2", True, "(2, 4)", "(2, 4)")
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: None = None) -> Tensor:
    return _each(fft, a, s, axes, norm, out)


@_documented("Inverse of `fft2`.", "ifft2", True, "(2, 4)", "(2, 4)")
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: None = None) -> Tensor:
    return _each(ifft, a, s, axes, norm, out)


@_documented("`fftn` of real input.", "rfftn", True, "(2, 4)", "(2, 3)")
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: None = None) -> Tensor:
    x = as_tensor(a)
    *others, (n, axis) = _pairs(x, s, axes)
    x = rfft(x, n, axis, norm, out)
    for n, axis in reversed(others):
        x = fft(x, n, axis, norm, out)
    return x


@_documented("Inverse of `rfftn`.", "irfftn", True, "(2, 3)", "(2, 4)")
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: None = None) -> Tensor:
    x = as_tensor(a)
    *others, (n, axis) = _pairs(x, s, axes)
    for m, other in others:
        x = ifft(x, m, other, norm, out)
    return irfft(x, n, axis, norm, out)


@_documented("`fft2` of real input.", "rfft2", True, "(2, 4)", "(2, 3)")
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: None = None) -> Tensor:
    return rfftn(a, s, axes, norm, out)


@_documented("Inverse of `rfft2`.", "irfft2", True, "(2, 3)", "(2, 4)")
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: None = None) -> Tensor:
    return irfftn(a, s, axes, norm, out)


@stands_for(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Tensor:
    """Put the zero frequency into the middle.

    Examples
    --------
    >>> import numbagrad.numpy as np
    >>> np.fft.fftshift(np.arange(4))
    array([2, 3, 0, 1])
    """
    return _shifted(x, axes, lambda n: n // 2)


@stands_for(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Tensor:
    """Undo `fftshift`.

    Examples
    --------
    >>> import numbagrad.numpy as np
    >>> np.fft.ifftshift(np.arange(3))
    array([1, 2, 0])
    """
    return _shifted(x, axes, lambda n: -(n // 2))


def _shifted(x: Any, axes: Any, by: Callable[[int], int]) -> Tensor:
    x = as_tensor(x)
    axes = tuple(range(x.ndim)) if axes is None else (axes,) if isinstance(axes, (int, np.integer)) else tuple(axes)
    return roll(x, [by(x.shape[axis]) for axis in axes], axes)


__all__ = [
    "fft",
    "fft2",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftn",
]
