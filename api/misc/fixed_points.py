"""`autograd.misc.fixed_points`."""

from numbagrad.ops.hips_misc import fixed_point

__all__ = ["fixed_point"]
