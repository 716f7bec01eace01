"""The few machine operations that the bodies of vector mathematics need and Python text cannot say.

Each is one LLVM instruction or generic intrinsic, so it exists on every processor and LLVM vectorises it. Literals may
stand for any argument but not for all: they are converted to the type of the others while compiling, so that float32
code holds no double.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_INTEGER = {types.float32: types.int32, types.float64: types.int64}
_FLOAT = {integer: real for real, integer in _INTEGER.items()}

Build = Callable[..., Any]
"""Takes a builder and LLVM values, gives an LLVM value."""


# ----- How they are made -----


def _operation(name: str, doc: str, arity: int, build: Build, returns: Callable[[Any], Any] = lambda t: t) -> Any:
    """An intrinsic whose arguments are all of the narrowest type that came (except for booleans)."""

    def typed(*args: Any) -> Any:
        numbers = [a for a in args if not isinstance(a, types.Boolean)]
        if not all(isinstance(a, types.Float) for a in numbers) and not all(isinstance(a, types.Integer) for a in numbers):
            return None
        common = min(numbers, key=lambda t: t.bitwidth, default=types.boolean)

        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            wanted = context.get_value_type(common)
            return build(builder, *(_converted(builder, v, a, wanted) for v, a in zip(values, args, strict=True)))

        return returns(common)(*args), codegen

    define = {
        1: lambda typingctx, x: typed(x),
        2: lambda typingctx, x, y: typed(x, y),
        3: lambda typingctx, x, y, z: typed(x, y, z),
    }[arity]
    return _named(name, doc, define)


def _named(name: str, doc: str, define: Callable[..., Any]) -> Any:
    # Kernels are known by the module and name of what they use.
    define.__name__ = define.__qualname__ = name
    define.__module__, define.__doc__ = __name__, doc
    return intrinsic(define)


def _converted(builder: Any, value: Any, came: Any, wanted: Any) -> Any:
    if isinstance(came, types.Boolean) or value.type == wanted:
        return value
    return builder.fptrunc(value, wanted) if isinstance(came, types.Float) else builder.trunc(value, wanted)


def _llvm(name: str) -> Build:
    """A call of LLVM's intrinsic of that name for the type of its arguments."""

    def build(builder: Any, *values: Any) -> Any:
        ty = values[0].type
        return builder.call(builder.module.declare_intrinsic(name, [ty], ir.FunctionType(ty, [ty] * len(values))), values)

    return build


# ----- Floating point -----

_fmuladd = _llvm("llvm.fmuladd")

# llvm.fma would be a call of libm on processors that have no such instruction.
fma = _operation("fma", "x * y + z, rounded once where the processor can.", 3, _fmuladd)
fabs = _operation("fabs", "|x|, of nan and -0.0 too.", 1, _llvm("llvm.fabs"))
fsqrt = _operation("fsqrt", "The square root, correctly rounded.", 1, _llvm("llvm.sqrt"))
fcopysign = _operation("fcopysign", "|x| with the sign of y.", 2, _llvm("llvm.copysign"))


def _poly(typingctx: Any, x: Any, *coefficients: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        terms = cgutils.unpack_tuple(builder, values[1], len(sig.args[1]))
        terms = [_converted(builder, c, types.float64, values[0].type) for c in terms]
        total = terms.pop()
        while terms:
            total = _fmuladd(builder, total, values[0], terms.pop())
        return total

    return x(x, types.StarArgTuple.from_types(coefficients)), codegen


# One call for all terms: Numba takes 0.4 ms for each, and 1.5 ms for each nested fma.
poly = _named("poly", "c0 + c1 x + c2 x² + …, by Horner's rule.", _poly)


# ----- Choices -----

select = _operation("select", "y if c else z, of values that are both known.", 3, lambda b, c, y, z: b.select(c, y, z))
both = _operation("both", "a and b, without a branch.", 2, lambda b, x, y: b.and_(x, y))
either = _operation("either", "a or b, without a branch.", 2, lambda b, x, y: b.or_(x, y))


# ----- Bits and integers -----


def _bit_cast(builder: Any, value: Any) -> Any:
    to = {ir.FloatType(): ir.IntType(32), ir.DoubleType(): ir.IntType(64)}
    back = {integer: real for real, integer in to.items()}
    return builder.bitcast(value, to.get(value.type) or back[value.type])


bits = _operation("bits", "The bits of a float as an int of its width.", 1, _bit_cast, _INTEGER.__getitem__)
from_bits = _operation("from_bits", "The float with the bits of an int.", 1, _bit_cast, _FLOAT.__getitem__)
iadd = _operation("iadd", "x + y in the width of the ints.", 2, lambda b, x, y: b.add(x, y))
isub = _operation("isub", "x - y in the width of the ints.", 2, lambda b, x, y: b.sub(x, y))
iand = _operation("iand", "x & y in the width of the ints.", 2, lambda b, x, y: b.and_(x, y))
ior = _operation("ior", "x | y in the width of the ints.", 2, lambda b, x, y: b.or_(x, y))
ixor = _operation("ixor", "x ^ y in the width of the ints.", 2, lambda b, x, y: b.xor(x, y))
shl = _operation("shl", "x << n in the width of the ints.", 2, lambda b, x, n: b.shl(x, n))
shr = _operation("shr", "x >> n, filled with zeros.", 2, lambda b, x, n: b.lshr(x, n))


# ----- Whole numbers -----


def _whole(name: str, doc: str) -> Any:
    def define(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            build = _llvm(f"llvm.{name}") if _rounds_in_hardware(context.codegen()) else _BY_ARITHMETIC[name]
            return build(builder, values[0])

        return (x(x), codegen) if isinstance(x, types.Float) else None

    return _named(name, doc, define)


def _rounds_in_hardware(codegen: Any) -> bool:
    # Before SSE4.1, and only on x86, LLVM makes llvm.floor and its like calls of libm, element by element.
    triple = codegen._tm.triple if hasattr(codegen, "_tm") else ""
    return not triple.startswith(("x86", "i386", "i686")) or "+sse4.1" in codegen._tm_features


def _rint(b: Any, x: Any) -> Any:
    """To the nearest whole number, by adding and taking away a number so large that it has no fraction."""
    size, large = _fabs(b, x), ir.Constant(x.type, 2.0**23 if x.type == ir.FloatType() else 2.0**52)
    near = b.fsub(b.fadd(size, large), large)
    return _copysign(b, b.select(b.fcmp_ordered("<", size, large), near, x), x)


def _trunc(b: Any, x: Any) -> Any:
    size = _fabs(b, x)
    return _copysign(b, _step(b, _rint(b, size), ">", size, -1.0), x)


def _step(b: Any, near: Any, too: str, x: Any, by: float) -> Any:
    """One step back from `near` where it lies beyond x."""
    return b.select(b.fcmp_ordered(too, near, x), b.fadd(near, ir.Constant(x.type, by)), near)


_fabs, _copysign = _llvm("llvm.fabs"), _llvm("llvm.copysign")
_BY_ARITHMETIC: dict[str, Build] = {
    "rint": _rint,
    "trunc": _trunc,
    "floor": lambda b, x: _copysign(b, _step(b, _rint(b, x), ">", x, -1.0), x),
    "ceil": lambda b, x: _copysign(b, _step(b, _rint(b, x), "<", x, 1.0), x),
}

nearest = _whole("rint", "x to the nearest whole number, halves to even.")
down = _whole("floor", "x to the next whole number below.")
up = _whole("ceil", "x to the next whole number above.")
toward_zero = _whole("trunc", "x without its fraction.")
