"""Tracing: run a function once on proxies and keep what it did.

NumPy's functions and Python's operators find a `Proxy` by their protocols. Our own functions have none, so that eager
calls pay nothing; while a trace runs, the names under which they are known (in numbagrad and in the modules of the
traced code) lead to stand-ins that look for proxies and otherwise call the function itself, in any thread.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from numbagrad import ops
from numbagrad.engine.tensor import Tensor
from numbagrad.fx.graph import Graph
from numbagrad.fx.module import GraphModule, Holder
from numbagrad.fx.node import Node
from numbagrad.fx.proxy import Proxy, TraceError, place_of_user
from numbagrad.ops.elementwise import Elementwise

_LOCK = threading.RLock()
_MODULES = ("numbagrad", "numbagrad.linalg", "numbagrad.numpy", "numbagrad.nn.functional", "numbagrad.ops")


def proxies_in(value: Any) -> Iterator[Proxy]:
    """The proxies in nested containers."""
    if isinstance(value, Proxy):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from proxies_in(item)
    elif isinstance(value, dict):
        yield from proxies_in(list(value.values()))
    elif isinstance(value, slice):
        yield from proxies_in([value.start, value.stop, value.step])


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a trace keeps a call of the function as one step, and does not look inside.

    Examples
    --------
    >>> from numbagrad import fx
    >>> @fx.wrap
    ... def twice(x):
    ...     return 2 * x if x.ndim else x
    >>> [node.name for node in fx.symbolic_trace(lambda x: twice(x) + 1).graph]
    ['x', 'twice', 'add', 'output']
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = next(proxies_in((args, kwargs)), None)
        if found is None:
            return function(*args, **kwargs)
        return found.tracer.create_proxy("call_function", wrapped, args, kwargs)

    return wrapped


class _StandIn:
    """What a name of one of our functions leads to while a trace runs."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = next(proxies_in((args, kwargs)), None)
        if found is None:
            return self._function(*args, **kwargs)
        return found.tracer.create_proxy("call_function", self._function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


@functools.cache
def _own_functions() -> frozenset[int]:
    """Identities of the public functions of ours that take tensors."""
    found = {id(getattr(ops, name)) for name in ops.__all__ if _is_function(getattr(ops, name))}
    found |= {id(op) for op in ops.OPS.values()}
    return frozenset(found)


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _is_own(value: Any, module: dict[str, Any]) -> bool:
    if id(value) in _own_functions() or isinstance(value, Elementwise):
        return True
    name = module.get("__name__")
    public = name in _MODULES and inspect.isfunction(value) and value.__module__.startswith(("numbagrad.ops", name))
    return public and name != "numbagrad"


@contextlib.contextmanager
def _patched(function: Callable[..., Any]) -> Iterator[None]:
    """The names of our functions lead to stand-ins, until it ends."""
    namespaces = [sys.modules[name].__dict__ for name in _MODULES if name in sys.modules]
    namespaces += [getattr(inspect.unwrap(function), "__globals__", {})]
    changed: list[tuple[dict[str, Any], str, Any]] = []
    with _LOCK:
        try:
            for space in {id(s): s for s in namespaces}.values():
                for name, value in list(space.items()):
                    if not name.startswith("__") and _is_own(value, space):
                        changed.append((space, name, value))
                        space[name] = _StandIn(value)
            yield
        finally:
            for space, name, value in changed:
                space[name] = value


class Tracer:
    """Makes graphs of functions and modules. Subclass it to change what is kept as one step.

    Examples
    --------
    >>> import numbagrad as ng
    >>> from numbagrad import fx
    >>> [node.name for node in fx.Tracer().trace(lambda x: ng.exp(x) + 1)]
    ['x', 'exp', 'add', 'output']
    """

    def create_node(self, op: str, target: Any, args: Any, kwargs: Any, name: str | None = None) -> Node:
        """Add a step; override to look at each."""
        return self.graph.create_node(op, target, args, kwargs, name)

    def proxy(self, node: Node) -> Proxy:
        """What stands for the result of a step."""
        return Proxy(node, self)

    def create_proxy(self, op: str, target: Any, args: Any, kwargs: Any, name: str | None = None) -> Proxy:
        """Add a step whose arguments hold proxies; gives what stands for its result."""
        made = self.create_node(op, target, self.create_arg(tuple(args)), self.create_arg(dict(kwargs)), name)
        made.meta["line"] = place_of_user()
        return self.proxy(made)

    def create_arg(self, value: Any) -> Any:
        """An argument as a step can hold it: proxies become steps, arrays become constants of the module."""
        if isinstance(value, Proxy):
            if value.tracer is not self:
                raise TraceError(f"{place_of_user()}: a traced value ({value.node.name}) was kept from another trace")
            return value.node
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.create_arg, value))
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.create_arg, value))
        if isinstance(value, dict):
            return {key: self.create_arg(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(*map(self.create_arg, (value.start, value.stop, value.step)))
        return self._constant(value) if isinstance(value, (Tensor, np.ndarray)) else value

    def _constant(self, value: Any) -> Node:
        if id(value) in self._known:
            return self._known[id(value)]
        path = self._parameters.get(id(value))
        if path is None:
            if isinstance(value, Tensor) and value.grad_fn is not None:
                raise TraceError(
                    f"{place_of_user()}: a tensor that was computed from others outside of the trace needs their "
                    "gradient; pass it as an argument, or detach it"
                )
            path = self._new_constant(value)
        with self.graph.inserting_after(self._last_placeholder()):
            self._known[id(value)] = self.create_node("get_attr", path, (), {})
        return self._known[id(value)]

    def _new_constant(self, value: Any) -> str:
        count = 0
        while hasattr(self.root, f"_constant{count}"):
            count += 1
        setattr(self.root, f"_constant{count}", value)
        return f"_constant{count}"

    def _last_placeholder(self) -> Node | None:
        found = self.graph.find_nodes(op="placeholder")
        return found[-1] if found else self.graph._root

    def is_leaf_module(self, module: Any, path: str) -> bool:
        """Whether calls of a module stay one step: those of numbagrad.nn that hold no other modules."""
        ours = type(module).__module__.startswith("numbagrad.nn")
        return ours and not any(True for name, _ in module.named_modules() if name)

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """Graph of a function, or of a module's ``forward``.

        Parameters
        ----------
        root : callable or module
            What to trace.
        concrete_args : dict, optional
            Values for some of the arguments. They are known while tracing, so code may branch on them; the graph holds
            for these values, and the arguments leave its signature.
        """
        is_module = hasattr(root, "named_modules")
        self.root = root if is_module else Holder()
        self.graph = Graph(self.root)
        self._known: dict[int, Node] = {}
        self._parameters = _named(root) if is_module else {}
        function = root.forward if is_module else root
        args = self._arguments(function, dict(concrete_args or {}))
        with _patched(function), self._modules_patched(root if is_module else None):
            result = function(**args)
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    def _arguments(self, function: Callable[..., Any], concrete: dict[str, Any]) -> dict[str, Any]:
        args: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TraceError(f"argument {parameter} has no fixed name and number; trace a function without it")
            if name in concrete:
                args[name] = concrete.pop(name)
                continue
            default = () if parameter.default is parameter.empty else (parameter.default,)
            node = self.create_node("placeholder", name, default, {}, name)
            node.meta["keyword_only"] = parameter.kind is parameter.KEYWORD_ONLY
            args[name] = self.proxy(node)
        if concrete:
            raise TypeError(f"concrete_args names {sorted(concrete)}, the function takes {sorted(args)}")
        return args

    @contextlib.contextmanager
    def _modules_patched(self, root: Any) -> Iterator[None]:
        """Calls of submodules come to `_called`."""
        paths = {id(m): path for path, m in root.named_modules()} if root is not None else {}
        classes = {c for _, m in (root.named_modules() if root is not None else ()) for c in type(m).__mro__}
        calls = {c: c.__dict__["__call__"] for c in classes if "__call__" in c.__dict__}
        for cls, call in calls.items():
            cls.__call__ = self._stand_in_call(call, paths)
        try:
            yield
        finally:
            for cls, call in calls.items():
                cls.__call__ = call

    def _stand_in_call(self, call: Callable[..., Any], paths: dict[int, str]) -> Callable[..., Any]:
        def stand_in(module: Any, *args: Any, **kwargs: Any) -> Any:
            path = paths.get(id(module))
            mine = any(p.tracer is self for p in proxies_in((args, kwargs)))
            if not path or not mine or not self.is_leaf_module(module, path):
                return call(module, *args, **kwargs)
            return self.create_proxy("call_module", path, args, kwargs)

        return stand_in


def _named(root: Any) -> dict[int, str]:
    """Dotted names of parameters and buffers, by identity."""
    found = {id(p): name for name, p in root.named_parameters()}
    return found | {id(b): name for name, b in getattr(root, "named_buffers", lambda: ())()}


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Trace a function or module; the result is called as it is, and holds the graph.

    Parameters
    ----------
    root : callable or module
        What to trace.
    concrete_args : dict, optional
        Values for some of the arguments, as in `Tracer.trace`.

    Examples
    --------
    >>> from numbagrad import fx
    >>> traced = fx.symbolic_trace(lambda x, up: x + 1 if up else x - 1, {"up": True})
    >>> traced(2)
    3
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    return GraphModule(tracer.root, graph)
