"""Running row programs over arrays: which axes make a row, which loop fits the memory, who does which part.

An array with any axes reduced is, where the memory allows, (outer, n, inner): rows of `n` items that lie `inner` items
apart. What does not fit is brought there: axes are put in the order of the memory, several groups of reduced axes are
folded one after the other, and all else is copied. Parts of long rows are folded apart; their boundaries depend on
sizes only, so that results do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbagrad.jit import backend, folds, memory, reference, storage, team
from numbagrad.jit.expr import symbols
from numbagrad.jit.kernel import FLOATS, kernel_for
from numbagrad.jit.reduce import POSITION, SCRATCH, RowKernel, RowProgram, Stage, kernel

PART = 65536
"""Items in a part of a long row."""

FEW = 4
"""So many long rows, or fewer, are worked on one stage after the other, each in parts."""

BATCH = 4 * PART
"""Items that one call of a kernel works on when there are several threads."""

Axes = tuple[int, ...]

_names: dict[np.dtype, str | None] = {}


def name_of(dtype: np.dtype) -> str | None:
    """Name of a dtype that kernels work on, None for all others."""
    if dtype not in _names:
        _names[dtype] = dtype.name if dtype.name in FLOATS and dtype.isnative else None
    return _names[dtype]


def runs_natively(array: np.ndarray) -> bool:
    """Whether kernels work on the array's dtype."""
    return name_of(array.dtype) is not None


def run(
    program: RowProgram,
    items: Sequence[np.ndarray],
    axes: Axes,
    *,
    keepdims: bool = False,
    rows: Sequence[np.ndarray] = (),
    numbers: Sequence[float] = (),
) -> list[np.ndarray]:
    """What `program` puts out: the stored items, then the results.

    Parameters
    ----------
    program
        What is computed of each row.
    items
        Arrays of one shape and dtype.
    axes
        The axes that make a row, from 0 on, in order.
    keepdims
        Whether results keep these axes, with length 1.
    rows
        Arrays of that dtype with one value for each row, in C order.
    numbers
        Numbers for all rows.

    Returns
    -------
    list of numpy.ndarray
        C-contiguous arrays of the dtype of the items.
    """
    x = items[0]
    if x.size <= PART and backend.current() != "reference":
        prepared = _prepare(program, x.shape, x.dtype, axes, keepdims)
        if prepared is not None and all([_is_dense(a) for a in (*items, *rows)]):  # noqa: C419 - a list is faster here
            return prepared(items, rows, numbers)
    rows = [r.reshape(_kept(x.shape, axes, True)) for r in rows]
    if x.size == 0 or backend.current() == "reference" or not runs_natively(x):
        found = evaluate(program, items, axes, rows, numbers)
    elif program.divisible and len(items) == 1 and not rows:
        found = _reduce(program, x, axes, numbers)
    else:
        found = _run_dense(program, items, axes, rows, numbers)
    stored = len(program.stored)
    shape = _kept(x.shape, axes, keepdims)
    return [*found[:stored], *(r.reshape(shape) for r in found[stored:])]


