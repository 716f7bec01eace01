"""Graphs that run: by generated code, step by step, or step by step into another graph."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable
from itertools import count
from typing import Any

from numbagrad.fx.graph import Graph
from numbagrad.fx.node import Node, map_arg
from numbagrad.fx.proxy import Proxy

_COUNT = count()


class Holder:
    """Holds the constants of a traced function."""


class GraphModule:
    """A graph with what it refers to, called as the function that was traced.

    Assigning `graph`, or `recompile` after changing it, renews the code.

    Examples
    --------
    >>> from numbagrad import fx
    >>> traced = fx.symbolic_trace(lambda x: x + 1)
    >>> for node in traced.graph.find_nodes(op="call_function"):
    ...     node.update_arg(1, 10)
    >>> traced.recompile()
    >>> traced(1)
    11
    """

    def __init__(self, root: Any, graph: Graph):
        self.root = root
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The program."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        graph.owning_module = self.root
        self._graph = graph
        self.recompile()

    @property
    def code(self) -> str:
        """The generated source."""
        return self._code

    def recompile(self) -> None:
        """Make the code anew from the graph."""
        self._graph.lint()
        self._code, names = self._graph.python_code()
        file = f"<numbagrad.fx {next(_COUNT)}>"
        exec(compile(self._code, file, "exec"), names)
        # Without a modification time linecache keeps the lines until they are taken out.
        linecache.cache[file] = (len(self._code), None, self._code.splitlines(True), file)
        self._forget()
        self._file, self._forward = file, names["forward"]

    def _forget(self) -> None:
        linecache.cache.pop(getattr(self, "_file", ""), None)

    def __del__(self) -> None:
        self._forget()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(self.root, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the generated code."""
        return self._forward(self.root, *args, **kwargs)

    def named_parameters(self) -> Any:
        """Parameters of the module that was traced."""
        return getattr(self.root, "named_parameters", lambda: iter(()))()

    def parameters(self) -> Any:
        """Parameters of the module that was traced, without names."""
        return (parameter for _, parameter in self.named_parameters())

    def print_readable(self) -> str:
        """Print the generated code, and return it."""
        print(self._code)
        return self._code


class Interpreter:
    """Runs a graph step by step; subclass it and override a method named as an opcode.

    Examples
    --------
    >>> from numbagrad import fx
    >>> class Loud(fx.Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         print(target.__name__, args)
    ...         return super().call_function(target, args, kwargs)
    >>> Loud(fx.symbolic_trace(lambda x: x * 2 + 1)).run(3)
    mul (3, 2)
    add (6, 1)
    7
    """

    def __init__(self, module: GraphModule):
        self.module, self.graph = module, module.graph
        self.env: dict[Node, Any] = {}

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None) -> Any:
        """Run all steps on these arguments; results are dropped after their last use."""
        self._waiting = list(args)
        self.env = dict(initial_env or {})
        last = {used: node for node in self.graph for used in node.all_input_nodes}
        for node in self.graph:
            if node not in self.env:
                self.env[node] = self._run_checked(node)
            if node.op == "placeholder":
                continue
            if node.op == "output":
                self._all_taken(args)
                return self.env[node]
            for used in node.all_input_nodes:
                if last[used] is node:
                    del self.env[used]
        return None

    def _run_checked(self, node: Node) -> Any:
        try:
            return self.run_node(node)
        except Exception as error:
            if not any("while running" in note for note in getattr(error, "__notes__", ())):
                error.add_note(f"while running {node.format_node()}, traced at {node.meta.get('line', '?')}")
            raise

    def _all_taken(self, args: tuple[Any, ...]) -> None:
        if self._waiting:
            raise TypeError(f"the graph takes {len(args) - len(self._waiting)} arguments, got {len(args)}")

    def run_node(self, node: Node) -> Any:
        """Run one step."""
        args, kwargs = map_arg(node.args, self.env.__getitem__), map_arg(node.kwargs, self.env.__getitem__)
        return getattr(self, node.op)(node.target, args, kwargs)

    def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
        """The next argument."""
        if self._waiting:
            return self._waiting.pop(0)
        if args:
            return args[0]
        raise TypeError(f"the graph wants an argument {target!r}, none was given")

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
        """A parameter or constant."""
        return operator.attrgetter(target)(self.module.root)

    def call_function(self, target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function."""
        return target(*args, **kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        """Call a method of the first argument."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        """Call a submodule."""
        return operator.attrgetter(target)(self.module.root)(*args, **kwargs)

    def output(self, target: str, args: Any, kwargs: Any) -> Any:
        """The result."""
        return args[0]


class Transformer(Interpreter):
    """Runs a graph into a new graph; subclass it and override a method named as an opcode.

    Examples
    --------
    >>> import operator
    >>> from numbagrad import fx
    >>> class Minus(fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(operator.sub if target is operator.add else target, args, kwargs)
    >>> Minus(fx.symbolic_trace(lambda x: x + 1)).transform()(5)
    4
    """

    def __init__(self, module: GraphModule):
        from numbagrad.fx.tracer import Tracer

        super().__init__(module)
        self.tracer = Tracer()
        self.tracer.root, self.tracer.graph = module.root, Graph(module.root)
        self.tracer._known, self.tracer._parameters = {}, {}

    def transform(self) -> GraphModule:
        """The new program."""
        result = self.run()
        self.tracer.create_node("output", "output", (self.tracer.create_arg(result),), {})
        return GraphModule(self.module.root, self.tracer.graph)

    def run_node(self, node: Node) -> Any:
        """Run one step into the new graph, which takes over the notes."""
        made = super().run_node(node)
        if isinstance(made, Proxy) and node.op == "placeholder":
            made.node.meta = dict(node.meta)
        return made

    def _step(self, op: str, target: Any, args: Any, kwargs: Any) -> Proxy:
        return self.tracer.create_proxy(op, target, args, kwargs)

    def placeholder(self, target: str, args: Any, kwargs: Any) -> Proxy:
        """An argument of the new program."""
        return self._step("placeholder", target, args, kwargs)

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Proxy:
        """A parameter or constant."""
        return self._step("get_attr", target, args, kwargs)

    def call_function(self, target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of a function."""
        return self._step("call_function", target, args, kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        """A call of a method."""
        return self._step("call_method", target, args, kwargs)

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        """A call of a submodule."""
        return self._step("call_module", target, args, kwargs)
