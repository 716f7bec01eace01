"""PyTorch's `torch.autograd.function`: functions with a backward of one's own."""

from numbagrad.engine.function import Function, FunctionCtx, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
