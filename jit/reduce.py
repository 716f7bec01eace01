"""Reductions as loops over rows: what is computed of each row is said once, in scalar expressions.

A `RowProgram` says it in stages, each of them one loop over the row. A stage folds expressions of the items to numbers
(their sum, product, largest or smallest), stores expressions as new items, and then computes further numbers once per
row. Later stages use all of these by name. Softmax:

    Stage(folds=[Fold("top", "max", x)])
    Stage(folds=[Fold("total", "sum", y)], stores=[("y", s.exp(x - top))], after=[("scale", 1 / total)])
    Stage(stores=[("y", y * scale)])

From that come three kernels: ``whole`` (the array is one row), ``rows`` (rows lie one behind the other) and ``columns``
(a row runs across the memory, so the inner loop runs over neighbouring rows and their numbers lie in scratch memory).
Numbers of a row are always float64. Sums are made in blocks short enough for the items' own precision, so that float32
is read at full speed and adds up in float64.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbagrad.jit import abi, compile, folds, render, storage
from numbagrad.jit.expr import ScalarExpr, substitute, symbol, symbols
from numbagrad.jit.kernel import FLOATS, itemsize_of, kernel_for

IN_ORDER = 256
"""Items after which a product that is made in order is looked at."""

BLOCK = 1024
"""Items that are summed in their own precision before float64 takes over."""

POSITION = "position"
"""Symbol for how many items of the row lie before this one, exact to 2**24 in float32."""

TOGETHER = 8
"""Lines that a column kernel sums at once."""

LINES = 32
"""Lines that columns are summed over in the items' precision before float64 takes over."""

SCRATCH = 4096
"""Numbers that a column kernel keeps at once, so that they stay near the processor."""

# Between these a product of float64 has lost nothing to overflow or underflow on the way, whatever the order was.
_SAFE_PRODUCT = "1e-290 < abs({0}) < 1e290"


@dataclass(frozen=True, slots=True)
class Fold:
    """One number for each row: `expr` of every item, folded in the way `kind`."""

    name: str
    kind: str
    expr: ScalarExpr

    def __post_init__(self) -> None:
        if self.kind not in folds.KINDS:
            raise ValueError(f"fold {self.name} has kind {self.kind!r}, wanted one of {', '.join(folds.KINDS)}")


@dataclass(frozen=True)
class Stage:
    """One loop over the row, and what is computed of its folds after it."""

    folds: tuple[Fold, ...] = ()
    stores: tuple[tuple[str, ScalarExpr], ...] = ()
    after: tuple[tuple[str, ScalarExpr], ...] = ()

    @functools.cached_property
    def numbers(self) -> list[str]:
        """Names of the row's numbers that are known when the stage is done."""
        return [f.name for f in self.folds] + [name for name, _ in self.after]

    @functools.cached_property
    def loop_exprs(self) -> list[ScalarExpr]:
        """What is computed for every item."""
        return [e for _, e in self.stores] + [f.expr for f in self.folds]