@functools.lru_cache(maxsize=4096)
def _kept(shape: tuple[int, ...], axes: Axes, keepdims: bool) -> tuple[int, ...]:
    """The shape without the axes, or with length 1 for them."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


# ----- Meaning -----


def evaluate(
    program: RowProgram, items: Sequence[np.ndarray], axes: Axes, rows: Sequence[np.ndarray], numbers: Sequence[float]
) -> list[np.ndarray]:
    """What `program` means, said with NumPy; results keep the axes."""
    x = items[0]
    compute = storage.compute_dtype(x.dtype)
    given = [a.astype(compute, copy=False) for a in (*items, *rows)]
    values: dict[str, Any] = dict(zip((*program.items, *program.rows), given, strict=True))
    values |= dict(zip(program.numbers, numbers, strict=True))
    if program.counts:
        values[POSITION] = _positions(x.shape, axes)

    def value(expr: Any) -> Any:
        return reference.evaluate([expr], values, compute, kernel_for.definitions)[0]

    with np.errstate(all="ignore"):
        for stage in program.stages:
            # The loop sees what earlier stages stored, so its values are found before any is put in place.
            found = [np.broadcast_to(value(e), x.shape) for e in stage.loop_exprs]
            values |= {name: v for (name, _), v in zip(stage.stores, found, strict=False)}
            for f, v in zip(stage.folds, found[len(stage.stores) :], strict=True):
                kind = folds.KINDS[f.kind]
                start: dict[str, Any] = {"initial": kind.identity} if f.kind in ("max", "min") else {}
                values[f.name] = kind.ufunc.reduce(v, axis=axes, keepdims=True, **start)
            for name, e in stage.after:
                values[name] = value(e)
    kept = _kept(x.shape, axes, True)
    with np.errstate(over="ignore"):
        return [np.array(values[n], x.dtype) for n in program.stored] + [
            np.array(np.broadcast_to(values[n], kept), x.dtype) for n in program.results
        ]


def _positions(shape: tuple[int, ...], axes: Axes) -> np.ndarray:
    """How many items of its row lie before each item."""
    row = [n if i in axes else 1 for i, n in enumerate(shape)]
    return np.arange(math.prod(row), dtype=np.float64).reshape(row)


# ----- From axes to loops -----


@dataclass(frozen=True, slots=True)
class Walk:
    """Rows of `n` items, `line` bytes apart; `inner` rows lie side by side, `outer` such groups `step` bytes apart."""

    outer: int
    n: int
    inner: int
    step: int
    line: int


@functools.lru_cache(maxsize=4096)
def walk(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, axes: Axes) -> Walk | None:
    """How rows lie in the memory of an array, if that is regular enough for a kernel."""
    groups: list[tuple[bool, int, int]] = []
    for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        reduced = axis in axes
        if length == 1:
            continue
        if groups and groups[-1][0] == reduced and groups[-1][2] == length * stride:
            groups[-1] = reduced, groups[-1][1] * length, stride
        else:
            groups.append((reduced, length, stride))
    if groups and groups[-1][2] != itemsize:
        return None
    outer = groups.pop(0)[1:] if groups and not groups[0][0] else (1, 0)
    if not groups:
        # Every row is one item: the array is one long line across rows.
        return Walk(1, 1, outer[0], 0, 0)
    line = groups.pop(0)[1:] if groups[0][0] else (1, 0)
    inner = groups.pop(0)[1] if groups and not groups[0][0] else 1
    return None if groups else Walk(outer[0], line[0], inner, outer[1], line[1])


def _walk(x: np.ndarray, axes: Axes) -> Walk | None:
    return walk(x.shape, x.strides, x.itemsize, axes) if x.flags.aligned else None


def _reduce(program: RowProgram, x: np.ndarray, axes: Axes, numbers: Sequence[float]) -> list[np.ndarray]:
    """A program of one array and one stage without stores."""
    found = _walk(x, axes)
    if found is not None:
        return _launch(program, found, [x], [], numbers, [])
    if not _is_dense(x):
        return _reduce_strided(program, x, axes, numbers)
    return _reduce_stepwise(program, x, axes, numbers)


def _reduce_strided(program: RowProgram, x: np.ndarray, axes: Axes, numbers: Sequence[float]) -> list[np.ndarray]:
    """The axes in the order of the memory may do; else a copy does."""
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    turned = x.transpose(order)
    turned_axes = tuple(i for i, axis in enumerate(order) if axis in axes)
    if _walk(turned, turned_axes) is None and not _is_dense(turned):
        return _reduce(program, contiguous(x), axes, numbers)
    results = _reduce(program, turned, turned_axes, numbers)
    kept = [axis for axis in order if axis not in axes]
    lengths = [x.shape[axis] for axis in kept]
    return [contiguous(r.reshape(lengths).transpose(np.argsort(kept))) for r in results]


def _reduce_stepwise(program: RowProgram, x: np.ndarray, axes: Axes, numbers: Sequence[float]) -> list[np.ndarray]:
    """Several groups of axes: a kernel folds the last of them, NumPy what is left."""
    last = _last_group(x.shape, axes)
    part = program.folds_only()
    found = run_wide(part, x, last)
    shape = _kept(x.shape, last, True)
    rest = tuple(axis for axis in axes if axis not in last)
    return _finish(program, [f.reshape(shape) for f in found], rest, [], numbers, x.dtype)


def run_wide(part: RowProgram, x: np.ndarray, axes: Axes) -> list[np.ndarray]:
    """The folds of a C-contiguous array over one group of axes, as float64."""
    found = _walk(x, axes)
    assert found is not None
    return _launch(part, found, [x], [], [], [], wide=True)


def _last_group(shape: tuple[int, ...], axes: Axes) -> Axes:
    """The last of the axes, with those before it that lie next to it."""
    group: list[int] = []
    for axis in range(len(shape) - 1, -1, -1):
        if shape[axis] == 1:
            continue
        if axis in axes:
            group.append(axis)
        elif group:
            break
    return tuple(reversed(group))


def _run_dense(
    program: RowProgram, items: Sequence[np.ndarray], axes: Axes, rows: Sequence[np.ndarray], numbers: Sequence[float]
) -> list[np.ndarray]:
    """Any program; what does not lie as it should is copied."""
    x = items[0]
    found = _walk(x, axes)
    if found is None:
        items = [contiguous(item) for item in items]
        found = _walk(items[0], axes)
    if found is None:
        return _run_turned(program, items, axes, rows, numbers)
    stored = [memory.empty(x.shape, x.dtype) for _ in program.stored]
    dense = [items[0], *(contiguous(item) for item in items[1:])]
    return stored + _launch(program, found, dense, rows, numbers, stored)


def _run_turned(
    program: RowProgram, items: Sequence[np.ndarray], axes: Axes, rows: Sequence[np.ndarray], numbers: Sequence[float]
) -> list[np.ndarray]:
    """Several groups of axes: they are brought together at the end."""
    ndim = items[0].ndim
    order = [axis for axis in range(ndim) if axis not in axes] + list(axes)
    turned = [contiguous(item.transpose(order)) for item in items]
    found = _run_dense(program, turned, tuple(range(ndim - len(axes), ndim)), rows, numbers)
    back = np.argsort(order)
    count = len(program.stored)
    return [contiguous(y.transpose(back)) for y in found[:count]] + found[count:]


def contiguous(x: np.ndarray) -> np.ndarray:
    """The array itself if it is C-contiguous and aligned, else a copy that is."""
    if _is_dense(x):
        return x
    copy = memory.empty(x.shape, x.dtype)
    copy[...] = x
    return copy


def _is_dense(x: np.ndarray) -> bool:
    return x.flags.c_contiguous and x.flags.aligned


# ----- Small arrays, whose calls are prepared once -----


class _Prepared:
    """One call of a kernel on C-contiguous arrays of one shape."""

    __slots__ = ("begin", "dtype", "entry", "made", "result_shape", "results", "shape", "stored")

    def __init__(
        self, program: RowProgram, made: RowKernel, begin: list[int], shapes: Sequence[tuple[int, ...]]
    ) -> None:
        self.made = made
        self.entry = made.entry
        self.begin = begin
        self.dtype = storage.dtype_of(made.stored_dtype)
        self.shape, self.result_shape = shapes
        self.stored = range(len(program.stored))
        self.results = range(len(program.results))

    def __call__(
        self, items: Sequence[np.ndarray], rows: Sequence[np.ndarray], numbers: Sequence[float]
    ) -> list[np.ndarray]:
        found = [np.empty(self.shape, self.dtype) for _ in self.stored]
        found += [np.empty(self.result_shape, self.dtype) for _ in self.results]
        self.entry(*self.begin, *items, *rows, *numbers, *found, *_scratch(self.made))
        return found


@functools.lru_cache(maxsize=4096)
def _prepare(
    program: RowProgram, shape: tuple[int, ...], dtype: np.dtype, axes: Axes, keepdims: bool
) -> _Prepared | None:
    """The call for small arrays, if one call of one kernel does it."""
    if not axes or 0 in shape or name_of(dtype) is None:
        return None
    strides = [dtype.itemsize] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    found = walk(shape, tuple(strides), dtype.itemsize, axes)
    if found is None:
        return None
    made, units, loop = _loop(program, found, 1, found.n, dtype, False)
    begin = [0, units, *loop] if made.loop != "whole" else []
    return _Prepared(program, made, begin, (shape, _kept(shape, axes, keepdims)))


# ----- Calling kernels -----


def _launch(
    program: RowProgram,
    w: Walk,
    items: Sequence[np.ndarray],
    rows: Sequence[np.ndarray],
    numbers: Sequence[float],
    stored: Sequence[np.ndarray],
    wide: bool = False,
) -> list[np.ndarray]:
    """Run the kernel for this walk; the results as flat arrays."""
    dtype = _WIDE if wide else items[0].dtype
    rows = [contiguous(r) for r in rows]
    if program.divisible:
        if 1 < w.inner < _NARROW and w.n >= _NARROW**2 and len(items) == 1 and not rows and _is_dense(items[0]):
            return _finish(program, _widened(program.folds_only(), w, items[0]), (1,), [], numbers, dtype)
        parts = _parts(w)
        if parts > 1:
            part = program.folds_only()
            used = [r for name, r in zip(program.rows, rows, strict=True) if name in part.rows]
            return _finish(program, _partly(part, w, parts, items, used), (1,), rows, numbers, dtype)
    elif w.inner == 1 and w.outer <= FEW and _parts(w) > 1 and not program.counts and not wide:
        return _by_stages(program.storing_once(), w, items, rows, numbers, stored)
    return _call(program, w, 1, w.n, items, rows, numbers, stored, dtype)


_WIDE = np.dtype(np.float64)
_NARROW = 64


def _parts(w: Walk) -> int:
    """How many parts of a row are folded apart."""
    size = PART if w.inner == 1 else max(1, BATCH // min(w.inner, SCRATCH))
    return -(-w.n // size) if w.n >= 2 * size else 1


def parts_of(outer: int, n: int, inner: int) -> int:
    """The same, for `outer` groups of rows of `n` items that lie `inner` items apart."""
    return _parts(Walk(outer, n, inner, 0, 0))


def _partly(
    part: RowProgram, w: Walk, parts: int, items: Sequence[np.ndarray], rows: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The folds of the parts of each row, with the parts as the second axis."""
    chunk = -(-w.n // parts)
    parts = -(-w.n // chunk)
    found = _call(part, w, parts, chunk, items, rows, [], [], _WIDE)
    return [f.reshape(w.outer, parts, w.inner) for f in found]


def _by_stages(
    program: RowProgram,
    w: Walk,
    items: Sequence[np.ndarray],
    rows: Sequence[np.ndarray],
    numbers: Sequence[float],
    stored: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """A program of several stages over few long rows: the parts of a stage may run at once."""
    chunk = -(-w.n // _parts(w))
    parts = -(-w.n // chunk)
    values: dict[str, Any] = dict(zip(program.numbers, numbers, strict=True))
    values |= {name: r.reshape(-1).astype(np.float64) for name, r in zip(program.rows, rows, strict=True)}
    arrays = dict(zip((*program.items, *program.stored), (*items, *stored), strict=True))
    for made, whole in zip(_stage_programs(program), program.stages, strict=True):
        per_row = [values[n].astype(items[0].dtype) for n in made.rows]
        used = [values[n] for n in made.numbers]
        outs = [arrays[n] for n in made.stored]
        given = [arrays[n] for n in made.items]
        found = _call(made, w, parts, chunk, given, per_row, used, outs, _WIDE)
        with np.errstate(all="ignore"):
            for f, part in zip(whole.folds, found, strict=True):
                values[f.name] = folds.KINDS[f.kind].ufunc.reduce(part.reshape(w.outer, parts), axis=1)
            for name, expr in whole.after:
                (values[name],) = reference.evaluate([expr], values, _WIDE, kernel_for.definitions)
    return [np.asarray(values[name], items[0].dtype) for name in program.results]


@functools.cache
def _stage_programs(program: RowProgram) -> list[RowProgram]:
    """A program for each stage: what earlier stages computed of a row comes to it as an array."""
    made = []
    for k, stage in enumerate(program.stages):
        used = set(symbols(*stage.loop_exprs))
        arrays = tuple(n for n in program.items if n in used) or program.items[:1]
        numbers = tuple(n for n in program.numbers if n in used)
        known = tuple(sorted(used - {*program.items, *program.numbers}))
        loop = Stage(stage.folds, stage.stores)
        names = tuple(f.name for f in stage.folds)
        made.append(RowProgram(f"{program.name}_stage{k}", arrays, (loop,), names, known, numbers))
    return made


def _widened(part: RowProgram, w: Walk, x: np.ndarray) -> list[np.ndarray]:
    """The same, for rows that lie in few columns: several lines in one make a line of useful width."""
    together = 4 * _NARROW // w.inner
    lines = w.n // together
    wide = Walk(w.outer, lines, w.inner * together, w.step, w.line * together)
    found = _partly(part, wide, _parts(wide), [x], [])
    rest = x.reshape(w.outer, w.n, w.inner)[:, lines * together :]
    results = [f.reshape(w.outer, -1, w.inner) for f in found]
    if rest.shape[1] == 0:
        return results
    over = _partly(part, Walk(w.outer, rest.shape[1], w.inner, w.step, w.line), 1, [rest], [])
    return [np.concatenate(pair, axis=1) for pair in zip(results, over, strict=True)]


def _call(
    program: RowProgram,
    w: Walk,
    parts: int,
    chunk: int,
    items: Sequence[np.ndarray],
    rows: Sequence[np.ndarray],
    numbers: Sequence[float],
    stored: Sequence[np.ndarray],
    dtype: np.dtype,
) -> list[np.ndarray]:
    results = [memory.empty(w.outer * parts * w.inner, dtype) for _ in program.results]
    arrays = [*items, *rows, *numbers, *stored, *results]
    made, units, loop = _loop(program, w, parts, chunk, items[0].dtype, dtype != items[0].dtype)
    if made.loop == "whole":
        made.entry(*arrays)
    else:
        spread(made, units, w.outer * w.n * w.inner // units, loop, arrays)
    return results


def _loop(
    program: RowProgram, w: Walk, parts: int, chunk: int, dtype: np.dtype, wide: bool
) -> tuple[RowKernel, int, list[int]]:
    """The kernel for a walk, the number of its units, and what it is told of the loop after these."""
    name = name_of(dtype)
    assert name is not None
    # All items but the first are C-contiguous.
    step, line = w.n * w.inner * dtype.itemsize, w.inner * dtype.itemsize
    others = len(program.items) - 1
    if w.inner > 1:
        blocks, block = blocks_of(w.inner, program)
        loop = [parts, w.n, chunk, w.inner, block, w.step, w.line, *[step, line] * others]
        return kernel(program, "columns", name, wide), w.outer * parts * blocks, loop
    if w.outer == parts == 1 and program.divisible and not program.rows:
        return kernel(program, "whole", name, wide), 1, []
    return kernel(program, "rows", name, wide), w.outer * parts, [parts, w.n, chunk, w.step, *[step] * others]


def blocks_of(inner: int, program: RowProgram) -> tuple[int, int]:
    """In how many blocks columns are walked, and how wide one is, so that their numbers fit into scratch memory."""
    block = -(-inner // -(-inner * max(1, len(program.slots)) // SCRATCH))
    return -(-inner // block), block


def spread(rows_kernel: RowKernel, units: int, size: int, loop: Sequence[int], arrays: Sequence[Any]) -> None:
    """Run all units, each of `size` items; in batches if there are threads for them."""
    entry = rows_kernel.entry

    def call(first: int, last: int) -> None:
        entry(first, last, *loop, *arrays, *_scratch(rows_kernel))

    per_batch = max(1, BATCH // size)
    if units <= per_batch or team.get_num_threads() == 1:
        call(0, units)
    else:
        team.run_chunks(lambda k: call(k * per_batch, min(units, (k + 1) * per_batch)), -(-units // per_batch))


def _scratch(made: RowKernel) -> list[np.ndarray]:
    if made.loop != "columns":
        return []
    size = SCRATCH + len(made.program.slots)
    return [np.empty(size, np.float64), np.empty(size, made.dtype)]


def _finish(
    program: RowProgram,
    found: Sequence[np.ndarray],
    axes: Axes,
    rows: Sequence[np.ndarray],
    numbers: Sequence[float],
    dtype: np.dtype,
) -> list[np.ndarray]:
    """Fold what parts have found over `axes`, and compute the results from it."""
    (stage,) = program.stages
    values: dict[str, Any] = dict(zip(program.numbers, numbers, strict=True))
    with np.errstate(all="ignore"):
        for f, part in zip(stage.folds, found, strict=True):
            values[f.name] = folds.KINDS[f.kind].ufunc.reduce(part, axis=axes)
        shape = np.shape(values[stage.folds[0].name])
        values |= {n: r.reshape(shape).astype(np.float64) for n, r in zip(program.rows, rows, strict=True)}
        for name, expr in stage.after:
            (values[name],) = reference.evaluate([expr], values, np.dtype(np.float64), kernel_for.definitions)
        return [np.asarray(values[name], dtype) for name in program.results]


__all__ = [
    "Walk",
    "blocks_of",
    "contiguous",
    "evaluate",
    "name_of",
    "parts_of",
    "run",
    "runs_natively",
    "spread",
    "walk",
]
