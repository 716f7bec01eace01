"""Derivatives of one's own for functions of containers, in JAX's words: `custom_vjp`, `custom_jvp`; and `linearize`.

What PyTorch's users reach for is `numbagrad.autograd.Function`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine import autograd
from numbagrad.engine.mode import enable_grad, grad_enabled
from numbagrad.engine.node import Edge, Node
from numbagrad.engine.saved import check_saved, versions_of
from numbagrad.engine.tensor import Tensor, edge_of, make_private, wrap
from numbagrad.ops.operands import as_tensor, unbroadcast
from numbagrad.ops.primitive import transposed_jvp
from numbagrad.ops.transforms import _matching, _name, _Trace, _unchanged, push_forward
from numbagrad.ops.trees import Rebuild, flatten


class _Custom:
    """A function with a rule for its derivative."""

    def __init__(self, function: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.nondiff_argnums = tuple(nondiff_argnums)

    def _missing(self, what: str) -> TypeError:
        return TypeError(f"{_name(self.function)} has no derivative yet: declare it by {_name(self.function)}.{what}")

    def _split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Arguments that are not differentiated, and those that are."""
        fixed = [args[i] for i in self.nondiff_argnums]
        return fixed, [a for i, a in enumerate(args) if i not in self.nondiff_argnums]

    def _joined(self, fixed: Sequence[Any], moving: Sequence[Any]) -> list[Any]:
        rest, held = iter(moving), dict(zip(self.nondiff_argnums, fixed, strict=True))
        return [held[i] if i in held else next(rest) for i in range(len(fixed) + len(moving))]


def _are_recorded(leaves: Sequence[Any]) -> bool:
    return grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in leaves)


def _record(op: Any, inputs: Sequence[Any], outputs: Sequence[Any], saved: Sequence[Any], statics: Any) -> list[Tensor]:
    """New tensors for `outputs`, made by one node of `op`."""
    plain = [wrap(as_tensor(o).detach()._data) for o in outputs]
    edges = tuple([edge_of(x) if isinstance(x, Tensor) and x.requires_grad else None for x in inputs])
    node = Node(op, edges, tuple(saved), tuple([o._layout for o in plain]), statics)
    node.versions = versions_of(node.saved)
    for nr, out in enumerate(plain):
        if out._layout.kind in "fc":
            out._node, out._requires_grad = Edge(node, nr), True
    return plain


def _saved_of(node: Node) -> Sequence[Any]:
    return check_saved(node, [("in", nr) for nr in range(len(node.saved or ()))])


def _zeros(node: Node) -> list[Tensor]:
    return [wrap(np.zeros(layout.shape, layout.dtype)) for layout in node.layout]


