"""`autograd.misc.flatten`."""

from numbagrad.ops.hips_misc import flatten, flatten_func

__all__ = ["flatten", "flatten_func"]
