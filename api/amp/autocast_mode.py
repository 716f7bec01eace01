"""`autocast`, and the decorators that tell it what to do about custom Functions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextvars import Token
from typing import Any

import numpy as np

from numbagrad.engine.layout import is_half
from numbagrad.ops import autocast as state
from numbagrad.ops.operands import as_dtype

DEVICES = ("cpu", "cuda")
_DEFAULT = "bfloat16"


class autocast:
    """Within it, products of matrices run in 16 bits and delicate ops in float32, whatever they are given.

    As a context manager or a decorator; instances may be nested, and entered again. Enter it around the forward pass
    and the loss only: backward runs in the dtypes that the forward chose.

    Parameters
    ----------
    device_type : {"cpu", "cuda"}
        "cuda" without such a device gives a warning and does nothing, as in PyTorch.
    dtype : dtype, optional
        float16 or bfloat16, the default. Others give a warning and do nothing.
    enabled : bool, optional
        False makes a region in which nothing is cast.
    cache_enabled : bool, optional
        Whether a parameter that is used several times is cast once. Default: as around, else True. A parameter that is
        written to is cast again, which PyTorch does not see.

    Examples
    --------
    >>> import numpy as np
    >>> import numbagrad as ng
    >>> x = ng.tensor(np.ones((2, 3), np.float32))
    >>> @ng.amp.autocast("cpu", dtype=np.float16)
    ... def gram(x):
    ...     return x @ x.T
    >>> gram(x).dtype.name
    'float16'
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        _check_device(device_type)
        self.device = device_type
        self.enabled = bool(enabled)
        self.cache_enabled = cache_enabled
        self.dtype: np.dtype | None = None
        if self.enabled and device_type == "cuda":
            warnings.warn(
                "User provided device_type of 'cuda', but CUDA is not available. Disabling", UserWarning, stacklevel=2
            )
            self.enabled = False
        if self.enabled or dtype is not None:
            self._choose(as_dtype(_DEFAULT if dtype is None else dtype))
        self._tokens: list[Token[Any]] = []

    def _choose(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        if self.enabled and not is_half(dtype):
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\nCPU Autocast only "
                f"supports dtype of bfloat16, float16 currently; got {dtype}.",
                UserWarning,
                stacklevel=3,
            )
            self.enabled = False

    def __enter__(self) -> autocast:
        self._tokens.append(state.enter(self.enabled, self.dtype, self.cache_enabled))
        return self

    def __exit__(self, *exc: object) -> None:
        state.leave(self._tokens.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call


def _check_device(device_type: str) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in DEVICES:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'; wanted 'cpu'")


def is_autocast_available(device_type: str) -> bool:
    """Whether there is an autocast for a device.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.amp.is_autocast_available("cpu")
    True
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    return device_type == "cpu"


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """Whether an autocast is at work here.

    Examples
    --------
    >>> import numpy as np
    >>> import numbagrad as ng
    >>> with ng.amp.autocast("cpu", dtype=np.float16):
    ...     ng.amp.is_autocast_enabled()
    True
    """
    _check_device(device_type)
    inner = state.current()
    return device_type == "cpu" and inner is not None and inner.enabled


def get_autocast_dtype(device_type: str = "cpu") -> np.dtype:
    """The dtype that products run in here, or would run in by default.

    Examples
    --------
    >>> import numpy as np
    >>> import numbagrad as ng
    >>> with ng.amp.autocast("cpu", dtype=np.float16):
    ...     ng.amp.get_autocast_dtype("cpu").name
    'float16'
    """
    _check_device(device_type)
    inner = state.current()
    return as_dtype(_DEFAULT) if inner is None or inner.dtype is None else inner.dtype


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept here.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.amp.is_autocast_cache_enabled()
    True
    """
    inner = state.current()
    return True if inner is None else inner.caches


def clear_autocast_cache() -> None:
    """Forget the casts of parameters that are kept.

    Examples
    --------
    >>> import numbagrad as ng
    >>> ng.amp.clear_autocast_cache()
    """
    inner = state.current()
    if inner is not None:
        inner.cache.clear()


# ----- Custom Functions -----


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorator for the ``forward`` of a custom Function that is used under autocast.

    Parameters
    ----------
    fwd : callable, optional
        A ``forward(ctx, ...)``.
    device_type : str
        "cpu".
    cast_inputs : dtype, optional
        Under autocast, cast floating tensors (float64 aside) among the arguments to this, also in containers, and run
        without autocast. Default: run with the autocast that is there.

    Examples
    --------
    >>> import numpy as np
    >>> import numbagrad as ng
    >>> class Double(ng.autograd.Function):
    ...     @staticmethod
    ...     @ng.amp.custom_fwd(device_type="cpu", cast_inputs=np.float32)
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @ng.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> with ng.amp.autocast("cpu", dtype=np.float16):
    ...     Double.apply(ng.tensor(np.ones(2, np.float16))).dtype.name
    'float32'
    """
    _check_device(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    wanted = None if cast_inputs is None else as_dtype(cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        active = is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type) if active else None
        ctx._fwd_used_autocast = active and wanted is None
        if wanted is None or not active:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *state.cast_nested(args, wanted), **state.cast_nested(kwargs, wanted))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorator for the ``backward`` of a Function whose ``forward`` has `custom_fwd`: runs as that did.

    Parameters
    ----------
    bwd : callable, optional
        A ``backward(ctx, *grads)``.
    device_type : str
        "cpu".

    Examples
    --------
    See :func:`custom_fwd`.
    """
    _check_device(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return backward
