"""Fast paths: the functions that run when all operands are small, dense, of one shape and dtype.

They do nothing but look up a resolved kernel by the layout's code, allocate, call, and wrap. Written out once per
pattern of operands, as source text, because loops over arguments would cost more than the kernels. Whatever does not
fit the pattern goes to the general way, which also fills the tables.

Patterns: T is a tensor, N a Python number, A an array (an output that was saved).
"""

from __future__ import annotations

import functools
import linecache
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.node import Node, inference, mark_new, next_seq, watches
from numbagrad.engine.tensor import Tensor, edge_of

_SPACE: Mapping[str, Any] = {
    "Node": Node,
    "Tensor": Tensor,
    "edge_of": edge_of,
    "empty": np.empty,
    "grad_enabled": grad_enabled,
    "inference": inference,
    "mark_new": mark_new,
    "new": object.__new__,
    "next_seq": next_seq,
    "watches": watches,
}

_WRAP = """\
{pad}{t} = new(Tensor)
{pad}{t}._data = {array}
{pad}{t}._layout = layout
{pad}{t}._grad = {t}._storage = {t}._view = {t}._extra = None
"""

_FORWARD = """\
def forward({params}):
{branches}
    return general({params})
"""

_BRANCH = """\
    {keyword} {guard}:
        layout = {first}._layout
        entry = {kernels}[layout.code]
        if entry is not None:
            out = empty(layout.shape, layout.dtype)
            entry({arrays}, out)
{finish}
"""

_SHOT = """\
    elif type(y) is Tensor and type(x) is Tensor:
        shot = shots.get((x._layout, y._layout))
        if shot is not None:
            layout, loop, entry = shot
            out = empty(layout.shape, layout.dtype)
            entry(loop, x._data, y._data, out)
{finish}
"""

_FINISH = """\
{wrap}
            if ({requires}) and grad_enabled():
                if watches:
                    return general({params})
                node = new(Node)
                node.seq = next_seq()
                node.layout = layout
                node.hooks = node.storage = node.statics = node.versions = None
{record}
                tensor._node = node
                tensor._requires_grad = True
            else:
                tensor._node = None
                tensor._requires_grad = False
                if inference:
                    mark_new(tensor)
            return tensor
"""

_BACKWARD = """\
def backward(node, grad):
    layout = node.layout
    saved = node.saved
    if grad._layout is layout and saved is not None and node.storage is None:
        entry = kernels[layout.code]
        if entry is not None and not grad_enabled():
            {unpack}
            versions = node.versions
            if {fits}:{allocate}
                entry({arrays})
{wraps}
                return ({result},)
    return general(node, grad)
"""

_PASS = """\
def backward(node, grad):
    return ({result},)
"""

_GUARDS = {
    "T": "type(x) is Tensor",
    "TT": "type(y) is Tensor and type(x) is Tensor and x._layout is y._layout",
    "TN": "(type(y) is float or type(y) is int) and type(x) is Tensor",
    "NT": "(type(x) is float or type(x) is int) and type(y) is Tensor",
}


def forward(
    op: Any, patterns: Sequence[str], plans: Mapping[str, Mapping[int, Any]], general: Callable[..., Any]
) -> Callable[..., Tensor]:
    """The fast forward of `op` for operands of some patterns: "T", "TT", "TN" or "NT".

    Parameters
    ----------
    op : Elementwise
        Its `tables` hold the entry points by pattern and layout code (None where there is none yet, and last), its
        `shots` what to call for two tensors of other layouts that broadcast.
    patterns : sequence of str
    plans : mapping
        For each pattern the backward plans, by the bits of "operand i requires grad".
    general : callable
        Takes over when anything does not fit.
    """
    params = ", ".join(["x", "y"][: len(patterns[0])])
    branches = [_branch(p, "elif" if i else "if") for i, p in enumerate(patterns)]
    if "TT" in patterns:
        branches.append(_SHOT.format(finish=_finish("TT", "plan.careful")).rstrip())
    source = _FORWARD.format(params=params, branches="\n".join(branches))
    space = {"general": general, "shots": op.shots}
    for p in patterns:
        space |= {f"kernels_{p}": op.tables[p], f"plans_{p}": plans[p]}
    return _build(source, f"forward {'/'.join(patterns)}", op.name, space)


