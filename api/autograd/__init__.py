"""PyTorch's `torch.autograd`: gradients over a recorded graph."""

from numbagrad.engine.autograd import (
    Variable,
    backward,
    enable_grad,
    grad,
    no_grad,
    set_grad_enabled,
)
from numbagrad.engine.mode import is_grad_enabled

__all__ = ["Variable", "backward", "enable_grad", "grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]
