"""`numbagrad.autograd`: PyTorch's functions for gradients over a recorded graph."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.engine.anomaly import anomaly_enabled, run_checked
from numbagrad.engine.arithmetic import arithmetic
from numbagrad.engine.edges import GradientEdge, tensor_at
from numbagrad.engine.layout import kind_of
from numbagrad.engine.mode import _GradMode, enable_grad, no_grad, put_back, set_for_now, set_grad_enabled
from numbagrad.engine.node import Edge, Node, batching
from numbagrad.engine.sweep import Sweep, _copy, _ours, reachable
from numbagrad.engine.tensor import Tensor, edge_of, wrap

Variable = Tensor
"""Deprecated name of `Tensor`."""


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of the sum of `tensors` to the `grad` of the leaves.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        What to differentiate.
    grad_tensors : array_like or sequence, optional
        Gradients with respect to `tensors`, each of the shape of its tensor; None for a one-element tensor means 1.
    retain_graph : bool, optional
        Keep what the graph saved, so that it can be used again. Default: `create_graph`.
    create_graph : bool, optional
        Record the backward pass, so that it can be differentiated.
    grad_variables
        Deprecated name of `grad_tensors`.
    inputs : Tensor or sequence of Tensor, optional
        Accumulate into the `grad` of these only.

    Raises
    ------
    RuntimeError
        If nothing requires grad, a gradient is missing or has another shape, or the graph was freed.
    TypeError
        If `tensors` holds something else than tensors.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> ng.autograd.backward([x.sum(), (x * x).sum()])
    >>> x.grad
    tensor([3., 5.])
    """
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. "
                "Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    roots = _tensors(tensors, "backward")
    seeds = _seeds(roots, grad_tensors, create_graph)
    sweep = Sweep(create_graph if retain_graph is None else bool(retain_graph), create_graph)
    if inputs is None:
        _run(sweep, roots, seeds)
        sweep.commit()
        return
    targets = _tensors(inputs, "backward's inputs")
    if not targets:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    _commit_to(sweep, targets, _gradients_at(sweep, roots, seeds, targets))


Tensor._run_backward = staticmethod(backward)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of `outputs` with respect to `inputs`; no `grad` attribute changes.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
        What to differentiate.
    inputs : Tensor or sequence of Tensor
        With respect to what: leaves or results within the graph.
    grad_outputs : array_like or sequence, optional
        Gradients with respect to `outputs`; None for a one-element output means 1.
    retain_graph : bool, optional
        Keep what the graph saved. Default: `create_graph`.
    create_graph : bool, optional
        Record the backward pass, so that the result can be differentiated.
    only_inputs : bool, optional
        Must be True: other leaves are never touched.
    allow_unused : bool, optional
        Give None for inputs that the outputs do not depend on, instead of raising. Default: `materialize_grads`.
    is_grads_batched : bool, optional
        The first axis of each of `grad_outputs` counts independent gradients; the results get it too.
    materialize_grads : bool, optional
        Give zeros for unused inputs.

    Returns
    -------
    tuple of Tensor
        One for each of `inputs`, of its shape.

    Raises
    ------
    RuntimeError
        If an input is unused or does not require grad, a gradient is missing or has another shape, or the graph
        was freed.
    ValueError
        If `materialize_grads` is combined with ``allow_unused=False``.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor(3.0, requires_grad=True)
    >>> ng.autograd.grad(x ** 2, x)
    (tensor(6.),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: False.")
    if not only_inputs:
        raise ValueError("only_inputs=False was removed from PyTorch and is not here either; use backward()")
    roots, targets = _tensors(outputs, "grad"), _tensors(inputs, "grad's inputs")
    if not targets:
        raise ValueError("grad requires non-empty inputs.")
    keep = create_graph if retain_graph is None else bool(retain_graph)
    if is_grads_batched:
        found = _batched(roots, targets, grad_outputs, keep, create_graph)
    else:
        seeds = _seeds(roots, grad_outputs, create_graph)
        if batching and any(type(seed) is not Tensor for seed in seeds):
            keep = create_graph = True
        found = _gradients_at(Sweep(keep, create_graph), roots, seeds, targets)
    unused_is_fine = bool(allow_unused) or materialize_grads
    return tuple(
        _checked(i, g, t, unused_is_fine, materialize_grads)
        for i, (g, t) in enumerate(zip(found, targets, strict=True))
    )


def leaf_gradients(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], seeds: Sequence[Any], keep: bool
) -> list[Tensor]:
    """Like `grad`, for leaves to which every node behind `outputs` leads; not recorded. Zeros for unused leaves."""
    sweep = Sweep(keep, False)
    sweep.leaf_ids = {id(leaf) for leaf in leaves}
    _run(sweep, outputs, [_seed(i, o, s) for i, (o, s) in enumerate(zip(outputs, seeds, strict=True))])
    entries = [sweep.leaves.get(id(leaf)) for leaf in leaves]
    found = _unshared([None if e is None else e[1] for e in entries], sweep.seeds)
    return [wrap(np.zeros(t.shape, t.dtype)) if g is None else g for g, t in zip(found, leaves, strict=True)]


