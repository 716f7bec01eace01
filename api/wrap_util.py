"""`autograd.wrap_util`."""

from functools import wraps

from numbagrad.ops.hips import unary_to_nary

__all__ = ["unary_to_nary", "wraps"]
