"""A program as a list of steps, with the means to change it, and Python code for it."""

from __future__ import annotations

import contextlib
import keyword
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import numbagrad
from numbagrad.fx.node import OPCODES, Node, map_arg, name_of

_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))


class Graph:
    """A program: steps in the order in which they run.

    Examples
    --------
    >>> import numbagrad as ng
    >>> from numbagrad import fx
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(ng.tanh, (x,)))
    >>> graph.lint()
    >>> print(graph)
    graph():
        %x = placeholder[target=x](args = (), kwargs = {})
        %tanh = call_function[target=tanh](args = (x,), kwargs = {})
        %output = output[target=output](args = (tanh,), kwargs = {})
    """

    def __init__(self, owning_module: Any = None):
        self.owning_module = owning_module
        self._taken: dict[str, int] = {}
        self._root = Node(self, "", "root", "", (), {})
        self._place = self._root  # new steps go before it; before the root is the end

    # ------------------------------------------------------------ reading

    @property
    def nodes(self) -> list[Node]:
        """The steps in order."""
        return list(self)

    def __iter__(self) -> Iterator[Node]:
        node = self._root._after
        while node is not self._root:
            after = node._after
            yield node
            node = after

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __str__(self) -> str:
        return "\n".join(["graph():", *(f"    {node.format_node()}" for node in self)])

    def find_nodes(self, *, op: str, target: Any = None) -> list[Node]:
        """Steps with this opcode (and target)."""
        return [n for n in self if n.op == op and (target is None or n.target == target)]

    def print_tabular(self) -> None:
        """Print the steps as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        for n in self:
            what = n.target if isinstance(n.target, str) else name_of(n.target)
            rows.append((n.op, n.name, what, str(n.args), str(n.kwargs)))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        rows.insert(1, tuple("-" * width for width in widths))
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    # ------------------------------------------------------------ building

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
    ) -> Node:
        """Add a step at the place of insertion, which is the end unless `inserting_before` or `_after` says else."""
        if op not in OPCODES:
            raise ValueError(f"unknown opcode {op!r}; the opcodes are {', '.join(OPCODES)}")
        map_arg((args, kwargs), self._own)
        node = Node(self, self._free_name(name or _base_name(op, target)), op, target, args, kwargs or {})
        self._link(node)
        return node

    def _own(self, node: Node) -> Node:
        if node.graph is not self or node._erased:
            raise ValueError(f"step {node.name!r} is not of this graph; copy it with node_copy first")
        return node

    def _link(self, node: Node) -> None:
        node._before, node._after = self._place._before, self._place
        node._before._after = node._after._before = node

    def _free_name(self, wish: str) -> str:
        base = re.sub(r"\W", "_", wish) or "_"
        base = f"_{base}" if base[0].isdigit() else base
        if base not in self._taken and not keyword.iskeyword(base) and base not in _RESERVED:
            self._taken[base] = 0
            return base
        stem = re.sub(r"_\d+$", "", base)
        count = self._taken.get(stem, 0) + 1
        while f"{stem}_{count}" in self._taken:
            count += 1
        self._taken[stem] = count
        self._taken[f"{stem}_{count}"] = 0
        return f"{stem}_{count}"

    def placeholder(self, name: str, *default: Any) -> Node:
        """An argument of the program, with a default if one is given."""
        return self.create_node("placeholder", name, default[:1])

    def get_attr(self, name: str) -> Node:
        """A parameter or constant of the module, by its dotted name."""
        return self.create_node("get_attr", name)

    def call_function(self, function: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Any = None) -> Node:
        """A call of a function."""
        return self.create_node("call_function", function, args, kwargs)

    def call_method(self, name: str, args: tuple[Any, ...] = (), kwargs: Any = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", name, args, kwargs)

    def call_module(self, name: str, args: tuple[Any, ...] = (), kwargs: Any = None) -> Node:
        """A call of a submodule, by its dotted name."""
        return self.create_node("call_module", name, args, kwargs)

    def output(self, result: Any) -> Node:
        """What the program gives."""
        return self.create_node("output", "output", (result,))

    def node_copy(self, node: Node, transform: Callable[[Node], Node] = lambda node: node) -> Node:
        """A step of another graph, here; `transform` says which step of this graph stands for each of its inputs."""
        args, kwargs = map_arg(node.args, transform), map_arg(node.kwargs, transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, other: Graph, known: dict[Node, Any]) -> Any:
        """Copy the steps of `other` (those in `known` are there already); returns what it gives, in terms of ours."""
        for node in other:
            if node.op == "output":
                return map_arg(node.args[0], known.__getitem__)
            if node not in known:
                known[node] = self.node_copy(node, known.__getitem__)
        return None

    # ------------------------------------------------------------ changing

    def inserting_before(self, node: Node | None = None) -> contextlib.AbstractContextManager[None]:
        """Within it, new steps go before `node` (before all, without one)."""
        return self._inserting(self._root._after if node is None else self._own(node))

    def inserting_after(self, node: Node | None = None) -> contextlib.AbstractContextManager[None]:
        """Within it, new steps go after `node` (after all, without one)."""
        return self._inserting(self._root if node is None else self._own(node)._after)

    @contextlib.contextmanager
    def _inserting(self, place: Node) -> Iterator[None]:
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    def erase_node(self, node: Node) -> None:
        """Take a step out; nobody may use it any more."""
        self._own(node)
        if node.users:
            raise RuntimeError(
                f"cannot erase step {node.name!r}: it is used by {', '.join(u.name for u in node.users)}; "
                "replace_all_uses_with another step first"
            )
        node._use((), {})
        if node is self._place:
            self._place = node._after
        node._before._after, node._after._before = node._after, node._before
        node._erased = True
        self._taken.pop(node.name, None)

    def eliminate_dead_code(self) -> bool:
        """Take out what nobody uses and what has no effect of its own; says whether anything went."""
        unused = False
        for node in reversed(self.nodes):
            if not node.users and not node.is_impure():
                self.erase_node(node)
                unused = True
        return unused

    def lint(self) -> None:
        """Raise RuntimeError if the graph is not a program that can run."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self:
            if node.name in names:
                raise RuntimeError(f"two steps are named {node.name!r}")
            for used in node.all_input_nodes:
                if used not in seen:
                    why = "is not of this graph" if used.graph is not self else "does not run before it"
                    raise RuntimeError(f"step {node.name!r} uses {used.name!r}, which {why}")
            _lint_target(node, self.owning_module)
            if node.op == "output" and node._after is not self._root:
                raise RuntimeError("a step stands after the output")
            seen.add(node)
            names.add(node.name)

    # ------------------------------------------------------------ code

    def python_code(self) -> tuple[str, dict[str, Any]]:
        """Source of a function ``forward(self, ...)`` and the globals it needs."""
        names: dict[str, Any] = {"ng": numbagrad, "np": np, "operator": operator}
        show = lambda value: _show(value, names)
        parameters, lines = ["self"], []
        for node in self:
            if node.op == "placeholder":
                default = f"={show(node.args[0])}" if node.args else ""
                if node.meta.get("keyword_only") and "*" not in parameters:
                    parameters.append("*")
                parameters.append(f"{node.target}{default}")
                if node.target != node.name:
                    lines.append(f"{node.name} = {node.target}")
            elif node.op == "output":
                lines.append(f"return {show(node.args[0])}")
            else:
                lines.append(f"{node.name} = {_line(node, show, names)}")
        body = "\n    ".join(lines or ["return None"])
        return f"def forward({', '.join(parameters)}):\n    {body}\n", names


