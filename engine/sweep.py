"""The backward sweep: from the roots through the graph, each node once, newest first.

A heap of sequence numbers gives the order: a node is older than everything that used it, so when it is popped all of
its gradient has arrived. No pass ahead is needed, nothing recurses, and the state of a sweep is local to it, so
any number of threads may sweep at once. Leaves are written only when all nodes have run: an exception anywhere leaves
every `.grad` as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from numbagrad.engine.arithmetic import arithmetic
from numbagrad.engine.node import Edge, Node, batching

if TYPE_CHECKING:
    from numbagrad.engine.tensor import Tensor

_current: ContextVar[Sweep | None] = ContextVar("numbagrad_sweep", default=None)
current_sweep = _current.get
"""The sweep that runs the hook or the op which asks."""


class Sweep:
    """One run of backward.

    `pending` holds for each node that was reached its gradient so far; `leaves` the same for leaf tensors. The third
    entry of each says whether the gradient is a sum made here, which may be added into.
    """

    __slots__ = (
        "captured",
        "create_graph",
        "fusing",
        "heap",
        "hooked",
        "keep",
        "leaf_ids",
        "leaves",
        "needed",
        "notes",
        "pending",
        "roots",
        "seeds",
        "wanted",
    )

    def __init__(self, keep: bool, create_graph: bool) -> None:
        self.keep = keep
        self.create_graph = create_graph
        self.pending: dict[int, list[Any]] = {}
        self.heap: list[int] = []
        self.leaves: dict[int, list[Any]] = {}
        self.hooked = create_graph
        """Whether someone besides the sweep may hold the gradients."""
        self.fusing = False
        """Whether an op may do the backward of the nodes that follow along with its own."""
        self.seeds: set[int] = set()
        self.leaf_ids: set[int] | None = None
        """id of the leaves that get gradients; None for all."""
        self.needed: set[int] | None = None
        """seq of the nodes to run; None for all."""
        self.wanted: dict[tuple[int, int], Any] = {}
        """(seq, output nr) whose gradient is asked for -> key under which `captured` gets it."""
        self.captured: dict[Any, Tensor] = {}
        self.roots: Sequence[Any] = ()
        """The edges that it starts from."""
        self.notes: dict[Any, Any] | None = None
        """What hooks that belong together note about this sweep."""

    # ------------------------------------------------------------------ gradients arriving
    def deliver(self, edge: Any, grad: Tensor) -> None:
        """Add `grad` to what has arrived at `edge`."""
        if type(edge) is Node:
            self._add(self.pending, edge.seq, edge, grad)
        elif type(edge) is Edge:
            self._add_output(edge, grad)
        elif self.leaf_ids is None or id(edge) in self.leaf_ids:
            self._add(self.leaves, id(edge), edge, grad)

    def _add(self, place: dict[int, list[Any]], key: int, owner: Any, grad: Tensor) -> None:
        have = place.get(key)
        if have is None:
            if place is self.pending and not self._push(key):
                return
            place[key] = [owner, grad, False]
        elif have[2] and not self.create_graph:
            arithmetic.add_into(have[1], grad)
        else:
            have[1] = arithmetic.add(have[1], grad)
            have[2] = True

    def _push(self, seq: int) -> bool:
        if self.needed is not None and seq not in self.needed:
            return False
        heappush(self.heap, seq)
        return True

    def _add_output(self, edge: Edge, grad: Tensor) -> None:
        node, nr = edge.node, edge.nr
        have = self.pending.get(node.seq)
        if have is None:
            if not self._push(node.seq):
                return
            have = self.pending[node.seq] = [node, [None] * node.outputs, False]
        before = have[1][nr]
        have[1][nr] = grad if before is None else arithmetic.add(before, grad)

    # ------------------------------------------------------------------ the sweep
    def run(self) -> None:
        """Run the nodes until none has a gradient waiting."""
        token = _current.set(self)
        self.fusing = True
        try:
            self._run()
        finally:
            _current.reset(token)

    def _run(self) -> None:
        heap, pending, leaves = self.heap, self.pending, self.leaves
        keep, plain = self.keep, self.needed is None
        add_into, deliver, own = arithmetic.add_into, self.deliver, not self.create_graph
        while heap:
            node, grad, _ = pending.pop(heappop(heap))
            if node.hooks is not None or not plain:
                grad = self._before(node, grad)
                if grad is None:
                    continue
            grads = node.op.vjp(node, grad)
            if node.hooks is not None and node.hooks.post:
                grads = _run_post_hooks(node, grads, grad)
            if not keep and node.saved:
                node.saved = None
            # The usual cases of `deliver`, written out: the first gradient of a node with one output, and a further one
            # of a leaf whose sum is ours.
            for edge, g in zip(node.edges, grads):  # noqa: B905 - checked by whoever makes `grads`
                if g is None:
                    continue
                if type(edge) is Node:
                    if plain and edge.seq not in pending:
                        pending[edge.seq] = [edge, g, False]
                        heappush(heap, edge.seq)
                        continue
                elif own and (have := leaves.get(id(edge))) is not None and have[2]:
                    add_into(have[1], g)
                    continue
                deliver(edge, g)

    def step(self, vjp: Callable[[Node, Any], Sequence[Any]]) -> tuple[Node, Any, Sequence[Any]]:
        """Run the next node, its backward called by way of `vjp`; gives the node and its gradients, out and in."""
        node, grad, _ = self.pending.pop(heappop(self.heap))
        if node.hooks is not None or self.needed is not None:
            grad = self._before(node, grad)
            if grad is None:
                return node, grad, ()
        grads = vjp(node, grad)
        if node.hooks is not None and node.hooks.post:
            grads = _run_post_hooks(node, grads, grad)
        if not self.keep and node.saved:
            node.saved = None
        for edge, g in zip(node.edges, grads, strict=True):
            if g is not None:
                self.deliver(edge, g)
        return node, grad, grads

    def _before(self, node: Node, grad: Any) -> Any:
        """Run the hooks that come before the node's backward, keep what was asked for; None if it need not run."""
        if node.hooks is not None:
            self.hooked = True
            grad = self._known(_run_tensor_hooks, node, grad)
        if self.wanted:
            self._capture(node, grad)
        if self.needed is not None and node.seq in self.needed and not self._runs(node):
            return None
        if node.hooks is not None and node.hooks.pre:
            grad = _run_pre_hooks(node, grad)
        return grad

    def _known(self, run: Callable[..., Any], *args: Any) -> Any:
        """Run hooks that may ask for the current sweep."""
        token = _current.set(self)
        try:
            return run(*args)
        finally:
            _current.reset(token)

    def _capture(self, node: Node, grad: Any) -> None:
        for nr, g in enumerate(grad if type(grad) is list else [grad]):
            key = self.wanted.get((node.seq, nr))
            if key is not None and g is not None:
                self.captured[key] = g

    def _runs(self, node: Node) -> bool:
        """Whether something asked for lies behind the node."""
        return (node.seq, -1) not in self.wanted

    # ------------------------------------------------------------------ what is asked for
    def restrict(self, roots: Iterable[Any], targets: Sequence[Tensor], edges: Sequence[Any]) -> None:
        """Run only the nodes that lead to `targets`, whose edges are `edges`, and keep the gradients there."""
        leaf_ids = self.leaf_ids = set()
        for target, edge in zip(targets, edges, strict=True):
            if type(edge) is Node:
                self.wanted[edge.seq, 0] = id(target)
            elif type(edge) is Edge:
                self.wanted[edge.node.seq, edge.nr] = id(target)
            else:
                leaf_ids.add(id(target))
        self._mark_needed(roots, leaf_ids)

    def _mark_needed(self, roots: Iterable[Any], leaf_ids: set[int]) -> None:
        asked = {seq for seq, _ in self.wanted}
        needed: set[int] = set()
        # Oldest first, so that the inputs of a node are decided before the node.
        for node in sorted(reachable(roots), key=lambda node: node.seq, reverse=True):
            leads = any(_leads(edge, needed, leaf_ids) for edge in node.edges)
            if leads or node.seq in asked:
                needed.add(node.seq)
            if node.seq in asked and not leads:
                self.wanted[node.seq, -1] = None
        self.needed = needed

    # ------------------------------------------------------------------ the end
    def finish_leaves(self) -> None:
        """Run the hooks of the leaves on their whole gradients; nothing is written yet."""
        for entry in self.leaves.values():
            leaf = entry[0]
            if leaf._extra is not None and leaf._extra.tensor:
                self.hooked = True
                entry[1] = self._known(_run_hooks, leaf._extra.tensor.values(), entry[1], str(leaf.shape))
        for note in list((self.notes or {}).values()):
            if note is not None:
                note.finish()

    def commit(self) -> None:
        """Write the gradients of the leaves, then run the hooks that follow that."""
        seen = self.seeds
        for leaf, grad, _ in list(self.leaves.values()):
            store(leaf, grad, self.create_graph, fresh=not self.hooked and id(grad._data) not in seen)
            seen.add(id(grad._data))
        for leaf, _, _ in self.leaves.values():
            if leaf._extra is not None:
                for hook in list(leaf._extra.accumulated.values()):
                    hook(leaf)


