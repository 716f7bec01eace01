"""`numbagrad.autograd.graph`: hooks on several tensors, what a graph keeps alive, and how it looks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbagrad.engine.edges import GradientEdge, get_gradient_edge
from numbagrad.engine.node import AccumulateGrad, Edge, Node, RemovableHandle
from numbagrad.engine.sweep import Sweep, current_sweep, reachable
from numbagrad.engine.tensor import Tensor, edge_of, share, wrap
from numbagrad.engine.watch import Packed, disable_saved_tensors_hooks, origin_of, saved_tensors_hooks


class save_on_cpu(saved_tensors_hooks):
    """Keep what is saved in main memory. Everything is there already, so this changes nothing.

    Parameters
    ----------
    pin_memory : bool, optional
        Accepted.
    device_type : str, optional
        Accepted.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> with ng.autograd.graph.save_on_cpu(pin_memory=True):
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 4.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda tensor: tensor, lambda packed: packed)


class _Copies:
    """What `allow_mutation_on_saved_tensors` gives: the copies that it holds."""

    def __init__(self) -> None:
        self.open = True

    def clear(self) -> None:
        """Copies belong to the graphs that need them and go with these; there is nothing to clear here."""


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Copies]:
    """Let tensors be written in place after they were saved: what is saved inside is a copy.

    Unlike in PyTorch, backward may run after the context has been left, and every saved value is copied, written or
    not.

    Examples
    --------
    >>> import numbagrad as ng
    >>> a = ng.tensor([2.0, 3.0], requires_grad=True)
    >>> with ng.autograd.graph.allow_mutation_on_saved_tensors():
    ...     b = a.clone()
    ...     y = (b * b).sum()
    ...     _ = b.sin_() if hasattr(b, "sin_") else b.zero_()
    >>> y.backward()
    >>> a.grad
    tensor([4., 6.])
    """
    copies = _Copies()
    with saved_tensors_hooks(lambda tensor: wrap(tensor._data.copy()), lambda kept: kept):
        yield copies
    copies.open = False


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Note that memory of a tensor was written by other means, so that the in-place check knows.

    Parameters
    ----------
    tensor : Tensor or iterable of Tensor

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0])
    >>> x.numpy()[0] = 5.0
    >>> ng.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    for one in (tensor,) if isinstance(tensor, Tensor) else tensor:
        share(one).version += 1


# ----- hooks on several tensors -----


class _Handles(RemovableHandle):
    """One handle for several."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all"
) -> RemovableHandle:
    """Call a function once per backward, when the gradients of several tensors are known.

    Parameters
    ----------
    tensors : sequence of Tensor
        Each must require grad.
    fn : callable
        For ``mode="all"`` it is called with a sequence of gradients, None for tensors that this backward does not
        reach, as soon as the last has arrived; for ``mode="any"`` with the gradient that arrives first.
    mode : {"all", "any"}, optional

    Returns
    -------
    RemovableHandle

    Raises
    ------
    ValueError
        For another mode.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x, y = ng.tensor(1.0, requires_grad=True), ng.tensor(2.0, requires_grad=True)
    >>> handle = ng.autograd.graph.register_multi_grad_hook([x, y], lambda grads: print(*grads))
    >>> (x * y).backward()
    tensor(2.) tensor(1.)
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    several = tuple(tensors)
    key = object()
    arrived = _arrive_all if mode == "all" else _arrive_any

    def hook_of(nr: int) -> Callable[[Tensor], None]:
        return lambda grad: arrived(key, edges, nr, grad, fn)

    handles = [tensor.register_hook(hook_of(i)) for i, tensor in enumerate(several)]
    # Edges, not tensors: a hook of a tensor must not keep that tensor alive.
    edges = [_place(t) for t in several]
    return _Handles(handles)


def _place(tensor: Tensor) -> Any:
    """(node's number, output) of a result; the address of a leaf, which lives as long as its hook does."""
    edge = edge_of(tensor)
    return edge.seq if type(edge) is Node else edge.node.seq if type(edge) is Edge else id(edge)


