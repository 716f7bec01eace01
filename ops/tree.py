"""`numbagrad.tree`: containers of tensors, in the words of `jax.tree`.

Leaves are whatever is neither dict, list, tuple, named tuple nor None. Dicts keep the order of their keys (JAX sorts
them).
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from numbagrad.ops.trees import flatten as _flatten
from numbagrad.ops.trees import is_container


class TreeDef:
    """The form of a container without its leaves; equal to that of another of the same form."""

    __slots__ = ("_rebuild", "key", "num_leaves")

    def __init__(self, tree: Any) -> None:
        leaves, self._rebuild = _flatten(tree)
        self.num_leaves = len(leaves)
        """How many leaves belong into it."""
        self.key = _key(tree)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The container with these leaves."""
        values = list(leaves)
        if len(values) != self.num_leaves:
            raise ValueError(f"the container has {self.num_leaves} leaves, got {len(values)} values")
        return self._rebuild(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeDef) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"TreeDef({self._rebuild(['*'] * self.num_leaves)!r})".replace("'*'", "*")


def _key(tree: Any) -> Any:
    if isinstance(tree, dict):
        return type(tree), tuple((k, _key(v)) for k, v in tree.items())
    if isinstance(tree, (list, tuple)):
        return type(tree), tuple([_key(v) for v in tree])
    return None if tree is None else "leaf"


class _Leaf:
    """A value that counts as a leaf because someone said so."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _marked(tree: Any, is_leaf: Callable[[Any], bool]) -> Any:
    """`tree` with what `is_leaf` says of wrapped."""
    if is_leaf(tree):
        return _Leaf(tree)
    if not is_container(tree):
        return tree
    if isinstance(tree, dict):
        return type(tree)((k, _marked(v, is_leaf)) for k, v in tree.items())
    items = [_marked(v, is_leaf) for v in tree]
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeDef]:
    """The leaves of a container, and its form.

    Parameters
    ----------
    tree : container
        Nested dicts, lists, tuples and named tuples; None has no leaves.
    is_leaf : callable, optional
        Says of a container whether it counts as a leaf.

    Returns
    -------
    leaves, treedef

    Examples
    --------
    >>> import numbagrad as ng
    >>> leaves, form = ng.tree.flatten({"a": 1, "b": (2, 3)})
    >>> leaves, form.unflatten([10, 20, 30])
    ([1, 2, 3], {'a': 10, 'b': (20, 30)})
    """
    marked = tree if is_leaf is None else _marked(tree, is_leaf)
    found = [leaf.value if type(leaf) is _Leaf else leaf for leaf in _flatten(marked)[0]]
    return found, TreeDef(marked)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The container of a form with these leaves.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tree.unflatten(ng.tree.structure([0, (0, 0)]), "abc")
    ['a', ('b', 'c')]
    """
    return treedef.unflatten(leaves)


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a container.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tree.leaves([1, {"a": 2}, None])
    [1, 2]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """The form of a container.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tree.structure([1, (2, 3)]) == ng.tree.structure([4, (5, 6)])
    True
    """
    return flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A container of what `f` gives for the leaves, of one or several containers of one form.

    Raises
    ------
    ValueError
        If the containers differ in form.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tree.map(lambda p, g: p - g, {"w": 3, "b": [1]}, {"w": 1, "b": [1]})
    {'w': 2, 'b': [0]}
    """
    first, form = flatten(tree, is_leaf)
    columns = [first, *(_like(other, form, is_leaf) for other in rest)]
    return form.unflatten([f(*row) for row in zip(*columns, strict=True)])


def _like(other: Any, form: TreeDef, is_leaf: Callable[[Any], bool] | None) -> list[Any]:
    found, own = flatten(other, is_leaf)
    if own != form:
        raise ValueError(f"tree.map: the containers differ in form: {form} and {own}")
    return found


def reduce(f: Callable[[Any, Any], Any], tree: Any, *initializer: Any) -> Any:
    """The leaves combined two by two, from the left.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tree.reduce(lambda a, b: a + b, [1, (2, 3)])
    6
    """
    return functools.reduce(f, leaves(tree), *initializer)


def all(tree: Any) -> bool:
    """Whether every leaf is true.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.tree.all([True, (1, 0)])
    False
    """
    return builtins.all(leaves(tree))


def transpose(outer: TreeDef, inner: TreeDef, tree: Any) -> Any:
    """A container of containers, inside out.

    Parameters
    ----------
    outer, inner : TreeDef
        The forms that `tree` is nested in: `outer` of `inner`.
    tree : container

    Examples
    --------
    >>> import numbagrad as ng
    >>> pair, triple = ng.tree.structure((0, 0)), ng.tree.structure([0, 0, 0])
    >>> ng.tree.transpose(pair, triple, ([1, 2, 3], [4, 5, 6]))
    [(1, 4), (2, 5), (3, 6)]
    """
    found = leaves(tree)
    n = inner.num_leaves
    if len(found) != outer.num_leaves * n:
        raise ValueError(f"tree.transpose: {outer} of {inner} has {outer.num_leaves * n} leaves, got {len(found)}")
    columns: Sequence[Any] = [outer.unflatten(found[i::n]) for i in range(n)]
    return inner.unflatten(columns)


__all__ = ["TreeDef", "all", "flatten", "leaves", "map", "reduce", "structure", "transpose", "unflatten"]
