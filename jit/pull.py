"""Pulling back: elementwise expressions over arrays that broadcast, some of which are summed in the loop that computes
them.

The gradient of a broadcast operand is a sum over the axes that broadcasting stretched. Here the partial derivative and
its sum share one loop, so no array of full size lies between them; what is wanted in full is stored on the way. The
parts in which long sums are made depend on sizes only, so that results do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from numbagrad.jit import backend, memory, rows
from numbagrad.jit.expr import symbols
from numbagrad.jit.mapping import RECIPES_AT_MOST, Program, collapse
from numbagrad.jit.reduce import Fold, RowKernel, RowProgram, Stage, kernel

Axes = tuple[int, ...]

NARROW, WIDE = 64, 256
"""Lines of fewer items are put together to lines of about so many."""


Targets = tuple[Axes | None, ...]
"""For each expression the axes to sum over, or None for all of it."""


class Pull:
    """A program whose expressions are wanted in full, or summed over some axes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[Any, list[tuple[tuple[int, ...], _Plan]] | None] = {}

    def __call__(
        self, values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype, targets: Targets
    ) -> list[np.ndarray] | None:
        """Evaluate.

        Parameters
        ----------
        values
            For each input of the program an array that broadcasts to `shape` (of `dtype`, or bool for a condition) or
            a number.
        shape
        dtype
            A float that kernels know.
        targets

        Returns
        -------
        list of numpy.ndarray, or None
            Sums keep their axes, with length 1. None if the arrays do not lie as a kernel wants them.
        """
        if backend.current() != "cpu" or 0 in shape or rows.name_of(dtype) is None:
            return None
        kinds = [(v.shape, v.strides, v.flags.aligned) if isinstance(v, np.ndarray) else None for v in values]
        key = (dtype.num, shape, targets, *kinds)
        if key not in self._known:
            if len(self._known) >= RECIPES_AT_MOST:
                self._known.clear()
            self._known[key] = self._plans(values, shape, dtype, targets)
        plans = self._known[key]
        if plans is None:
            return None
        results: list[Any] = [None] * len(targets)
        for chosen, plan in plans:
            for k, result in zip(chosen, plan.run(values), strict=True):
                results[k] = result
        return results

    def _plans(
        self, values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype, targets: Targets
    ) -> list[tuple[tuple[int, ...], _Plan]] | None:
        """One loop for each group of axes; what is wanted in full is stored by the first."""
        groups = list(dict.fromkeys(axes for axes in targets if axes is not None))
        plans = []
        for axes in groups:
            chosen = tuple(k for k, t in enumerate(targets) if t == axes or (t is None and axes is groups[0]))
            full = tuple(targets[k] is None for k in chosen)
            plan = _plan(self.program, chosen, axes, values, shape, dtype, full)
            if plan is None:
                return None
            plans.append((chosen, plan))
        return plans


@functools.cache
def _row_program(
    program: Program, chosen: tuple[int, ...], full: tuple[bool, ...], numbers: frozenset[str]
) -> RowProgram:
    """The loop over the chosen expressions: those in full are stored, the others folded."""
    exprs = [program.exprs[k] for k in chosen]
    used = set(symbols(*exprs))
    stores = tuple((f"full{k}", e) for k, e, whole in zip(chosen, exprs, full, strict=True) if whole)
    sums = tuple(Fold(f"sum{k}", "sum", e) for k, e, whole in zip(chosen, exprs, full, strict=True) if not whole)
    return RowProgram(
        f"{program.name}_sums",
        tuple(n for n in program.inputs if n in used and n not in numbers),
        (Stage(sums, stores),),
        tuple(f.name for f in sums),
        numbers=tuple(n for n in program.inputs if n in used and n in numbers),
    )


@dataclass(frozen=True)
class _Array:
    """How the loop walks over one array: steps in bytes along the two outer axes, the summed axis and the inner one."""

    step: int
    jump: int
    line: int
    near: int

    def kind(self, itemsize: int) -> str | None:
        return "single" if self.near == 0 else "dense" if self.near == itemsize else None