class _Arrivals:
    """The gradients that have arrived for one multi-tensor hook in one sweep."""

    def __init__(self, sweep: Sweep, places: Sequence[Any], fn: Callable[..., Any]) -> None:
        reached = _reached(sweep)
        self.missing = sum(place in reached for place in places)
        self.grads: list[Tensor | None] = [None] * len(places)
        self.fn = fn

    def arrive(self, nr: int, grad: Tensor) -> None:
        """Note a gradient; with the last one call the function."""
        self.grads[nr] = grad
        self.missing -= 1
        if self.missing == 0:
            self.fn(tuple(self.grads))

    def finish(self) -> None:
        """The sweep is over: a node that was reached may have got no gradient."""
        if self.missing > 0:
            self.fn(tuple(self.grads))


def _notes_of(sweep: Sweep | None) -> tuple[Sweep, dict[Any, Any]]:
    assert sweep is not None
    if sweep.notes is None:
        sweep.notes = {}
    return sweep, sweep.notes


def _arrive_all(key: object, places: Sequence[Any], nr: int, grad: Tensor, fn: Callable[..., Any]) -> None:
    sweep, notes = _notes_of(current_sweep())
    if key not in notes:
        notes[key] = _Arrivals(sweep, places, fn)
    notes[key].arrive(nr, grad)


def _arrive_any(key: object, places: Sequence[Any], nr: int, grad: Tensor, fn: Callable[..., Any]) -> None:
    _, notes = _notes_of(current_sweep())
    if key not in notes:
        notes[key] = None
        fn(grad)


def _reached(sweep: Sweep) -> set[Any]:
    """The places that the sweep comes to."""
    found: set[Any] = set()
    leaves = [e for e in sweep.roots if type(e) not in (Node, Edge)]
    for node in reachable(sweep.roots):
        if sweep.needed is None or node.seq in sweep.needed:
            found.add(node.seq)
            leaves += [e for e in node.edges if e is not None and type(e) not in (Node, Edge)]
    return found | {id(leaf) for leaf in leaves if sweep.leaf_ids is None or id(leaf) in sweep.leaf_ids}


# ----- what is kept -----


@dataclass(frozen=True)
class Saved:
    """One value that a graph keeps for backward."""

    op: str
    """The op that keeps it."""
    role: str
    """"input", "output", or "packed" for what a pack hook made of one of these."""
    shape: tuple[int, ...]
    dtype: np.dtype
    nbytes: int
    """Bytes that it alone keeps: 0 where the memory is in the list already."""
    line: str | None
    """The user's line that called the op, if anomaly mode was on."""


def list_saved(tensor: Tensor) -> list[Saved]:
    """What the graph of `tensor` keeps alive for backward, the newest op first.

    Parameters
    ----------
    tensor : Tensor

    Returns
    -------
    list of Saved
        Op, role, shape, dtype, bytes and, under `detect_anomaly`, the line.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> y = ng.exp(x) * x
    >>> [(s.op, s.role, s.nbytes) for s in ng.autograd.graph.list_saved(y)]
    [('multiply', 'input', 16), ('multiply', 'input', 16), ('exp', 'output', 0)]
    """
    seen: set[int] = set()
    return [saved for node in _newest_first(tensor) for saved in _saved_by(node, seen)]


def _saved_by(node: Node, seen: set[int]) -> list[Saved]:
    return [_describe(node, value, seen) for value in node.saved or () if _counts(value)]


def _counts(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, Packed))


def _newest_first(tensor: Tensor) -> list[Node]:
    return sorted(reachable([edge_of(tensor)]), key=lambda node: node.seq)


def _describe(node: Node, value: Any, seen: set[int]) -> Saved:
    layout: Any
    if isinstance(value, Packed):
        held = value.packed._data if isinstance(value.packed, Tensor) else None
        layout, role = value.layout, "packed"
        nbytes = 0 if held is None else _own_bytes(held, seen)
    else:
        array = value._data if isinstance(value, Tensor) else value
        layout, role = array, "input" if isinstance(value, Tensor) else "output"
        nbytes = _own_bytes(array, seen)
    return Saved(node.op.name, role, tuple(layout.shape), layout.dtype, nbytes, origin_of(node))


