"""What users read of elementwise ops: numpydoc from the declaration."""

from __future__ import annotations

from typing import Any

from numbagrad.jit.expr import text


def docstring(op: Any) -> str:
    """numpydoc for users, from the declaration."""
    partials = [(p, op.partial(0, i)) for i, p in enumerate(op.params)] if op.exprs else []
    lines = [f"    d/d{p} = {'0' if e is None else text(e)}" for p, e in partials]
    call = f"ng.{op.name}({', '.join('ng.tensor([0.5, 0.75])' for _ in op.params)})"
    return (
        f"{op.summary}\n\n"
        f"Parameters\n----------\n{', '.join(op.params)} : array_like\n"
        "    Tensors, arrays or numbers; they are broadcast against each other.\n\n"
        "Returns\n-------\nTensor\n    One value per element, of the dtype that NumPy gives for these operands.\n\n"
        "Raises\n------\nValueError\n    If the shapes do not broadcast.\n\n"
        "Notes\n-----\nPartial derivatives::\n\n" + "\n".join(lines) + "\n\n"
        f"Examples\n--------\n>>> import numbagrad as ng\n>>> {call}.shape\n(2,)\n"
    )


__all__ = ["docstring"]
