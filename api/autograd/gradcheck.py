"""PyTorch's `torch.autograd.gradcheck`: gradients against finite differences."""

from numbagrad.ops.gradcheck import GradcheckError, gradcheck, gradgradcheck

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
