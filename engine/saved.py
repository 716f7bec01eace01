"""Saved values: what backward needs, checked before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.engine.layout import layout_of
from numbagrad.engine.node import Edge, Node
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.engine.watch import Packed, origin_of


def saved_output(node: Node, nr: int, array: np.ndarray) -> Tensor:
    """Output `nr` of `node`, saved by the node itself, as a tensor within the graph.

    A node may not refer to its output (the graph would be a cycle), so it keeps the array only.
    """
    out = wrap(array)
    out._node = Edge(node, nr) if type(node.layout) is tuple else node
    out._requires_grad = True
    return out


def versions_of(saved: Sequence[Any]) -> tuple[int, ...] | None:
    """Versions of the tensors among `saved`; None when nobody ever wrote to any."""
    versions = [v._storage.version if isinstance(v, Tensor) and v._storage is not None else 0 for v in saved]
    return tuple(versions) if any(versions) else None


def check_saved(node: Node, sources: Sequence[tuple[str, int]]) -> Sequence[Any]:
    """The saved values of `node`, or the error that says why they cannot be used.

    `sources` says for each value whether it is an input ("in") or an output ("out"), and which.
    """
    saved = node.saved
    packed = False
    if saved is None:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
            f"if you need to access saved tensors after calling backward. The freed node is {_named(node)}; "
            "if only values are needed from the first pass, detach() them instead"
        )
    for i, (value, (kind, nr)) in enumerate(zip(saved, sources, strict=True)):
        if type(value) is Packed:
            # Whoever packs a value answers for it.
            packed = True
            continue
        storage = _storage(node, value, kind, nr)
        if storage is not None:
            expected = node.versions[i] if node.versions is not None else 0
            if storage.version != expected:
                raise _changed(node, value, kind, nr, storage, expected)
    return [_unpacked(v, kind) for v, (kind, _) in zip(saved, sources, strict=True)] if packed else saved


def _unpacked(value: Any, kind: str) -> Any:
    if type(value) is not Packed:
        return value
    return value.unpack() if kind == "in" else value.unpack()._data


def _named(node: Node) -> str:
    """The node's name and, where someone watched, the line that made it."""
    origin = origin_of(node)
    return node.name() if origin is None else f"{node.name()}, made at {origin}"


def _storage(node: Node, value: Any, kind: str, nr: int) -> Any:
    if kind == "in":
        return value._storage if isinstance(value, Tensor) else None
    storage = node.storage
    return storage.get(nr) if isinstance(storage, dict) else storage


def _changed(node: Node, value: Any, kind: str, nr: int, storage: Any, expected: int) -> RuntimeError:
    layout = value._layout if isinstance(value, Tensor) else layout_of(value)
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{layout.dtype} {list(layout.shape)}], which is {'input' if kind == 'in' else 'output'} {nr} of "
        f"{_named(node)} (op {node.op.name}), is at version {storage.version}; expected version {expected} instead. "
        f"{_last_write(storage)}Hint: change a copy, as in y = x.clone(), or make a new tensor instead of writing into "
        "this one; under numbagrad.autograd.set_detect_anomaly(True) this message names the lines"
    )


def _last_write(storage: Any) -> str:
    return f"It was written at {storage.written_at}. " if storage.written_at else ""