# ---------------------------------------------------------------------- running
def _run(sweep: Sweep, roots: Sequence[Tensor], seeds: Sequence[Tensor]) -> None:
    """Sweep from `roots`; leaf hooks have run after it, leaves are not written."""
    token = set_for_now(sweep.create_graph)
    try:
        edges = sweep.roots = [edge_of(root) for root in roots]
        for edge, seed in zip(edges, seeds, strict=True):
            if not batching or type(seed) is Tensor:
                sweep.seeds.add(id(seed._data))
            sweep.deliver(edge, seed)
        if anomaly_enabled():
            run_checked(sweep)
        else:
            sweep.run()
        sweep.finish_leaves()
    finally:
        put_back(token)


def _gradients_at(
    sweep: Sweep, roots: Sequence[Tensor], seeds: Sequence[Tensor], targets: Sequence[Tensor]
) -> list[Tensor | None]:
    """Sweep towards `targets` only and return their gradients, None where nothing arrived."""
    for i, target in enumerate(targets):
        if not target.requires_grad:
            raise RuntimeError(f"One of the differentiated Tensors does not require grad: input {i}{_why_not(target)}")
    edges = [edge_of(t) for t in targets]
    sweep.restrict([edge_of(r) for r in roots], targets, edges)
    _run(sweep, roots, seeds)
    found = []
    for target, edge in zip(targets, edges, strict=True):
        if type(edge) in (Node, Edge):
            key = (edge.seq, 0) if type(edge) is Node else (edge.node.seq, edge.nr)
            found.append(sweep.captured.get(sweep.wanted[key]))
        else:
            entry = sweep.leaves.get(id(target))
            found.append(entry[1] if entry else None)
    return found if sweep.create_graph else _unshared(found, sweep.seeds)


def _unshared(grads: list[Tensor | None], seen: set[int]) -> list[Tensor | None]:
    """The gradients with memory of their own: writing to one changes neither another nor what came in."""
    out = []
    for g in grads:
        if g is not None and (id(g._data) in seen or not _ours(g)):
            g = _copy(g)
        if g is not None:
            seen.add(id(g._data))
        out.append(g)
    return out


def _commit_to(sweep: Sweep, targets: Sequence[Tensor], grads: Sequence[Tensor | None]) -> None:
    """Accumulate into `targets` only."""
    sweep.hooked = True
    sweep.leaves = {id(t): [t, g, False] for t, g in zip(targets, grads, strict=True) if g is not None}
    with _GradMode(sweep.create_graph):
        sweep.commit()


def _batched(
    roots: Sequence[Tensor], targets: Sequence[Tensor], grad_outputs: Any, keep: bool, create_graph: bool
) -> list[Tensor | None]:
    """One sweep for all entries of the first axis of `grad_outputs`; where an op cannot, one for each."""
    batches = [_as_tensor(g) for g in _sequence(grad_outputs, len(roots))]
    if any(not b.shape or b.shape[0] != batches[0].shape[0] for b in batches):
        raise RuntimeError(
            f"is_grads_batched wants grad_outputs with one common first axis, got shapes {[b.shape for b in batches]}"
        )
    at_once = _at_once(roots, targets, [_fitting(b, r) for b, r in zip(batches, roots, strict=True)], create_graph)
    if at_once is not None:
        if not keep:
            _free(roots)
        return at_once
    count = batches[0].shape[0]
    rows = []
    for i in range(count):
        seeds = _seeds(roots, [b[i] for b in batches], create_graph)  # type: ignore[index]
        rows.append(_gradients_at(Sweep(keep or i + 1 < count, create_graph), roots, seeds, targets))
    return [
        None if any(g is None for g in column) else arithmetic.stack(list(column)) for column in zip(*rows, strict=True)
    ]


def _at_once(
    roots: Sequence[Tensor], targets: Sequence[Tensor], batches: Sequence[Tensor], create_graph: bool
) -> list[Tensor | None] | None:
    """The gradients for all entries from one sweep, or None if a rule asked for values of single entries."""

    def sweep(entries: Sequence[Tensor]) -> list[Tensor | None]:
        # Recorded in any case: rules take shortcuts over arrays where nothing is.
        return _gradients_at(Sweep(True, True), roots, _seeds(roots, list(entries), True), targets)

    found = arithmetic.over_entries(sweep, batches)
    if found is None or create_graph:
        return found
    return _unshared([None if g is None else g.detach() for g in found], {id(b._data) for b in batches})


