"""Formulas of elementwise ops computed op by op: for complex numbers, which kernels do not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numbagrad.engine.tensor import Tensor
from numbagrad.jit.expr import ScalarExpr, topological


def compose(plan: Any, operands: Sequence[Any], conjugate: bool = True) -> Sequence[Tensor]:
    """The formulas of `plan` computed op by op, for complex numbers: each gradient is g times the conjugate partial.

    The formulas are linear in the cotangent, so conjugating the cotangent before and the result after does it.
    """
    from numbagrad.ops.conversion import conj

    count = len(plan.cotangents)
    turned = [conj(v) if conjugate and i < count else v for i, v in enumerate(operands)]
    values = dict(zip(plan.op.params, turned, strict=True))
    results = [_compose_expr(e, values) for e in plan.op.exprs]
    return [conj(r) if conjugate else r for r in results]


def _compose_expr(root: ScalarExpr, values: Mapping[str, Any]) -> Any:
    from numbagrad.ops.registry import OPS

    known: dict[int, Any] = {}
    for e in topological(root):
        if e.op == "symbol":
            known[id(e)] = values[e.value]
        elif e.op == "const":
            known[id(e)] = e.value
        else:
            name = "multiply" if e.op == "gmul" else e.op
            known[id(e)] = OPS[name](*(known[id(a)] for a in e.args))
    return known[id(root)]


__all__ = ["compose"]
