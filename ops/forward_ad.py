"""PyTorch's `torch.autograd.forward_ad`: dual tensors.

A dual tensor is recorded like any other result; its tangent waits at its node. Asking for the tangent of a result runs
forward mode over what was recorded, so every op takes part, and the tangent can itself be differentiated backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from numbagrad.engine.layout import kind_of
from numbagrad.engine.mode import enable_grad
from numbagrad.engine.node import Edge, Node
from numbagrad.engine.sweep import reachable
from numbagrad.engine.tensor import Tensor, edge_of, share, wrap
from numbagrad.ops.transforms import push_forward


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` gives: value and tangent (None where there is none)."""

    primal: Tensor
    tangent: Tensor | None


class _Level:
    """The dual tensors of an open level, by the number of their node, and their tangents."""

    def __init__(self) -> None:
        self.duals: dict[int, tuple[Tensor, Tensor]] = {}
        self.grad_mode = enable_grad()


class _MakeDual:
    """The op of a dual tensor: backward goes through to the primal."""

    name = "make_dual"

    def vjp(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        """The gradient goes on."""
        return (None if node.edges[0] is None else grad,)

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Any:
        """The tangent of the primal goes on."""
        return tangents[0]


_make_dual = _MakeDual()
_levels: ContextVar[tuple[_Level, ...]] = ContextVar("numbagrad_dual_levels", default=())


def enter_dual_level() -> int:
    """Open a level for dual tensors; gives its number.

    Examples
    --------
    >>> from numbagrad.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> forward_ad.exit_dual_level(level=level)
    """
    if _levels.get():
        raise RuntimeError("Nested forward mode AD is not supported at the moment; nest numbagrad.jvp instead")
    level = _Level()
    level.grad_mode.__enter__()
    _levels.set((level,))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: its tangents are gone."""
    levels = _levels.get()
    if not levels:
        raise RuntimeError("Trying to exit a forward AD level that does not exist; call enter_dual_level() first")
    if level not in (None, 0):
        raise RuntimeError(f"Trying to exit the forward AD level {level}, but the innermost one is 0")
    _levels.set(())
    levels[-1].grad_mode.__exit__()


@contextmanager
def dual_level() -> Iterator[int]:
    """Context for dual tensors. Grad mode is on inside, since forward mode runs over what is recorded.

    Examples
    --------
    >>> import numbagrad as ng
    >>> from numbagrad.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(ng.tensor([1.0, 2.0]), ng.tensor([1.0, 10.0]))
    ...     tangent = forward_ad.unpack_dual(x * x).tangent
    >>> tangent
    tensor([ 2., 40.])
    """
    level = enter_dual_level()
    try:
        yield level
    finally:
        exit_dual_level(level=level)


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor with the values of `tensor`, moving along `tangent`.

    Parameters
    ----------
    tensor, tangent : Tensor
        Of one shape and dtype, floating or complex.
    level : int, optional
        Accepted.

    Returns
    -------
    Tensor

    Raises
    ------
    RuntimeError
        Outside of `dual_level`, or if the tangent does not fit.
    ValueError
        If one of the two is neither floating nor complex.
    """
    if not _levels.get():
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for what, one in (("primal", tensor), ("tangent", tangent)):
        if kind_of(one.dtype) not in "fc":
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {one.dtype}")
    if tensor.shape != tangent.shape or tensor.dtype != tangent.dtype:
        raise RuntimeError(
            f"Trying to set a forward gradient of shape {tangent.shape} and dtype {tangent.dtype} for a tensor of "
            f"shape {tensor.shape} and dtype {tensor.dtype}, but forward gradients must have the same size and dtype"
        )
    out = wrap(tensor._data)
    out._storage = share(tensor)
    node = Node(_make_dual, (edge_of(tensor) if tensor.requires_grad else None,), (), out._layout)
    out._node = node
    out._requires_grad = True
    _levels.get()[-1].duals[node.seq] = out, tangent
    return out


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Value and tangent of a tensor.

    Parameters
    ----------
    tensor : Tensor
    level : int, optional
        Accepted.

    Returns
    -------
    UnpackedDualTensor
        A named tuple of primal and tangent; the tangent is None where no dual tensor led to the tensor, or outside of
        `dual_level`.
    """
    if not _levels.get() or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    duals = _levels.get()[-1].duals
    nodes = reachable([edge_of(tensor)])
    found = [duals[node.seq] for node in nodes if node.seq in duals]
    if not found:
        return UnpackedDualTensor(tensor, None)
    linked = any(_is_leaf(edge) for node in nodes for edge in node.edges)
    with enable_grad():
        (tangent,) = push_forward([tensor], [d for d, _ in found], [t for _, t in found], record=True)
    if tangent.requires_grad and not any(_is_leaf(e) for n in reachable([edge_of(tangent)]) for e in n.edges):
        # Only dual tensors lie behind it: nothing that could be differentiated backward.
        tangent = tangent.detach()
    return UnpackedDualTensor(tensor if linked else tensor.detach(), tangent)


def _is_leaf(edge: Any) -> bool:
    """Whether an edge ends at a leaf of somebody's, not of a finished transform's."""
    if edge is None or type(edge) in (Node, Edge):
        return False
    return edge._extra is None or not edge._extra.private


__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]
