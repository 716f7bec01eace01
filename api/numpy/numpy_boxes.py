"""`autograd.numpy.numpy_boxes`."""

from numbagrad.engine.tensor import Tensor as ArrayBox

__all__ = ["ArrayBox"]
