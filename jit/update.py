"""Updates in place: one loop that reads some arrays, and writes expressions of their items back into them.

An optimiser's step over a parameter and its state is one `Update`: every array is read once and written once. Arrays
that are not dense floats of one dtype are updated by NumPy, which evaluates the same expressions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbagrad.jit import abi, backend, compile, render, team
from numbagrad.jit.expr import ScalarExpr, symbol
from numbagrad.jit.kernel import kernel_for
from numbagrad.jit.reference import evaluate

CHUNK = 65536
"""Items that a thread takes at once."""


@dataclass(frozen=True)
class Update:
    """``arrays[k] = expr`` for some arrays, item by item.

    Attributes
    ----------
    name
        For the kernel's name.
    arrays
        Names of the arrays.
    numbers
        Names of the arguments that are numbers.
    stores
        Name of an array, and the expression that is written into it; all are of the items as they were before.
    """

    name: str
    arrays: tuple[str, ...]
    numbers: tuple[str, ...]
    stores: tuple[tuple[str, ScalarExpr], ...]

    def __call__(self, arrays: Sequence[np.ndarray], numbers: Sequence[float]) -> None:
        """Run it.

        Parameters
        ----------
        arrays : sequence of ndarray
            In the order of `arrays`, of one shape.
        numbers : sequence of float
        """
        first = arrays[0]
        usual = all(a.dtype == first.dtype and a.flags.c_contiguous and a.flags.aligned for a in arrays)
        if not usual or first.dtype.name not in ("float32", "float64") or backend.current() == "reference":
            self._by_numpy(arrays, numbers)
            return
        flats = [a.reshape(-1) for a in arrays]
        team.run_flat(_entry(self, first.dtype), [*flats, *map(float, numbers)], first.size, CHUNK)

    def _by_numpy(self, arrays: Sequence[np.ndarray], numbers: Sequence[float]) -> None:
        dtype = np.dtype(np.float32) if arrays[0].dtype.itemsize == 2 else arrays[0].dtype
        values: dict[str, Any] = {n: a.astype(dtype) for n, a in zip(self.arrays, arrays, strict=True)}
        values |= {n: dtype.type(v) for n, v in zip(self.numbers, numbers, strict=True)}
        results = evaluate([e for _, e in self.stores], values, dtype, kernel_for.definitions)
        places = dict(zip(self.arrays, arrays, strict=True))
        for (name, _), result in zip(self.stores, results, strict=True):
            places[name][...] = result


@functools.cache
def _entry(update: Update, dtype: np.dtype) -> Callable[..., Any]:
    from numba.core import types

    item = getattr(types, dtype.name)
    written = {name for name, _ in update.stores}
    args = [abi.Flat(item, writable=True) if n in written else abi.Flat(item) for n in update.arrays]
    signature = types.void(*args, *[item] * len(update.numbers))
    return compile.compile_source(_source(update, dtype.name), update.name, signature, namespace=_NAMESPACE).entry


def _source(update: Update, dtype: str) -> str:
    names = {symbol(n): f"v_{n}" for n in (*update.arrays, *update.numbers)}
    lines, results = render.render([e for _, e in update.stores], names, dtype, kernel_for.definitions)
    params = [*(f"{n}_" for n in update.arrays), *(f"v_{n}" for n in update.numbers)]
    first, *others = update.arrays
    body = [f"def {update.name}({', '.join(params)}):", f"    n = {first}_.size"]
    if others:
        body += [f"    if {' or '.join(f'{o}_.size != n' for o in others)}:"]
        body += ["        raise ValueError('arrays of an update differ in size')"]
    body += ["    gil = release_gil(n)", "    for i in range(n):"]
    body += [f"        v_{n} = {n}_[i]" for n in update.arrays]
    body += [f"        {line}" for line in lines]
    body += [f"        {name}_[i] = {r}" for (name, _), r in zip(update.stores, results, strict=True)]
    return "\n".join([*body, "    acquire_gil(gil)", ""])


_NAMESPACE = {
    **render.NAMESPACE,
    "float32": np.float32,
    "float64": np.float64,
    "release_gil": abi.release_gil,
    "acquire_gil": abi.acquire_gil,
}
