"""`autograd.tracer`: values and their boxes, which are Tensors here."""

from numbagrad.engine.tensor import Tensor as Box
from numbagrad.ops.extending import getval, isbox, notrace_primitive, primitive

__all__ = ["Box", "getval", "isbox", "notrace_primitive", "primitive"]
