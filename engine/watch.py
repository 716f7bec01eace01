"""Who watches nodes being made: saved-tensor hooks, and whatever wants to know the user's line.

A watch is a function of a node. Contexts put one into `numbagrad.engine.node.watches` while they are open in any
thread; the watch itself asks whether its context is open in this one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from numbagrad.engine.mode import no_grad
from numbagrad.engine.node import Edge, Node, watches
from numbagrad.engine.tensor import Tensor, edge_of, wrap

Pair = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]

_hooks: ContextVar[tuple[Pair, ...]] = ContextVar("numbagrad_saved_tensors_hooks", default=())
_refusal: ContextVar[str | None] = ContextVar("numbagrad_saved_tensors_hooks_refused", default=None)


@contextmanager
def watching(watch: Callable[[Node], None]) -> Any:
    """Call `watch` with each new node while the context is open."""
    watches.append(watch)
    try:
        yield
    finally:
        watches.remove(watch)


# ----- the user's line -----


def user_line() -> str:
    """File, line and text of the innermost call from outside the package."""
    frame: Any = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return "unknown line"
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


def _is_ours(frame: Any) -> bool:
    name = frame.f_globals.get("__name__", "")
    if name.startswith("numbagrad.examples"):
        return False
    return (
        name == "numbagrad"
        or name.startswith(("numbagrad.", "contextlib"))
        or frame.f_code.co_filename.startswith("<numbagrad")
    )


def note_origin(node: Node) -> None:
    """Remember which line of the user's made the node."""
    node.origin = user_line()


def origin_of(node: Node) -> str | None:
    """The line that made the node, if someone watched."""
    return getattr(node, "origin", None)


# ----- saved tensors -----


class Identity:
    """The op of a tensor that stands for another one in the graph."""

    name = "identity"

    def vjp(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        """The gradient goes on."""
        return (grad,)

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Any:
        """The tangent goes on."""
        return tangents[0]


identity = Identity()


class Packed:
    """What a pack hook made of a saved value, and how to get the value again."""

    __slots__ = ("_edge", "_unpack", "layout", "packed")

    def __init__(self, value: Tensor | np.ndarray, hooks: Pair) -> None:
        pack, self._unpack = hooks
        tensor = value if isinstance(value, Tensor) else wrap(value)
        self.layout = tensor._layout
        self._edge = edge_of(tensor)
        given = wrap(tensor._data)
        given._storage = tensor._storage
        before = given._version
        with no_grad():
            self.packed = pack(given)
        if given._version != before:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can "
                "not be modified by in-place operations as this can lead to unexpected side-effects. Change a copy "
                "instead, as in t.clone()"
            )

    def unpack(self) -> Tensor:
        """The value, in the place in the graph that it had."""
        value = self._unpack(self.packed)
        if not isinstance(value, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(value)}"
            )
        if value.shape != self.layout.shape or value.dtype != self.layout.dtype:
            raise RuntimeError(
                f"the unpack hook gave a tensor of shape {value.shape} and dtype {value.dtype} for one that was saved "
                f"with shape {self.layout.shape} and dtype {self.layout.dtype}"
            )
        return standing_for(value._data, self._edge)


def standing_for(array: np.ndarray, edge: Any) -> Tensor:
    """A tensor of these values at a place in the graph."""
    out = wrap(array)
    if edge is not None:
        out._node = edge if type(edge) in (Node, Edge) else Node(identity, (edge,), (), out._layout)
        out._requires_grad = True
    return out


def pack_saved(node: Node) -> None:
    """Give what the node has saved to the innermost pair of hooks of this thread."""
    stack = _hooks.get()
    if stack and node.saved:
        node.saved = tuple(
            Packed(value, stack[-1]) if isinstance(value, (Tensor, np.ndarray)) else value for value in node.saved
        )
        # The op's form that asks for each value before it uses it.
        node.op = getattr(node.op, "careful", node.op)


def current_hooks() -> Pair | None:
    """The innermost pair of hooks of this thread."""
    stack = _hooks.get()
    return stack[-1] if stack else None


class saved_tensors_hooks:
    """Hooks for what the ops inside save for backward.

    Parameters
    ----------
    pack_hook : callable
        Takes each Tensor that is saved (without history) and returns anything; must not change it.
    unpack_hook : callable
        Takes what `pack_hook` returned and gives a Tensor of the same values.

    Raises
    ------
    RuntimeError
        Within `disable_saved_tensors_hooks`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> seen = []
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> with ng.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
    ...     y = ng.exp(x)
    >>> len(seen)
    1
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        refusal = _refusal.get()
        if refusal is not None:
            raise RuntimeError(refusal)
        _hooks.set((*_hooks.get(), (self.pack_hook, self.unpack_hook)))
        watches.append(pack_saved)

    def __exit__(self, *exc: object) -> None:
        watches.remove(pack_saved)
        _hooks.set(_hooks.get()[:-1])


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Any:
    """Refuse `saved_tensors_hooks` inside, with a message of one's own.

    Examples
    --------
    >>> import numbagrad as ng
    >>> with ng.autograd.graph.disable_saved_tensors_hooks("not here"):
    ...     with ng.autograd.graph.save_on_cpu():
    ...         pass
    Traceback (most recent call last):
        ...
    RuntimeError: not here
    """
    if _hooks.get():
        raise RuntimeError(error_message)
    before = _refusal.set(error_message)
    try:
        yield
    finally:
        _refusal.reset(before)


__all__ = [
    "Packed",
    "current_hooks",
    "disable_saved_tensors_hooks",
    "identity",
    "note_origin",
    "origin_of",
    "pack_saved",
    "saved_tensors_hooks",
    "standing_for",
    "user_line",
    "watching",
]
