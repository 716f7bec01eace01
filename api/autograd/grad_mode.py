"""PyTorch's `torch.autograd.grad_mode`: whether ops record a graph."""

from numbagrad.engine.inference import inference_mode
from numbagrad.engine.mode import enable_grad, no_grad, set_grad_enabled, set_multithreading_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]
