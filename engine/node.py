"""Nodes: the recorded uses of ops, and the edges between them.

A `Node` is PyTorch's `grad_fn`. Its `edges` say where the gradients go, one per input: a `Node` (its only output), an
`Edge` (output `nr` of a node with several), a leaf `Tensor` (the gradient is accumulated into `.grad`), or None (the
input does not require grad). Nodes refer to inputs only, so a graph has no reference cycles and dies with its last
reference.

`seq` falls with every node made, so a heap of them yields nodes in the order in which backward must visit them: each
node after everything that used it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numbagrad.engine.tensor import Tensor

next_seq = itertools.count(0, -1).__next__

watches: list[Callable[[Node], None]] = []
"""What is called with every new node, in any thread, by modes that are on; empty most of the time. While it is not,
ops leave their fast paths, so that every node is made by its constructor."""


inference: list[Callable[[Tensor], None]] = []
"""What is called with every new tensor while inference mode is on in any thread; empty most of the time."""


batching: list[Any] = []
"""The levels of `numbagrad.vmap` that are open in any thread; empty most of the time. While it is not, ops look for
tensors that stand for a batch of entries."""


def mark_new(tensor: Tensor) -> None:
    """Show a new tensor to inference mode."""
    for mark in inference[:1]:
        mark(tensor)


class Op(Protocol):
    """What the engine needs to know of an operation."""

    name: str

    def vjp(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        """Gradients of the inputs. `grad` is a Tensor, or a list (None for zeros) when the node has several outputs."""
        ...

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Any:
        """Tangent of the output (a tuple when there are several) from those of the inputs."""
        ...


class Storage:
    """What views of one array share: the array that owns the memory, and how often it was written in place.

    A Tensor has one only once it has an alias or was written in place; until then its version is 0.
    """

    __slots__ = ("array", "version", "views", "written_at")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.version = 0
        self.written_at: str | None = None
        """The line of the last write; kept only while someone watches."""
        self.views: list[weakref.ref[Tensor]] = []
        """The views, which need grad when a write makes their base need it."""

    def add_view(self, view: Tensor) -> None:
        """Know a view; forget the dead ones when their number has doubled."""
        views = self.views
        if len(views) >= 16 and len(views) & (len(views) - 1) == 0:
            views[:] = [v for v in views if v() is not None]
        views.append(weakref.ref(view))


class Hooks:
    """The hooks of a node, in three ordered lists, and the tensors whose gradient it keeps."""

    __slots__ = ("post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, tuple[int, Callable[..., Any]]] = {}
        """Hooks of output tensors: handle -> (output nr, hook). They run first, in order."""
        self.pre: dict[int, Callable[..., Any]] = {}
        """Node.register_prehook: they see and may replace the gradients of the outputs."""
        self.post: dict[int, Callable[..., Any]] = {}
        """Node.register_hook: they see gradients of inputs and outputs, and may replace those of the inputs."""
        self.retain: dict[int, weakref.ref[Tensor]] = {}
        """output nr -> tensor that keeps its gradient (retain_grad); after the tensor hooks."""


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away; also a context manager."""

    _next_id = itertools.count().__next__

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        self.id = RemovableHandle._next_id()
        self._hooks = hooks
        hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook away. A second call does nothing."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Node:
    """One recorded use of an op: PyTorch's `grad_fn`."""

    __slots__ = (
        "__weakref__",
        "edges",
        "hooks",
        "layout",
        "op",
        "origin",
        "saved",
        "seq",
        "statics",
        "storage",
        "versions",
    )

    op: Op
    edges: tuple[Any, ...]
    saved: Any
    """What backward needs (tensors for inputs, arrays for outputs), or None once it was freed."""
    versions: tuple[int, ...] | None
    """Versions of the saved values when they were saved; None means that all were 0."""
    storage: Storage | None
    """Storage of the output, once it has an alias or was written in place."""
    layout: Any
    """Layout of the output (a tuple of them for several)."""
    statics: Any
    """Arguments of the op that are not tensors."""
    hooks: Hooks | None
    origin: str
    """The line that called the op; set only while someone watches."""

    def __init__(self, op: Op, edges: tuple[Any, ...], saved: Any, layout: Any, statics: Any = None) -> None:
        self.op = op
        self.edges = edges
        self.saved = saved
        self.seq = next_seq()
        self.layout = layout
        self.statics = statics
        self.versions = None
        self.storage = None
        self.hooks = None
        if watches:
            for watch in dict.fromkeys(watches):
                watch(self)

    def name(self) -> str:
        """The op's name in PyTorch's style, such as ``MultiplyBackward``."""
        return "".join(part[:1].upper() + part[1:] for part in self.op.name.split("_")) + "Backward"

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What a custom Function saved for backward."""
        return self.op.saved_tensors  # type: ignore[attr-defined]

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """For each input the node (or AccumulateGrad) that gets its gradient, and the number of its output."""
        return tuple(_as_function(edge) for edge in self.edges)

    @property
    def outputs(self) -> int:
        """How many outputs the op gave."""
        return len(self.layout) if type(self.layout) is tuple else 1

    @property
    def metadata(self) -> dict[str, Any]:
        """The op's name and what it was called with, for looking at a graph."""
        return {"op": self.op.name, "statics": self.statics, "output": self.layout}

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node's backward; a tuple that it returns replaces the
        gradients of the inputs."""
        return RemovableHandle(self._hooks().post, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node's backward; a tuple that it returns replaces them."""
        return RemovableHandle(self._hooks().pre, hook)

    def _hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def __repr__(self) -> str:
        return f"<{self.name()}>"


class Edge:
    """Output `nr` of a node that has several outputs."""

    __slots__ = ("node", "nr")

    def __init__(self, node: Node, nr: int) -> None:
        self.node = node
        self.nr = nr


class AccumulateGrad:
    """The end of an edge at a leaf: backward adds the gradient to ``variable.grad`` there."""

    __slots__ = ("__weakref__", "variable")

    next_functions: tuple[tuple[Any, int], ...] = ()

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable

    def name(self) -> str:
        """``AccumulateGrad``, as in PyTorch."""
        return "AccumulateGrad"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self) -> int:
        return hash((AccumulateGrad, id(self.variable)))

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


def _as_function(edge: Any) -> tuple[Any, int]:
    if edge is None:
        return None, 0
    if type(edge) is Node:
        return edge, 0
    if type(edge) is Edge:
        return edge.node, edge.nr
    return AccumulateGrad(edge), 0
