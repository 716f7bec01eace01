"""Folds: how many numbers become one. What each kind begins with, and the machine operations that take a step.

LLVM vectorises a sum only if it may reorder it, and a largest value only if no nan can come. These liberties are given
to single instructions here, never to a whole kernel: nan is looked for beside the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def _step(name: str, doc: str, build: Callable[..., Any]) -> Any:
    """An intrinsic of two floats of one type."""

    def define(typingctx: Any, x: Any, y: Any) -> Any:
        if x != y or not isinstance(x, types.Float):
            return None
        return x(x, y), lambda context, builder, sig, values: build(builder, *values)

    # Kernels are known by the module and name of what they use.
    define.__name__ = define.__qualname__ = name
    define.__module__, define.__doc__ = __name__, doc
    return intrinsic(define)


def _extreme(name: str) -> Callable[..., Any]:
    # With nan the result is poison, so it counts only where `note_nan` has found none.
    def build(builder: Any, x: Any, y: Any) -> Any:
        kind = ir.FunctionType(x.type, [x.type, x.type])
        call = builder.module.declare_intrinsic(name, [x.type], kind)
        return builder.call(call, [x, y], fastmath=("nnan", "nsz"))

    return build


_ANY_ORDER = ("reassoc", "contract")
add_any_order = _step(
    "add_any_order", "x + y, in any order over a loop.", lambda b, x, y: b.fadd(x, y, flags=_ANY_ORDER)
)
multiply_any_order = _step(
    "multiply_any_order", "x * y, in any order over a loop.", lambda b, x, y: b.fmul(x, y, flags=_ANY_ORDER)
)
larger = _step("larger", "The larger of two numbers, neither of which is nan.", _extreme("llvm.maxnum"))
smaller = _step("smaller", "The smaller of two numbers, neither of which is nan.", _extreme("llvm.minnum"))


@intrinsic
def note_nan(typingctx: Any, found: Any, x: Any) -> Any:
    """`found = note_nan(found, x)` is not 0 from the first nan on; an int of the width of the floats."""
    if not (isinstance(found, types.Integer) and isinstance(x, types.Float)):
        return None

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return builder.or_(values[0], builder.zext(builder.fcmp_unordered("uno", values[1], values[1]), values[0].type))

    return found(found, x), codegen


@intrinsic
def note_not(typingctx: Any, found: Any, holds: Any) -> Any:
    """`found = note_not(found, c)` is not 0 from the first c on that does not hold."""
    if not (isinstance(found, types.Integer) and isinstance(holds, types.Boolean)):
        return None

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return builder.or_(values[0], builder.zext(builder.not_(values[1]), values[0].type))

    return found(found, holds), codegen


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to fold: the value of nothing, and NumPy's function."""

    identity: float
    ufunc: np.ufunc


KINDS: dict[str, Kind] = {
    "sum": Kind(0.0, np.add),
    "prod": Kind(1.0, np.multiply),
    "max": Kind(-np.inf, np.maximum),
    "min": Kind(np.inf, np.minimum),
}

NAMESPACE: dict[str, object] = {
    "add_any_order": add_any_order,
    "multiply_any_order": multiply_any_order,
    "larger": larger,
    "smaller": smaller,
    "note_nan": note_nan,
    "note_not": note_not,
}
"""What rendered folds refer to."""
