"""`GradScaler`: small gradients of 16 bits would become zero, so the loss is made larger and the gradients smaller."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import Any

import numpy as np

from numbagrad.engine.graph import increment_version
from numbagrad.engine.layout import is_half
from numbagrad.engine.tensor import Tensor
from numbagrad.jit.unscale import unscale

_LARGEST = float(np.finfo(np.float32).max)
_EMPTY = "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."


class _Stage(Enum):
    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Optimizer:
    """What is known of an optimizer since the last update."""

    def __init__(self) -> None:
        self.stage = _Stage.READY
        self.checked = False
        self.found_inf = False


class GradScaler:
    """Scales losses, unscales gradients, and leaves out the steps whose gradients are not finite.

    Parameters
    ----------
    device : str, optional
        "cpu".
    init_scale : float, optional
        The first scale.
    growth_factor : float, optional
        The scale is multiplied by this after `growth_interval` steps in a row with finite gradients.
    backoff_factor : float, optional
        And by this after a step without.
    growth_interval : int, optional
    enabled : bool, optional
        False: `scale` gives back what it gets, and `step` is the optimizer's.

    Notes
    -----
    The optimizer may be any object with ``param_groups``, a list of dicts with "params", and a method ``step``.

    Examples
    --------
    >>> import numpy as np
    >>> import numbagrad as ng
    >>> w = ng.tensor(np.ones(3, np.float32), requires_grad=True)
    >>> class Descent:
    ...     param_groups = [{"params": [w]}]
    ...     def step(self):
    ...         w.data = w.data - 0.5 * w.grad
    >>> scaler, optimizer = ng.amp.GradScaler(init_scale=8.0), Descent()
    >>> scaler.scale((w * w).sum()).backward()
    >>> w.grad
    tensor([16., 16., 16.], dtype=float32)
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.detach()
    tensor([0., 0., 0.], dtype=float32)
    """

    def __init__(
        self,
        device: str = "cpu",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if device != "cpu":
            raise ValueError(f"device {device!r} is not available: tensors live on 'cpu'")
        self._device = device
        self._enabled = bool(enabled)
        if self._enabled and growth_factor <= 1.0:
            raise ValueError(f"The growth factor must be > 1.0, got {growth_factor}")
        if self._enabled and backoff_factor >= 1.0:
            raise ValueError(f"The backoff factor must be < 1.0, got {backoff_factor}")
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._optimizers: dict[int, _Optimizer] = defaultdict(_Optimizer)

    # ------------------------------------------------------------------ a step
    def scale(self, outputs: Any) -> Any:
        """The outputs times the scale.

        Parameters
        ----------
        outputs : Tensor or nested iterables of Tensors

        Returns
        -------
        Tensor, or containers like those that came

        Raises
        ------
        ValueError
            If there is something else in it.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return _times(outputs, self._scale)
        if isinstance(outputs, (list, tuple)):
            made = [self.scale(o) for o in outputs]
            return type(outputs)(*made) if hasattr(outputs, "_fields") else type(outputs)(made)
        if hasattr(outputs, "__iter__") and not isinstance(outputs, (str, bytes, np.ndarray)):
            return map(self.scale, outputs)
        raise ValueError(f"outputs must be a Tensor or an iterable of Tensors, got {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place: to clip them before the step.

        Raises
        ------
        RuntimeError
            If they are unscaled already.
        ValueError
            For gradients of float16, which lose what scaling has saved: keep parameters in float32.
        """
        if not self._enabled:
            return
        known = self._optimizers[id(optimizer)]
        if known.stage is _Stage.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if known.stage is _Stage.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        grads = _gradients(optimizer)
        if any(g.dtype == np.float16 for g in grads):
            raise ValueError(
                "Attempting to unscale FP16 gradients. Keep the parameters in float32 and let autocast cast them"
            )
        finite = [unscale(g._data, 1 / self._scale) for g in grads]
        increment_version(grads)
        known.checked = bool(grads)
        known.found_inf = not all(finite)
        known.stage = _Stage.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale, unless that was done, and let the optimizer step if all its gradients are finite.

        Parameters
        ----------
        optimizer
        *args, **kwargs
            For its ``step``; closures are not supported.

        Returns
        -------
        Any
            What its ``step`` returns; None where it was left out.

        Raises
        ------
        RuntimeError
            If it stepped already since the last `update`, or no parameter has a gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        known = self._optimizers[id(optimizer)]
        if known.stage is _Stage.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if known.stage is _Stage.READY:
            self.unscale_(optimizer)
        if not known.checked:
            raise RuntimeError(
                "No inf checks were recorded for this optimizer: none of its parameters has a gradient; "
                "call backward() on a scaled loss first"
            )
        result = None if known.found_inf else optimizer.step(*args, **kwargs)
        known.stage = _Stage.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Choose the scale for the next iteration; call it once, after all optimizers have stepped.

        Parameters
        ----------
        new_scale : float or Tensor, optional
            The scale, instead of growing or backing off.

        Raises
        ------
        RuntimeError
            If no gradients have been unscaled since the last one.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = _number(new_scale)
        else:
            seen = [known for known in self._optimizers.values() if known.checked]
            if not seen:
                raise RuntimeError(
                    "No inf checks were recorded prior to update: call step() or unscale_() on an optimizer first"
                )
            self._adapt(any(known.found_inf for known in seen))
        self._optimizers.clear()

    def _adapt(self, found_inf: bool) -> None:
        if found_inf:
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            grown = self._scale * self._growth_factor
            # A scale that float32 does not hold would make every loss infinite.
            self._scale = grown if grown <= _LARGEST else self._scale
            self._growth_tracker = 0

    # ------------------------------------------------------------------ settings
    def get_scale(self) -> float:
        """The scale; 1.0 where scaling is disabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by when it grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after gradients that are not finite."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by after gradients that are not finite."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many steps in a row must be finite before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set how many steps in a row must be finite before the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether anything is scaled."""
        return self._enabled

    # ------------------------------------------------------------------ keeping
    def state_dict(self) -> dict[str, Any]:
        """The scale and what decides about it; empty where scaling is disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, PyTorch's too.

        Raises
        ------
        RuntimeError
            If it is empty.
        KeyError
            If something is missing; nothing is taken over then.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(_EMPTY)
        names = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
        scale, *rest = [state_dict[name] for name in names]
        self._scale = float(scale)
        self._growth_factor, self._backoff_factor, self._growth_interval, self._growth_tracker = rest

    def __getstate__(self) -> dict[str, Any]:
        if self._optimizers:
            raise RuntimeError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                "scaler.update()."
            )
        return {**self.__dict__, "_optimizers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._optimizers = defaultdict(_Optimizer)


def _times(output: Tensor, scale: float) -> Tensor:
    """In the dtype of the output; float16 is not asked to hold the scale itself."""
    if not is_half(output.dtype):
        return output * scale
    return (output.astype(np.float32) * scale).astype(output.dtype)  # type: ignore[attr-defined]


def _gradients(optimizer: Any) -> list[Tensor]:
    """The gradients of an optimizer's parameters, each once."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return list({id(p.grad): p.grad for p in params if p.grad is not None}.values())


def _number(value: Any) -> float:
    if isinstance(value, Tensor):
        if value.size != 1 or value.requires_grad:
            raise ValueError(
                f"new_scale must be a float or a Tensor of one element with requires_grad=False, got shape "
                f"{value.shape} and requires_grad={value.requires_grad}"
            )
        return float(value.item())
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"new_scale must be a float or a Tensor, got {type(value).__name__}")
    return float(value)


__all__ = ["GradScaler"]