_RESERVED = {"self", "ng", "np", "operator", *dir(__builtins__ if not isinstance(__builtins__, dict) else object())}
_RESERVED |= {"sum", "max", "min", "abs", "round", "pow", "getattr", "slice", "all", "any", "sorted", "range", "len"}


def _base_name(op: str, target: Any) -> str:
    if isinstance(target, str):
        return target.lstrip("*").replace(".", "_")
    return name_of(target).strip("_")


def _lint_target(node: Node, module: Any) -> None:
    if node.op == "call_function" and not callable(node.target):
        raise RuntimeError(f"step {node.name!r} calls {node.target!r}, which is not callable")
    if node.op != "call_function" and not isinstance(node.target, str):
        raise RuntimeError(f"step {node.name!r} ({node.op}) wants a name as its target, got {node.target!r}")
    if module is not None and node.op in ("get_attr", "call_module"):
        try:
            operator.attrgetter(node.target)(module)
        except AttributeError:
            raise RuntimeError(f"step {node.name!r}: the module has no {node.target!r}") from None


def _line(node: Node, show: Callable[[Any], str], names: dict[str, Any]) -> str:
    if node.op == "get_attr":
        return _path(node.target)
    given = [show(a) for a in node.args] + [f"{k}={show(v)}" for k, v in node.kwargs.items()]
    if node.op == "call_module":
        return f"{_path(node.target)}({', '.join(given)})"
    if node.op == "call_method":
        return f"{given[0]}.{node.target}({', '.join(given[1:])})"
    return _call(node, given, names)


def _path(target: str) -> str:
    """A dotted name as code; parts such as the numbers of a Sequential are no identifiers."""
    code = "self"
    for part in target.split("."):
        code = f"{code}.{part}" if part.isidentifier() else f"getattr({code}, {part!r})"
    return code


def _call(node: Node, given: list[str], names: dict[str, Any]) -> str:
    plain = not node.kwargs and not any(g.startswith("-") for g in given[:1])
    if node.target in _INFIX and len(given) == 2 and plain:
        return f"{given[0]} {_INFIX[node.target]} {given[1]}"
    if node.target is getattr and len(given) == 2 and str(node.args[1]).isidentifier():
        return f"{given[0]}.{node.args[1]}"
    if node.target is operator.getitem:
        return f"{given[0]}[{given[1]}]"
    return f"{_global(node.target, names)}({', '.join(given)})"


def _global(value: Any, names: dict[str, Any]) -> str:
    """How code refers to a callable or other object."""
    name = name_of(value)
    for prefix, module in (("ng", numbagrad), ("np", np), ("operator", operator)):
        if name.isidentifier() and module.__dict__.get(name) is value:
            return f"{prefix}.{name}"
    wish = re.sub(r"\W", "_", name)
    wish = f"{wish}_0" if keyword.iskeyword(wish) else wish
    count = 0
    while (found := f"_{wish}_{count}") in names and names[found] is not value:
        count += 1
    names[found] = value
    return found


def _show(value: Any, names: dict[str, Any]) -> str:
    """An argument as code."""
    show = lambda v: _show(v, names)
    if isinstance(value, Node):
        return value.name
    if type(value) is float and (value != value or value in (np.inf, -np.inf)):
        return {"nan": "ng.nan", "inf": "ng.inf", "-inf": "(-ng.inf)"}[repr(value)]
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) is tuple:
        return f"({', '.join(map(show, value))}{',' if len(value) == 1 else ''})"
    if type(value) is list:
        return f"[{', '.join(map(show, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{show(k)}: {show(v)}' for k, v in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({show(value.start)}, {show(value.stop)}, {show(value.step)})"
    if hasattr(value, "_fields"):
        return f"{_global(type(value), names)}({', '.join(map(show, value))})"
    return _global(value, names)
