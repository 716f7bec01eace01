"""Gradient edges: places in a graph by themselves, without the tensor that was computed there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from numbagrad.engine.node import AccumulateGrad, Edge, Node
from numbagrad.engine.tensor import Tensor, wrap


class GradientEdge(NamedTuple):
    """A place in the graph: `autograd.grad` and `backward` take it where they take a tensor."""

    node: Node | AccumulateGrad
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of `tensor` is computed.

    Keeping the edge keeps no values of the tensor alive.

    Parameters
    ----------
    tensor : Tensor

    Returns
    -------
    GradientEdge
        A named tuple of node and output number.

    Raises
    ------
    RuntimeError
        If the tensor does not require grad.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> edge = ng.autograd.graph.get_gradient_edge(x * 2)
    >>> ng.autograd.grad(edge, x, ng.tensor([1.0, 1.0]))
    (tensor([2., 2.]),)
    """
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(tensor.grad_fn or AccumulateGrad(tensor), tensor.output_nr)


def tensor_at(edge: GradientEdge) -> Tensor:
    """A tensor that stands at `edge`; its values mean nothing, and take no memory."""
    node, nr = edge.node, edge.output_nr
    if isinstance(node, AccumulateGrad):
        return node.variable
    several = type(node.layout) is tuple
    layout = node.layout[nr] if several else node.layout
    out = wrap(np.broadcast_to(np.zeros((), layout.dtype), layout.shape))
    out._node = Edge(node, nr) if several else node
    out._requires_grad = True
    return out


__all__ = ["GradientEdge", "get_gradient_edge", "tensor_at"]
