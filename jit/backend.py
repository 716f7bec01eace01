"""Which backend runs the kernels: "cpu" (Numba) or "reference" (NumPy evaluates the same expressions)."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

BACKENDS = ("cpu", "reference")

_switched: list[Callable[[], None]] = []


def _checked(name: str, source: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"{source} is {name!r}, but the backends are {', '.join(BACKENDS)}")
    return name


_current = _checked(os.environ.get("NUMBAGRAD_BACKEND", "cpu"), "NUMBAGRAD_BACKEND")


def current() -> str:
    """Name of the backend in use."""
    return _current


def on_switch(callback: Callable[[], None]) -> None:
    """Call `callback` whenever the backend changes (for those who keep resolved kernels)."""
    _switched.append(callback)


def _switch(name: str) -> None:
    global _current
    _current = name
    for callback in _switched:
        callback()


class use_backend:
    """Run on another backend: for good when called, or within a ``with`` block.

    The backend is one for the whole process.

    Parameters
    ----------
    name : {"cpu", "reference"}
        "cpu" runs kernels compiled by Numba; "reference" lets NumPy evaluate the same expressions.

    Raises
    ------
    ValueError
        If there is no backend of that name.

    Examples
    --------
    >>> import numbagrad as ng
    >>> with ng.use_backend("reference"):
    ...     ng.tensor([1.0, 2.0]) * 2
    tensor([2., 4.])
    """

    def __init__(self, name: str) -> None:
        self._name = _checked(name, "use_backend's name")
        self._before = [_current]
        _switch(name)

    def __enter__(self) -> None:
        if len(self._before) > 1 or _current != self._name:
            self._before.append(_current)
            _switch(self._name)
        else:
            self._before.append(self._before.pop())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _switch(self._before[-1])
        if len(self._before) > 1:
            self._before.pop()
