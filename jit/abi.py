"""How arrays get into kernels: Numba types that see an ndarray as plain memory.

Numba's own array type makes a reference-counted record for every argument and has one kernel per number of
dimensions and layout. A kernel here wants less: where the memory starts and, if it is flat, how many items it
has. So three array arguments cost 55 ns instead of 131, and one kernel serves every shape.

`Flat(dtype)` is a C-contiguous array of any shape as one run of items; `Strided(dtype)` is an array of any
layout, of which only the address is used; `Pointer(dtype)` is a place inside either, made in the kernel by
`x.at(offset)`.

Generated code holds no address: what it needs from the process it names by symbol, so that it can be kept on
disk.
"""

import ctypes
import operator
import sys
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.imputils import lower_builtin, lower_getattr
from numba.core.typing import templates
from numba.core.typing.templates import bound_function, infer_getattr, infer_global, signature
from numba.extending import NativeValue, intrinsic, unbox
from numba.np.numpy_support import as_dtype, from_dtype

from numbagrad.jit import storage

# A kernel over fewer items keeps the interpreter lock: letting go and taking it back costs 28 ns.
GIL_ITEMS = 16384


# ----- Types -----


class Memory(types.Type):
    """What every view of memory has in common: the type of its items."""

    def __init__(self, dtype: Any, **details: bool) -> None:
        self.dtype = _item_type(dtype)
        words = "".join(f", {key}={value}" for key, value in details.items() if value)
        super().__init__(name=f"{type(self).__name__}({self.dtype}{words})")


class _Argument(Memory):
    """Memory that an ndarray is turned into when it is passed to a kernel."""

    def __init__(self, dtype: Any, writable: bool = False) -> None:
        self.writable = writable
        super().__init__(dtype, writable=writable)


class Flat(_Argument):
    """A C-contiguous ndarray of any shape, seen as `x.size` items one after the other.

    Parameters
    ----------
    dtype
        Type of an item: a NumPy dtype or a Numba scalar type.
    writable
        Refuse read-only arrays, for results.

    Examples
    --------
    >>> Flat("float32")
    Flat(float32)
    """


class Strided(_Argument):
    """An ndarray of any layout, of which only the address is used; offsets are in bytes.

    Parameters
    ----------
    dtype
        Type of an item: a NumPy dtype or a Numba scalar type.
    writable
        Refuse read-only arrays, for results.

    Examples
    --------
    >>> Strided("float64", writable=True)
    Strided(float64, writable=True)
    """


class Pointer(Memory):
    """A place inside an array, made in a kernel by `x.at(byte_offset)`."""


def _item_type(dtype: Any) -> types.Type:
    item = dtype if isinstance(dtype, types.Type) else _type_of(dtype)
    if not isinstance(item, types.Number | types.Boolean | storage.Storage):
        raise TypeError(f"kernels take arrays of booleans or numbers, got items of type {item}")
    return item


def _type_of(dtype: Any) -> types.Type:
    name = dtype if isinstance(dtype, str) and dtype in storage.TYPES else np.dtype(dtype).name
    return storage.kernel_type(name) if name in storage.TYPES else from_dtype(np.dtype(dtype))


@register_default(Flat)
class _FlatModel(models.StructModel):
    def __init__(self, manager: Any, ty: Flat) -> None:
        super().__init__(manager, ty, [("data", types.CPointer(ty.dtype)), ("size", types.uintp)])


@register_default(Strided)
@register_default(Pointer)
class _AddressModel(models.StructModel):
    def __init__(self, manager: Any, ty: Memory) -> None:
        super().__init__(manager, ty, [("data", types.CPointer(ty.dtype))])


# ----- Inside a kernel -----


@infer_getattr
class _MemoryAttributes(templates.AttributeTemplate):
    key = Memory

    def resolve_size(self, ty: Memory) -> types.Type | None:
        return types.uintp if isinstance(ty, Flat) else None

    @bound_function("numbagrad.at")
    def resolve_at(self, ty: Memory, args: tuple[types.Type, ...], kws: dict[str, Any]) -> Any:
        if len(args) == 1 and isinstance(args[0], types.Integer):
            return signature(Pointer(ty.dtype), types.intp, recvr=ty)
        return None


@infer_global(operator.getitem)
class _GetItem(templates.AbstractTemplate):
    def generic(self, args: tuple[types.Type, ...], kws: dict[str, Any]) -> Any:
        if isinstance(args[0], Flat | Pointer) and isinstance(args[1], types.Integer):
            return signature(storage.value_type(args[0].dtype), args[0], types.uintp)
        return None


