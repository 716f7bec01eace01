"""Inference mode: no graph, and tensors made inside cannot enter one later."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from numbagrad.engine.mode import _GradMode
from numbagrad.engine.node import Storage, inference

_inside: ContextVar[bool] = ContextVar("numbagrad_inference_mode", default=False)


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode.

    Examples
    --------
    >>> import numbagrad as ng
    >>> with ng.inference_mode():
    ...     ng.is_inference_mode_enabled()
    True
    """
    return _inside.get()


class InferenceStorage(Storage):
    """Memory whose writes are not counted, so that no graph can rely on it."""

    __slots__ = ()

    @property
    def version(self) -> int:
        if _inside.get():
            return 0
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
            "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use "
            "it in autograd, or use numbagrad.no_grad() instead of numbagrad.inference_mode()."
        )

    @version.setter
    def version(self, value: int) -> None:
        pass

    def refuse_writes(self) -> None:
        """Raise unless in inference mode."""
        if not _inside.get():
            raise RuntimeError(
                "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get "
                "a normal tensor before doing inplace update."
            )


def mark(tensor: Any) -> None:
    """Make a new tensor an inference tensor if it is made in inference mode."""
    if _inside.get():
        tensor._storage = InferenceStorage(tensor._data)


class inference_mode(_GradMode):
    """Like `no_grad`, and tensors made inside cannot enter a graph later.

    Context manager and decorator. Tensors made inside are "inference tensors": nothing that would save one for backward
    takes it, and outside they cannot be written in place.

    Parameters
    ----------
    mode : bool, optional
        False turns inference mode off inside of it.

    Raises
    ------
    RuntimeError
        Later, where an inference tensor is saved for backward or written in place.

    Examples
    --------
    >>> import numbagrad as ng
    >>> w = ng.tensor([2.0], requires_grad=True)
    >>> with ng.inference_mode():
    ...     y = w * 3
    >>> y.requires_grad, y.is_inference()
    (False, True)
    >>> w * y  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    RuntimeError: Inference tensors cannot be saved for backward. ...
    """

    def __new__(cls, mode: Any = True) -> Any:
        # `@inference_mode` without parentheses, as torch allows.
        if callable(mode):
            return cls()(mode)
        return super().__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)
        self.mode = mode
        self._tokens: list[Any] = []

    def __enter__(self) -> None:
        super().__enter__()
        self._tokens.append(_inside.set(self.mode))
        if self.mode:
            inference.append(mark)

    def __exit__(self, *exc: object) -> None:
        if self.mode:
            inference.remove(mark)
        _inside.reset(self._tokens.pop())
        super().__exit__(*exc)

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Run `function` in this mode each time it is called."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with inference_mode(self.mode):
                return function(*args, **kwargs)

        return wrapped


__all__ = ["InferenceStorage", "inference_mode", "is_inference_mode_enabled", "mark"]
