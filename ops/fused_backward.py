"""Fused backward: runs of elementwise nodes of a tape that comes back are done by one kernel.

When the sweep reaches an elementwise node of large arrays, the nodes that it would visit next are known: `_Run.walk`
follows it, in its own order, until a node comes that is not elementwise, has another layout or has someone watching
(hooks, a gradient that is asked for). What it meets is a *run*. The structure of a run (its formulas, the saved values
that they share, where the gradients go) is its key. A key that comes for the third time becomes a kernel, which reads
every saved value once, keeps the gradients between the nodes in registers and writes those that leave the run. The
operations are those of the sweep in its order, so the results are the same to the last bit.

``NUMBAGRAD_FUSE_TAPE=0`` in the environment turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from heapq import heappop, heappush, nsmallest
from typing import Any

import numpy as np

from numbagrad.engine.layout import FAST_DTYPES, Layout, is_half
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.node import Edge, Node, watches
from numbagrad.engine.sweep import Sweep, current_sweep
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.jit import backend
from numbagrad.jit.expr import ScalarExpr, substitute, symbol, symbols
from numbagrad.jit.mapping import Map, Program
from numbagrad.ops.operands import layout_at, unbroadcast
from numbagrad.ops.saved import check_saved

enabled = os.environ.get("NUMBAGRAD_FUSE_TAPE", "1") != "0"

SIGHTINGS = 3
"""How often a structure comes before its kernel is made: a tape that comes three times will come many times."""

NODES_AT_MOST = 32
VALUES_AT_MOST = 32
"""Larger runs are cut: compiling takes more than linear time, and a loop runs out of registers and of streams that
the processor fetches ahead."""

STRUCTURES_AT_MOST = 512
"""Then all are forgotten, for programs whose tapes never repeat."""

_structures: dict[Any, int | _Fused] = {}


def run_fused(node: Node, grad: Tensor) -> Sequence[None] | None:
    """Do the backward of `node` and of the nodes that follow it with one kernel.

    Returns
    -------
    tuple of None, or None
        What is left for the sweep to deliver: nothing. None if the node is to be done by itself.
    """
    sweep = current_sweep()
    if not enabled or sweep is None or not sweep.fusing or watches or grad_enabled() or backend.current() != "cpu":
        return None
    if not _fits(sweep, node, node.layout):
        return None
    run = _Run(sweep, node)
    run.walk(node, grad)
    fused = _fused_for(run) if len(run.nodes) > 1 else None
    if fused is None:
        return None
    fused(run)
    return (None,) * len(node.edges)


def _fused_for(run: _Run) -> _Fused | None:
    """The kernel for the run's structure, once it has come often enough."""
    key = run.key()
    found = _structures.get(key, 0)
    if isinstance(found, int):
        if len(_structures) >= STRUCTURES_AT_MOST:
            _structures.clear()
        found = _structures[key] = found + 1 if found + 1 < SIGHTINGS else _Fused(run)
    return found if isinstance(found, _Fused) else None


def forget() -> None:
    """Forget every structure, so that each is counted anew."""
    _structures.clear()


# ----- Runs -----


def _fits(sweep: Sweep, node: Node, layout: Layout) -> bool:
    """Whether the node's backward is one elementwise formula over arrays of `layout`, and nobody looks on."""
    plan = getattr(node.op, "fusible", None)
    if plan is None or node.layout is not layout or node.hooks is not None or layout.dtype not in FAST_DTYPES:
        return False
    if is_half(layout.dtype):
        # Between nodes the sweep rounds to 16 bits.
        return False
    if sweep.needed is not None and (node.seq not in sweep.needed or (node.seq, 0) in sweep.wanted):
        return False
    if plan.saves and node.saved is None:
        return False
    return all(_alike(layout_at(node.edges[i]), layout) for i in plan.computed)


def _alike(at: Layout, layout: Layout) -> bool:
    return at is layout or (at.shape == layout.shape and at.dtype == layout.dtype)


class _Exit:
    """An edge by which gradients leave a run."""

    __slots__ = ("edge", "number", "slot", "whole")

    def __init__(self, edge: Any, slot: int, whole: bool) -> None:
        self.edge = edge
        self.number = 0
        """Its place in the order of exits."""
        self.slot = slot
        """Slot of the gradient that has arrived there already, or -1."""
        self.whole = whole
        """Whether what goes there is summed in the kernel; else every gradient is delivered by itself."""


