"""Scans: cumulative sums and products, and linear recurrences, along one axis.

Each row (``rows``: along the memory; ``columns``: across it, all neighbouring rows at once) is walked in either
direction with float64 as the carry. A sum's chain of additions would wait for each other, so four items are added up
apart from the carry; products of float64 could overflow apart from it and stay in order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.jit import abi, backend, compile, memory, rows, team

COLUMNS = 1024
"""Columns that are walked side by side; their carries stay in the first cache."""

_BATCH = 131072


def cumulative(kind: str, x: np.ndarray, axis: int, reverse: bool, exclusive: bool = False) -> np.ndarray:
    """Sum or product of each item along `axis` and those before it.

    Parameters
    ----------
    kind : {"sum", "prod"}
    x
        Any array.
    axis
        From 0 on.
    reverse
        Begin at the end.
    exclusive
        Leave the item itself out.
    """
    if not _compiled(x):
        return _accumulate(kind, x, axis, reverse, exclusive)
    return _run(f"{kind}_before" if exclusive else kind, [rows.contiguous(x)], axis, reverse)


def recurrence(a: np.ndarray, b: np.ndarray, axis: int, reverse: bool, lag: bool) -> np.ndarray:
    """``r[i] = b[i] + a[i] * r[i - 1]`` along `axis`, with ``a[i - 1]`` if `lag`; the first is ``b[0]``.

    Parameters
    ----------
    a, b
        Arrays of one shape and dtype.
    axis
        From 0 on.
    reverse
        Begin at the end: what comes before i is i + 1.
    lag
        Use the factor of the item before.
    """
    if not _compiled(b):
        return _recur(a, b, axis, reverse, lag)
    return _run("recurrence_lag" if lag else "recurrence", [rows.contiguous(a), rows.contiguous(b)], axis, reverse)


def _compiled(x: np.ndarray) -> bool:
    return rows.runs_natively(x) and x.size > 0 and backend.current() != "reference"


# ----- Meaning -----


def _lines(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """The items along `axis` in the order of the walk, as the first axis of a view."""
    moved = np.moveaxis(x, axis, 0)
    return moved[::-1] if reverse else moved


def _accumulate(kind: str, x: np.ndarray, axis: int, reverse: bool, exclusive: bool) -> np.ndarray:
    ufunc: np.ufunc = np.add if kind == "sum" else np.multiply
    with np.errstate(all="ignore"):
        result = ufunc.accumulate(_lines(x, axis, reverse))
    out = np.empty(x.shape, result.dtype)
    to = _lines(out, axis, reverse)
    if exclusive:
        to[:1] = ufunc.identity
        to[1:] = result[:-1]
    else:
        to[...] = result
    return out


def _recur(a: np.ndarray, b: np.ndarray, axis: int, reverse: bool, lag: bool) -> np.ndarray:
    out = np.array(b, order="C")
    to, factors = _lines(out, axis, reverse), _lines(a, axis, reverse)
    with np.errstate(all="ignore"):
        for i in range(1, len(to)):
            to[i] += factors[i - lag] * to[i - 1]
    return out


# ----- Kernels -----


def _run(kind: str, arrays: Sequence[np.ndarray], axis: int, reverse: bool) -> np.ndarray:
    x = arrays[0]
    n, size = x.shape[axis], x.itemsize
    inner = int(np.prod(x.shape[axis + 1 :], dtype=np.intp))
    outer = x.size // (n * inner)
    out = memory.empty(x.shape, x.dtype)
    line = inner * size
    begin, step = ((n - 1) * line, -line) if reverse else (0, line)
    loop = "rows" if inner == 1 else "columns"
    entry = _kernel(kind, loop, x.dtype.name)
    blocks = -(-inner // COLUMNS)
    units, extent = outer * blocks, n * min(inner, COLUMNS)

    def call(first: int, last: int) -> None:
        extra = [] if loop == "rows" else [inner, np.empty(COLUMNS)]
        entry(first, last, n, begin, step, *extra, *arrays, out)

    per_batch = max(1, _BATCH // extent)
    if units <= per_batch or team.get_num_threads() == 1:
        call(0, units)
    else:
        team.run_chunks(lambda k: call(k * per_batch, min(units, (k + 1) * per_batch)), -(-units // per_batch))
    return out


@functools.cache
def _kernel(kind: str, loop: str, dtype: str) -> Any:
    from numba.core import types

    item = getattr(types, dtype)
    arrays = [abi.Flat(item)] * (2 if kind.startswith("recurrence") else 1) + [abi.Flat(item, writable=True)]
    extra = [] if loop == "rows" else [types.int64, abi.Flat(types.float64)]
    signature = types.void(*[types.int64] * 5, *extra, *arrays)
    source = (_rows_source if loop == "rows" else _columns_source)(kind, dtype)
    return compile.compile_source(source, f"scan_{kind}", signature, namespace=_NAMESPACE, noalias=True).entry


_NAMESPACE = {
    "float32": np.float32,
    "float64": np.float64,
    "uintp": np.uintp,
    "load": abi.load,
    "store": abi.store,
    "release_gil": abi.release_gil,
    "acquire_gil": abi.acquire_gil,
}


# ----- Source -----


def _parts(kind: str) -> tuple[str, float, bool]:
    """Operator, value of nothing, and whether the item itself is left out."""
    name, _, before = kind.partition("_")
    return ("+", 0.0, bool(before)) if name == "sum" else ("*", 1.0, bool(before))


def _rows_source(kind: str, dtype: str) -> str:
    recurs = kind.startswith("recurrence")
    params = "a, b, out" if recurs else "x, out"
    size = np.dtype(dtype).itemsize
    head = [
        f"def scan_{kind}(first, last, n, begin, step, {params}):",
        "    gil = release_gil(uintp((last - first) * n))",
        "    for row in range(first, last):",
        f"        at = row * n * {size} + begin",
    ]
    body = _row_recurrence(kind, dtype) if recurs else _row_cumulative(kind, dtype)
    return "\n".join([*head, *("        " + line for line in body), "    acquire_gil(gil)", ""])


def _row_cumulative(kind: str, dtype: str) -> list[str]:
    operator, nothing, before = _parts(kind)
    together = 4 if operator == "+" or dtype == "float32" else 1
    block = [f"x{k} = float64(load(x, at + {k} * step))" for k in range(together)]
    block += ["p0 = x0"] + [f"p{k} = p{k - 1} {operator} x{k}" for k in range(1, together)]
    if before:
        block += [f"store(out, at, {dtype}(carry))"]
        block += [f"store(out, at + {k + 1} * step, {dtype}(carry {operator} p{k}))" for k in range(together - 1)]
    else:
        block += [f"store(out, at + {k} * step, {dtype}(carry {operator} p{k}))" for k in range(together)]
    block += [f"carry = carry {operator} p{together - 1}", f"at = at + {together} * step"]
    single = ["p0 = float64(load(x, at))", f"then = carry {operator} p0"]
    single += [f"store(out, at, {dtype}({'carry' if before else 'then'}))", "carry = then", "at = at + step"]
    lines = [f"carry = {nothing}", f"for block in range(n // {together}):", *("    " + b for b in block)]
    return lines if together == 1 else [*lines, f"for rest in range(n % {together}):", *("    " + b for b in single)]


def _row_recurrence(kind: str, dtype: str) -> list[str]:
    factor = "at - step" if kind.endswith("lag") else "at"
    return [
        "carry = float64(load(b, at))",
        f"store(out, at, {dtype}(carry))",
        "for i in range(1, n):",
        "    at = at + step",
        f"    carry = float64(load(b, at)) + float64(load(a, {factor})) * carry",
        f"    store(out, at, {dtype}(carry))",
    ]


def _columns_source(kind: str, dtype: str) -> str:
    recurs = kind.startswith("recurrence")
    params = "a, b, out" if recurs else "x, out"
    size = np.dtype(dtype).itemsize
    body = _column_recurrence(kind, dtype) if recurs else _column_cumulative(kind, dtype)
    head = [
        f"def scan_{kind}(first, last, n, begin, step, inner, carry, {params}):",
        f"    blocks = (inner + {COLUMNS - 1}) // {COLUMNS}",
        f"    gil = release_gil(uintp((last - first) * n * min(inner, {COLUMNS})))",
        "    for unit in range(first, last):",
        f"        column = unit % blocks * {COLUMNS}",
        f"        width = uintp(min({COLUMNS}, inner - column))",
        f"        at = (unit // blocks * n * inner + column) * {size} + begin",
    ]
    return "\n".join([*head, *("        " + line for line in body), "    acquire_gil(gil)", ""])


def _column_cumulative(kind: str, dtype: str) -> list[str]:
    operator, nothing, before = _parts(kind)
    return [
        "for c in range(width):",
        f"    carry[c] = {nothing}",
        "for i in range(n):",
        "    xs, to = x.at(at), out.at(at)",
        "    for c in range(width):",
        f"        then = carry[c] {operator} float64(xs[c])",
        f"        to[c] = {dtype}({'carry[c]' if before else 'then'})",
        "        carry[c] = then",
        "    at = at + step",
    ]


def _column_recurrence(kind: str, dtype: str) -> list[str]:
    factor = "at - step" if kind.endswith("lag") else "at"
    return [
        "bs, to = b.at(at), out.at(at)",
        "for c in range(width):",
        "    carry[c] = float64(bs[c])",
        "    to[c] = bs[c]",
        "for i in range(1, n):",
        "    at = at + step",
        f"    factors, bs, to = a.at({factor}), b.at(at), out.at(at)",
        "    for c in range(width):",
        "        then = float64(bs[c]) + float64(factors[c]) * carry[c]",
        f"        to[c] = {dtype}(then)",
        "        carry[c] = then",
    ]


__all__ = ["cumulative", "recurrence"]