@dataclass(frozen=True)
class RowProgram:
    """What is computed of each row.

    Attributes
    ----------
    name
        For the kernels' names.
    items
        Names of the arrays of full size.
    rows
        Names of the arrays that have one value for each row.
    numbers
        Names of the arguments that are one number for all rows.
    stages
        The loops, in order.
    results
        Numbers of the row that are put out. Stored items are put out too, before these.
    """

    name: str
    items: tuple[str, ...]
    stages: tuple[Stage, ...]
    results: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Kept: programs are keys of every call's look-ups."""
        return hash((self.name, self.items, self.stages, self.results, self.rows, self.numbers))

    def __post_init__(self) -> None:
        known = {POSITION, *self.items, *self.rows, *self.numbers}
        for stage in self.stages:
            stored = {name for name, _ in stage.stores}
            self._check(stage.loop_exprs, known)
            known |= {f.name for f in stage.folds} | stored
            for name, expr in stage.after:
                self._check([expr], known - {POSITION, *stored, *self.items})
                known.add(name)
        if unknown := set(self.results) - known:
            raise ValueError(f"{self.name} puts out {', '.join(unknown)}, which no stage computes")

    def _check(self, exprs: Sequence[ScalarExpr], known: set[str]) -> None:
        if unknown := set(symbols(*exprs)) - known:
            raise ValueError(f"{self.name} uses {', '.join(unknown)} before it is known")

    @functools.cached_property
    def stored(self) -> tuple[str, ...]:
        """Names of the stored items, which are outputs of full size."""
        return tuple(dict.fromkeys(name for stage in self.stages for name, _ in stage.stores))

    @functools.cached_property
    def slots(self) -> list[str]:
        """Numbers of the row that are computed, in order."""
        return [name for stage in self.stages for name in stage.numbers]

    @functools.cached_property
    def counts(self) -> bool:
        """Whether it uses the position of items in their row."""
        return POSITION in symbols(*(e for stage in self.stages for e in stage.loop_exprs))

    @functools.cached_property
    def divisible(self) -> bool:
        """Whether parts of a row can be folded apart."""
        return len(self.stages) == 1 and not self.stored and not self.counts

    def storing_once(self) -> RowProgram:
        """The same with what is stored twice computed again instead, because 16 bits would round it in between."""
        last = {name: k for k, stage in enumerate(self.stages) for name, _ in stage.stores}
        known: dict[ScalarExpr, ScalarExpr] = {}
        stages = []
        for k, stage in enumerate(self.stages):
            stores, made = _substituted(stage.stores, known), _substituted([(f, f.expr) for f in stage.folds], known)
            stages.append(
                Stage(
                    tuple(Fold(f.name, f.kind, e) for f, e in made),
                    tuple(pair for pair in stores if last[pair[0]] == k),
                    stage.after,
                )
            )
            known |= {symbol(name): e for name, e in stores if last[name] > k}
        once = RowProgram(self.name, self.items, tuple(stages), self.results, self.rows, self.numbers)
        assert once.stored == self.stored, "outputs would change places"
        return once

    def folds_only(self) -> RowProgram:
        """The program for parts of rows: it puts out the folds themselves."""
        (stage,) = self.stages
        return _folds_only(self.name, self.items, self.rows, stage.folds)


def _substituted(pairs: Sequence[tuple[Any, ScalarExpr]], known: dict[ScalarExpr, ScalarExpr]) -> list[Any]:
    if not pairs:
        return []
    return list(zip((name for name, _ in pairs), substitute([e for _, e in pairs], known), strict=True))


@functools.cache
def _folds_only(name: str, items: tuple[str, ...], rows: tuple[str, ...], made: tuple[Fold, ...]) -> RowProgram:
    used = tuple(r for r in rows if r in symbols(*[f.expr for f in made]))
    return RowProgram(f"{name}_part", items, (Stage(made),), tuple(f.name for f in made), used)


# ----- Kernels -----


