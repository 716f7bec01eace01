"""`autograd.differential_operators`: the same functions as at the top level."""

from numbagrad.ops.hips import (
    checkpoint,
    deriv,
    grad_and_aux,
    grad_named,
    hessian_tensor_product,
    holomorphic_grad,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    vector_jacobian_product,
)
from numbagrad.ops.transforms import (
    elementwise_grad,
    grad,
    hessian,
    hessian_vector_product,
    jacobian,
    value_and_grad,
)

__all__ = [
    "checkpoint",
    "deriv",
    "elementwise_grad",
    "grad",
    "grad_and_aux",
    "grad_named",
    "hessian",
    "hessian_tensor_product",
    "hessian_vector_product",
    "holomorphic_grad",
    "jacobian",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_jvp_reversemode",
    "make_vjp",
    "multigrad_dict",
    "tensor_jacobian_product",
    "value_and_grad",
    "vector_jacobian_product",
]
