"""Scans: cumulative sums and products, and linear recurrences, along one axis.

Each row (``rows``: along the memory; ``columns``: across it, all neighbouring rows at once) is walked in either
direction with float64 as the carry. A sum's chain of additions would wait for each other, so four items are added up
apart from the carry; products of float64 could overflow apart from it and stay in order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbagrad.jit import abi, backend, compile, memory, rows, storage, team
from numbagrad.jit.kernel import itemsize_of

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


def others(x: np.ndarray, axis: int) -> np.ndarray:
    """For each item the product of all others along `axis`: of those before it times those behind."""
    if not _compiled(x):
        before = _accumulate("prod", x, axis, False, True)
        with np.errstate(all="ignore"):
            return before * _accumulate("prod", x, axis, True, True)
    return _run("prod_others", [rows.contiguous(x)], axis, False)


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
        result = ufunc.accumulate(_lines(_widened(x), axis, reverse))
    out = np.empty(x.shape, x.dtype if result.dtype == storage.compute_dtype(x.dtype) else result.dtype)
    to = _lines(out, axis, reverse)
    with np.errstate(over="ignore"):
        if exclusive:
            to[:1] = ufunc.identity
            to[1:] = result[:-1]
        else:
            to[...] = result
    return out


def _widened(x: np.ndarray) -> np.ndarray:
    return x.astype(storage.compute_dtype(x.dtype), copy=False)


def _recur(a: np.ndarray, b: np.ndarray, axis: int, reverse: bool, lag: bool) -> np.ndarray:
    out = np.array(_widened(b), order="C")
    to, factors = _lines(out, axis, reverse), _lines(_widened(a), axis, reverse)
    with np.errstate(all="ignore"):
        for i in range(1, len(to)):
            to[i] += factors[i - lag] * to[i - 1]
        return out.astype(b.dtype, copy=False)


# ----- Kernels -----


def _run(kind: str, arrays: Sequence[np.ndarray], axis: int, reverse: bool) -> np.ndarray:
    x = arrays[0]
    n = x.shape[axis]
    inner = math.prod(x.shape[axis + 1 :])
    out = memory.empty(x.shape, x.dtype)
    blocks = -(-inner // COLUMNS)
    units, extent = x.size // (n * inner) * blocks, n * min(inner, COLUMNS)
    entry = _kernel(kind, "rows" if inner == 1 else "columns", x.dtype, reverse)

    def call(first: int, last: int) -> None:
        extra = [] if inner == 1 else [inner, np.empty(COLUMNS)]
        entry(first, last, n, *extra, *arrays, out)

    per_batch = max(1, _BATCH // extent)
    if units <= per_batch or team.get_num_threads() == 1:
        call(0, units)
    else:
        team.run_chunks(lambda k: call(k * per_batch, min(units, (k + 1) * per_batch)), -(-units // per_batch))
    return out


@functools.cache
def _kernel(kind: str, loop: str, of: np.dtype, reverse: bool) -> Any:
    from numba.core import types

    dtype = of.name
    item = storage.kernel_type(dtype)
    arrays = [abi.Flat(item)] * (2 if kind.startswith("recurrence") else 1) + [abi.Flat(item, writable=True)]
    extra = [] if loop == "rows" else [types.int64, abi.Flat(types.float64)]
    signature = types.void(*[types.int64] * 3, *extra, *arrays)
    compute, size = storage.compute_name(dtype), itemsize_of(dtype)
    source = (_rows_source if loop == "rows" else _columns_source)(kind, compute, size, reverse)
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


def _begin(reverse: bool, line: str | int) -> tuple[str, str]:
    """Where a walk begins, and its step."""
    return (f"(n - 1) * {line}", f"-{line}") if reverse else ("0", f"{line}")


def _rows_source(kind: str, dtype: str, size: int, reverse: bool) -> str:
    params = "a, b, out" if kind.startswith("recurrence") else "x, out"
    begin, step = _begin(reverse, size)
    body = [f"at = row * n * {size} + {begin}", *_row_body(kind, dtype, int(step))]
    if kind == "prod_others":
        body += [f"at = row * n * {size} + (n - 1) * {size}", *_row_cumulative(kind, dtype, -size, "load(out, {0}) * ")]
    head = [
        f"def scan_{kind}(first, last, n, {params}):",
        "    gil = release_gil(uintp((last - first) * n))",
        "    for row in range(first, last):",
    ]
    return "\n".join([*head, *("        " + line for line in body), "    acquire_gil(gil)", ""])


def _row_body(kind: str, dtype: str, step: int) -> list[str]:
    if kind.startswith("recurrence"):
        return _row_recurrence(kind, dtype, step)
    return _row_cumulative(kind, dtype, step)


def _row_cumulative(kind: str, dtype: str, step: int, factor: str = "") -> list[str]:
    """`factor` is text put before what is stored at {0}."""
    operator, nothing, before = _parts(kind)
    together = 4 if operator == "+" or dtype == "float32" else 1

    def put(k: int, value: str) -> str:
        place = f"at + {k * step}"
        return f"store(out, {place}, {dtype}({factor.format(place)}{value}))"

    block = [f"x{k} = float64(load(x, at + {k * step}))" for k in range(together)]
    block += ["p0 = x0"] + [f"p{k} = p{k - 1} {operator} x{k}" for k in range(1, together)]
    results = [f"(carry {operator} p{k})" for k in range(together)]
    results = ["carry", *results[:-1]] if before else results
    block += [put(k, value) for k, value in enumerate(results)]
    block += [f"carry = carry {operator} p{together - 1}", f"at = at + {together * step}"]
    single = [f"then = carry {operator} float64(load(x, at))", put(0, "carry" if before else "then")]
    single += ["carry = then", f"at = at + {step}"]
    lines = [f"carry = {nothing}", f"for block in range(n // {together}):", *("    " + b for b in block)]
    return lines if together == 1 else [*lines, f"for rest in range(n % {together}):", *("    " + b for b in single)]


def _row_recurrence(kind: str, dtype: str, step: int) -> list[str]:
    """Four steps of float32 at once are one step whose factor and term are known before the carry is."""
    lag = step if kind.endswith("lag") else 0
    single = [
        f"carry = float64(load(b, at)) + float64(load(a, at - {lag})) * carry",
        f"store(out, at, {dtype}(carry))",
        f"at = at + {step}",
    ]
    lines = ["carry = float64(load(b, at))", f"store(out, at, {dtype}(carry))", f"at = at + {step}"]
    if dtype == "float64":
        return [*lines, "for i in range(1, n):", *("    " + line for line in single)]
    block = [f"f0, t0 = float64(load(a, at - {lag})), float64(load(b, at))"]
    for k in range(1, 4):
        block.append(f"a{k} = float64(load(a, at + {k * step - lag}))")
        block.append(f"f{k}, t{k} = a{k} * f{k - 1}, a{k} * t{k - 1} + float64(load(b, at + {k * step}))")
    together = [f"store(out, at + {k * step}, {dtype}(t{k} + f{k} * carry))" for k in range(4)]
    together += ["carry = t3 + f3 * carry", f"at = at + {4 * step}"]
    return [
        *lines,
        "for block in range((n - 1) // 4):",
        *("    " + line for line in block),
        # Infinite factors must meet what they multiply in order: 0 times inf is nan.
        "    if abs(f3) < 1e300 and abs(t3) < 1e300:",
        *("        " + line for line in together),
        "    else:",
        "        for i in range(4):",
        *("            " + line for line in single),
        "for rest in range((n - 1) % 4):",
        *("    " + line for line in single),
    ]


def _columns_source(kind: str, dtype: str, size: int, reverse: bool) -> str:
    params = "a, b, out" if kind.startswith("recurrence") else "x, out"
    begin, step = _begin(reverse, "line")
    place = f"at = (unit // blocks * n * inner + column) * {size}"
    body = [f"{place} + {begin}", *_column_body(kind, dtype, step)]
    if kind == "prod_others":
        body += [f"{place} + (n - 1) * line", *_column_cumulative(kind, dtype, "-line", "to[c] * ")]
    head = [
        f"def scan_{kind}(first, last, n, inner, carry, {params}):",
        f"    blocks, line = (inner + {COLUMNS - 1}) // {COLUMNS}, inner * {size}",
        f"    gil = release_gil(uintp((last - first) * n * min(inner, {COLUMNS})))",
        "    for unit in range(first, last):",
        f"        column = unit % blocks * {COLUMNS}",
        f"        width = uintp(min({COLUMNS}, inner - column))",
    ]
    return "\n".join([*head, *("        " + line for line in body), "    acquire_gil(gil)", ""])


def _column_body(kind: str, dtype: str, step: str) -> list[str]:
    if kind.startswith("recurrence"):
        return _column_recurrence(kind, dtype, step)
    return _column_cumulative(kind, dtype, step)


def _column_cumulative(kind: str, dtype: str, step: str, factor: str = "") -> list[str]:
    operator, nothing, before = _parts(kind)
    return [
        "for c in range(width):",
        f"    carry[c] = {nothing}",
        "for i in range(n):",
        "    xs, to = x.at(at), out.at(at)",
        "    for c in range(width):",
        f"        then = carry[c] {operator} float64(xs[c])",
        f"        to[c] = {dtype}({factor}{'carry[c]' if before else 'then'})",
        "        carry[c] = then",
        f"    at = at + {step}",
    ]


def _column_recurrence(kind: str, dtype: str, step: str) -> list[str]:
    factor = f"at - ({step})" if kind.endswith("lag") else "at"
    return [
        "bs, to = b.at(at), out.at(at)",
        "for c in range(width):",
        "    carry[c] = float64(bs[c])",
        "    to[c] = bs[c]",
        "for i in range(1, n):",
        f"    at = at + {step}",
        f"    factors, bs, to = a.at({factor}), b.at(at), out.at(at)",
        "    for c in range(width):",
        "        then = float64(bs[c]) + float64(factors[c]) * carry[c]",
        f"        to[c] = {dtype}(then)",
        "        carry[c] = then",
    ]


__all__ = ["cumulative", "others", "recurrence"]
