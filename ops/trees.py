"""Containers of tensors: nested dicts, lists, tuples and named tuples, flattened and built again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Rebuild = Callable[[Sequence[Any]], Any]


def flatten(tree: Any) -> tuple[list[Any], Rebuild]:
    """The leaves of `tree` in order (None counts as no leaf), and a function that puts others in their place."""
    if isinstance(tree, dict):
        return _flatten_items(list(tree.values()), lambda values: type(tree)(zip(tree, values, strict=True)))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _flatten_items(tree, lambda values: type(tree)(*values))
    if isinstance(tree, (list, tuple)):
        return _flatten_items(tree, type(tree))
    if tree is None:
        return [], lambda values: None
    return [tree], lambda values: values[0]


def _flatten_items(items: Sequence[Any], build: Callable[[Any], Any]) -> tuple[list[Any], Rebuild]:
    if not any([isinstance(item, (dict, list, tuple)) or item is None for item in items]):  # noqa: C419 - faster
        return list(items), build
    parts = [flatten(item) for item in items]
    leaves = [leaf for part, _ in parts for leaf in part]

    def rebuild(values: Sequence[Any]) -> Any:
        if len(values) != len(leaves):
            raise ValueError(f"the container has {len(leaves)} leaves, got {len(values)} values")
        rest, built = list(values), []
        for part, inner in parts:
            built.append(inner(rest[: len(part)]))
            rest = rest[len(part) :]
        return build(built)

    return leaves, rebuild


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with `function` applied to each leaf."""
    leaves, rebuild = flatten(tree)
    return rebuild([function(leaf) for leaf in leaves])


def is_container(tree: Any) -> bool:
    """Whether `tree` has an inside."""
    return isinstance(tree, (dict, list, tuple))