def _own_bytes(array: np.ndarray, seen: set[int]) -> int:
    """Bytes of the memory behind `array`, once."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    new = id(array) not in seen
    seen.add(id(array))
    return array.nbytes if new else 0


# ----- how it looks -----


def draw(tensor: Tensor, format: str = "text") -> Any:
    """The graph that `tensor` was computed by.

    Parameters
    ----------
    tensor : Tensor
    format : {"text", "dot", "svg", "png"}, optional
        "svg" and "png" need graphviz's program ``dot``.

    Returns
    -------
    str or bytes
        Text for "text", "dot" and "svg", else the bytes of the picture.

    Raises
    ------
    ValueError
        For another format.
    RuntimeError
        If graphviz is needed and not there.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> print(ng.autograd.graph.draw((x * 2).sum()))
    sum () float64 <- multiply
      multiply (2,) float64 <- leaf 0, -
    leaf 0: (2,) float64
    """
    drawers: dict[str, Callable[[Tensor], Any]] = {
        "text": _draw_text,
        "dot": _draw_dot,
        "svg": lambda t: _run_dot(t, "svg").decode(),
        "png": lambda t: _run_dot(t, "png"),
    }
    if format not in drawers:
        raise ValueError(f"draw knows the formats {', '.join(drawers)}, not {format!r}")
    return drawers[format](tensor)


class _Names:
    """Names of nodes and leaves, in the order in which they are first asked for."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        counts: dict[str, int] = {}
        for node in nodes:
            counts[node.op.name] = counts.get(node.op.name, 0) + 1
        self.single = {name for name, count in counts.items() if count == 1}
        self.numbers = {node.seq: i for i, node in enumerate(reversed(nodes))}
        self.leaves: dict[int, Tensor] = {}

    def of(self, edge: Any) -> str:
        """The name of what an edge leads to."""
        if edge is None:
            return "-"
        if type(edge) is Edge:
            return f"{self.of(edge.node)}[{edge.nr}]"
        if type(edge) is Node:
            return edge.op.name if edge.op.name in self.single else f"{edge.op.name}.{self.numbers[edge.seq]}"
        self.leaves.setdefault(id(edge), edge)
        return f"leaf {list(self.leaves).index(id(edge))}"


def _layouts(node: Node) -> str:
    layouts = node.layout if type(node.layout) is tuple else (node.layout,)
    return ", ".join("-" if l is None else f"{l.shape} {l.dtype}" for l in layouts)


def _keeps(node: Node, seen: set[int]) -> str:
    saved = _saved_by(node, seen)
    return f", keeps {sum(s.nbytes for s in saved)} bytes" if saved else ""


def _notes(node: Node, seen: set[int]) -> str:
    origin = origin_of(node)
    return f"{_keeps(node, seen)}{'' if origin is None else f', at {origin}'}"


def _draw_text(tensor: Tensor) -> str:
    nodes = _newest_first(tensor)
    names, seen = _Names(nodes), set[int]()
    lines = [
        f"{'  ' if i else ''}{names.of(node)} {_layouts(node)} <- {', '.join(map(names.of, node.edges))}"
        f"{_notes(node, seen)}"
        for i, node in enumerate(nodes)
    ]
    if not nodes and tensor.requires_grad:
        names.of(tensor)
    lines += [f"{names.of(leaf)}: {leaf.shape} {leaf.dtype}" for leaf in names.leaves.values()]
    return "\n".join(lines)


def _draw_dot(tensor: Tensor) -> str:
    nodes = _newest_first(tensor)
    names, seen = _Names(nodes), set[int]()
    lines = ["digraph {", "  rankdir=BT", "  node [shape=box]"]
    for node in nodes:
        label = f"{names.of(node)}\\n{_layouts(node)}{_notes(node, seen)}".replace('"', "'")
        lines.append(f'  "{names.of(node)}" [label="{label}"]')
        for edge in node.edges:
            if edge is not None:
                source = edge.node if type(edge) is Edge else edge
                mark = f' [label="{edge.nr}"]' if type(edge) is Edge else ""
                lines.append(f'  "{names.of(source)}" -> "{names.of(node)}"{mark}')
    lines += [
        f'  "{names.of(leaf)}" [label="{names.of(leaf)}\\n{leaf.shape} {leaf.dtype}", style=filled]'
        for leaf in list(names.leaves.values())
    ]
    return "\n".join([*lines, "}"])


def _run_dot(tensor: Tensor, kind: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise RuntimeError(
            f"drawing a graph as {kind} needs graphviz's program dot, which is not installed; "
            "use format='dot' and draw that elsewhere, or format='text'"
        )
    source = _draw_dot(tensor).encode()
    return subprocess.run([program, f"-T{kind}"], input=source, capture_output=True, check=True).stdout


__all__ = [
    "AccumulateGrad",
    "GradientEdge",
    "Node",
    "RemovableHandle",
    "Saved",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "draw",
    "get_gradient_edge",
    "increment_version",
    "list_saved",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