def _fitting(batch: Tensor, root: Tensor) -> Tensor:
    """A batch of gradients in the dtype of its output, where it may be cast."""
    if batch.dtype != root.dtype and np.can_cast(batch.dtype, root.dtype, "same_kind"):
        return batch.astype(root.dtype)  # type: ignore[attr-defined]
    return batch


def _free(roots: Sequence[Tensor]) -> None:
    """Let go of what the graph saved."""
    for node in reachable([edge_of(root) for root in roots]):
        if node.saved:
            node.saved = None


# ---------------------------------------------------------------------- checking
def _tensors(given: Any, what: str) -> tuple[Tensor, ...]:
    if type(given) is Tensor:
        return (given,)
    items = (given,) if isinstance(given, (Tensor, GradientEdge)) else given
    if not isinstance(items, (list, tuple)) and not hasattr(items, "__iter__"):
        raise TypeError(f"{what} wants a Tensor or a sequence of them, got {type(given).__name__}")
    items = tuple([tensor_at(item) if type(item) is GradientEdge else item for item in items])
    for item in items:
        if not isinstance(item, Tensor):
            raise TypeError(f"{what} wants a Tensor or a sequence of them, got one of {type(item).__name__}")
    return items


def _sequence(grads: Any, count: int) -> list[Any]:
    """One gradient (or None) for each of `count` tensors."""
    if grads is None:
        return [None] * count
    if count == 1 and not isinstance(grads, tuple) and not _is_list_of_one(grads):
        return [grads]
    if len(grads) != count:
        raise RuntimeError(f"got {count} tensors and {len(grads)} gradients")
    return list(grads)


def _is_list_of_one(grads: Any) -> bool:
    """Whether this is a list with one gradient in it, and not a gradient written as a list of numbers."""
    one = isinstance(grads, list) and len(grads) == 1
    return one and (grads[0] is None or isinstance(grads[0], (Tensor, np.ndarray, list, tuple)))


def _seeds(roots: Sequence[Tensor], grads: Any, create_graph: bool) -> list[Tensor]:
    for i, root in enumerate(roots):
        if not root.requires_grad:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn{_why_not(root)}"
            )
    if grads is None and len(roots) == 1:
        return [_seed(0, roots[0], None)]
    return [_seed(i, r, g) for i, (r, g) in enumerate(zip(roots, _sequence(grads, len(roots)), strict=True))]


def _seed(i: int, root: Tensor, given: Any) -> Tensor:
    """The gradient to start with at `root`, checked."""
    if given is None:
        if root.size != 1:
            raise RuntimeError(
                "grad can be implicitly created only for scalar outputs: this one has shape "
                f"{root.shape}; pass gradient=..., an array of that shape, or reduce it first, as in .sum()"
            )
        if root.dtype.kind == "c":
            raise RuntimeError("grad can be computed only for real scalar outputs but got complex; pass gradient=...")
        ones = np.empty(root.shape, root.dtype)
        ones.fill(1)
        return wrap(ones)
    seed = given if isinstance(given, Tensor) else _as_tensor(given)
    if seed.shape != root.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {seed.shape} and output[{i}] has a shape of "
            f"{root.shape}."
        )
    if seed.dtype != root.dtype:
        if not np.can_cast(seed.dtype, root.dtype, "same_kind"):
            raise RuntimeError(
                f"gradient {i} has dtype {seed.dtype}, which does not fit its output of dtype {root.dtype}"
            )
        seed = seed.astype(root.dtype)  # type: ignore[attr-defined]
    return seed


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    array = np.array(value)
    if kind_of(array.dtype) not in "fciub":
        raise TypeError(f"a gradient must be a Tensor or an array of numbers, got {type(value).__name__}")
    return wrap(array)


def _why_not(tensor: Tensor) -> str:
    if tensor._layout.kind not in "fc":
        return f": its dtype is {tensor.dtype}, and only floating and complex tensors can"
    return (
        ": it was made without requires_grad, detached, computed under no_grad, or from inputs that do not require grad"
    )


def _checked(i: int, grad: Tensor | None, target: Tensor, unused_is_fine: bool, materialize: bool) -> Tensor | None:
    if grad is not None:
        return grad
    if not unused_is_fine:
        raise RuntimeError(
            f"One of the differentiated Tensors appears to not have been used in the graph: input {i}, of shape "
            f"{target.shape}. Set allow_unused=True if this is the desired behavior."
        )
    return wrap(np.zeros(target.shape, target.dtype)) if materialize else None


__all__ = ["Variable", "backward", "enable_grad", "grad", "no_grad", "set_grad_enabled"]
