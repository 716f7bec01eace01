"""The few machine operations that the bodies of vector mathematics need and Python text cannot say.

Each is one LLVM instruction or generic intrinsic, so it exists on every processor and LLVM vectorises it. Literals may
stand for any argument but not for all: they are converted to the type of the others while compiling, so that float32
code holds no double.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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
        if not all(isinstance(a, types.Float) for a in numbers) and not all(
            isinstance(a, types.Integer) for a in numbers
        ):
            return None
        common = min(numbers, key=lambda t: t.bitwidth, default=types.boolean)

        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            wanted = context.get_value_type(common)
            return build(builder, *(_converted(builder, v, a, wanted) for v, a in zip(values, args, strict=True)))

        return returns(common)(*args), codegen

    forms: dict[int, Callable[..., Any]] = {
        1: lambda typingctx, x: typed(x),
        2: lambda typingctx, x, y: typed(x, y),
        3: lambda typingctx, x, y, z: typed(x, y, z),
    }
    return named(name, doc, forms[arity])


def named(name: str, doc: str, define: Callable[..., Any], module: str = __name__) -> Any:
    """An intrinsic that is a global of `module` under that name."""
    # Kernels are known by the module and name of what they use; the hash of the module's file goes with them.
    define.__name__ = define.__qualname__ = name
    define.__module__, define.__doc__ = module, doc
    return intrinsic(define)


def _converted(builder: Any, value: Any, came: Any, wanted: Any) -> Any:
    if isinstance(came, types.Boolean) or value.type == wanted:
        return value
    return builder.fptrunc(value, wanted) if isinstance(came, types.Float) else builder.trunc(value, wanted)


def _llvm(name: str) -> Build:
    """A call of LLVM's intrinsic of that name for the type of its arguments."""

    def build(builder: Any, *values: Any) -> Any:
        ty = values[0].type
        return builder.call(
            builder.module.declare_intrinsic(name, [ty], ir.FunctionType(ty, [ty] * len(values))), values
        )

    return build


# ----- Floating point -----

_fmuladd = _llvm("llvm.fmuladd")

# llvm.fma would be a call of libm on processors that have no such instruction.
fma = _operation("fma", "x * y + z, rounded once where the processor can.", 3, _fmuladd)
fabs = _operation("fabs", "|x|, of nan and -0.0 too.", 1, _llvm("llvm.fabs"))
fsqrt = _operation("fsqrt", "The square root, correctly rounded.", 1, _llvm("llvm.sqrt"))


def _lost(typingctx: Any, x: Any, y: Any, product: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return (_lost_by_fma if _has_fma(context.codegen()) else _lost_by_halves)(builder, *values)

    return (x(x, x, x), codegen) if isinstance(x, types.Float) and x == y == product else None


def _has_fma(codegen: Any) -> bool:
    return not is_x86(codegen) or "+fma," in codegen._tm_features + ","


def is_x86(codegen: Any) -> bool:
    # Code for a GPU has no target machine of LLVM's here.
    return hasattr(codegen, "_tm") and codegen._tm.triple.startswith(("x86", "i386", "i686"))


def _lost_by_fma(b: Any, x: Any, y: Any, product: Any) -> Any:
    return _llvm("llvm.fma")(b, x, y, b.fneg(product))


def _lost_by_halves(b: Any, x: Any, y: Any, product: Any) -> Any:
    """Dekker's product. Each product of halves is exact, so it does no harm if LLVM contracts it with a sum."""
    (x1, x2), (y1, y2) = _halves(b, x), _halves(b, y)
    total = b.fsub(b.fmul(x1, y1), product)
    for one, other in ((x1, y2), (x2, y1), (x2, y2)):
        total = b.fadd(total, b.fmul(one, other))
    return total


def _halves(b: Any, x: Any) -> tuple[Any, Any]:
    mask = (
        ir.Constant(ir.IntType(32), -(1 << 12)) if x.type == ir.FloatType() else ir.Constant(ir.IntType(64), -(1 << 27))
    )
    high = _bit_cast(b, b.and_(_bit_cast(b, x), mask))
    return high, b.fsub(x, high)


lost = named("lost", "x * y - product, exactly, for the product as it was rounded or a neighbour of it.", _lost)
fcopysign = _operation("fcopysign", "|x| with the sign of y.", 2, _llvm("llvm.copysign"))


LONG = 10
"""Terms from which on even and odd powers go apart."""


def _polynomial(evaluate: Build) -> Callable[..., Any]:
    def define(typingctx: Any, x: Any, *coefficients: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            terms = cgutils.unpack_tuple(builder, values[1], len(sig.args[1]))
            return evaluate(builder, values[0], [_converted(builder, c, types.float64, values[0].type) for c in terms])

        return x(x, types.StarArgTuple.from_types(coefficients)), codegen

    return define


def _horner(builder: Any, x: Any, terms: list[Any]) -> Any:
    total = terms[-1]
    for term in terms[-2::-1]:
        total = _fmuladd(builder, total, x, term)
    return total


def _split_horner(builder: Any, x: Any, terms: list[Any]) -> Any:
    """Even and odd powers apart if there are many, so that fewer operations wait for each other."""
    if len(terms) < LONG:
        return _horner(builder, x, terms)
    square = builder.fmul(x, x)
    even, odd = (_horner(builder, square, terms[start::2]) for start in (0, 1))
    return _fmuladd(builder, odd, x, even)


# One call for all terms: Numba takes 0.4 ms for each, and 1.5 ms for each nested fma.
poly = named("poly", "c0 + c1 x + c2 x² + …, fast.", _polynomial(_split_horner))
horner = named("horner", "The same by Horner's rule, which rounds less where x is not small.", _polynomial(_horner))


# ----- Choices -----

select = _operation("select", "y if c else z, of values that are both known.", 3, lambda b, c, y, z: b.select(c, y, z))
both = _operation("both", "a and b, without a branch.", 2, lambda b, x, y: b.and_(x, y))
either = _operation("either", "a or b, without a branch.", 2, lambda b, x, y: b.or_(x, y))


# ----- Bits and integers -----


def _bit_cast(builder: Any, value: Any) -> Any:
    to = {ir.FloatType(): ir.IntType(32), ir.DoubleType(): ir.IntType(64)}
    back = {integer: real for real, integer in to.items()}
    return builder.bitcast(value, to.get(value.type) or back[value.type])


def _to_float(builder: Any, value: Any) -> Any:
    return builder.sitofp(value, ir.FloatType() if value.type == ir.IntType(32) else ir.DoubleType())


bits = _operation("bits", "The bits of a float as an int of its width.", 1, _bit_cast, _INTEGER.__getitem__)
from_bits = _operation("from_bits", "The float with the bits of an int.", 1, _bit_cast, _FLOAT.__getitem__)
to_float = _operation("to_float", "The float nearest to an int.", 1, _to_float, _FLOAT.__getitem__)
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

    return named(name, doc, define)


def _rounds_in_hardware(codegen: Any) -> bool:
    # Before SSE4.1, and only on x86, LLVM makes llvm.floor and its like calls of libm, element by element.
    return not is_x86(codegen) or "+sse4.1" in codegen._tm_features


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
