"""Layouts: what shape and dtype an array has, interned so that equality is identity.

A `Layout` stands for (shape, dtype) of a C-contiguous array. Two such arrays of the same shape and dtype share one
`Layout` object, so the hot path of an op asks `x._layout is y._layout` instead of comparing shapes, dtypes and flags.
Every other array gets a layout of its own, which is equal to nothing.

`code` says whether an op may take its fast path: the index of the dtype in `FAST_DTYPES` for small arrays in native
byte order, else -1. `kind` is NumPy's letter for the dtype, with "f" for bfloat16 too.
"""

from __future__ import annotations

import numpy as np

FAST_DTYPES = [np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16)]
"""Dtypes with compiled kernels on the fast path, in the order of `Layout.code`; bfloat16 joins when it is met."""

CODES = 4
"""How many dtypes there can be on the fast path."""

FAST_SIZE = 16384
"""Above this many elements the memory pool and the thread team pay, so the fast path hands over."""

_INTERNED_AT_MOST = 4096
_CODES = {dtype: code for code, dtype in enumerate(FAST_DTYPES)}
interned: dict[tuple[tuple[int, ...], np.dtype], Layout] = {}
"""The layouts of dense arrays, by shape and dtype."""


def kind_of(dtype: np.dtype) -> str:
    """NumPy's letter for what a dtype holds; bfloat16, which NumPy does not know, is a float."""
    kind = dtype.kind
    return "f" if kind == "V" and is_bfloat16(dtype) else kind


def is_bfloat16(dtype: np.dtype) -> bool:
    """Whether a dtype is the bfloat16 of ml_dtypes."""
    return dtype in _CODES or (dtype.name == "bfloat16" and _admit(dtype)) if dtype.kind == "V" else False


def _admit(dtype: np.dtype) -> bool:
    FAST_DTYPES.append(dtype)
    _CODES[dtype] = len(_CODES)
    return True


def code_of(dtype: np.dtype) -> int:
    """Place of a dtype among those with kernels, or -1."""
    return _CODES.get(dtype, -1)


def is_half(dtype: np.dtype) -> bool:
    """Whether a dtype is one of the floats of 16 bits, whose arithmetic is done in float32."""
    return dtype.itemsize == 2 and kind_of(dtype) == "f"


class Layout:
    """Shape and dtype of an array, and whether the fast path may take it."""

    __slots__ = ("code", "dense", "dtype", "kind", "shape", "size")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, size: int, dense: bool) -> None:
        self.shape = shape
        self.dtype = dtype
        self.size = size
        self.dense = dense
        self.kind = kind_of(dtype)
        self.code = _CODES.get(dtype, -1) if dense and size <= FAST_SIZE else -1

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Layout({self.shape}, {self.dtype}{'' if self.dense else ', strided'})"


def layout_of(array: np.ndarray) -> Layout:
    """The layout of `array`: shared for C-contiguous arrays, new for all others."""
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        return Layout(array.shape, array.dtype, array.size, False)
    return dense_layout(array.shape, array.dtype)


def dense_layout(shape: tuple[int, ...], dtype: np.dtype) -> Layout:
    """The one layout that all C-contiguous arrays of this shape and dtype share."""
    key = (shape, dtype)
    found = interned.get(key)
    if found is None:
        # Identity only speeds things up, so forgetting all of them is always right.
        if len(interned) >= _INTERNED_AT_MOST:
            interned.clear()
        size = 1
        for n in shape:
            size *= n
        found = interned[key] = Layout(shape, dtype, size, True)
    return found