class RowKernel:
    """A program over one loop shape and dtype: its source, and the entry point, compiled at the first use.

    The arguments in order: for ``rows`` and ``columns`` what `loop_arguments` names, then items, rows, numbers, stored
    outputs and results; ``columns`` ends with scratch memory, of float64 and of
    the items' dtype.

    `kinds` has a word for each item where arrays lie in memory as they please (`pull`): "dense" or "single", of which
    all items along the inner loop are one, and "mask" before it for booleans.
    """

    def __init__(
        self, program: RowProgram, loop: str, dtype: str, wide: bool = False, kinds: tuple[str, ...] = ()
    ) -> None:
        if loop not in _WRITERS or dtype not in FLOATS:
            raise ValueError(f"no {loop} kernel for {dtype}, only {', '.join(_WRITERS)} for {', '.join(FLOATS)}")
        self.program = program = program.storing_once() if dtype in storage.TYPES else program
        self.name = f"{program.name}_{loop}"
        self.loop = loop
        self.stored_dtype = dtype
        self.dtype = storage.compute_name(dtype)
        self.result_dtype = "float64" if wide else dtype
        self.kinds = dict(zip(program.items, kinds, strict=True)) if kinds else {}
        writer = (_FREE_WRITERS if kinds else _WRITERS)[loop](self)
        self.source = writer.source()
        self._ints = writer.loop_arguments()
        self._compiled: compile.Compiled | None = None

    @property
    def entry(self) -> Callable[..., Any]:
        """The compiled entry point."""
        if self._compiled is None:
            self._compiled = compile.compile_source(
                self.source, self.name, self._signature(), namespace=_NAMESPACE, noalias=True
            )
        return self._compiled.entry

    def _signature(self) -> Any:
        from numba.core import types

        program = self.program
        flat, small = abi.Flat, getattr(types, self.dtype)
        item, result = storage.kernel_type(self.stored_dtype), storage.kernel_type(self.result_dtype)
        reads = abi.Flat if self.loop == "whole" else abi.Strided
        args: list[Any] = [types.int64] * len(self._ints)
        masks = [self.kinds.get(n, "").startswith("mask") for n in program.items]
        args += [reads(types.boolean if mask else item) for mask in masks] + [flat(item)] * len(program.rows)
        args += [types.float64] * len(program.numbers)
        args += [flat(item)] * len(program.stored) + [flat(result)] * len(program.results)
        scratch = [flat(types.float64), flat(small)] if self.loop == "columns" else []
        return types.void(*args, *scratch)


@functools.cache
def kernel(program: RowProgram, loop: str, dtype: str, wide: bool = False, kinds: tuple[str, ...] = ()) -> RowKernel:
    """The one kernel of its kind; `wide` makes the results float64."""
    return RowKernel(program, loop, dtype, wide, kinds)


_NAMESPACE = {
    **render.NAMESPACE,
    **folds.NAMESPACE,
    "float32": np.float32,
    "float64": np.float64,
    "int32": np.int32,
    "int64": np.int64,
    "uintp": np.uintp,
    "release_gil": abi.release_gil,
    "acquire_gil": abi.acquire_gil,
}


# ----- Source -----


