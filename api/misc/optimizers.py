"""`autograd.misc.optimizers`."""

from numbagrad.ops.hips_misc import adam, rmsprop, sgd, unflatten_optimizer

__all__ = ["adam", "rmsprop", "sgd", "unflatten_optimizer"]
