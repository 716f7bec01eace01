"""Grad mode: whether ops record what they do. Thread-local, re-entrant, usable as context manager and decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


# A context variable belongs to its thread (a new one starts enabled) and, under asyncio, to its task. Reading it takes
# half the time of an attribute of threading.local, and every op does.
_enabled: ContextVar[bool] = ContextVar("numbagrad_grad_mode", default=True)
_before: ContextVar[tuple[bool, ...]] = ContextVar("numbagrad_grad_modes_before", default=())

grad_enabled = _enabled.get
"""Whether ops record a graph, for the hot path."""

set_for_now, put_back = _enabled.set, _enabled.reset
"""Set grad mode, and put back what was there: for the sweep, which does both in one function."""


class Mode:
    """Grad mode as an attribute."""

    @property
    def enabled(self) -> bool:
        return _enabled.get()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        _enabled.set(value)


mode = Mode()


def is_grad_enabled() -> bool:
    """Whether ops in this thread record a graph.

    Examples
    --------
    >>> import numbagrad as ng
    >>> with ng.no_grad():
    ...     ng.is_grad_enabled()
    False
    """
    return mode.enabled


class _GradMode:
    """A context manager and decorator that sets grad mode and puts back what was there."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def __enter__(self) -> None:
        _before.set((*_before.get(), _enabled.get()))
        _enabled.set(self._enabled)

    def __exit__(self, *exc: object) -> None:
        *rest, before = _before.get()
        _before.set(tuple(rest))
        _enabled.set(before)

    def __call__(self, function: F) -> F:
        """Run `function` in this mode each time it is called; generators hold it while they run."""
        if inspect.isgeneratorfunction(function):
            return _wrap_generator(function, self._enabled)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _GradMode(self._enabled):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def _wrap_generator(function: Callable[..., Any], enabled: bool) -> Any:
    """Hold the mode while the generator's body runs, and the caller's mode while it is suspended."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        step, value = generator.send, None
        while True:
            with _GradMode(enabled):
                try:
                    item = step(value)
                except StopIteration as stop:
                    return stop.value
            try:
                value = yield item
                step = generator.send
            except GeneratorExit:
                with _GradMode(enabled):
                    generator.close()
                raise
            except BaseException as error:
                step, value = generator.throw, error

    return wrapped


class no_grad(_GradMode):
    """Ops inside record nothing, and their results do not require grad.

    Works as context manager and as decorator, and one object may be entered several times.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> with ng.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        # `@no_grad` without parentheses, as torch allows.
        if function is not None:
            return cls()(function)
        return super().__new__(cls)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__(False)


class enable_grad(no_grad):
    """Ops inside record a graph again, also within `no_grad`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> with ng.no_grad(), ng.enable_grad():
    ...     y = x * 2
    >>> y.requires_grad
    True
    """

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        _GradMode.__init__(self, True)


class set_grad_enabled(_GradMode):
    """Set grad mode to `enabled` at once; as a context manager or decorator, only for its body.

    Parameters
    ----------
    enabled : bool
        Whether ops record a graph.

    Examples
    --------
    >>> import numbagrad as ng
    >>> with ng.set_grad_enabled(False):
    ...     ng.is_grad_enabled()
    False
    """

    def __init__(self, enabled: bool) -> None:
        super().__init__(bool(enabled))
        self._before = mode.enabled
        mode.enabled = self._enabled

    def __enter__(self) -> None:
        _before.set((*_before.get(), self._before))
        _enabled.set(self._enabled)
        # A second entry of the same object starts from what is set then.
        self._before = self._enabled

    def __call__(self, function: F) -> F:
        mode.enabled = self._before
        return super().__call__(function)


_multithreading: ContextVar[bool] = ContextVar("numbagrad_multithreading", default=True)


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was last told."""
    return _multithreading.get()


class set_multithreading_enabled:
    """Accepted for PyTorch's sake: backward runs in the thread that calls it, so there is nothing to switch.

    Examples
    --------
    >>> import numbagrad as ng
    >>> with ng.autograd.set_multithreading_enabled(False):
    ...     ng.autograd.is_multithreading_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self._before = _multithreading.get()
        _multithreading.set(self.mode)

    def __enter__(self) -> None:
        _multithreading.set(self.mode)

    def __exit__(self, *exc: object) -> None:
        _multithreading.set(self._before)