class _Run:
    """Nodes that the sweep visits one after the other, the values that their backward takes, and where it leads."""

    def __init__(self, sweep: Sweep, first: Node) -> None:
        self.sweep = sweep
        self.layout: Layout = first.layout
        self.nodes: list[Node] = []
        self.places: dict[int, int] = {}
        """seq of a node -> its place."""
        self.values: list[Any] = []
        """Arrays and numbers for the kernel. A *slot* is a place in this list."""
        self.slots: dict[int, int] = {}
        """id of an array -> its slot."""
        self.arrived: list[int] = []
        """For each node the slot of the gradient that came from outside the run, or -1."""
        self.saved: list[list[int]] = []
        """For each node the slots of what it saved."""
        self.exits: dict[int, _Exit] = {}
        """id of an edge -> what is known of it, in the order of the first gradient."""

    def walk(self, node: Node, grad: Tensor) -> None:
        """Follow the sweep from `node` as long as the nodes fit."""
        pending = self.sweep.pending
        waiting = nsmallest(NODES_AT_MOST, self.sweep.heap)[::-1]
        known: dict[int, Node] = {}
        found: list[int] = []
        came: Tensor | None = grad
        while self._add(node, came) and len(self.nodes) < NODES_AT_MOST:
            for edge in node.edges:
                if type(edge) is Node and edge.seq not in known and edge.seq not in pending:
                    known[edge.seq] = edge
                    heappush(found, edge.seq)
            if waiting and (not found or waiting[-1] < found[0]):
                node, came, _ = pending[waiting.pop()]
            elif found:
                node, came = known[heappop(found)], None
            else:
                return
            if not _fits(self.sweep, node, self.layout):
                return

    def _add(self, node: Node, came: Tensor | None) -> bool:
        """Take `node` in, unless its values do not fit."""
        plan = node.op.fusible  # type: ignore[attr-defined]
        saved = check_saved(node, plan.saves) if plan.saves else ()
        arrays = [v._data if isinstance(v, Tensor) else v for v in saved]
        names = plan.op.params[1:]
        if not all(self._takes(a, n in plan.op.conditions) for a, n in zip(arrays, names, strict=True)):
            return False
        if len(self.values) + len(arrays) >= VALUES_AT_MOST or (came is not None and not self._takes(came._data)):
            return False
        self.places[node.seq] = len(self.nodes)
        self.nodes.append(node)
        self.saved.append([self._slot(a) for a in arrays])
        self.arrived.append(-1 if came is None else self._slot(came._data))
        return True

    def _takes(self, value: Any, condition: bool = False) -> bool:
        if not isinstance(value, np.ndarray):
            return type(value) is float or type(value) is int
        return value.dtype == (np.bool_ if condition else self.layout.dtype) and value.flags.aligned

    def _slot(self, value: Any) -> int:
        key = id(value) if isinstance(value, np.ndarray) else -1 - len(self.values)
        slot = self.slots.setdefault(key, len(self.values))
        if slot == len(self.values):
            self.values.append(value)
        return slot

    def key(self) -> Any:
        """What tells this structure from others, shapes and strides aside."""
        nodes = [
            (node.op.fusible, arrived, *saved, *map(self._destination, node.edges))  # type: ignore[attr-defined]
            for node, arrived, saved in zip(self.nodes, self.arrived, self.saved, strict=True)
        ]
        kinds = [v.dtype.char if isinstance(v, np.ndarray) else "number" for v in self.values]
        return (*nodes, *kinds, *((e.slot, e.whole) for e in self.exits.values()))

    def _destination(self, edge: Any) -> Any:
        """Place of the node that the edge leads to, or the number of the exit; None where nothing is wanted."""
        if edge is None or not self._wanted(edge):
            return None
        if type(edge) is Node and edge.seq in self.places:
            return self.places[edge.seq]
        found = self.exits.get(id(edge))
        if found is None:
            found = self._exit(edge)
            found.number = len(self.exits)
            self.exits[id(edge)] = found
        return "exit", found.number

    def _wanted(self, edge: Any) -> bool:
        needed, leaf_ids = self.sweep.needed, self.sweep.leaf_ids
        if isinstance(edge, Tensor):
            return leaf_ids is None or id(edge) in leaf_ids
        return needed is None or (edge.node.seq if type(edge) is Edge else edge.seq) in needed

    def _exit(self, edge: Any) -> _Exit:
        if type(edge) is Edge or not _alike(layout_at(edge), self.layout):
            return _Exit(edge, -1, False)
        have = self.sweep.pending.get(edge.seq) if type(edge) is Node else self.sweep.leaves.get(id(edge))
        if have is None:
            return _Exit(edge, -1, True)
        array = have[1]._data
        fits = array.shape == self.layout.shape and self._takes(array) and len(self.values) < VALUES_AT_MOST
        return _Exit(edge, self._slot(array) if fits else -1, fits)


