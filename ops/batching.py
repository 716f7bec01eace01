"""Batched tensors: what the function of a `vmap` computes with.

A `Batched` is a tensor of one entry's shape whose values, for all entries of an open level, lie in another tensor along
its first axis. An op that meets one runs its batching rule over these tensors (`ops/batching_rules.py`), so gradients
need nothing of their own: the graph holds ordinary tensors. Levels nest: the tensor behind a `Batched` may be one of an
outer level.

Where the values of an entry are asked for (``bool(x)``, ``x.numpy()``, an index computed from x), `NeedsValues` is
raised; who opened the level then goes through the entries one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from numbagrad.engine.layout import Layout
from numbagrad.engine.node import batching
from numbagrad.engine.tensor import Tensor


class Level:
    """One run of a function over a batch of `size` entries."""

    __slots__ = ("depth", "size", "slow")

    def __init__(self, size: int, depth: int, slow: Callable[[str], None]) -> None:
        self.size = size
        self.depth = depth
        self.slow = slow
        """Called with the name of each op that goes through the entries one by one."""


class NeedsValues(RuntimeError):
    """The values of single entries were asked for."""

    def __init__(self, level: Level, what: str) -> None:
        super().__init__(
            f"{what} of a tensor that stands for {level.size} entries of a vmap was asked for. Outside of the mapped "
            "function it is not known which entry is meant: return the tensor from the function instead"
        )
        self.level = level
        self.what = what


_levels: ContextVar[tuple[Level, ...]] = ContextVar("numbagrad_vmap_levels", default=())
open_levels = _levels.get
"""The levels of this thread, the outermost first."""


@contextmanager
def opened(size: int, slow: Callable[[str], None] = lambda name: None) -> Iterator[Level]:
    """A new innermost level."""
    before = _levels.get()
    level = Level(size, len(before), slow)
    token = _levels.set((*before, level))
    batching.append(level)
    try:
        yield level
    finally:
        batching.remove(level)
        _levels.reset(token)


class Batched(Tensor):
    """A tensor with a value per entry of a level."""

    __slots__ = ("_level", "_value")

    _level: Level
    _value: Tensor

    @property
    def _data(self) -> Any:  # type: ignore[override]
        raise NeedsValues(self._level, "the memory")

    @property
    def _node(self) -> Any:  # type: ignore[override]
        raise NeedsValues(self._level, "the place in the graph")

    @property
    def _requires_grad(self) -> bool:  # type: ignore[override]
        return self._value.requires_grad

    @_requires_grad.setter
    def _requires_grad(self, wanted: bool) -> None:
        raise NeedsValues(self._level, "requires_grad")

    def detach(self) -> Tensor:
        """The same values without history."""
        return batched(self._level, self._value.detach())

    def __repr__(self) -> str:
        return f"<tensor of shape {self.shape} and dtype {self.dtype}, for {self._level.size} entries of a vmap>"


def batched(level: Level, value: Tensor) -> Batched:
    """The tensor whose entries lie along the first axis of `value`. Deeper levels stay further out."""
    if type(value) is Batched and value._level.depth > level.depth:
        from numbagrad.ops.shape import moveaxis

        return batched(value._level, batched(level, moveaxis(value._value, 1, 0)))
    out = object.__new__(Batched)
    out._level, out._value = level, value
    shape = value.shape[1:]
    out._layout = Layout(shape, value.dtype, math.prod(shape), False)
    out._grad = out._storage = out._view = out._extra = None
    return out


def entries_of(tensor: Tensor, level: Level) -> Tensor:
    """`tensor` with the entries of a level along a new first axis; one that does not depend on the entry is repeated
    without a copy."""
    if type(tensor) is Batched and tensor._level is level:
        return tensor._value
    from numbagrad.ops.shape import broadcast_to

    return broadcast_to(tensor, (level.size, *tensor.shape))


def spread(tensor: Tensor, levels: Sequence[Level]) -> Tensor:
    """The ordinary tensor with an axis in front for each of `levels`, the outermost first."""
    for level in reversed(levels):
        tensor = entries_of(tensor, level)
    return tensor


def dressed(tensor: Tensor, levels: Sequence[Level]) -> Tensor:
    """The reverse of `spread`."""
    for level in levels:
        tensor = batched(level, tensor)
    return tensor


def innermost(values: Sequence[Any]) -> Level | None:
    """The deepest level among the operands of an op."""
    levels = [v._level for v in values if type(v) is Batched]
    return max(levels, key=lambda level: level.depth) if levels else None


def batching_rules() -> Any:
    """The module of the rules, which needs the ops."""
    from numbagrad.ops import batching_rules

    return batching_rules


def run_batched(rule: Callable[..., Any], level: Level, *args: Any) -> Any:
    """What a batching rule gives, as tensors of the level."""
    out = rule(level, *args)
    return tuple(batched(level, o) for o in out) if isinstance(out, tuple) else batched(level, out)


__all__ = [
    "Batched",
    "Level",
    "NeedsValues",
    "batched",
    "batching_rules",
    "dressed",
    "entries_of",
    "innermost",
    "open_levels",
    "opened",
    "run_batched",
    "spread",
]