class _Writer:
    """Writes a kernel. Variables: ``x_`` is an array, ``x_row`` a place in it, ``v_x`` an item, ``w_x`` a number of the
    row, ``r_x`` that number in the items' dtype, ``a_x`` a fold under way."""

    def __init__(self, kernel: RowKernel) -> None:
        self.kernel = kernel
        self.program = kernel.program
        self.dtype = kernel.dtype
        self.itemsize = itemsize_of(kernel.stored_dtype)
        self.result = storage.compute_name(kernel.result_dtype)
        self.lines: list[str] = []
        self.depth = 1

    def source(self) -> str:
        program = self.program
        params = [*self.loop_arguments(), *(f"{name}_" for name in (*program.items, *program.rows))]
        params += [f"w_{n}" for n in program.numbers] + [f"{n}_" for n in program.stored]
        params += [f"{n}_out" for n in program.results] + self.scratch()
        self.body()
        return "\n".join([f"def {self.kernel.name}({', '.join(params)}):", *self.lines, ""])

    def loop_arguments(self) -> list[str]:
        raise NotImplementedError

    def scratch(self) -> list[str]:
        return []

    def body(self) -> None:
        raise NotImplementedError

    def put(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def within(self, header: str) -> _Indent:
        self.put(header)
        return _Indent(self)

    def names(self, exprs: Sequence[ScalarExpr], letter: str) -> tuple[dict[ScalarExpr, str], list[str], list[str]]:
        """Variables for the symbols in `exprs`, and which of these are items and which are numbers of the row."""
        full = {*self.program.items, *self.program.stored}
        used = list(dict.fromkeys(symbols(*exprs)))
        variables = {ScalarExpr("symbol", value=n): f"v_{n}" if n in full else f"{letter}_{n}" for n in used}
        return variables, [n for n in used if n in full], [n for n in used if n not in full]

    def rendered(self, exprs: Sequence[ScalarExpr], names: dict[ScalarExpr, str], dtype: str) -> list[str]:
        """Put the lines that compute `exprs`; the names of the results."""
        lines, results = render.render(exprs, names, dtype, kernel_for.definitions)
        self.put(*lines)
        return results

    def item_lines(self, stage: Stage, index: str, position: str) -> list[str]:
        """Load the items, compute and store; the names of what is folded."""
        names, items, numbers = self.names(stage.loop_exprs, "r")
        kinds = self.kernel.kinds
        self.put(*(f"v_{n} = {n}_row[{index}]" for n in items if not kinds.get(n, "").endswith("single")))
        if POSITION in numbers:
            self.put(f"r_{POSITION} = {self.dtype}({position})")
        results = self.rendered(stage.loop_exprs, names, self.dtype)
        stores = len(stage.stores)
        self.put(*(f"{name}_row[{index}] = {r}" for (name, _), r in zip(stage.stores, results, strict=False)))
        return results[stores:]


class _Indent:
    """Lines that are put inside stand one step further in."""

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer

    def __enter__(self) -> None:
        self.writer.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.writer.depth -= 1


class _WholeWriter(_Writer):
    """The array is one row."""

    def loop_arguments(self) -> list[str]:
        return []

    def body(self) -> None:
        first = (*self.program.items, *self.program.stored)[0]
        self.put(f"length = {first}_.size", "gil = release_gil(length)")
        self.put(*(f"{n}_row = {n}_.at(0)" for n in (*self.program.items, *self.program.stored)))
        self.one_row("0", "0")
        self.put("acquire_gil(gil)")

    def one_row(self, row: str, unit: str) -> None:
        """Everything about one row; `row` counts rows, `unit` the places for results."""
        self.put(*(f"w_{n} = float64({n}_[uintp({row})])" for n in self.program.rows))
        for stage in self.program.stages:
            self.stage(stage)
        self.put(*(f"{n}_out[uintp({unit})] = {self.result}(w_{n})" for n in self.program.results))

    def stage(self, stage: Stage) -> None:
        _, _, numbers = self.names(stage.loop_exprs, "r")
        self.put(*(f"r_{n} = {self.dtype}(w_{n})" for n in numbers if n != POSITION))
        self.put(*(line for f in stage.folds for line in _ROW_FOLDS[f.kind].begin(f.name, self.dtype)))
        if any(f.kind == "sum" for f in stage.folds):
            self.blocks(stage)
        else:
            self.loop(stage, "range(length)")
        for f in stage.folds:
            self.put(*_ROW_FOLDS[f.kind].end(f.name, self.dtype))
            if f.kind == "prod":
                self.in_order(stage, f)
        for name, expr in stage.after:
            names, _, _ = self.names([expr], "w")
            (result,) = self.rendered([expr], names, "float64")
            self.put(f"w_{name} = {result}")

    def blocks(self, stage: Stage) -> None:
        """Loop in blocks, so that sums in the items' precision stay short."""
        sums = [f.name for f in stage.folds if f.kind == "sum"]
        self.put("begin = uintp(0)")
        with self.within("while begin < length:"):
            self.put(f"end = min(begin + uintp({BLOCK}), length)")
            self.put(*(f"a_{n} = {self.dtype}(-0.0)" for n in sums))
            self.loop(stage, "range(begin, end)")
            self.put(*(line for n in sums for line in _add_block(n, self.dtype)))
            self.put("begin = end")

    def loop(self, stage: Stage, over: str) -> None:
        with self.within(f"for i in {over}:"):
            results = self.item_lines(stage, "i", "i")
            for f, r in zip(stage.folds, results, strict=True):
                self.put(*_ROW_FOLDS[f.kind].step(f.name, r))

    def in_order(self, stage: Stage, fold: Fold) -> None:
        """A product that may have lost digits on its way is computed again as it is written, up to where it is zero or
        infinite; what follows can only change its sign, or make it nan."""
        only, w = Stage((fold,)), f"w_{fold.name}"
        with self.within(f"if not ({_SAFE_PRODUCT.format(w)}):"):
            self.put(f"{w} = 1.0", "begin = uintp(0)")
            with self.within(f"while begin < length and 0.0 < abs({w}) < inf:"):
                self.put(f"end = min(begin + uintp({IN_ORDER}), length)")
                with self.within("for i in range(begin, end):"):
                    (result,) = self.item_lines(only, "i", "i")
                    self.put(f"{w} = {w} * float64({result})")
                self.put("begin = end")
            zero, integer = f"{self.dtype}(0.0)", f"int{self.dtype[5:]}"
            self.put(*(f"{name} = {integer}(0)" for name in ("signs", "wide", "none")))
            with self.within("for i in range(begin, length):"):
                (result,) = self.item_lines(only, "i", "i")
                self.put(f"signs = ixor(signs, bits({result}))", f"none = note_not(none, fabs({result}) > {zero})")
                self.put(f"wide = note_not(wide, fabs({result}) < {self.dtype}(inf))")
            self.put(f"{w} = nan if (wide if {w} == 0.0 else none) != 0 else -{w} if signs < 0 else {w}")


class _RowsWriter(_WholeWriter):
    """Units `first` to `last`; `parts` units make one row of `n` items, of which each has `chunk`. Rows of an item are
    `step` bytes apart, stored ones are dense."""

    def loop_arguments(self) -> list[str]:
        return ["first", "last", "parts", "n", "chunk", *(f"step_{n}" for n in self.program.items)]

    def body(self) -> None:
        self.put("gil = release_gil(uintp((last - first) * min(n, chunk)))")
        with self.within("for unit in range(first, last):"):
            self.put("row, start = unit // parts, unit % parts * chunk", "length = uintp(min(chunk, n - start))")
            self.put(*(f"{i}_row = {i}_.at(row * step_{i} + start * {self.itemsize})" for i in self.program.items))
            self.put(*(f"{o}_row = {o}_.at((row * n + start) * {self.itemsize})" for o in self.program.stored))
            self.one_row("row", "unit")
        self.put("acquire_gil(gil)")


class _ColumnsWriter(_Writer):
    """Units `first` to `last`: of each outer index, each of `parts` parts of the rows, each block of `block` columns.
    Outer steps and lines of an item are `step` and `line` bytes apart, stored items are dense.

    The numbers of the rows lie in two arrays: ``s_x`` holds them in float64, ``p_x`` what loops over items use, in the
    items' dtype. Sums go to `p_x` first and over to `s_x` after LINES lines.
    """

    def loop_arguments(self) -> list[str]:
        steps = [f"{word}_{n}" for n in self.program.items for word in ("step", "line")]
        return ["first", "last", "parts", "n", "chunk", "inner", "block", *steps]

    def scratch(self) -> list[str]:
        return ["wide", "small"]

    def body(self) -> None:
        self.put("blocks = (inner + block - 1) // block")
        self.put("gil = release_gil(uintp((last - first) * min(n, chunk) * min(inner, block)))")
        for k, name in enumerate(self.program.slots):
            small = itemsize_of(self.dtype)
            self.put(f"s_{name} = wide.at({k * 8} * block)", f"p_{name} = small.at({k * small} * block)")
        with self.within("for unit in range(first, last):"):
            self.put("column, rest = unit % blocks * block, unit // blocks")
            self.put("outer, part = rest // parts, rest % parts", "width = uintp(min(block, inner - column))")
            self.put("start, stop = part * chunk, min(part * chunk + chunk, n)", *self.outer_lines())
            self.put(*(f"{r}_row = {r}_.at((outer * inner + column) * {self.itemsize})" for r in self.program.rows))
            for k, stage in enumerate(self.program.stages):
                later = [e for after in self.program.stages[k + 1 :] for e in after.loop_exprs]
                self.stage(stage, set(symbols(*later)))
            self.results()
        self.put("acquire_gil(gil)")

    def outer_lines(self) -> list[str]:
        """What is computed of the outer index."""
        return []

    def stage(self, stage: Stage, used: set[str]) -> None:
        """One stage; `used` are the names that later loops use."""
        if stage.folds:
            with self.within("for c in range(width):"):
                for f in stage.folds:
                    self.put(*_COLUMN_FOLDS[f.kind].begin(f.name, self.dtype))
        sums = [f.name for f in stage.folds if f.kind == "sum"]
        if sums:
            self.put("begin = start")
            together = len(sums) == len(stage.folds) and not stage.stores and not self.program.counts
            with self.within("while begin < stop:"):
                # A sum of several lines is one step, so more lines are as exact.
                self.put(f"end = min(begin + {LINES * TOGETHER // 2 if together else LINES}, stop)")
                if together:
                    self.put(f"several = begin + (end - begin) // {TOGETHER} * {TOGETHER}")
                    self.loop_together(stage)
                    self.loop(stage, "range(several, end)")
                else:
                    self.loop(stage, "range(begin, end)")
                with self.within("for c in range(width):"):
                    for n in sums:
                        self.put(f"s_{n}[c] = s_{n}[c] + float64(p_{n}[c])", f"p_{n}[c] = {self.dtype}(-0.0)")
                self.put("begin = end")
        else:
            self.loop(stage, "range(start, stop)")
        self.after(stage, used)

    def loop(self, stage: Stage, over: str) -> None:
        with self.within(f"for j in {over}:"):
            self.places()
            with self.within("for c in range(width):"):
                _, _, numbers = self.names(stage.loop_exprs, "r")
                self.put(*(f"r_{n} = {self.small(n)}" for n in numbers if n != POSITION))
                results = self.item_lines(stage, "c", "j")
                for f, r in zip(stage.folds, results, strict=True):
                    self.put(*_COLUMN_FOLDS[f.kind].step(f.name, r))

    def loop_together(self, stage: Stage) -> None:
        """Sum several lines at once, so that the sums are read and written less often."""
        with self.within(f"for first_line in range(begin, several, {TOGETHER}):"):
            for k in range(TOGETHER):
                self.put(f"j = first_line + {k}")
                self.renamed(self.places, k)
            with self.within("for c in range(width):"):
                _, _, numbers = self.names(stage.loop_exprs, "r")
                self.put(*(f"r_{n} = {self.small(n)}" for n in numbers))
                for k in range(TOGETHER):
                    results = self.renamed(lambda: self.item_lines(stage, "c", "j"), k)
                    for f, r in zip(stage.folds, results, strict=True):
                        self.put(f"q_{f.name} = {r}" if k == 0 else f"q_{f.name} = q_{f.name} + {r}")
                self.put(*(f"p_{f.name}[c] = p_{f.name}[c] + q_{f.name}" for f in stage.folds))

    def renamed(self, put: Callable[[], Any], k: int) -> Any:
        """Put lines in which places, and what is loaded once per line, are those of line k."""
        before = len(self.lines)
        found = put()
        names = "|".join(map(re.escape, self.program.items))
        singles = "|".join(n for n, kind in self.kernel.kinds.items() if kind.endswith("single"))
        for i in range(before, len(self.lines)):
            line = re.sub(rf"\b({names})_row\b", rf"\1_row{k}", self.lines[i])
            self.lines[i] = re.sub(rf"\bv_({singles})\b", rf"v_\1_{k}", line) if singles else line
        return found

    def places(self) -> None:
        """Where line j of each item begins."""
        size = self.itemsize
        self.put(*(f"{i}_row = {i}_.at(outer * step_{i} + j * line_{i} + column * {size})" for i in self.program.items))
        self.put(*(f"{o}_row = {o}_.at(((outer * n + j) * inner + column) * {size})" for o in self.program.stored))

    def small(self, name: str) -> str:
        """A number of row c in the items' dtype."""
        if name in self.program.numbers:
            return f"{self.dtype}(w_{name})"
        return f"{name}_row[c]" if name in self.program.rows else f"p_{name}[c]"

    def large(self, name: str) -> str:
        """A number of row c as float64."""
        if name in self.program.rows:
            return f"float64({name}_row[c])"
        kinds = {f.name: f.kind for stage in self.program.stages for f in stage.folds}
        return f"float64(p_{name}[c])" if kinds.get(name) in ("max", "min") else f"s_{name}[c]"

    def after(self, stage: Stage, used: set[str]) -> None:
        """What is computed once per row, and what later loops use of the folds."""
        copied = [f.name for f in stage.folds if f.kind in ("sum", "prod") and f.name in used]
        if not stage.after and not copied:
            return
        with self.within("for c in range(width):"):
            _, _, numbers = self.names([e for _, e in stage.after], "w")
            computed = [name for name, _ in stage.after]
            known = {*self.program.numbers, *computed}
            self.put(*(f"w_{n} = {self.large(n)}" for n in dict.fromkeys([*numbers, *copied]) if n not in known))
            for name, expr in stage.after:
                names, _, _ = self.names([expr], "w")
                (result,) = self.rendered([expr], names, "float64")
                self.put(f"w_{name} = {result}", f"s_{name}[c] = w_{name}")
            self.put(*(f"p_{n}[c] = {self.dtype}(w_{n})" for n in [*copied, *computed] if n in used))

    def results(self) -> None:
        if not self.program.results:
            return
        size = itemsize_of(self.kernel.result_dtype)
        self.put(*(f"{n}_to = {n}_out.at((rest * inner + column) * {size})" for n in self.program.results))
        with self.within("for c in range(width):"):
            self.put(*(f"{n}_to[c] = {self.result}({self.large(n)})" for n in self.program.results))


class _FreeRowsWriter(_RowsWriter):
    """As rows, but the outer index counts two axes, and every array, stored ones too, has its own steps along them."""

    def loop_arguments(self) -> list[str]:
        return ["first", "last", "parts", "n", "chunk", "far", *_free_steps(self.program, "step", "jump")]

    def body(self) -> None:
        self.put("gil = release_gil(uintp((last - first) * min(n, chunk)))")
        with self.within("for unit in range(first, last):"):
            self.put("row, start = unit // parts, unit % parts * chunk", "length = uintp(min(chunk, n - start))")
            self.put("o, p = row // far, row % far")
            for i in (*self.program.items, *self.program.stored):
                self.put(f"{i}_row = {i}_.at(o * step_{i} + p * jump_{i}{_free_offset(self, i, 'start')})")
            self.put(*_free_singles(self))
            self.one_row("row", "unit")
        self.put("acquire_gil(gil)")


class _FreeColumnsWriter(_ColumnsWriter):
    """As columns, but the outer index counts two axes, and every array, stored ones too, has its own steps."""

    def loop_arguments(self) -> list[str]:
        steps = _free_steps(self.program, "step", "jump", "line")
        return ["first", "last", "parts", "n", "chunk", "inner", "block", "far", *steps]

    def outer_lines(self) -> list[str]:
        return ["o, p = outer // far, outer % far"]

    def places(self) -> None:
        for i in (*self.program.items, *self.program.stored):
            offset = _free_offset(self, i, "column")
            self.put(f"{i}_row = {i}_.at(o * step_{i} + p * jump_{i} + j * line_{i}{offset})")
        self.put(*_free_singles(self))


def _free_steps(program: RowProgram, *words: str) -> list[str]:
    return [f"{word}_{n}" for n in (*program.items, *program.stored) for word in words]


def _free_offset(writer: _Writer, name: str, index: str) -> str:
    """Where the inner loop begins."""
    kind = writer.kernel.kinds.get(name, "dense")
    size = 1 if kind.startswith("mask") else writer.itemsize
    return "" if kind.endswith("single") else f" + {index} * {size}"


def _free_singles(writer: _Writer) -> list[str]:
    return [f"v_{n} = {n}_row[uintp(0)]" for n, kind in writer.kernel.kinds.items() if kind.endswith("single")]


_FREE_WRITERS: dict[str, type[_Writer]] = {"rows": _FreeRowsWriter, "columns": _FreeColumnsWriter}
_WRITERS: dict[str, type[_Writer]] = {"whole": _WholeWriter, "rows": _RowsWriter, "columns": _ColumnsWriter}


# ----- Folds as text -----


@dataclass(frozen=True, slots=True)
class _RowFold:
    """Lines before the loop, in it, and after it."""

    begin: Callable[[str, str], list[str]]
    step: Callable[[str, str], list[str]]
    end: Callable[[str, str], list[str]]


def _extreme(operation: str, identity: str) -> _RowFold:
    return _RowFold(
        lambda n, dtype: [f"a_{n} = {dtype}({identity})", f"nan_{n} = int{dtype[5:]}(0)"],
        lambda n, x: [f"a_{n} = {operation}(a_{n}, {x})", f"nan_{n} = note_nan(nan_{n}, {x})"],
        lambda n, dtype: [f"w_{n} = float64(a_{n}) if nan_{n} == 0 else nan"],
    )


_ROW_FOLDS: dict[str, _RowFold] = {
    "sum": _RowFold(
        lambda n, dtype: [f"w_{n} = -0.0"] + [f"lost_{n} = 0.0"] * (dtype == "float64"),
        lambda n, x: [f"a_{n} = add_any_order(a_{n}, {x})"],
        lambda n, dtype: [
            *[f"w_{n} = w_{n} + lost_{n} if abs(lost_{n}) > 0.0 else w_{n}"] * (dtype == "float64"),
            # What is summed first is -0, so that a sum of nothing but -0 keeps its sign.
            f"w_{n} = w_{n} if length > 0 else 0.0",
        ],
    ),
    "prod": _RowFold(
        lambda n, dtype: [f"a_{n} = 1.0"],
        lambda n, x: [f"a_{n} = multiply_any_order(a_{n}, float64({x}))"],
        lambda n, dtype: [f"w_{n} = a_{n}"],
    ),
    "max": _extreme("larger", "-inf"),
    "min": _extreme("smaller", "inf"),
}


def _add_block(name: str, dtype: str) -> Iterator[str]:
    """Add the sum of a block; float64 keeps what rounding loses (Neumaier), which is nan once the sum is infinite."""
    if dtype == "float64":
        w, a = f"w_{name}", f"a_{name}"
        yield f"total = {w} + {a}"
        yield f"lost_{name} += ({w} - total) + {a} if abs({w}) >= abs({a}) else ({a} - total) + {w}"
        yield f"{w} = total"
    else:
        yield f"w_{name} += float64(a_{name})"


@dataclass(frozen=True, slots=True)
class _ColumnFold:
    """Lines before the loop and in it."""

    begin: Callable[[str, str], list[str]]
    step: Callable[[str, str], list[str]]


def _column_extreme(beats: str, identity: str) -> _ColumnFold:
    return _ColumnFold(
        lambda n, dtype: [f"p_{n}[c] = {dtype}({identity})"],
        # A nan that has been found is beaten by nothing.
        lambda n, x: [f"b_{n} = p_{n}[c]", f"p_{n}[c] = select(either({x} {beats} b_{n}, {x} != {x}), {x}, b_{n})"],
    )


_COLUMN_FOLDS: dict[str, _ColumnFold] = {
    "sum": _ColumnFold(
        lambda n, dtype: [f"s_{n}[c] = -0.0", f"p_{n}[c] = {dtype}(-0.0)"], lambda n, x: [f"p_{n}[c] = p_{n}[c] + {x}"]
    ),
    "prod": _ColumnFold(lambda n, dtype: [f"s_{n}[c] = 1.0"], lambda n, x: [f"s_{n}[c] = s_{n}[c] * float64({x})"]),
    "max": _column_extreme(">", "-inf"),
    "min": _column_extreme("<", "inf"),
}
