"""Maps: running scalar expressions over arrays, whatever their layout.

`run` picks the loop shape, allocates the results and spreads large work over the thread team. What it does to shapes is
plain Python: axes of length one go, neighbours that are contiguous for everybody merge, and what is left decides
between one flat loop and nested rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbagrad.jit import backend, memory, team
from numbagrad.jit.expr import CHEAP, ScalarExpr, topological
from numbagrad.jit.kernel import Input, KernelSpec, kernel_for
from numbagrad.jit.reference import evaluate

PIECE_NS = 50_000
"""Work of one piece when a map is spread over threads: handing it to another thread costs about a third of that."""

CALL_NS = 0.8
LOAD_NS = 0.15
"""Rough time per element of a vectorised function call, and of each array read or written."""


@dataclass(frozen=True, slots=True)
class Program:
    """Scalar expressions over named inputs: what a map computes for each element."""

    name: str
    inputs: tuple[str, ...]
    exprs: tuple[ScalarExpr, ...]
    conditions: frozenset[str] = frozenset()
    """Inputs that are boolean."""

    @property
    def chunk(self) -> int:
        """Elements per piece of threaded work. The results do not depend on it."""
        calls = sum(e.op not in CHEAP for e in topological(*self.exprs) if e.args)
        ns = LOAD_NS * (len(self.inputs) + len(self.exprs)) + CALL_NS * calls
        return max(16384, int(PIECE_NS / ns) // 16384 * 16384)

    def spec(self, loop: str, modes: Sequence[str], dtype: str) -> KernelSpec:
        """The kernel that runs this program over `loop`, with each input in its mode."""
        inputs = tuple(
            Input(name, "bool" if name in self.conditions else dtype, mode)
            for name, mode in zip(self.inputs, modes, strict=True)
        )
        return KernelSpec(self.name, loop, inputs, self.exprs, (dtype,) * len(self.exprs), dtype)


def entry(program: Program, dtype: np.dtype, numbers: Sequence[bool]) -> Callable[..., Any]:
    """A callable over C-contiguous arrays of one size (numbers where `numbers` says so), then the outputs."""
    if backend.current() == "reference":
        return _reference_entry(program, dtype)
    modes = ["number" if n else "dense" for n in numbers]
    return kernel_for(program.spec("flat", modes, dtype.name)).entry


def run(
    program: Program,
    operands: Sequence[Any],
    shape: tuple[int, ...],
    dtype: np.dtype,
    out: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Evaluate `program` over `operands`, broadcast to `shape`.

    Parameters
    ----------
    program : Program
    operands : sequence of ndarray or float
        Arrays of `dtype` (bool for conditions) that broadcast to `shape`, or Python numbers.
    shape : tuple of int
    dtype : dtype
        float32 or float64: of the computation and of the results.
    out : sequence of ndarray, optional
        C-contiguous arrays of `shape` and `dtype` for the results.
    """
    if backend.current() == "reference":
        outs = list(out) if out is not None else [np.empty(shape, dtype) for _ in program.exprs]
        _reference_entry(program, dtype)(*operands, *outs)
        return outs
    arrays = [a for a in operands if isinstance(a, np.ndarray)]
    if out is None and shape and _all_fortran(arrays, shape):
        turned = [a.T if isinstance(a, np.ndarray) else a for a in operands]
        return [o.T for o in _run_dense(program, turned, shape[::-1], dtype, None)]
    return _run_dense(program, operands, shape, dtype, out)


def _all_fortran(arrays: Sequence[np.ndarray], shape: tuple[int, ...]) -> bool:
    """Whether every array is laid out in Fortran order only, so that the transposes run flat."""
    return all(a.shape == shape and a.flags.f_contiguous and not a.flags.c_contiguous for a in arrays) and bool(arrays)


def _run_dense(
    program: Program,
    operands: Sequence[Any],
    shape: tuple[int, ...],
    dtype: np.dtype,
    out: Sequence[np.ndarray] | None,
) -> list[np.ndarray]:
    outs = list(out) if out is not None else [memory.empty(shape, dtype) for _ in program.exprs]
    if outs[0].size == 0:
        return outs
    lengths, strides = collapse([a for a in operands if isinstance(a, np.ndarray)], shape)
    if _is_flat(operands, lengths, strides):
        _run_flat(program, operands, outs, dtype)
    else:
        _run_nested(program, operands, outs, dtype, lengths, strides)
    return outs


