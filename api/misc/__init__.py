"""`autograd.misc`: containers as vectors, plain optimisers, fixed points."""

# The module comes first, so that importing it later does not take the function's place.
from numbagrad.misc.flatten import flatten

__all__ = ["flatten"]
