"""Saved values: what backward needs, checked before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.engine.layout import layout_of
from numbagrad.engine.node import Edge, Node
from numbagrad.engine.tensor import Tensor, wrap


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
    versions = tuple(v._storage.version if isinstance(v, Tensor) and v._storage is not None else 0 for v in saved)
    return versions if any(versions) else None


def check_saved(node: Node, sources: Sequence[tuple[str, int]]) -> Sequence[Any]:
    """The saved values of `node`, or the error that says why they cannot be used.

    `sources` says for each value whether it is an input ("in") or an output ("out"), and which.
    """
    saved = node.saved
    if saved is None:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
            f"if you need to access saved tensors after calling backward. The freed node is {node.name()}; "
            "if only values are needed from the first pass, detach() them instead"
        )
    for i, (value, (kind, nr)) in enumerate(zip(saved, sources, strict=True)):
        storage = _storage(node, value, kind, nr)
        if storage is not None:
            expected = node.versions[i] if node.versions is not None else 0
            if storage.version != expected:
                raise _changed(node, value, kind, nr, storage.version, expected)
    return saved


def _storage(node: Node, value: Any, kind: str, nr: int) -> Any:
    if kind == "in":
        return value._storage if isinstance(value, Tensor) else None
    storage = node.storage
    return storage.get(nr) if isinstance(storage, dict) else storage


def _changed(node: Node, value: Any, kind: str, nr: int, version: int, expected: int) -> RuntimeError:
    layout = value._layout if isinstance(value, Tensor) else layout_of(value)
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{layout.dtype} {list(layout.shape)}], which is {'input' if kind == 'in' else 'output'} {nr} of "
        f"{node.name()} (op {node.op.name}), is at version {version}; expected version {expected} instead. "
        "Hint: change a copy, as in y = x.clone(), or make a new tensor instead of writing into this one"
    )