def collapse(arrays: Sequence[np.ndarray], shape: tuple[int, ...]) -> tuple[list[int], list[list[int]]]:
    """The fewest axes that describe how `arrays` walk over `shape`: their lengths and each array's byte strides."""
    views = [_broadcast_strides(a, shape) for a in arrays]
    lengths: list[int] = []
    strides: list[list[int]] = [[] for _ in arrays]
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        if lengths and all(s[-1] == v[axis] * length for s, v in zip(strides, views, strict=True)):
            lengths[-1] *= length
            for s, v in zip(strides, views, strict=True):
                s[-1] = v[axis]
        else:
            lengths.append(length)
            for s, v in zip(strides, views, strict=True):
                s.append(v[axis])
    return lengths, strides


def _broadcast_strides(array: np.ndarray, shape: tuple[int, ...]) -> list[int]:
    missing = len(shape) - array.ndim
    if missing < 0 or any(n not in (1, m) for n, m in zip(array.shape, shape[missing:], strict=True)):
        raise ValueError(f"shape {array.shape} does not broadcast to {shape}")
    steps = [0 if n == 1 else step for n, step in zip(array.shape, array.strides, strict=True)]
    return [0] * missing + steps


def _is_flat(operands: Sequence[Any], lengths: list[int], strides: list[list[int]]) -> bool:
    if any(isinstance(a, np.ndarray) and not a.flags.aligned for a in operands):
        return False
    if not lengths:
        return all(not isinstance(a, np.ndarray) or a.flags.c_contiguous for a in operands)
    items = [a.itemsize for a in operands if isinstance(a, np.ndarray)]
    return len(lengths) == 1 and all(s[0] == item for s, item in zip(strides, items, strict=True))


def _run_flat(program: Program, operands: Sequence[Any], outs: list[np.ndarray], dtype: np.dtype) -> None:
    modes = ["dense" if isinstance(a, np.ndarray) else "number" for a in operands]
    kernel = kernel_for(program.spec("flat", modes, dtype.name)).entry
    size = outs[0].size
    if team.get_num_threads() == 1 or size <= 2 * program.chunk:
        kernel(*operands, *outs)
        return
    flats = [a.reshape(-1) if isinstance(a, np.ndarray) else a for a in (*operands, *outs)]
    team.run_flat(kernel, flats, size, program.chunk)


def _run_nested(
    program: Program,
    operands: Sequence[Any],
    outs: list[np.ndarray],
    dtype: np.dtype,
    lengths: list[int],
    strides: list[list[int]],
) -> None:
    lengths = lengths or [1]
    strides = [s or [0] for s in strides]
    items = iter([(s, a) for s, a in zip(strides, [a for a in operands if isinstance(a, np.ndarray)], strict=True)])
    modes = [_mode(*next(items)) if isinstance(a, np.ndarray) else "number" for a in operands]
    kernel = kernel_for(program.spec("nested", modes, dtype.name)).entry
    rows = 1
    for n in lengths[:-1]:
        rows *= n
    loop = [0, rows, lengths[-1], len(lengths) - 1, *lengths[:-1]]
    for s in strides:
        loop += s
    per_chunk = max(1, program.chunk // lengths[-1])

    def part(k: int) -> None:
        here = np.array(loop)
        here[0], here[1] = k * per_chunk, min(rows, (k + 1) * per_chunk)
        kernel(here, *operands, *outs)

    if team.get_num_threads() == 1 or rows <= 2 * per_chunk:
        kernel(np.array(loop), *operands, *outs)
    else:
        team.run_chunks(part, -(-rows // per_chunk))


def _mode(strides: list[int], array: np.ndarray) -> str:
    if strides[-1] == 0:
        return "single"
    return "dense" if strides[-1] == array.itemsize else "strided"


def _reference_entry(program: Program, dtype: np.dtype) -> Callable[..., None]:
    def entry(*arrays: Any) -> None:
        count = len(program.inputs)
        values = {
            name: dtype.type(a) if not isinstance(a, np.ndarray) else a
            for name, a in zip(program.inputs, arrays[:count], strict=True)
        }
        results = evaluate(program.exprs, values, dtype, kernel_for.definitions)
        for o, r in zip(arrays[count:], results, strict=True):
            o[...] = r

    return entry
