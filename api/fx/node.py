"""One step of a program: what is called, with what, and who uses the result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

OPCODES = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")

_WRITES = {
    operator.setitem,
    operator.delitem,
    *(getattr(operator, name) for name in dir(operator) if name.startswith("i") and f"__{name}__" in dir(operator)),
} - {operator.index, operator.inv, operator.invert}


def map_arg(arg: Any, function: Callable[[Node], Any]) -> Any:
    """`arg` with `function` applied to every `Node` in it; tuples, lists, dicts and slices are looked into."""
    if isinstance(arg, Node):
        return function(arg)
    if isinstance(arg, tuple):
        items = [map_arg(a, function) for a in arg]
        return type(arg)(*items) if hasattr(arg, "_fields") else tuple(items)
    if isinstance(arg, list):
        return [map_arg(a, function) for a in arg]
    if isinstance(arg, dict):
        return {key: map_arg(a, function) for key, a in arg.items()}
    if isinstance(arg, slice):
        return slice(*(map_arg(a, function) for a in (arg.start, arg.stop, arg.step)))
    return arg


class Node:
    """A step of a `Graph`. Made by the graph's methods, never directly.

    Attributes
    ----------
    op : str
        One of the six opcodes.
    target : callable or str
        The function, or the name of a method, module, attribute or argument.
    args, kwargs : tuple, dict
        Arguments; other steps stand in them as `Node`. Setting them keeps `users` right.
    users : dict
        Steps that use the result.
    meta : dict
        Free for notes.
    """

    def __init__(self, graph: Any, name: str, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._before: Node = self
        self._after: Node = self
        self._erased = False
        self._use(args, kwargs)

    def _use(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for node in self.all_input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs = tuple(args), dict(kwargs)
        for node in self.all_input_nodes:
            node.users[self] = None

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments."""
        return self._args

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        self._use(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments by name; set the whole dictionary to change it."""
        return dict(self._kwargs)

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._use(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """Steps whose results this one takes, each once."""
        found: dict[Node, None] = {}
        map_arg((self._args, self._kwargs), lambda node: found.setdefault(node))
        return list(found)

    @property
    def next(self) -> Node:
        """The step after this one."""
        return self._after

    @property
    def prev(self) -> Node:
        """The step before this one."""
        return self._before

    def update_arg(self, index: int, value: Any) -> None:
        """Replace one positional argument."""
        args = list(self._args)
        args[index] = value
        self.args = tuple(args)

    def update_kwarg(self, name: str, value: Any) -> None:
        """Replace one argument by name."""
        self.kwargs = {**self._kwargs, name: value}

    def replace_input_with(self, old: Node, new: Node) -> None:
        """Take `new` wherever `old` was taken."""
        swap = lambda node: new if node is old else node
        self._use(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(self, other: Node) -> list[Node]:
        """Let every user of this step take `other` instead; returns those users. `other` itself may use this step."""
        users = [user for user in self.users if user is not other]
        for user in users:
            user.replace_input_with(self, other)
        return users

    def is_impure(self) -> bool:
        """Whether it does more than give a result, so that it must stay though nobody uses it."""
        if self.op in ("placeholder", "output", "call_module"):
            return True
        if self.op == "call_method":
            return self.target.endswith("_") or self.target in ("backward", "fill", "sort", "put", "itemset")
        if self.op != "call_function":
            return False
        module = f"{getattr(self.target, '__module__', '')}"
        return self.target in _WRITES or "random" in module or bool({"out", "where_out"} & set(self._kwargs))

    def __repr__(self) -> str:
        return self.name

    def format_node(self) -> str:
        """The step as a line of text."""
        what = self.target if isinstance(self.target, str) else name_of(self.target)
        return f"%{self.name} = {self.op}[target={what}](args = {self._args}, kwargs = {self._kwargs})"


def name_of(target: Any) -> str:
    """A readable name for a callable."""
    return getattr(target, "__name__", None) or getattr(target, "name", None) or type(target).__name__
