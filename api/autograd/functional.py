"""PyTorch's `torch.autograd.functional`: Jacobians and Hessians of functions, and products with them."""

from numbagrad.ops.functional import hessian, hvp, jacobian, jvp, vhp, vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
