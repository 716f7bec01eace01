"""`autograd.core`: what programs import of it."""

from numbagrad.ops.extending import (
    VSpace,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    primitive,
    vspace,
)
from numbagrad.ops.hips import unary_jvp as make_jvp
from numbagrad.ops.hips import unary_vjp as make_vjp

__all__ = [
    "VSpace",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "make_jvp",
    "make_vjp",
    "primitive",
    "vspace",
]
