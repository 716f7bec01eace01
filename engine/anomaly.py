"""Anomaly mode: who made the first value or gradient that is not finite, and at which line of the user's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from numbagrad.engine.layout import kind_of
from numbagrad.engine.node import Node, watches
from numbagrad.engine.sweep import Sweep
from numbagrad.engine.tensor import Tensor
from numbagrad.engine.watch import note_origin, origin_of, user_line

_on: ContextVar[bool] = ContextVar("numbagrad_anomaly", default=False)
_checking: ContextVar[bool] = ContextVar("numbagrad_anomaly_checks", default=True)

anomaly_enabled: Callable[[], bool] = _on.get
"""Whether anomaly mode is on in this thread, for the sweep."""


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return _on.get()


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode, if it is on, looks at values and gradients."""
    return _checking.get()


def watch_anomalies(node: Node) -> None:
    """Remember the user's line."""
    if _on.get():
        note_origin(node)


class set_detect_anomaly:
    """Turn anomaly mode on or off, at once; as a context manager, for its body.

    See `detect_anomaly`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> with ng.autograd.set_detect_anomaly(True):
    ...     ng.autograd.is_anomaly_enabled()
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _on.get(), _checking.get()
        _set(bool(mode), bool(check_nan))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _set(*self._before)


def _set(on: bool, check: bool) -> None:
    if on and not _on.get():
        watches.append(watch_anomalies)
    elif not on and _on.get():
        watches.remove(watch_anomalies)
    _on.set(on)
    _checking.set(check)


class detect_anomaly:
    """Name the op, and the line that called it, behind the first value or gradient that is not finite.

    While it is on, ops that are recorded remember the line that called them. A result with nan or inf from finite
    operands raises there; a gradient with nan or inf, or any error in backward, is reported with the line of the
    forward op. Slow: for debugging.

    Parameters
    ----------
    check_nan : bool, optional
        Look at values and gradients. Otherwise only the lines are kept.

    Raises
    ------
    RuntimeError
        From the op, or from backward, with the line.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([-1.0], requires_grad=True)
    >>> with ng.autograd.set_detect_anomaly(True):  # doctest: +ELLIPSIS
    ...     ng.sqrt(x)
    Traceback (most recent call last):
        ...
    RuntimeError: Function 'sqrt' returned nan values in its 0th output, from finite operands. It was called at ...
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        self._entered: list[set_detect_anomaly] = []
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._entered.append(set_detect_anomaly(True, self._check_nan))

    def __exit__(self, *exc: object) -> None:
        self._entered.pop().__exit__()


# ----- values -----


def check_values(node: Node | None, given: Sequence[Any], outs: Sequence[Any]) -> None:
    """Raise where an op made something that is not finite of finite operands."""
    if not _on.get() or not _checking.get() or node is None:
        return
    for nr, out in enumerate(outs):
        what = _fault(out)
        if what is None:
            continue
        bad = next((g for g in given if _fault(g) is not None), None)
        if bad is None:
            raise RuntimeError(
                f"Function '{node.op.name}' returned {what} values in its {nr}th output, from finite operands. It was "
                f"called at {origin_of(node)}"
            )


def _fault(value: Any) -> str | None:
    """What is not finite in a tensor, array or number."""
    array = value._data if isinstance(value, Tensor) else np.asarray(value)
    if kind_of(array.dtype) not in "fc" or np.isfinite(array).all():
        return None
    return "nan" if np.isnan(array).any() else "inf"


# ----- gradients -----


def run_checked(sweep: Sweep) -> None:
    """`Sweep.run`, looking at every gradient."""
    line = user_line()
    while sweep.heap:
        node, grads_out, grads = sweep.step(_named_errors)
        if node.saved is None:
            _note_freed(node, line)
        if not _checking.get():
            continue
        clean = all(_fault(g) is None for g in _list(grads_out) if g is not None)
        for nr, g in enumerate(grads):
            what = None if g is None else _fault(g)
            if what == "nan" or (what and clean):
                raise RuntimeError(
                    f"Function '{node.name()}' returned {what} values in its {nr}th output.{_where(node)}"
                )


def _note_freed(node: Node, line: str) -> None:
    origin = origin_of(node)
    if origin is not None:
        node.origin = f"{origin}, freed by the backward at {line}"


def _list(grads: Any) -> Iterable[Any]:
    return grads if isinstance(grads, list) else [grads]


def _where(node: Node) -> str:
    origin = origin_of(node)
    if origin is None:
        return " No line of the forward pass is known: turn anomaly mode on before the forward pass, too."
    return f" The forward op '{node.op.name}' was called at {origin}"


def _named_errors(node: Node, grad: Any) -> Sequence[Any]:
    try:
        return node.op.vjp(node, grad)
    except Exception as error:
        error.add_note(f"Error detected in {node.name()}.{_where(node)}")
        raise


__all__ = [
    "anomaly_enabled",
    "check_values",
    "detect_anomaly",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "run_checked",
    "set_detect_anomaly",
]