@dataclass(frozen=True)
class _Call:
    """A kernel and what it is told; `size` items make a unit."""

    made: RowKernel
    units: int
    size: int
    loop: list[int]
    wide: bool
    parts: int
    inner: int


class _Plan:
    """One loop: which axes it counts, and where the arrays lie."""

    def __init__(
        self,
        program: RowProgram,
        names: Sequence[str],
        full: Sequence[bool],
        shape: tuple[int, ...],
        dtype: np.dtype,
        axes: Axes,
    ) -> None:
        self.program = program
        self.names = names
        self.full = full
        self.shape = shape
        self.dtype = dtype
        self.kept = tuple(1 if i in axes else n for i, n in enumerate(shape))

    def lay_out(self, lengths: list[int], strides: list[list[int]], summed: list[bool], itemsizes: list[int]) -> bool:
        """Choose the loop; False where there is none. `strides` are those of the items, then of the stored."""
        last = len(lengths) - 1
        if summed[last]:
            line, near = last, last
        else:
            candidates = [i for i in range(last) if summed[i]]
            line, near = max(candidates, key=lambda i: lengths[i]), last
        outer = [i for i in range(len(lengths)) if i not in (line, near)]
        if len(outer) > 2:
            return False
        outer = [-1] * (2 - len(outer)) + outer
        sizes = [1 if i < 0 else lengths[i] for i in outer]
        self.loop = "rows" if line == near else "columns"
        self.n, self.inner = lengths[line], 1 if line == near else lengths[near]
        self.outer, self.far = sizes[0] * sizes[1], sizes[1]
        self.arrays = [
            _Array(*(0 if i < 0 else s[i] for i in outer), s[line], s[near])  # type: ignore[call-arg]
            for s in strides
        ]
        self.outer_shape = sizes
        self.outer_summed = tuple(k for k, i in enumerate(outer) if i >= 0 and summed[i])
        kinds = [a.kind(size) for a, size in zip(self.arrays, itemsizes, strict=True)]
        items = kinds[: len(self.program.items)]
        self.masks = [size == 1 for size in itemsizes]
        self.kinds = tuple(f"mask {k}" if mask else str(k) for k, mask in zip(items, self.masks, strict=False))
        return None not in kinds and all(k == "dense" for k in kinds[len(items) :])

    def run(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The results in the order of the expressions."""
        given = dict(zip(self.names, values, strict=True))
        items = [given[n] for n in self.program.items]
        numbers = [float(given[n]) for n in self.program.numbers]
        stored = [memory.empty(self.shape, self.dtype) for _ in self.program.stored]
        if self.together:
            sums = self._run_wide(items, numbers, stored)
        else:
            sums = self._launch(self.call, [*items, *numbers, *stored])
        found, whole = iter(sums), iter(stored)
        return [next(whole) if full else next(found).reshape(self.kept) for full in self.full]

    def prepare(self, n: int, inner: int, arrays: Sequence[_Array]) -> _Call:
        """The call for rows of `n` items that lie `inner` items apart, in parts where rows are long."""
        parts = rows.parts_of(self.outer, n, inner)
        chunk = -(-n // parts)
        parts = -(-n // chunk)
        wide = parts > 1 or bool(self.outer_summed)
        units, loop = self.outer * parts, [parts, n, chunk]
        if self.loop == "columns":
            blocks, block = rows.blocks_of(inner, self.program)
            units *= blocks
            loop += [inner, block, self.far, *(s for a in arrays for s in (a.step, a.jump, a.line))]
        else:
            loop += [self.far, *(s for a in arrays for s in (a.step, a.jump))]
        made = kernel(self.program, self.loop, str(rows.name_of(self.dtype)), wide, self.kinds)
        return _Call(made, units, self.outer * n * inner // units, loop, wide, parts, inner)

    def _launch(self, call: _Call, arrays: Sequence[Any]) -> list[np.ndarray]:
        """Run the kernel, and sum what the parts and the outer axes found."""
        dtype = np.dtype(np.float64) if call.wide else self.dtype
        found = [memory.empty(self.outer * call.parts * call.inner, dtype) for _ in self.program.results]
        rows.spread(call.made, call.units, call.size, call.loop, [*arrays, *found])
        return [self._summed(f, call.parts, call.inner) for f in found] if call.wide else found

    def _summed(self, found: np.ndarray, parts: int, inner: int) -> np.ndarray:
        split = found.reshape(*self.outer_shape, parts, inner)
        with np.errstate(all="ignore"):
            return np.add.reduce(split, axis=(*self.outer_summed, 2)).astype(self.dtype)

    # ------------------------------------------------------------------ narrow lines
    def _can_widen(self) -> bool:
        """Whether several lines make a line of useful width: everything is dense along it, or the same for each."""
        if self.loop != "columns" or self.inner >= NARROW or self.outer > 1 or self.n < 4 * WIDE // self.inner:
            return False
        widths = [self.inner * (1 if mask else self.dtype.itemsize) for mask in self.masks]
        flat = all(a.line in (0, width) for a, width in zip(self.arrays, widths, strict=True))
        return flat and all(k.endswith("dense") for k in self.kinds)

    def finish(self) -> None:
        """Prepare the calls of the kernel."""
        self.together = WIDE // self.inner if self._can_widen() else 0
        if not self.together:
            self.call = self.prepare(self.n, self.inner, self.arrays)
            return
        wide = [_Array(a.step, a.jump, a.line * self.together, a.near) for a in self.arrays]
        self.call = self.prepare(self.n // self.together, self.together * self.inner, wide)
        left = self.n % self.together
        self.call_rest = self.prepare(left, self.inner, self.arrays) if left else None

    def _run_wide(
        self, items: Sequence[np.ndarray], numbers: Sequence[float], stored: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        count = len(items)
        given = [self._lines(x, a) for x, a in zip((*items, *stored), self.arrays, strict=True)]
        tiled = [np.tile(x[0], self.together) if a.line == 0 else x for x, a in zip(given, self.arrays, strict=True)]
        whole = self._launch(self.call, [*tiled[:count], *numbers, *tiled[count:]])
        if self.call_rest is None:
            return [self._folded(w) for w in whole]
        rest = [x[self.n // self.together * self.together :] for x in given]
        over = self._launch(self.call_rest, [*rest[:count], *numbers, *rest[count:]])
        return [self._folded(w, o) for w, o in zip(whole, over, strict=True)]

    def _lines(self, x: np.ndarray, a: _Array) -> np.ndarray:
        return as_strided(x, (self.n, self.inner), (a.line, a.near), writeable=x.flags.writeable)

    def _folded(self, wide: np.ndarray, over: np.ndarray | None = None) -> np.ndarray:
        total = np.add.reduce(wide.astype(np.float64).reshape(self.together, self.inner), axis=0)
        return (total if over is None else total + over).astype(self.dtype)


def _plan(
    program: Program,
    chosen: tuple[int, ...],
    axes: Axes,
    values: Sequence[Any],
    shape: tuple[int, ...],
    dtype: np.dtype,
    full: tuple[bool, ...],
) -> _Plan | None:
    numbers = frozenset(n for n, v in zip(program.inputs, values, strict=True) if not isinstance(v, np.ndarray))
    made = _row_program(program, chosen, full, numbers)
    given = dict(zip(program.inputs, values, strict=True))
    items = [given[n] for n in made.items]
    if not made.items or not all(x.flags.aligned for x in items):
        return None
    plan = _Plan(made, program.inputs, full, shape, dtype, axes)
    # Stand-ins of the right strides: nothing is kept.
    whole = _shaped(shape, dtype)
    laid = [*items, *(whole for _ in made.stored), _shaped(plan.kept, dtype)]
    lengths, strides = collapse(laid, shape)
    if not lengths:
        return None
    summed = [s == 0 for s in strides[-1]]
    itemsizes = [x.itemsize for x in laid[:-1]]
    if not any(summed) or not plan.lay_out(lengths, strides[:-1], summed, itemsizes):
        return None
    plan.finish()
    return plan


def _shaped(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array with the strides of a dense one and next to no memory."""
    steps = [dtype.itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return as_strided(np.empty(1, dtype), shape, steps)


__all__ = ["Pull"]
