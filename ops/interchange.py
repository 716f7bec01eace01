"""Exchange with other libraries: DLPack both ways, the array API's attributes, and NumPy's index tricks."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops import creation
from numbagrad.ops.creation import check_device
from numbagrad.ops.joining import concatenate
from numbagrad.ops.operands import as_tensor, holds_tensor
from numbagrad.ops.registry import stands_for
from numbagrad.ops.shape import reshape, transpose

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Editions of the array API standard that the namespace serves."""


def _dlpack(self: Tensor, **kwargs: Any) -> Any:
    """A capsule that shares the memory, for ``from_dlpack`` of another library.

    Raises
    ------
    BufferError
        If the tensor requires grad: the other library would not know. Detach it first.
    """
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    return self._data.__dlpack__(**kwargs)


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """Kind and number of the device: the CPU."""
    return self._data.__dlpack_device__()


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array, such as PyTorch's.

    Parameters
    ----------
    x : object with ``__dlpack__``
    device : {"cpu"}, optional
    copy : bool, optional
        True always copies, False raises where it must; by default memory is shared where it can be.

    Returns
    -------
    Tensor
        A leaf. Memory that was exported as read-only cannot be written through it.

    Examples
    --------
    >>> import numpy as np
    >>> import numbagrad as ng
    >>> ng.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    check_device(device)
    return wrap(np.from_dlpack(x, device=device, copy=copy))


def _namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    """The array API standard's functions for Tensors, `numbagrad.array_api`."""
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(f"array API version {api_version!r} is not here, only {', '.join(VERSIONS)}")
    return importlib.import_module("numbagrad.array_api")


def _to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor itself, which is on the CPU already."""
    if stream is not None:
        raise ValueError(f"to_device: stream {stream!r} is not supported on the CPU")
    check_device(device)
    return self


class Concatenator:
    """``r_`` and ``c_``: joins what stands between the brackets."""

    def __init__(self, plain: Any, axis: int, ndmin: int, trans1d: int) -> None:
        self.plain = plain
        self.usual = (axis, ndmin, trans1d)

    def __getitem__(self, key: Any) -> Any:
        if not holds_tensor(key):
            return self.plain[key]
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, trans1d = self._directive(items.pop(0)) if isinstance(items[0], str) else self.usual
        return concatenate([self._item(item, ndmin, trans1d) for item in items], axis=axis)

    def _directive(self, text: str) -> tuple[int, int, int]:
        try:
            given = [int(part) for part in text.split(",")]
        except ValueError:
            raise ValueError(f"unknown special directive {text!r}: matrices do not hold Tensors") from None
        return tuple(given + list(self.usual[len(given) :]))  # type: ignore[return-value]

    def _item(self, item: Any, ndmin: int, trans1d: int) -> Tensor:
        x = as_tensor(self.plain[item] if isinstance(item, slice) else item)
        missing = ndmin - x.ndim
        if missing <= 0:
            return x
        made = reshape(x, (1,) * missing + x.shape)
        if trans1d == -1 or not x.ndim:
            return made
        first = trans1d + missing + 1 if trans1d < 0 else trans1d
        axes = list(range(ndmin))
        return transpose(made, axes[:first] + axes[missing:] + axes[first:missing])

    def __len__(self) -> int:
        return 0


r_ = Concatenator(np.r_, 0, 1, -1)
c_ = Concatenator(np.c_, -1, 2, 0)


# Where ``like=tensor`` asks for it, NumPy's creation functions make Tensors.
for _name in ("arange", "array", "asarray", "empty", "eye", "identity", "ones", "tri", "zeros"):
    stands_for(getattr(np, _name))(getattr(creation, _name))

METHODS: dict[str, Any] = {
    "__array_namespace__": _namespace,
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "to_device": _to_device,
}

__all__ = ["c_", "from_dlpack", "r_"]
