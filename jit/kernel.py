"""Kernels: from a frozen description of a loop to something callable that can print its own source.

Two loop shapes map scalar expressions over arrays:

- ``flat``: every array is C-contiguous and of the same size; other inputs are numbers;
- ``nested``: rows of broadcast or strided arrays. The innermost axis is a plain loop, in which each array is ``dense``,
  ``single`` (one value for the whole row) or ``strided``; all axes outside it are counted in the kernel.

Outputs are always dense.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbagrad.jit import abi, compile, reference, render, storage
from numbagrad.jit.expr import ScalarExpr, symbol

DTYPES = ("float64", "float32")
"""Dtypes that kernels compute in."""

FLOATS = (*DTYPES, *storage.TYPES)
"""Dtypes of the arrays that kernels take as numbers; those of 16 bits are computed with in float32."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a kernel: its symbol, its dtype, and how the loop walks over it."""

    name: str
    dtype: str
    mode: str

    def __post_init__(self) -> None:
        if self.mode not in ("number", "dense", "single", "strided"):
            raise ValueError(f"input {self.name} has mode {self.mode!r}, wanted number, dense, single or strided")


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """What a kernel computes and over which loop; equal specs share one kernel."""

    name: str
    loop: str
    inputs: tuple[Input, ...]
    exprs: tuple[ScalarExpr, ...]
    outputs: tuple[str, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.loop not in ("flat", "nested"):
            raise ValueError(f"loop is {self.loop!r}, wanted flat or nested")
        if self.dtype not in DTYPES:
            raise ValueError(f"kernels compute in {DTYPES}, got {self.dtype}")
        if len(self.outputs) != len(self.exprs):
            raise ValueError(f"{self.name}: {len(self.exprs)} expressions, but output dtypes {self.outputs}")


class Kernel:
    """A spec, its source, and the compiled entry point (made at the first use)."""

    def __init__(self, spec: KernelSpec, definitions: Mapping[str, Callable[..., ScalarExpr]]) -> None:
        self.spec = spec
        self.source = _source(spec, definitions)
        self._compiled: compile.Compiled | None = None

    @property
    def compiled(self) -> compile.Compiled:
        """The compiled kernel."""
        if self._compiled is None:
            self._compiled = compile.compile_source(
                self.source, _identifier(self.spec), _signature(self.spec), namespace=_NAMESPACE
            )
        return self._compiled

    @property
    def entry(self) -> Callable[..., Any]:
        """Call it with the inputs in order, then the outputs (a nested kernel: first the int64 array of the loop)."""
        return self.compiled.entry


class Kernels:
    """Every kernel of the process, by spec."""

    def __init__(self) -> None:
        self.definitions: dict[str, Callable[..., ScalarExpr]] = {}
        """Scalar functions that are defined by an expression; filled by ops."""
        self._made: dict[KernelSpec, Kernel] = {}
        self._lock = threading.Lock()

    def __call__(self, spec: KernelSpec) -> Kernel:
        """The kernel for `spec`."""
        found = self._made.get(spec)
        if found is None:
            with self._lock:
                found = self._made.setdefault(spec, Kernel(spec, self.definitions))
        return found

    def __len__(self) -> int:
        return len(self._made)


kernel_for = Kernels()

_NAMESPACE = {
    **render.NAMESPACE,
    "float32": np.float32,
    "float64": np.float64,
    "uintp": np.uintp,
    "release_gil": abi.release_gil,
    "acquire_gil": abi.acquire_gil,
    "load": abi.load,
    "as_stored": abi.as_stored,
}


def _identifier(spec: KernelSpec) -> str:
    return "".join(c if c.isalnum() else "_" for c in spec.name)


def _signature(spec: KernelSpec) -> Any:
    from numba.core import types

    flat = spec.loop == "flat"
    args: list[Any] = [] if flat else [abi.Flat(types.int64)]
    for i in spec.inputs:
        kind = storage.kernel_type(i.dtype)
        if i.mode == "number":
            args.append(storage.value_type(kind))
        else:
            args.append(abi.Flat(kind) if flat else abi.Strided(kind))
    args += [abi.Flat(storage.kernel_type(o), writable=True) for o in spec.outputs]
    return types.void(*args)


def _source(spec: KernelSpec, definitions: Mapping[str, Callable[..., ScalarExpr]]) -> str:
    names = {symbol(i.name): f"v_{i.name}" for i in spec.inputs}
    lines, results = render.render(spec.exprs, names, spec.dtype, definitions)
    lines = [*lines, *(f"out{k}_[i] = {r}" for k, r in enumerate(results))]
    return (_flat_source if spec.loop == "flat" else _nested_source)(spec, lines)


def itemsize_of(dtype: str) -> int:
    """Bytes of an item of a dtype, by name."""
    return 2 if dtype in storage.TYPES else np.dtype(dtype).itemsize


def _stored_numbers(spec: KernelSpec) -> list[str]:
    """A number beside arrays of 16 bits counts as one of their items."""
    if not spec.outputs or spec.outputs[0] not in storage.TYPES:
        return []
    return [f"    v_{i.name} = as_stored(out0_, v_{i.name})" for i in spec.inputs if i.mode == "number"]


def _flat_source(spec: KernelSpec, body: list[str]) -> str:
    arrays = [i for i in spec.inputs if i.mode != "number"]
    params = [f"{i.name}_" if i.mode != "number" else f"v_{i.name}" for i in spec.inputs]
    params += [f"out{k}_" for k in range(len(spec.outputs))]
    sizes = [f"{i.name}_.size != n" for i in arrays] + [f"out{k}_.size != n" for k in range(1, len(spec.outputs))]
    text = [f"def {_identifier(spec)}({', '.join(params)}):", "    n = out0_.size"]
    if sizes:
        text += [f"    if {' or '.join(sizes)}:", "        raise ValueError('arrays of a flat kernel differ in size')"]
    text += [*_stored_numbers(spec), "    gil = release_gil(n)", "    for i in range(n):"]
    text += [f"        v_{i.name} = {i.name}_[i]" for i in arrays]
    text += [f"        {line}" for line in body]
    return "\n".join([*text, "    acquire_gil(gil)", ""])


def _nested_source(spec: KernelSpec, body: list[str]) -> str:
    """Rows `first` to `last` of the outer axes; `loop` holds first, last, row length, number of outer axes, their
    lengths, then for each array its outer strides and its inner stride, in bytes."""
    arrays = [i for i in spec.inputs if i.mode != "number"]
    params = ["loop", *(f"{i.name}_" if i.mode != "number" else f"v_{i.name}" for i in spec.inputs)]
    params += [f"out{k}_" for k in range(len(spec.outputs))]
    text = [
        f"def {_identifier(spec)}({', '.join(params)}):",
        "    first, last, n, axes = loop[0], loop[1], loop[2], loop[3]",
        *_stored_numbers(spec),
        "    gil = release_gil(uintp((last - first) * n))",
        "    for row in range(first, last):",
        "        rest = row",
    ]
    text += [f"        at_{i.name} = 0" for i in arrays]
    text += ["        for axis in range(axes - 1, -1, -1):"]
    text += [
        "            length = loop[4 + axis]",
        "            index = rest % length",
        "            rest = rest // length",
    ]
    for k, i in enumerate(arrays):
        text.append(f"            at_{i.name} += index * loop[4 + axes + {k} * (axes + 1) + axis]")
    for k, i in enumerate(arrays):
        if i.mode == "strided":
            text.append(f"        step_{i.name} = loop[4 + axes + {k} * (axes + 1) + axes]")
        else:
            text.append(f"        row_{i.name} = {i.name}_.at(at_{i.name})")
        if i.mode == "single":
            text.append(f"        v_{i.name} = row_{i.name}[uintp(0)]")
    for k, dtype in enumerate(spec.outputs):
        text.append(f"        out{k}_row = out{k}_.at(row * n * {itemsize_of(dtype)})")
    text.append("        for i in range(uintp(n)):")
    for i in arrays:
        if i.mode == "dense":
            text.append(f"            v_{i.name} = row_{i.name}[i]")
        elif i.mode == "strided":
            text.append(f"            v_{i.name} = load({i.name}_, at_{i.name} + np.int64(i) * step_{i.name})")
    text += [
        f"            {line.replace('_[i] = ', '_row[i] = ') if line.startswith('out') else line}" for line in body
    ]
    return "\n".join([*text, "    acquire_gil(gil)", ""])


__all__ = ["Input", "Kernel", "KernelSpec", "kernel_for", "reference"]
