"""Registration with other libraries that choose by the type of an array.

>>> import numbagrad.interop
>>> numbagrad.interop.register_einops()
>>> import einops, numbagrad as ng
>>> einops.rearrange(ng.ones((2, 3)), "a b -> b a").shape
(3, 2)
"""

from numbagrad.ops.einops_backend import register_einops as register_einops

__all__ = ["register_einops"]
