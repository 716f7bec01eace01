"""Checkpointing: keep nothing of a function's forward pass but its arguments, and run it again in backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from numbagrad.engine.mode import enable_grad, is_grad_enabled
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.engine.watch import Packed, current_hooks, saved_tensors_hooks
from numbagrad.ops.autocast import State, current, enter, leave

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


class CheckpointError(RuntimeError):
    """A function saved other tensors when it ran again than the first time."""


class _Enough(BaseException):
    """Everything that backward needs was computed again."""


class _Place:
    """Stands for a value that is not kept: its number, and its shape and dtype for checking."""

    __slots__ = ("frame", "layout", "nr")

    def __init__(self, frame: _Frame, nr: int, layout: Any) -> None:
        self.frame = frame
        self.nr = nr
        self.layout = layout


class _Frame:
    """One checkpointed call."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, options: dict[str, Any]) -> None:
        self.function = function
        self.given = [_held(a) for a in args]
        self.kwargs = {k: _held(v) for k, v in kwargs.items()}
        self.random = _random() if options["preserve_rng_state"] else None
        self.autocast = current()
        self.again: AbstractContextManager[Any] = options["again"]
        self.check = options["determinism_check"] != "none"
        self.early_stop = options["early_stop"]
        self.count = 0
        self.values: dict[int, Tensor] = {}

    def pack(self, tensor: Tensor) -> _Place:
        """Keep nothing but a number."""
        self.count += 1
        return _Place(self, self.count - 1, tensor._layout)

    @staticmethod
    def unpack(place: _Place) -> Tensor:
        """The value, computed again if it is not there; it is given away, so that its memory can go after use."""
        frame = place.frame
        if place.nr not in frame.values:
            frame.run_again(place)
        value = frame.values.pop(place.nr)
        if frame.check and value._layout is not place.layout and _metadata(value._layout) != _metadata(place.layout):
            raise CheckpointError(
                "checkpoint: Recomputed values for the following tensors have different metadata than during the "
                f"forward pass: tensor at position {place.nr} was {_metadata(place.layout)} and is "
                f"{_metadata(value._layout)}. The function must compute the same when it runs again"
            )
        return value

    def run_again(self, wanted: _Place) -> None:
        """Compute the function's saved values again."""
        self.values.clear()
        seen = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal seen
            self.values[seen] = wrap(tensor._data)
            seen += 1
            if self.early_stop and seen == self.count:
                raise _Enough
            return tensor

        with enable_grad(), _random_state(self.random), _autocast(self.autocast), self.again:
            args = [_taken(a) for a in self.given]
            kwargs = {k: _taken(v) for k, v in self.kwargs.items()}
            try:
                with saved_tensors_hooks(keep, lambda kept: kept):
                    self.function(*args, **kwargs)
            except _Enough:
                pass
        if seen != self.count:
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {self.count}\n"
                f"Number of tensors saved during recomputation: {seen}.\n"
                "The function must compute the same when it runs again"
            )


def _metadata(layout: Any) -> tuple[Any, Any]:
    return layout.shape, layout.dtype


def _held(value: Any) -> Any:
    """An argument; a tensor within an outer checkpoint is left to that, so that its memory can go."""
    hooks = current_hooks()
    if hooks is None or not isinstance(value, Tensor) or value.is_leaf:
        return value
    return Packed(value, hooks)


def _taken(value: Any) -> Any:
    return value.unpack() if isinstance(value, Packed) else value


def _random() -> Any:
    return np.random.get_state()  # noqa: NPY002 - the user's function may use it


@contextmanager
def _random_state(state: Any) -> Iterator[None]:
    """NumPy's global random numbers as they were; afterwards as they are."""
    if state is None:
        yield
        return
    now = _random()
    np.random.set_state(state)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(now)  # noqa: NPY002


@contextmanager
def _autocast(state: State | None) -> Iterator[None]:
    """Autocast as it was in the forward pass; casts are not shared with what is there now."""
    token = enter(False, None, False) if state is None else enter(state.enabled, state.dtype, state.caches)
    try:
        yield
    finally:
        leave(token)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = False,
    context_fn: Callable[[], Contexts] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    preserve_rng_state: bool = True,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function, keep none of its intermediate values, and compute them again when backward needs them.

    Trades time for memory. Checkpoints may be nested, and differentiated any number of times.

    Parameters
    ----------
    function : callable
        Must compute the same when it is called again.
    *args, **kwargs
        Its arguments.
    use_reentrant : bool, optional
        Must be False: PyTorch's older way has restrictions that this one has not.
    context_fn : callable, optional
        Gives two context managers, for the forward pass and for running again.
    determinism_check : {"default", "none"}, optional
        Whether shapes and dtypes are compared when the function runs again.
    debug : bool, optional
        Accepted.
    preserve_rng_state : bool, optional
        Run again with the state that NumPy's global random numbers had. Generators of your own you must keep yourself.
    early_stop : bool, optional
        Stop running again when everything is there.

    Returns
    -------
    Any
        What the function returns.

    Raises
    ------
    CheckpointError
        In backward, if the function saves other tensors when it runs again.
    ValueError
        For `use_reentrant`, or another `determinism_check`.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([0.5, 1.0], requires_grad=True)
    >>> y = ng.checkpoint(lambda x: ng.exp(ng.exp(x)).sum(), x)
    >>> y.backward()
    >>> x.grad.shape
    (2,)
    """
    if use_reentrant:
        raise ValueError("use_reentrant=True is not here; leave it out: the other way computes the same")
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check must be 'default' or 'none', got {determinism_check!r}")
    first, again = (nullcontext(), nullcontext()) if context_fn is None else context_fn()
    if not is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    options = {
        "preserve_rng_state": preserve_rng_state,
        "again": again,
        "determinism_check": determinism_check,
        "early_stop": early_stop,
    }
    frame = _Frame(function, args, kwargs, options)
    with first, saved_tensors_hooks(frame.pack, _Frame.unpack):
        return function(*args, **kwargs)


__all__ = ["CheckpointError", "checkpoint"]
