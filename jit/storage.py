"""Storage: float16 and bfloat16, which lie in memory in 16 bits and are computed with in float32.

Kernels convert as they load and store, so an item costs a tenth of a nanosecond more and half the memory. bfloat16 is
the upper half of a float32; float16 is converted by the processor where it can, else by integer arithmetic, which is
exact too and vectorises everywhere.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default

from numbagrad.jit.intrinsics import is_x86

_I16, _I32, _F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()


class Storage(types.Type):
    """A type of items in memory; loaded, they are float32."""


@register_default(Storage)
class _StorageModel(models.PrimitiveModel):
    def __init__(self, manager: Any, ty: Storage) -> None:
        super().__init__(manager, ty, _I16)


FLOAT16, BFLOAT16 = Storage("float16"), Storage("bfloat16")
TYPES = {"float16": FLOAT16, "bfloat16": BFLOAT16}

BFLOAT16_NUMBER = "numbagrad_bfloat16"
"""Symbol for the place where kernels find bfloat16's type number, which differs from process to process."""

_number = ctypes.c_int(-1)
llvm.add_symbol(BFLOAT16_NUMBER, ctypes.addressof(_number))


# ----- Dtypes by name -----


@functools.cache
def dtype_of(name: str) -> np.dtype:
    """NumPy's dtype of that name; bfloat16 is the one of ml_dtypes.

    Raises
    ------
    ImportError
        If ml_dtypes is not installed.
    """
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError("bfloat16 needs the package ml_dtypes; install numbagrad[half]") from None
    dtype = np.dtype(ml_dtypes.bfloat16)
    _number.value = dtype.num
    return dtype


def compute_name(name: str) -> str:
    """Name of the dtype that items of the dtype `name` are computed with."""
    return "float32" if name in TYPES else name


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that items of `dtype` are computed with."""
    return _SINGLE if dtype.itemsize == 2 and dtype.name in TYPES else dtype


_SINGLE = np.dtype(np.float32)


def kernel_type(name: str) -> Any:
    """Numba's type of items of the dtype `name`."""
    if name == "bfloat16":
        dtype_of(name)
    return TYPES.get(name) or getattr(types, "boolean" if name == "bool" else name)


def value_type(item: Any) -> Any:
    """Numba's type of what loading an item gives."""
    return types.float32 if isinstance(item, Storage) else item


# ----- Conversions -----


def load(context: Any, builder: Any, item: Storage, place: Any) -> Any:
    """The float32 at a place in memory."""
    return widened(context, builder, item, builder.load(place, align=2))


def widened(context: Any, builder: Any, item: Storage, raw: Any) -> Any:
    """The float32 that 16 bits mean."""
    if item == BFLOAT16:
        return builder.bitcast(builder.shl(builder.zext(raw, _I32), _I32(16)), _F32)
    if _converts_in_hardware(context.codegen()):
        return builder.fpext(builder.bitcast(raw, ir.HalfType()), _F32)
    return _from_half(builder, builder.zext(raw, _I32))


def store(context: Any, builder: Any, item: Storage, value: Any, place: Any) -> None:
    """Write a float32, rounded to the nearest, to a place in memory."""
    builder.store(rounded(context, builder, item, value), place, align=2)


def rounded(context: Any, builder: Any, item: Storage, value: Any) -> Any:
    """The 16 bits of a float32, rounded to the nearest, halves to even."""
    if item == BFLOAT16:
        return _to_bfloat16(builder, value)
    if _converts_in_hardware(context.codegen()):
        return builder.bitcast(builder.fptrunc(value, ir.HalfType()), _I16)
    return _to_half(builder, value)


def _converts_in_hardware(codegen: Any) -> bool:
    """Whether the processor converts float16. On x86 without F16C LLVM would call a library that is not there."""
    return not is_x86(codegen) or "+f16c" in codegen._tm_features


def _to_bfloat16(b: Any, value: Any) -> Any:
    bits = b.bitcast(value, _I32)
    upper = b.lshr(bits, _I32(16))
    near = b.lshr(b.add(bits, b.add(b.and_(upper, _I32(1)), _I32(0x7FFF))), _I32(16))
    return b.trunc(b.select(b.fcmp_unordered("uno", value, value), b.or_(upper, _I32(0x40)), near), _I16)


def _from_half(b: Any, bits: Any) -> Any:
    """float16 as float32: the exponent is put right by a product, which takes subnormal numbers along."""
    sign, size = b.shl(b.and_(bits, _I32(0x8000)), _I32(16)), b.shl(b.and_(bits, _I32(0x7FFF)), _I32(13))
    scaled = b.bitcast(b.fmul(b.bitcast(size, _F32), ir.Constant(_F32, 2.0**112)), _I32)
    infinite = b.icmp_unsigned(">=", size, _I32(0x0F800000))
    return b.bitcast(b.or_(b.select(infinite, b.or_(scaled, _I32(0x7F800000)), scaled), sign), _F32)


def _to_half(b: Any, value: Any) -> Any:
    """float32 as float16: subnormal results are rounded by adding a half, normal ones on their bits."""
    bits = b.bitcast(value, _I32)
    sign, size = b.and_(b.lshr(bits, _I32(16)), _I32(0x8000)), b.and_(bits, _I32(0x7FFFFFFF))
    odd = b.and_(b.lshr(size, _I32(13)), _I32(1))
    normal = b.lshr(b.add(b.sub(size, _I32(0x38000000)), b.add(_I32(0xFFF), odd)), _I32(13))
    half = b.fadd(b.bitcast(size, _F32), ir.Constant(_F32, 0.5))
    small = b.sub(b.bitcast(half, _I32), _I32(0x3F000000))
    large = b.select(b.icmp_unsigned("<=", size, _I32(0x7F800000)), _I32(0x7C00), _I32(0x7E00))
    finite = b.select(b.icmp_unsigned("<", size, _I32(0x38800000)), small, normal)
    found = b.select(b.icmp_unsigned(">=", size, _I32(0x47800000)), large, finite)
    return b.trunc(b.or_(found, sign), _I16)


__all__ = ["BFLOAT16", "FLOAT16", "Storage", "compute_dtype", "compute_name", "dtype_of", "kernel_type", "value_type"]