def store(leaf: Tensor, grad: Tensor, create_graph: bool, fresh: bool) -> None:
    """Add `grad` to ``leaf.grad``. Memory that someone else may hold is copied."""
    have = leaf._grad
    if have is None:
        leaf._grad = grad if create_graph or (fresh and _ours(grad)) else _copy(grad)
        if create_graph and grad._node is None:
            leaf._grad = _copy(grad)
    elif create_graph or have._requires_grad:
        leaf._grad = arithmetic.add(have, grad)
    else:
        arithmetic.add_into(have, grad)


def _ours(grad: Tensor) -> bool:
    return grad._layout.dense and arithmetic.owns_memory(grad._data) and grad._data.flags.writeable


def _copy(grad: Tensor) -> Tensor:
    from numbagrad.engine.tensor import wrap

    return wrap(arithmetic.copy(grad._data))


def _leads(edge: Any, needed: set[int], leaf_ids: set[int]) -> bool:
    node = _node_of(edge)
    return node.seq in needed if node is not None else id(edge) in leaf_ids


def _node_of(edge: Any) -> Node | None:
    if type(edge) is Node:
        return edge
    return edge.node if type(edge) is Edge else None


def reachable(roots: Iterable[Any]) -> list[Node]:
    """Every node that the edges `roots` lead to."""
    stack = [node for node in map(_node_of, roots) if node is not None]
    found = {node.seq: node for node in stack}
    stack = list(found.values())
    while stack:
        for edge in stack.pop().edges:
            node = _node_of(edge)
            if node is not None and node.seq not in found:
                found[node.seq] = node
                stack.append(node)
    return list(found.values())