class custom_vjp(_Custom):
    """A function whose gradient is computed as you say; decorator.

    Parameters
    ----------
    function : callable
        Takes and returns tensors, or containers of them.
    nondiff_argnums : sequence of int, optional
        Arguments that are no tensors. They come first in `bwd`.

    See Also
    --------
    custom_jvp, numbagrad.autograd.Function

    Notes
    -----
    ``f.defvjp(fwd, bwd)``: ``fwd(*args)`` gives ``(result, residuals)`` and ``bwd(residuals, cotangent)`` a tuple with
    a cotangent for each argument, None for zero. Both are ordinary functions of tensors, so the gradient can be
    differentiated again. Cotangents follow the convention of ``.backward()``.

    Examples
    --------
    >>> import numbagrad as ng
    >>> @ng.custom_vjp
    ... def clipped(x):
    ...     return x * 1
    >>> clipped.defvjp(lambda x: (x * 1, ()), lambda _, g: (ng.clip(g, -1.0, 1.0),))
    >>> ng.grad(lambda x: 5 * clipped(x))(2.0)
    np.float64(1.0)
    """

    def __init__(self, function: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self.forward: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Declare how the function is computed for differentiation, and its gradient."""
        self.forward, self.backward = fwd, bwd

    def __call__(self, *args: Any) -> Any:
        if self.forward is None or self.backward is None:
            raise self._missing("defvjp(fwd, bwd)")
        fixed, moving = self._split(args)
        leaves, rebuild = flatten(moving)
        if not _are_recorded(leaves):
            return self.function(*args)
        result = self.forward(*args)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"the fwd of {_name(self.function)} must return (result, residuals)")
        outs, rebuild_out = flatten(result[0])
        residuals, rebuild_residuals = flatten(result[1])
        op = _PulledBack(self, fixed, (rebuild, rebuild_out, rebuild_residuals))
        return rebuild_out(_record(op, leaves, outs, residuals, {"function": _name(self.function)}))


class _PulledBack:
    """The op of one call of a `custom_vjp`."""

    def __init__(self, owner: custom_vjp, fixed: Sequence[Any], rebuilds: tuple[Rebuild, Rebuild, Rebuild]) -> None:
        self.name = _name(owner.function)
        self.owner, self.fixed = owner, fixed
        self.rebuild_in, self.rebuild_out, self.rebuild_residuals = rebuilds

    def vjp(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        """What bwd gives, checked."""
        grads = [z if g is None else g for g, z in zip(grad, _zeros(node), strict=True)]
        residuals = self.rebuild_residuals(_saved_of(node))
        assert self.owner.backward is not None
        given = self.owner.backward(*self.fixed, residuals, self.rebuild_out(grads))
        return self._checked(given, node)

    def _checked(self, given: Any, node: Node) -> list[Tensor | None]:
        wanted = self.rebuild_in(list(range(len(node.edges))))
        if not isinstance(given, (tuple, list)) or len(given) != len(wanted):
            got = f"{len(given)} values" if isinstance(given, (tuple, list)) else f"a {type(given).__name__}"
            raise TypeError(
                f"the bwd of {self.name} must return a tuple with one cotangent for each of {len(wanted)} arguments, "
                f"got {got}"
            )
        found: list[Tensor | None] = []
        for one, places in zip(given, wanted, strict=True):
            count = len(flatten(places)[0])
            leaves = [None] * count if one is None else flatten(one)[0]
            if len(leaves) != count:
                raise TypeError(f"the bwd of {self.name} gave {len(leaves)} cotangents for an argument of {count}")
            found += leaves
        return [self._fitting(g, e) for g, e in zip(found, node.edges, strict=True)]

    def _fitting(self, grad: Any, edge: Any) -> Tensor | None:
        from numbagrad.ops.operands import layout_at

        if grad is None or edge is None:
            return None
        tensor, layout = as_tensor(grad), layout_at(edge)
        if tensor.shape != layout.shape:
            raise ValueError(
                f"the bwd of {self.name} gave a cotangent of shape {tensor.shape} for an argument of {layout.shape}"
            )
        return unbroadcast(tensor, layout)

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Any:
        """From the gradient, which is linear."""
        return transposed_jvp(self, node, tangents)


class custom_jvp(_Custom):
    """A function whose derivative along a direction is computed as you say; decorator.

    Parameters
    ----------
    function : callable
        Takes and returns tensors, or containers of them.
    nondiff_argnums : sequence of int, optional
        Arguments that are no tensors. They come first in the rule.

    See Also
    --------
    custom_vjp

    Notes
    -----
    ``@f.defjvp`` declares ``rule(primals, tangents) -> (result, tangent of the result)``. The rule must be linear in
    the tangents; reverse mode comes from it.

    Examples
    --------
    >>> import numbagrad as ng
    >>> @ng.custom_jvp
    ... def log1pexp(x):
    ...     return ng.log(1 + ng.exp(x))
    >>> @log1pexp.defjvp
    ... def _(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), t / (1 + ng.exp(-x))
    >>> ng.grad(log1pexp)(800.0)
    np.float64(1.0)
    """

    def __init__(self, function: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self.rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the derivative; decorator."""
        self.rule = rule
        return rule

    def __call__(self, *args: Any) -> Any:
        if self.rule is None:
            raise self._missing("defjvp")
        fixed, moving = self._split(args)
        leaves, rebuild = flatten(moving)
        if not _are_recorded(leaves):
            return self.function(*args)
        plain = [x.detach() if isinstance(x, Tensor) else x for x in leaves]
        outs, rebuild_out = flatten(self.function(*self._joined(fixed, rebuild(plain))))
        op = _Pushed(self, fixed, rebuild)
        return rebuild_out(_record(op, leaves, outs, leaves, {"function": _name(self.function)}))


class _Pushed:
    """The op of one call of a `custom_jvp`."""

    def __init__(self, owner: custom_jvp, fixed: Sequence[Any], rebuild: Rebuild) -> None:
        self.name = _name(owner.function)
        self.owner, self.fixed, self.rebuild = owner, fixed, rebuild

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Any:
        """What the rule gives."""
        primals = [as_tensor(x) for x in _saved_of(node)]
        moves = [wrap(np.zeros(p.shape, p.dtype)) if t is None else t for p, t in zip(primals, tangents, strict=True)]
        return tuple(self._tangents(primals, moves))

    def _tangents(self, primals: Sequence[Tensor], moves: Sequence[Tensor]) -> list[Tensor]:
        assert self.owner.rule is not None
        result = self.owner.rule(*self.fixed, tuple(self.rebuild(primals)), tuple(self.rebuild(moves)))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"the rule of {self.name} must return (result, tangent)")
        return [as_tensor(t) for t in flatten(result[1])[0]]

    def vjp(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        """The transpose of the rule, which is linear in the tangents."""
        recorded = grad_enabled()
        primals = [as_tensor(x) for x in _saved_of(node)]
        with enable_grad():
            moves = [wrap(np.zeros(p.shape, p.dtype)) for p in primals]
            for move, edge in zip(moves, node.edges, strict=True):
                move._requires_grad = edge is not None
                make_private(move)
            held = primals if recorded else [p.detach() for p in primals]
            pushed = self._tangents(held, moves)
            pairs = [(t, g) for t, g in zip(pushed, grad, strict=True) if g is not None and t.requires_grad]
            wanted = [m for m in moves if m._requires_grad]
            found = iter(_gradients(pairs, wanted, recorded))
        return [next(found) if edge is not None else None for edge in node.edges]


def _gradients(pairs: Sequence[tuple[Tensor, Tensor]], wanted: Sequence[Tensor], record: bool) -> Sequence[Any]:
    if not pairs:
        return [None] * len(wanted)
    return autograd.grad(
        [t for t, _ in pairs], wanted, [g for _, g in pairs], create_graph=record, materialize_grads=True
    )


def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Value of a function, and the linear function that approximates it there.

    Parameters
    ----------
    function : callable
    *primals
        Where to linearise.

    Returns
    -------
    value
        ``function(*primals)``.
    pushed : callable
        Takes a tangent for each argument and gives the tangent of the value. The function is not called again.

    See Also
    --------
    jvp, vjp

    Examples
    --------
    >>> import numbagrad as ng
    >>> value, tangent_of = ng.linearize(ng.sin, 0.0)
    >>> tangent_of(2.0), tangent_of(-1.0)
    (np.float64(2.0), np.float64(-1.0))
    """
    trace = _Trace(function, tuple(range(len(primals))), primals, {})
    leaves, rebuild = flatten(trace.result)
    outputs = [as_tensor(leaf) for leaf in leaves]
    nested = trace.is_nested(outputs)

    def pushed(*tangents: Any) -> Any:
        given, _ = flatten(list(tangents))
        moves = _matching(given if len(given) != 1 else given[0], trace.variables, "tangent")
        record = nested or any(m.requires_grad for m in moves)
        with enable_grad() if record else _unchanged():
            found = push_forward(trace.behind(outputs), trace.sources, trace.behind(moves), record)
        return rebuild([trace.given_back(t, record) for t in trace.dressed(found)])

    return rebuild([trace.given_back(o, nested) for o in outputs]), pushed


__all__ = ["custom_jvp", "custom_vjp", "linearize"]