# ----- Kernels -----


class _Fused:
    """The backward of every run of one structure."""

    def __init__(self, run: _Run) -> None:
        self.symbols = [symbol(f"v{k}") for k in range(len(run.values))]
        self.sums: dict[Any, ScalarExpr] = {("exit", m): self.symbols[e.slot] for m, e in _begun(run)}
        self.sums |= {k: self.symbols[slot] for k, slot in enumerate(run.arrived) if slot >= 0}
        """Place of a node or exit -> its gradient so far."""
        self.apart: list[tuple[int, ScalarExpr]] = []
        """Exits, by number, and gradients that are delivered there by themselves."""
        for k, node in enumerate(run.nodes):
            self._differentiate(run, node, k)
        exits = list(run.exits.values())
        whole = [(m, self.sums["exit", m]) for m, e in enumerate(exits) if e.whole]
        self.deliveries = self.apart + whole
        exprs = [e for _, e in self.deliveries if e not in self.symbols]
        self.computed = list(dict.fromkeys(exprs))
        self.own = {e for e in self.computed if exprs.count(e) == 1}
        """What goes to one place only, so that more may be added into it."""
        conditions = {f"v{k}" for k, v in enumerate(run.values) if isinstance(v, np.ndarray) and v.dtype == np.bool_}
        used = set(symbols(*self.computed))
        self.taken = [k for k, s in enumerate(self.symbols) if s.value in used]
        names = tuple(self.symbols[k].value for k in self.taken)
        self.map = Map(Program("fused_backward", names, tuple(self.computed), frozenset(conditions & set(names))))

    def _differentiate(self, run: _Run, node: Node, k: int) -> None:
        """Send the gradients of a node where they go."""
        plan = node.op.fusible  # type: ignore[attr-defined]
        given = [self.sums[k], *(self.symbols[slot] for slot in run.saved[k])]
        results = substitute(plan.op.exprs, dict(zip(plan.op.symbols, given, strict=True)))
        formulas = dict(zip(plan.computed, results, strict=True)) | dict.fromkeys(plan.passed, self.sums[k])
        for i, edge in enumerate(node.edges):
            to = run._destination(edge)
            if to is None:
                continue
            if type(to) is tuple and not run.exits[id(edge)].whole:
                self.apart.append((to[1], formulas[i]))
            else:
                self.sums[to] = self.sums[to] + formulas[i] if to in self.sums else formulas[i]

    def __call__(self, run: _Run) -> None:
        """Run the kernel, then leave the sweep as if it had visited every node of the run."""
        layout, sweep = run.layout, run.sweep
        outs = self.map([run.values[k] for k in self.taken], layout.shape, layout.dtype) if self.computed else []
        found = dict(zip(self.symbols, run.values, strict=True)) | dict(zip(self.computed, outs, strict=True))
        while sweep.heap and sweep.heap[0] in run.places:
            del sweep.pending[heappop(sweep.heap)]
        if not sweep.keep:
            for node in run.nodes:
                node.saved = None
        exits = list(run.exits.values())
        for m, expr in self.deliveries:
            self._deliver(sweep, exits[m], wrap(found[expr]), expr in self.own)

    def _deliver(self, sweep: Sweep, exit: _Exit, grad: Tensor, own: bool) -> None:
        edge = exit.edge
        if exit.slot < 0:
            sweep.deliver(edge, unbroadcast(grad, layout_at(edge)))
        if exit.whole:
            have = sweep.pending[edge.seq] if type(edge) is Node else sweep.leaves[id(edge)]
            have[1:] = grad, own


def _begun(run: _Run) -> list[tuple[int, _Exit]]:
    return [(m, e) for m, e in enumerate(run.exits.values()) if e.slot >= 0]


__all__ = ["enabled", "forget", "run_fused"]
