"""From autograd to numbagrad: imports rewritten in source, or redirected while a program runs."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MODULES = (
    "",
    ".builtins",
    ".core",
    ".differential_operators",
    ".extend",
    ".misc",
    ".misc.fixed_points",
    ".misc.flatten",
    ".misc.optimizers",
    ".numpy",
    ".numpy.fft",
    ".numpy.linalg",
    ".numpy.numpy_boxes",
    ".numpy.numpy_vjps",
    ".numpy.numpy_wrapper",
    ".numpy.random",
    ".test_util",
    ".tracer",
    ".util",
    ".wrap_util",
)
"""The modules of autograd that are here, under the same names."""


@dataclass(frozen=True)
class Finding:
    """Something that is not here: where, and what."""

    line: int
    what: str


def rewrite(source: str) -> tuple[str, list[Finding]]:
    """A program with its imports of autograd made imports of numbagrad, and what it uses that is not here.

    Comments, strings and everything else stay as they are.

    Raises
    ------
    SyntaxError
        If it is not Python.

    Examples
    --------
    >>> from numbagrad.ops.migration import rewrite
    >>> text, missing = rewrite("import autograd.numpy as np  # mine\\nfrom autograd import grad\\n")
    >>> print(text)
    import numbagrad.numpy as np  # mine
    from numbagrad import grad
    <BLANKLINE>
    >>> missing
    []
    """
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    nodes = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)) and _concerns(n)]
    for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        _replace(lines, node)
    return "".join(lines), sorted(set(_missing(tree, nodes)), key=lambda f: (f.line, f.what))


def _is_autograd(name: str | None) -> bool:
    return name == "autograd" or (name or "").startswith("autograd.")


def _concerns(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and _is_autograd(node.module)
    return any(_is_autograd(alias.name) for alias in node.names)


def _replace(lines: list[str], node: Any) -> None:
    """Write the new statement where the old one stood. Columns of syntax trees count bytes."""
    first, last = node.lineno - 1, node.end_lineno - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    if isinstance(node, ast.ImportFrom):
        old = "".join(lines[first : last + 1]).encode()[node.col_offset :].decode()
        old = old[: len(old) - len(tail)]
        new = old.replace("autograd", "numbagrad", 1)
    else:
        new = "import " + ", ".join(_import(alias) for alias in node.names)
    lines[first : last + 1] = (head + new + tail).splitlines(keepends=True)


def _import(alias: ast.alias) -> str:
    if not _is_autograd(alias.name):
        return alias.name + (f" as {alias.asname}" if alias.asname else "")
    ours = "numbagrad" + alias.name[len("autograd") :]
    if alias.asname:
        return f"{ours} as {alias.asname}"
    # The name autograd stays bound, as the program uses it.
    return "numbagrad as autograd" + (f", {ours}" if ours != "numbagrad" else "")


# ----- What is not here -----


def _missing(tree: ast.AST, nodes: list[Any]) -> Iterator[Finding]:
    bound: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from _missing_names(node, bound)
            continue
        for alias in node.names:
            if _is_autograd(alias.name):
                if _module(alias.name) is None:
                    yield Finding(node.lineno, f"module {alias.name}")
                bound[alias.asname or "autograd"] = alias.name if alias.asname else "autograd"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from _missing_attribute(node, bound)


def _missing_names(node: ast.ImportFrom, bound: dict[str, str]) -> Iterator[Finding]:
    module = _module(node.module or "")
    for alias in node.names:
        full = f"{node.module}.{alias.name}"
        if _module(full) is not None:
            bound[alias.asname or alias.name] = full
        elif alias.name != "*" and (module is None or not hasattr(module, alias.name)):
            yield Finding(node.lineno, full)


def _missing_attribute(node: ast.Attribute, bound: dict[str, str]) -> Iterator[Finding]:
    path = []
    at: ast.expr = node
    while isinstance(at, ast.Attribute):
        path.append(at.attr)
        at = at.value
    if not isinstance(at, ast.Name) or at.id not in bound:
        return
    found: Any = _module(bound[at.id])
    name = bound[at.id]
    for attr in reversed(path):
        if found is None:
            return
        name, inner = f"{name}.{attr}", _module(f"{name}.{attr}")
        if inner is None and not hasattr(found, attr):
            yield Finding(node.lineno, name)
            return
        # Only modules are followed: what objects have is their own business.
        found = inner


def _module(name: str) -> Any:
    """Our module for one of autograd's, or None."""
    suffix = name[len("autograd") :]
    return importlib.import_module(f"numbagrad{suffix}") if _is_autograd(name) and suffix in MODULES else None


# ----- While a program runs -----


def install_as_autograd() -> None:
    """Let ``import autograd`` find numbagrad, for programs that cannot be edited.

    Raises
    ------
    RuntimeError
        If HIPS autograd has been imported already: call this first.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.install_as_autograd()  # doctest: +SKIP
    >>> import autograd.numpy as np  # doctest: +SKIP
    """
    there = sys.modules.get("autograd")
    if there is not None and there.__name__ != "numbagrad":
        raise RuntimeError("autograd has been imported already: call install_as_autograd() before anything imports it")
    for suffix in MODULES:
        sys.modules[f"autograd{suffix}"] = importlib.import_module(f"numbagrad{suffix}")


__all__ = ["Finding", "install_as_autograd", "rewrite"]