@infer_global(operator.setitem)
class _SetItem(templates.AbstractTemplate):
    def generic(self, args: tuple[types.Type, ...], kws: dict[str, Any]) -> Any:
        if isinstance(args[0], Flat | Pointer) and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.uintp, storage.value_type(args[0].dtype))
        return None


@lower_getattr(Flat, "size")
def _size(context: Any, builder: Any, ty: Flat, value: Any) -> Any:
    return _struct(context, builder, ty, value).size


@lower_builtin("numbagrad.at", Memory, types.intp)
def _at(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    place = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    place.data = _byte_place(context, builder, sig.args[0], args[0], args[1])
    return place._getvalue()


@lower_builtin(operator.getitem, Memory, types.uintp)
def _get(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    place = _item_place(context, builder, sig.args[0], args[0], args[1])
    return _read(context, builder, sig.args[0].dtype, place)


@lower_builtin(operator.setitem, Memory, types.uintp, types.Any)
def _set(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    place = _item_place(context, builder, sig.args[0], args[0], args[1])
    _write(context, builder, sig.args[0].dtype, args[2], place)
    return context.get_dummy_value()


@intrinsic
def load(typingctx: Any, memory: Any, byte_offset: Any) -> Any:
    """`load(x, byte_offset)` reads the item that lies `byte_offset` bytes after the start of x."""
    if not (isinstance(memory, Memory) and isinstance(byte_offset, types.Integer)):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _byte_place(context, builder, sig.args[0], args[0], args[1])
        return _read(context, builder, sig.args[0].dtype, place)

    return storage.value_type(memory.dtype)(memory, types.intp), codegen


@intrinsic
def store(typingctx: Any, memory: Any, byte_offset: Any, value: Any) -> Any:
    """`store(x, byte_offset, v)` writes the item that lies `byte_offset` bytes after the start of x."""
    if not (isinstance(memory, Memory) and isinstance(byte_offset, types.Integer)):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _byte_place(context, builder, sig.args[0], args[0], args[1])
        _write(context, builder, sig.args[0].dtype, args[2], place)
        return context.get_dummy_value()

    return types.void(memory, types.intp, storage.value_type(memory.dtype)), codegen


def _read(context: Any, builder: Any, item: types.Type, place: Any) -> Any:
    if isinstance(item, storage.Storage):
        return storage.load(context, builder, item, place)
    return context.unpack_value(builder, item, place)


def _write(context: Any, builder: Any, item: types.Type, value: Any, place: Any) -> None:
    if isinstance(item, storage.Storage):
        storage.store(context, builder, item, value, place)
    else:
        context.pack_value(builder, item, value, place)


@intrinsic
def as_stored(typingctx: Any, memory: Any, value: Any) -> Any:
    """`as_stored(x, v)` is the number v as an item of x would hold it."""
    if not isinstance(memory, Memory):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        item = sig.args[0].dtype
        if not isinstance(item, storage.Storage):
            return args[1]
        return storage.widened(context, builder, item, storage.rounded(context, builder, item, args[1]))

    kind = storage.value_type(memory.dtype)
    return kind(memory, kind), codegen


def _struct(context: Any, builder: Any, ty: Memory, value: Any) -> Any:
    return cgutils.create_struct_proxy(ty)(context, builder, value=value)


def _item_place(context: Any, builder: Any, ty: Memory, value: Any, index: Any) -> Any:
    return builder.gep(_struct(context, builder, ty, value).data, [index], inbounds=True)


def _byte_place(context: Any, builder: Any, ty: Memory, value: Any, offset: Any) -> Any:
    data = _struct(context, builder, ty, value).data
    place = builder.gep(builder.bitcast(data, _BYTES), [offset], inbounds=True)
    return builder.bitcast(place, data.type)


# ----- The interpreter lock -----


@intrinsic
def release_gil(typingctx: Any, items: Any) -> Any:
    """`state = release_gil(n)` lets other Python threads run while a loop over n items does, if n is large.

    Every path from here to the kernel's end must pass `acquire_gil(state)`; nothing between may raise.
    """
    if not isinstance(items, types.Integer):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        state = cgutils.alloca_once_value(builder, ir.Constant(_BYTES, None))
        large = builder.icmp_unsigned(">=", args[0], ir.Constant(args[0].type, GIL_ITEMS))
        with builder.if_then(large, likely=False):
            builder.store(context.get_python_api(builder).save_thread(), state)
        return builder.load(state)

    return types.voidptr(types.uintp), codegen


@intrinsic
def acquire_gil(typingctx: Any, state: Any) -> Any:
    """`acquire_gil(state)` takes back what `release_gil` let go of."""
    if state != types.voidptr:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        with builder.if_then(cgutils.is_not_null(builder, args[0]), likely=False):
            context.get_python_api(builder).restore_thread(args[0])
        return context.get_dummy_value()

    return types.void(types.voidptr), codegen


# ----- From an ndarray to memory -----


class _ArrayFields(ctypes.Structure):
    """The start of NumPy's PyArrayObject, which every NumPy from 1.x on lays out like this."""

    _fields_ = [
        ("head", ctypes.c_byte * object.__basicsize__),
        ("data", ctypes.c_void_p),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("descr", ctypes.c_void_p),
        ("flags", ctypes.c_int),
    ]


class _DtypeFields(ctypes.Structure):
    """The start of NumPy's PyArray_Descr; what follows differs between NumPy 1 and 2."""

    _fields_ = [
        ("head", ctypes.c_byte * object.__basicsize__),
        ("typeobj", ctypes.c_void_p),
        ("kind", ctypes.c_char),
        ("type", ctypes.c_char),
        ("byteorder", ctypes.c_char),
        ("flags", ctypes.c_char),
        ("type_num", ctypes.c_int),
    ]


# The type of an object is the last field of its head, in free-threaded and debug builds too.
_TYPE_OFFSET = object.__basicsize__ - ctypes.sizeof(ctypes.c_void_p)
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x0001, 0x0100, 0x0400
_SWAPPED = ord(">" if sys.byteorder == "little" else "<")
_NDARRAY = "numbagrad_ndarray"
_BYTES = ir.IntType(8).as_pointer()
_INT, _INTP = ir.IntType(32), ir.IntType(ctypes.sizeof(ctypes.c_void_p) * 8)


def _check_layout() -> None:
    """Compare both structures with what NumPy says, so that an unknown NumPy fails here, not in a kernel."""
    array = np.zeros((2, 3), np.float32)
    fields = _ArrayFields.from_address(id(array))
    expected = array.ctypes.data, 2, id(array.dtype), array.flags.num
    found = fields.data, fields.ndim, fields.descr, fields.flags
    number = _DtypeFields.from_address(id(array.dtype)).type_num
    kind = ctypes.c_void_p.from_address(id(array) + _TYPE_OFFSET).value
    if found != expected or number != array.dtype.num or kind != id(np.ndarray):
        raise ImportError(
            f"numbagrad does not know how NumPy {np.__version__} on Python {sys.version.split()[0]} lays out "
            "an array; install a released CPython and NumPy"
        )


_check_layout()
llvm.add_symbol(_NDARRAY, id(np.ndarray))


@unbox(Flat)
def _unbox_flat(ty: Flat, obj: Any, c: Any) -> NativeValue:
    return _unbox(ty, obj, c, _C_CONTIGUOUS | _ALIGNED | _WRITEABLE * ty.writable)


@unbox(Strided)
def _unbox_strided(ty: Strided, obj: Any, c: Any) -> NativeValue:
    return _unbox(ty, obj, c, _ALIGNED | _WRITEABLE * ty.writable)


def _unbox(ty: _Argument, obj: Any, c: Any, flags: int) -> NativeValue:
    """Check the argument, once per type as a function of the module, then read its address and size."""
    obj = c.builder.bitcast(obj, _BYTES)
    fitting = c.builder.call(_checker(ty, c, flags), [obj])
    memory = cgutils.create_struct_proxy(ty)(c.context, c.builder)
    with c.builder.if_then(fitting, likely=True):
        memory.data = c.builder.bitcast(_array_field(c.builder, obj, "data", _BYTES), memory.data.type)
        if isinstance(ty, Flat):
            memory.size = c.builder.call(_counter(c), [obj])
    return NativeValue(memory._getvalue(), is_error=c.builder.not_(fitting))


def _checker(ty: _Argument, c: Any, flags: int) -> ir.Function:
    """The function `bool check(PyObject *)`; when it says no, a TypeError is set."""

    def body(builder: ir.IRBuilder, function: ir.Function) -> None:
        obj = function.args[0]
        api = c.context.get_python_api(builder)
        with builder.if_then(builder.not_(_is_ndarray(builder, obj)), likely=False):
            _complain(api, obj, f"a kernel takes an ndarray of {ty.dtype} here, got an object of type %R")
        descr = _array_field(builder, obj, "descr", _BYTES)
        with builder.if_then(builder.not_(_has_dtype(builder, descr, ty.dtype)), likely=False):
            message = f"a kernel takes an array of {ty.dtype} here, got one of %R; convert it"
            _complain(api, obj, message, descr)
        found = builder.and_(_array_field(builder, obj, "flags", _INT), ir.Constant(_INT, flags))
        with builder.if_then(builder.icmp_unsigned("!=", found, ir.Constant(_INT, flags)), likely=False):
            _complain(api, obj, _flags_message(ty))
        builder.ret(cgutils.true_bit)

    return _module_function(c, f"numbagrad.check.{ty}", ir.IntType(1), body)


def _flags_message(ty: _Argument) -> str:
    wanted = "C-contiguous, aligned" if isinstance(ty, Flat) else "aligned"
    wanted += ", writable" * ty.writable
    return f"a kernel takes an array of {ty.dtype} that is {wanted} here, got an %R that is not; copy it"


def _counter(c: Any) -> ir.Function:
    """The function `intp size(PyObject *)`: the product of an array's dimensions."""

    def body(builder: ir.IRBuilder, function: ir.Function) -> None:
        shape = _array_field(builder, function.args[0], "shape", _INTP.as_pointer())
        ndim = builder.zext(_array_field(builder, function.args[0], "ndim", _INT), _INTP)
        size = cgutils.alloca_once_value(builder, ir.Constant(_INTP, 1))
        with cgutils.for_range(builder, ndim) as loop:
            length = builder.load(builder.gep(shape, [loop.index]))
            builder.store(builder.mul(builder.load(size), length), size)
        builder.ret(builder.load(size))

    return _module_function(c, "numbagrad.size", _INTP, body)


def _module_function(c: Any, name: str, result: ir.Type, body: Any) -> ir.Function:
    function = cgutils.get_or_insert_function(c.builder.module, ir.FunctionType(result, [_BYTES]), name)
    if function.is_declaration:
        function.linkage = "internal"
        function.attributes.add("alwaysinline")
        body(ir.IRBuilder(function.append_basic_block("entry")), function)
    return function


def _is_ndarray(builder: ir.IRBuilder, obj: Any) -> Any:
    """Whether obj is an ndarray; subclasses take the slower way over PyType_IsSubtype."""
    module = builder.module
    wanted = module.globals.get(_NDARRAY) or ir.GlobalVariable(module, _BYTES.pointee, _NDARRAY)
    kind = _field(builder, obj, _TYPE_OFFSET, _BYTES)
    exact = builder.icmp_unsigned("==", kind, wanted)
    found = cgutils.alloca_once_value(builder, exact)
    with builder.if_then(builder.not_(exact), likely=False):
        fnty = ir.FunctionType(_INT, [_BYTES, _BYTES])
        is_subtype = cgutils.get_or_insert_function(module, fnty, "PyType_IsSubtype")
        answer = builder.call(is_subtype, [kind, wanted])
        builder.store(builder.icmp_unsigned("!=", answer, ir.Constant(_INT, 0)), found)
    return builder.load(found)


def _has_dtype(builder: ir.IRBuilder, descr: Any, item: types.Type) -> Any:
    """Whether the dtype has a number of `item` (int64 has two in NumPy) and the machine's byte order."""
    number = _field(builder, descr, _DtypeFields.type_num.offset, _INT)
    order = _field(builder, descr, _DtypeFields.byteorder.offset, ir.IntType(8))
    same = cgutils.false_bit
    for code in _type_numbers(builder, item):
        same = builder.or_(same, builder.icmp_unsigned("==", number, code))
    native = builder.icmp_unsigned("!=", order, ir.Constant(ir.IntType(8), _SWAPPED))
    return builder.and_(same, native)


def _type_numbers(builder: ir.IRBuilder, item: types.Type) -> list[Any]:
    if item == storage.BFLOAT16:
        name = storage.BFLOAT16_NUMBER
        return [builder.load(builder.module.globals.get(name) or ir.GlobalVariable(builder.module, _INT, name))]
    dtype = np.dtype("float16") if item == storage.FLOAT16 else as_dtype(item)
    candidates = map(np.dtype, "?bBhHiIlLqQefdFD")
    found = {c.num for c in candidates if (c.kind, c.itemsize) == (dtype.kind, dtype.itemsize)}
    return [ir.Constant(_INT, number) for number in sorted(found)]


def _complain(api: Any, obj: Any, message: str, shown: Any = None) -> None:
    """Set a TypeError that shows an object, by default the argument's type, and return false."""
    shown = _field(api.builder, obj, _TYPE_OFFSET, _BYTES) if shown is None else shown
    api.err_format("PyExc_TypeError", message, shown)
    api.builder.ret(cgutils.false_bit)


def _array_field(builder: ir.IRBuilder, obj: Any, name: str, ty: ir.Type) -> Any:
    return _field(builder, obj, getattr(_ArrayFields, name).offset, ty)


def _field(builder: ir.IRBuilder, obj: Any, offset: int, ty: ir.Type) -> Any:
    place = builder.gep(obj, [ir.Constant(_INTP, offset)])
    return builder.load(builder.bitcast(place, ty.as_pointer()))
