"""Mixed precision: products in 16 bits, everything delicate in float32, gradients scaled so that none vanishes.

As `torch.amp`, on the CPU:

>>> import numpy as np
>>> import numbagrad as ng
>>> w = ng.tensor(np.ones((2, 2), np.float32), requires_grad=True)
>>> with ng.amp.autocast("cpu", dtype=np.float16):
...     y = w @ w
>>> y.dtype.name, w.dtype.name
('float16', 'float32')
"""

from numbagrad.amp.autocast_mode import (
    autocast,
    clear_autocast_cache,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_cache_enabled,
    is_autocast_enabled,
)
from numbagrad.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "clear_autocast_cache",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_cache_enabled",
    "is_autocast_enabled",
]