# ---------------------------------------------------------------------- hooks
def _run_tensor_hooks(node: Node, grad: Any) -> Any:
    hooks = node.hooks
    assert hooks is not None
    grads = grad if type(grad) is list else [grad]
    for nr, hook in list(hooks.tensor.values()):
        if grads[nr] is not None:
            grads[nr] = _replaced(hook(grads[nr]), grads[nr], node.name())
    for nr, kept in hooks.retain.items():
        tensor = kept()
        if tensor is not None and grads[nr] is not None:
            _retain(tensor, grads[nr])
    return grads if type(grad) is list else grads[0]


def _retain(tensor: Tensor, grad: Tensor) -> None:
    have = tensor._grad
    if batching:
        # Of a tensor that stands for several entries nothing can be kept: it says so.
        assert grad._data is not None
    tensor._grad = grad if have is None else arithmetic.add(have, grad)


def _run_hooks(hooks: Iterable[Any], grad: Tensor, where: str) -> Tensor:
    for hook in list(hooks):
        grad = _replaced(hook(grad), grad, where)
    return grad


def _replaced(result: Any, grad: Tensor, where: str) -> Tensor:
    """What a hook returned in place of `grad`, checked."""
    if result is None:
        return grad
    if type(result) is not type(grad):
        raise TypeError(f"a hook of {where} must return a Tensor or None, got {type(result).__name__}")
    if result.shape != grad.shape:
        raise RuntimeError(
            f"a hook of {where} has changed the shape of the gradient from {grad.shape} to {result.shape}"
        )
    if result.dtype != grad.dtype:
        raise RuntimeError(
            f"a hook of {where} has changed the dtype of the gradient from {grad.dtype} to {result.dtype}"
        )
    return result


def _run_pre_hooks(node: Node, grad: Any) -> Any:
    assert node.hooks is not None
    for hook in list(node.hooks.pre.values()):
        result = hook(tuple(grad) if type(grad) is list else (grad,))
        if result is not None:
            grads = _as_tuple(result, node.outputs, f"a prehook of {node.name()}")
            grad = list(grads) if type(grad) is list else grads[0]
    return grad


def _run_post_hooks(node: Node, grads: Sequence[Any], grad: Any) -> Sequence[Any]:
    assert node.hooks is not None
    outputs = tuple(grad) if type(grad) is list else (grad,)
    grads = tuple(grads)
    for hook in list(node.hooks.post.values()):
        result = hook(grads, outputs)
        if result is not None:
            grads = _as_tuple(result, len(grads), f"a hook of {node.name()}")
    return [None if edge is None else g for edge, g in zip(node.edges, grads, strict=True)]


def _as_tuple(result: Any, count: int, where: str) -> tuple[Any, ...]:
    result = result if isinstance(result, tuple) else (result,)
    if len(result) != count:
        raise RuntimeError(f"{where} returned {len(result)} gradients, {count} were wanted")
    return result
