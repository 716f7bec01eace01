"""Forward mode of elementwise ops: a tangent is pushed through the partial derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.mode import mode
from numbagrad.engine.node import Node
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.composing import compose
from numbagrad.ops.operands import NUMBERS
from numbagrad.ops.saved import saved_output


def push(
    op: Any, nr: int, node: Node, tangents: Sequence[Tensor | None], saved: Mapping[tuple[str, int], Any]
) -> Tensor:
    """Forward mode of output `nr`: the tangents times the partials. Recorded when grad mode is on."""
    outs = tuple(k == nr for k in range(len(op.exprs)))
    numbers = numbers_in([saved.get(("in", i)) for i in range(len(op.params))])
    total = None
    for i, t in enumerate(tangents):
        if t is not None:
            plan = op.plan(outs, tuple(i == j for j in range(len(op.params))), numbers)
            term = _push_term(node, plan, t, saved)
            total = term if total is None else total if term is None else total + term
    layout = node.layout[nr] if isinstance(node.layout, tuple) else node.layout
    return wrap(np.zeros(layout.shape, layout.dtype)) if total is None else _broadcast(total, layout.shape)


def _push_term(node: Node, plan: Any, t: Tensor, saved: Mapping[tuple[str, int], Any]) -> Tensor | None:
    if plan.passed:
        return t
    if not plan.computed:
        return None
    values = [saved_output(node, s[1], saved[s]) if s[0] == "out" and mode.enabled else saved[s] for s in plan.saves]
    values = [wrap(v) if isinstance(v, np.ndarray) else v for v in values]
    if t.dtype.kind == "c":
        return compose(plan, [t, *values], conjugate=False)[0]
    return plan.op.call(t, *values)


def numbers_in(values: Sequence[Any]) -> tuple[bool, ...]:
    """Which values are Python numbers."""
    return tuple(type(v) in NUMBERS for v in values)


def _broadcast(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    if t.shape == shape:
        return t
    from numbagrad.ops.shape import broadcast_to

    return broadcast_to(t, shape)


__all__ = ["numbers_in", "push"]
