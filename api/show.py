"""``python -m numbagrad.show tanh``: what an op is made of: value, derivatives, what it saves, its kernels."""

import sys

from numbagrad.jit.expr import text
from numbagrad.jit.kernel import Kernel, kernel_for
from numbagrad.ops import OPS
from numbagrad.ops.elementwise import Elementwise
from numbagrad.ops.primitive import Primitive


def describe(name: str, dtype: str = "float32") -> str:
    """Everything about one op as text."""
    if name not in OPS:
        close = ", ".join(n for n in OPS if name in n) or ", ".join(list(OPS)[:20]) + ", ..."
        raise SystemExit(f"no op is named {name!r}; there are {close}")
    op = OPS[name]
    if isinstance(op, Elementwise):
        return _elementwise(op, dtype)
    if isinstance(op, Primitive):
        return _primitive(op)
    return f"{op!r}: {op.__doc__}"


def _elementwise(op: Elementwise, dtype: str) -> str:
    lines = [f"{op.name}({', '.join(op.params)}): {op.summary}", "", f"value     {text(op.exprs[0])}"]
    for i, param in enumerate(op.params):
        partial = op.partial(0, i)
        lines.append(f"d/d{param:<7} {'0' if partial is None else text(partial)}")
    plan = op.plan((True,), tuple(p not in op.conditions for p in op.params))
    saved = [op.params[nr] if kind == "in" else "the output" for kind, nr in plan.saves]
    lines += [f"saves     {', '.join(saved) or 'nothing'}", ""]
    programs = [op.program, plan.op.program] if plan.computed else [op.program]
    for program in programs:
        spec = program.spec("flat", ["dense"] * len(program.inputs), dtype)
        lines += [f"# {program.name}, {dtype}", Kernel(spec, kernel_for.definitions).source]
    return "\n".join(lines)


def _primitive(op: Primitive) -> str:
    lines = [f"{op.name}({', '.join(op.params)})", ""]
    for param, (rule, names, _) in op.rules.items():
        saved = [n for n in names if n in op.params or n == "out"]
        lines.append(
            f"gradient of {param}: {rule.__code__.co_filename.rpartition('/')[2]}, "
            f"line {rule.__code__.co_firstlineno}, saves {', '.join(saved) or 'nothing'}"
        )
    lines.append(
        f"forward mode: {'the op itself' if op.linear else 'a rule' if op._jvp else 'by transposing the gradient'}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit("usage: python -m numbagrad.show OP [float32|float64]")
    print(describe(*sys.argv[1:]))
