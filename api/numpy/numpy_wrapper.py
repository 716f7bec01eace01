"""`autograd.numpy.numpy_wrapper`."""

from numbagrad.ops.extending import wrap_namespace

__all__ = ["wrap_namespace"]
