"""Rare arguments: where a vector body gives way to libm without giving up the vectors.

Reducing a huge angle costs too much to be done for every element, and a branch to libm would keep LLVM from vectorising
the loop. So the function that decides comes with vector forms of itself, which the loop vectoriser finds by an attribute
(LLVM's vector function ABI): one comparison for a whole vector, and libm only for those elements that need it.
All of it is generic LLVM code inside the kernel's own module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, types

from numbagrad.jit.intrinsics import is_x86, named

_WIDTHS = (2, 4, 8, 16)
# Whether the calls that the loop vectoriser makes have the calling convention of the vector form. LLVM 20 gives them
# the default one, which undoes the whole loop.
_KEEPS_CONVENTION = binding.llvm_version_info >= (22,)


def _beyond(name: str, doc: str, arity: int, limits: dict[types.Type, float]) -> Any:
    """An intrinsic of a number to compare with the limit, libm's arguments, and what holds below the limit."""

    def typed(*args: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            rare = _Rare(builder.module, name, values[0].type, arity, limits[args[0]], is_x86(context.codegen()))
            call = builder.call(rare.scalar(), values)
            # llvmlite knows only some attributes by name.
            set.add(call.attributes, f'"vector-function-abi-variant"="{rare.variants()}"')
            return call

        return (args[0](*args), codegen) if args[0] in limits and len(set(args)) == 1 else None

    define: dict[int, Callable[..., Any]] = {
        1: lambda typingctx, size, x, y: typed(size, x, y),
        2: lambda typingctx, size, x1, x2, y: typed(size, x1, x2, y),
    }
    return named(f"beyond_{name}", doc, define[arity], __name__)


class _Rare:
    """The functions of a module that call libm's `name` beyond a limit."""

    def __init__(self, module: Any, name: str, real: Any, arity: int, limit: float, x86: bool) -> None:
        self.module, self.real, self.arity, self.limit, self.x86 = module, real, arity, limit, x86
        self.libm = name + ("f" if real == ir.FloatType() else "")
        self.name = f"numbagrad.{self.libm}"

    def scalar(self) -> Any:
        if self.name not in self.module.globals:
            self._define(self.name, self.real, self._call_libm)
            _keep(self.module, [self._define_vector(width) for width in _WIDTHS])
        return self.module.globals[self.name]

    def variants(self) -> str:
        each = "v" * (self.arity + 2)
        return ",".join(f"_ZGV_LLVM_N{width}{each}_{self.name}({self.name}.{width})" for width in _WIDTHS)

    def _call_libm(self, builder: Any, args: Any) -> Any:
        libm = cgutils.get_or_insert_function(
            self.module, ir.FunctionType(self.real, [self.real] * self.arity), self.libm
        )
        return builder.call(libm, args[1:-1])

    def _define_vector(self, width: int) -> Any:
        def answer(builder: Any, args: Any) -> Any:
            result = args[-1]
            for i in range(width):
                lane = ir.Constant(ir.IntType(32), i)
                value = builder.call(self.scalar(), [builder.extract_element(arg, lane) for arg in args])
                result = builder.insert_element(result, value, lane)
            return result

        function = self._define(f"{self.name}.{width}", ir.VectorType(self.real, width), answer)
        if self.x86 and _KEEPS_CONVENTION:
            # Leaves half of the vector registers alone, so that the loop can keep its constants in them.
            function.calling_convention = "intel_ocl_bicc"
        return function

    def _define(self, name: str, ty: Any, answer: Callable[[Any, Any], Any]) -> Any:
        function = ir.Function(self.module, ir.FunctionType(ty, [ty] * (self.arity + 2)), name)
        function.linkage = "internal"
        for attribute in ("noinline", "nounwind", "readnone"):
            function.attributes.add(attribute)
        builder = ir.IRBuilder(function.append_basic_block())
        with builder.if_then(self._is_beyond(builder, function.args[0]), likely=False):
            builder.ret(answer(builder, function.args))
        builder.ret(function.args[-1])
        return function

    def _is_beyond(self, builder: Any, size: Any) -> Any:
        """Whether limit <= |size| < inf, for a number or for any element of a vector."""
        dtype, width = (np.float32, 32) if self.real == ir.FloatType() else (np.float64, 64)
        low, high = (int(dtype(bound).view(f"u{width // 8}")) for bound in (self.limit, np.inf))
        count = getattr(size.type, "count", 0)
        integer = ir.VectorType(ir.IntType(width), count) if count else ir.IntType(width)

        def number(n: int) -> Any:
            return ir.Constant(integer, [n] * count if count else n)

        absolute = builder.and_(builder.bitcast(size, integer), number((1 << width - 1) - 1))
        beyond = builder.icmp_unsigned("<", builder.sub(absolute, number(low)), number(high - low))
        if not count:
            return beyond
        any_of = ir.IntType(count)
        return builder.icmp_unsigned("!=", builder.bitcast(beyond, any_of), ir.Constant(any_of, 0))


def _keep(module: Any, functions: list[Any]) -> None:
    """Keep functions that only an attribute mentions until the loops have been vectorised."""
    pointer, name = ir.IntType(8).as_pointer(), "llvm.compiler.used"
    used = module.globals.get(name)
    kept = [*(used.initializer.constant if used else ()), *(f.bitcast(pointer) for f in functions)]
    array = ir.ArrayType(pointer, len(kept))
    if used is None:
        used = ir.GlobalVariable(module, array, name)
        used.linkage, used.section = "appending", "llvm.metadata"
    # A second rare function in one kernel: a name cannot be given twice, so the list grows where it is.
    used.value_type, used.type = array, array.as_pointer()
    used.initializer = ir.Constant(array, kept)


_ANGLE: dict[Any, float] = {types.float32: 12000.0, types.float64: 1.6e6}
_ANGLE_DOC = "libm's answer for x where |angle| is finite but beyond what the body can reduce, else y."

beyond_sin = _beyond("sin", _ANGLE_DOC, 1, _ANGLE)
beyond_cos = _beyond("cos", _ANGLE_DOC, 1, _ANGLE)
beyond_tan = _beyond("tan", _ANGLE_DOC, 1, _ANGLE)
beyond_fmod = _beyond(
    "fmod",
    "libm's fmod(x1, x2) where |quotient| is beyond exact arithmetic, else y.",
    2,
    {types.float32: 2.0**22, types.float64: 2.0**51},
)
