"""`autograd.test_util`: derivatives compared with differences."""

from numbagrad.ops.hips_misc import check_grads, combo_check

__all__ = ["check_grads", "combo_check"]
