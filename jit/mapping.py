"""Maps: running scalar expressions over arrays, whatever their layout.

A `Map` decides once per kind of call (shapes and strides of the operands) what to do, and keeps the decision as a
`Recipe`: one flat loop or nested rows, over which kernel, on how many threads. What it does to shapes is plain Python:
axes of length one go, neighbours that are contiguous for everybody merge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbagrad.jit import backend, memory, storage, team
from numbagrad.jit.expr import CHEAP, ScalarExpr, topological
from numbagrad.jit.kernel import Input, KernelSpec, kernel_for
from numbagrad.jit.reference import evaluate

PIECE_NS = 50_000
"""Work of one piece when a map is spread over threads: handing it to another thread costs about a third of that."""

CALL_NS = 0.8
LOAD_NS = 0.15
"""Rough time per element of a vectorised function call, and of each array read or written."""

RECIPES_AT_MOST = 256
"""Per map; then all are forgotten, for a program whose shapes never repeat."""


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
        outputs = (dtype,) * len(self.exprs)
        return KernelSpec(self.name, loop, inputs, self.exprs, outputs, storage.compute_name(dtype))


Recipe = Callable[[Sequence[Any], Sequence[np.ndarray]], None]
"""Runs the kernel over the operands and the results."""


class Map:
    """A program that runs over arrays that broadcast."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._recipes: dict[Any, tuple[Recipe, bool]] = {}

    def entry(self, dtype: np.dtype, numbers: Sequence[bool]) -> Callable[..., Any]:
        """A callable over C-contiguous arrays of one size (numbers where `numbers` says so), then the outputs."""
        if backend.current() == "reference":
            return _reference_entry(self.program, dtype)
        modes = ["number" if n else "dense" for n in numbers]
        return kernel_for(self.program.spec("flat", modes, dtype.name)).entry

    def nested(
        self, arrays: Sequence[np.ndarray], shape: tuple[int, ...], dtype: np.dtype
    ) -> tuple[np.ndarray, Callable[..., Any]] | None:
        """The loop and the entry point ``entry(loop, *arrays, *outs)`` for these arrays; None where a flat loop will
        do, and on the reference backend."""
        lengths, strides = collapse(arrays, shape)
        if backend.current() == "reference" or _is_flat(arrays, lengths, strides):
            return None
        return _nested_kernel(self.program, arrays, dtype, lengths or [1], [s or [0] for s in strides])

    def recipe(self, operands: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype) -> tuple[Recipe, bool]:
        """How to run over operands of these shapes and strides, and whether over their transposes."""
        kinds = [(a.shape, a.strides) if isinstance(a, np.ndarray) else None for a in operands]
        key = (dtype.num, backend.current(), team.get_num_threads(), shape, *kinds)
        found = self._recipes.get(key)
        if found is None:
            if len(self._recipes) >= RECIPES_AT_MOST:
                self._recipes.clear()
            found = self._recipes[key] = _recipe(self.program, operands, shape, dtype)
        return found

    def __call__(
        self,
        operands: Sequence[Any],
        shape: tuple[int, ...],
        dtype: np.dtype,
        out: Sequence[np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Evaluate the program over `operands`, broadcast to `shape`.

        Parameters
        ----------
        operands : sequence of ndarray or float
            Arrays of `dtype` (bool for conditions) that broadcast to `shape`, or Python numbers.
        shape : tuple of int
        dtype : dtype
            A float: of the results, and of the computation unless it has 16 bits.
        out : sequence of ndarray, optional
            C-contiguous arrays of `shape` and `dtype` for the results.
        """
        recipe, turned = self.recipe(operands, shape, dtype)
        if turned and out is None:
            outs = [memory.empty(shape[::-1], dtype) for _ in self.program.exprs]
            recipe([a.T if isinstance(a, np.ndarray) else a for a in operands], outs)
            return [o.T for o in outs]
        outs = list(out) if out is not None else [memory.empty(shape, dtype) for _ in self.program.exprs]
        if not turned:
            recipe(operands, outs)
        elif outs[0].size:
            _recipe_for_order(self.program, operands, shape, dtype)(operands, outs)
        return outs


def _recipe(program: Program, operands: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype) -> tuple[Recipe, bool]:
    """How to run, and whether to run over the transposes."""
    if backend.current() == "reference":
        entry = _reference_entry(program, dtype)
        return lambda values, outs: entry(*values, *outs), False
    singles = [i for i, a in enumerate(operands) if _is_single(a)]
    if singles and 0 not in shape:
        recipe, over_transposes = _recipe(program, _as_numbers(operands, singles), shape, dtype)
        return lambda values, outs: recipe(_as_numbers(values, singles), outs), over_transposes
    arrays = [a for a in operands if isinstance(a, np.ndarray)]
    if shape and _all_fortran(arrays, shape):
        turned = [a.T if isinstance(a, np.ndarray) else a for a in operands]
        return _recipe_for_order(program, turned, shape[::-1], dtype), True
    return _recipe_for_order(program, operands, shape, dtype), False


def _is_single(operand: Any) -> bool:
    """Whether all items are one number in one place, as in the gradient of a sum."""
    return isinstance(operand, np.ndarray) and operand.dtype.kind == "f" and not any(operand.strides)


def _as_numbers(operands: Sequence[Any], singles: Sequence[int]) -> list[Any]:
    """The operands with arrays of one number as that number, so that the rest may run flat."""
    return [float(a.flat[0]) if i in singles else a for i, a in enumerate(operands)]


def _all_fortran(arrays: Sequence[np.ndarray], shape: tuple[int, ...]) -> bool:
    """Whether every array is laid out in Fortran order only, so that the transposes run flat."""
    return all(a.shape == shape and a.flags.f_contiguous and not a.flags.c_contiguous for a in arrays) and bool(arrays)


def _recipe_for_order(program: Program, operands: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype) -> Recipe:
    arrays = [a for a in operands if isinstance(a, np.ndarray)]
    if 0 in shape:
        return lambda values, outs: None
    lengths, strides = collapse(arrays, shape)
    if _is_flat(arrays, lengths, strides):
        return _flat_recipe(program, operands, shape, dtype)
    return _nested_recipe(program, operands, dtype, lengths or [1], [s or [0] for s in strides])


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


def _is_flat(arrays: Sequence[np.ndarray], lengths: list[int], strides: list[list[int]]) -> bool:
    if not lengths:
        return all(a.flags.c_contiguous for a in arrays)
    return len(lengths) == 1 and all(s[0] == a.itemsize for s, a in zip(strides, arrays, strict=True))


def _flat_recipe(program: Program, operands: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype) -> Recipe:
    modes = ["dense" if isinstance(a, np.ndarray) else "number" for a in operands]
    kernel = kernel_for(program.spec("flat", modes, dtype.name)).entry
    size, chunk = int(np.prod(shape)), program.chunk
    if team.get_num_threads() == 1 or size <= 2 * chunk:
        return lambda values, outs: kernel(*values, *outs)

    def threaded(values: Sequence[Any], outs: Sequence[np.ndarray]) -> None:
        flats = [a.reshape(-1) if isinstance(a, np.ndarray) else a for a in (*values, *outs)]
        team.run_flat(kernel, flats, size, chunk)

    return threaded


def _nested_kernel(
    program: Program, operands: Sequence[Any], dtype: np.dtype, lengths: list[int], strides: list[list[int]]
) -> tuple[np.ndarray, Callable[..., Any]]:
    kernel = kernel_for(program.spec("nested", _modes(operands, strides), dtype.name)).entry
    rows = int(np.prod(lengths[:-1]))
    head = [0, rows, lengths[-1], len(lengths) - 1, *lengths[:-1]]
    return np.array([*head, *(n for s in strides for n in s)]), kernel


def _nested_recipe(
    program: Program, operands: Sequence[Any], dtype: np.dtype, lengths: list[int], strides: list[list[int]]
) -> Recipe:
    loop, kernel = _nested_kernel(program, operands, dtype, lengths, strides)
    rows = int(loop[1])
    per_chunk = max(1, program.chunk // lengths[-1])
    if team.get_num_threads() == 1 or rows <= 2 * per_chunk:
        return lambda values, outs: kernel(loop, *values, *outs)

    def threaded(values: Sequence[Any], outs: Sequence[np.ndarray]) -> None:
        def part(k: int) -> None:
            here = loop.copy()
            here[0], here[1] = k * per_chunk, min(rows, (k + 1) * per_chunk)
            kernel(here, *values, *outs)

        team.run_chunks(part, -(-rows // per_chunk))

    return threaded


def _modes(operands: Sequence[Any], strides: Sequence[list[int]]) -> list[str]:
    """How the inner loop walks over each operand."""
    walks = iter(strides)
    modes = []
    for a in operands:
        if not isinstance(a, np.ndarray):
            modes.append("number")
            continue
        step = next(walks)[-1]
        modes.append("single" if step == 0 else "dense" if step == a.itemsize else "strided")
    return modes


def _reference_entry(program: Program, dtype: np.dtype) -> Callable[..., None]:
    compute = storage.compute_dtype(dtype)

    def value(a: Any) -> Any:
        if isinstance(a, np.ndarray):
            return a.astype(compute, copy=False) if a.dtype == dtype else a
        with np.errstate(over="ignore"):
            return compute.type(dtype.type(a))

    def entry(*arrays: Any) -> None:
        count = len(program.inputs)
        values = {name: value(a) for name, a in zip(program.inputs, arrays[:count], strict=True)}
        results = evaluate(program.exprs, values, compute, kernel_for.definitions)
        with np.errstate(over="ignore"):
            for o, r in zip(arrays[count:], results, strict=True):
                o[...] = r

    return entry