def _branch(pattern: str, keyword: str) -> str:
    names, tensors = _names(pattern)
    return _BRANCH.format(
        keyword=keyword,
        guard=_GUARDS[pattern],
        first=tensors[0],
        kernels=f"kernels_{pattern}",
        arrays=", ".join(f"{n}._data" if n in tensors else n for n in names),
        finish=_finish(pattern, "plan"),
    ).rstrip()


def _names(pattern: str) -> tuple[list[str], list[str]]:
    """Names of the operands, and of those that are tensors."""
    names = ["x", "y"][: len(pattern)]
    return names, [n for n, p in zip(names, pattern, strict=True) if p == "T"]


def _finish(pattern: str, op: str) -> str:
    """Wrap and record what was computed. `op` is what the node refers to: the plan, or its careful form where the
    operands have other shapes than the result."""
    names, tensors = _names(pattern)
    return _FINISH.format(
        params=", ".join(names),
        wrap=_wrap("tensor", "out", 12),
        requires=" or ".join(f"{t}._requires_grad" for t in tensors),
        record=_record(names, tensors, pattern, op),
    ).rstrip()


def _record(names: list[str], tensors: list[str], pattern: str, op: str) -> str:
    bits = " + ".join(f"{1 << names.index(t)} * {t}._requires_grad" for t in tensors)
    shared = " or ".join(f"{t}._storage is not None" for t in tensors)
    edges = [f"({n}._node or {n}) if {n}._requires_grad else None" if n in tensors else "None" for n in names]
    careful_edges = [f"edge_of({n})" if n in tensors else "None" for n in names]
    lines = [
        f"plan = plans_{pattern}[{bits if len(tensors) > 1 else 1 << names.index(tensors[0])}]",
        f"node.op = {op}",
        f"node.saved = plan.save({', '.join(names)}, out)",
        f"if {shared}:",
        f"    node.edges = ({', '.join(careful_edges)},)",
        "    plan.note_versions(node)",
        "else:",
        f"    node.edges = ({', '.join(edges)},)",
    ]
    return "\n".join(" " * 16 + line for line in lines)


def backward(plan: Any) -> Callable[[Node, Tensor], Sequence[Tensor | None]]:
    """The fast backward of `plan`: its kernel over the gradient and the saved values."""
    names = [f"s{i}" for i in range(len(plan.saves))]
    letters = "".join(plan.letter(source) for source in plan.saves)
    tensors = [n for n, letter in zip(names, letters, strict=True) if letter == "T"]
    computed = [f"o{k}" for k in range(len(plan.computed))]
    arrays = [f"{n}._data" if n in tensors else n for n in names]
    results = dict(zip(plan.computed, (f"t{k}" for k in range(len(computed))), strict=True))
    result = [results.get(i, "grad" if i in plan.passed else "None") for i in range(plan.arity)]
    source = (_BACKWARD if computed else _PASS).format(
        unpack=f"{', '.join(names)}, = saved" if names else "pass",
        fits=" and ".join(_fits(t, names.index(t)) for t in tensors) or "True",
        allocate="".join(f"\n                {o} = empty(layout.shape, layout.dtype)" for o in computed),
        arrays=", ".join(["grad._data", *arrays, *computed]),
        wraps="\n".join(_result(f"t{k}", o) for k, o in enumerate(computed)),
        result=", ".join(result),
    )
    pattern = f"backward {letters or '-'} to {', '.join(result)}"
    return _build(source, pattern, f"{plan.name}_backward", {"kernels": plan.kernels, "general": plan.general})


def _fits(name: str, place: int) -> str:
    unwritten = f"{name}._storage.version == (0 if versions is None else versions[{place}])"
    return f"{name}._layout is layout and ({name}._storage is None or {unwritten})"


def _result(name: str, array: str) -> str:
    pad = " " * 16
    return f"{_wrap(name, array, 16)}\n{pad}{name}._node = None\n{pad}{name}._requires_grad = False"


def _wrap(t: str, array: str, pad: int) -> str:
    return _WRAP.format(t=t, array=array, pad=" " * pad).rstrip("\n")


@functools.cache
def _compiled(source: str, filename: str) -> types.CodeType:
    """Code of the one function that `source` defines. Ops of one pattern share it."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = compile(source, filename, "exec")
    return next(c for c in module.co_consts if isinstance(c, types.CodeType))


def _build(source: str, pattern: str, name: str, space: Mapping[str, Any]) -> Callable[..., Any]:
    code = _compiled(source, f"<numbagrad {pattern}>")
    return types.FunctionType(code.replace(co_name=name), {**_SPACE, **space}, name)


__all__ = ["backward", "forward"]
