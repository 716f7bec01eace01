"""What HIPS autograd has at its top level beyond `transforms`, in its names and arguments.

Everything is made of `grad`, `vjp` and `jvp`. `argnum` is an int or a sequence of ints, arguments may be nested
containers, and transforms nest in any order.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops import conversion, products, reductions
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.transforms import Argnum, grad, jacobian, jvp, vjp
from numbagrad.ops.trees import flatten, map_leaves

Operator = Callable[..., Any]


# ----- From functions of one variable to functions of many -----


def unary_to_nary(operator: Operator) -> Operator:
    """Give an operator on functions of one variable the argument `argnum`.

    Parameters
    ----------
    operator : callable
        ``operator(f, x, *args)`` for a function of one variable.

    Returns
    -------
    callable
        ``(f, argnum=0, *args) -> function`` of the arguments of f.
    """

    @functools.wraps(operator)
    def nary(function: Operator, argnum: Argnum = 0, *op_args: Any, **op_kwargs: Any) -> Operator:
        if not callable(function):
            raise TypeError(f"{operator.__name__} wants a function, got {type(function).__name__}")

        @functools.wraps(function, updated=())
        def applied(*args: Any, **kwargs: Any) -> Any:
            one = isinstance(argnum, (int, np.integer))
            numbers = [argnum] if one else list(argnum)  # type: ignore[arg-type]
            _check_numbers(function, numbers, args)

            def unary(x: Any) -> Any:
                given = list(args)
                for n, value in zip(numbers, (x,) if one else x, strict=True):
                    given[n] = value
                return function(*given, **kwargs)

            return operator(unary, args[numbers[0]] if one else tuple(args[n] for n in numbers), *op_args, **op_kwargs)

        return applied

    return nary


def _check_numbers(function: Operator, numbers: Sequence[int], args: Sequence[Any]) -> None:
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise IndexError(f"argnum {n} of {_name(function)}: it was called with {len(args)} positional arguments")


def _name(function: Operator) -> str:
    return getattr(function, "__name__", type(function).__name__)


def unary_vjp(function: Operator, x: Any) -> tuple[Operator, Any]:
    """``(pullback, value)`` of a function of one variable, which may be a container."""
    value, pullback = vjp(function, x)
    return lambda g: pullback(g)[0], value


def unary_jvp(function: Operator, x: Any) -> Operator:
    """``tangent -> (value, tangent of the value)``."""
    return lambda v: jvp(function, (x,), (v,))


make_vjp = unary_to_nary(unary_vjp)
make_vjp.__doc__ = """``make_vjp(f)(x)`` is ``(pullback, f(x))``.

Examples
--------
>>> import numbagrad as ng, numbagrad.numpy as np
>>> pullback, value = ng.make_vjp(np.sin)(0.0)
>>> float(pullback(2.0))
2.0
"""
make_jvp = unary_to_nary(unary_jvp)
make_jvp.__doc__ = """``make_jvp(f)(x)`` is a function ``v -> (f(x), derivative of f at x along v)``.

Examples
--------
>>> import numbagrad as ng, numbagrad.numpy as np
>>> value, along = ng.make_jvp(np.sin)(0.0)(2.0)
>>> float(along)
2.0
"""


# ----- Derivatives -----


@unary_to_nary
def deriv(function: Operator, x: Any) -> Any:
    """Derivative along ones, by forward mode: of a function of one number its derivative.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> float(ng.deriv(np.sin)(0.0))
    1.0
    """
    return jvp(function, (x,), (map_leaves(_ones, x),))[1]


def _ones(leaf: Any) -> Any:
    array = np.asarray(leaf._data if isinstance(leaf, Tensor) else leaf)
    return np.ones(array.shape, array.dtype if array.dtype.kind in "fc" else float)


@unary_to_nary
def holomorphic_grad(function: Operator, x: Any) -> Any:
    """Derivative of a holomorphic function of complex numbers.

    Examples
    --------
    >>> import numbagrad as ng
    >>> complex(ng.holomorphic_grad(lambda z: z * z)(1 + 2j))
    (2+4j)
    """
    if np.asarray(x._data if isinstance(x, Tensor) else x).dtype.kind != "c":
        warnings.warn("Input to holomorphic_grad is not complex", stacklevel=3)
    return grad(lambda z: conversion.real(as_tensor(function(z))))(x)


def grad_named(function: Operator, argname: str) -> Operator:
    """`grad` with respect to the argument of that name.

    Examples
    --------
    >>> import numbagrad as ng
    >>> float(ng.grad_named(lambda x, y: x * y, "y")(2.0, 3.0))
    2.0
    """
    names = list(inspect.signature(function).parameters)
    if argname not in names:
        raise ValueError(f"{_name(function)} has no argument {argname!r}, only {', '.join(names)}")
    return grad(function, names.index(argname))


def multigrad_dict(function: Operator) -> Operator:
    """Gradients with respect to all arguments at once, as a dict by name.

    Examples
    --------
    >>> import numbagrad as ng
    >>> {k: float(v) for k, v in ng.multigrad_dict(lambda x, y: x * y)(2.0, 3.0).items()}
    {'x': 3.0, 'y': 2.0}
    """
    signature = inspect.signature(function)

    @functools.wraps(function, updated=())
    def gradients(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def of_all(values: dict[str, Any]) -> Any:
            again = inspect.BoundArguments(signature, values)  # type: ignore[arg-type]
            return function(*again.args, **again.kwargs)

        return grad(of_all)(dict(bound.arguments))

    return gradients


@unary_to_nary
def grad_and_aux(function: Operator, x: Any) -> tuple[Any, Any]:
    """Gradient of the first of two results, and the second as it is.

    Examples
    --------
    >>> import numbagrad as ng
    >>> gradient, aux = ng.grad_and_aux(lambda x: (x * x, {"seen": 1}))(3.0)
    >>> float(gradient), aux
    (6.0, {'seen': 1})
    """
    kept: list[Any] = []

    def first(value: Any) -> Any:
        result, aux = function(value)
        kept.append(aux)
        return result

    gradient = grad(first)(x)
    inner = any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in flatten(x)[0])
    return gradient, map_leaves(lambda leaf: leaf if inner or not isinstance(leaf, Tensor) else _plain(leaf), kept[-1])


def _plain(leaf: Tensor) -> Any:
    array = leaf._data
    return array[()] if array.ndim == 0 else array.copy()


# ----- Products with derivatives -----


def hessian_tensor_product(function: Operator, argnum: int = 0) -> Operator:
    """The function ``(*args, tensor) -> Hessian . tensor``, contracted over all axes of the tensor.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> ng.hessian_tensor_product(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 6., 12.])
    """
    gradient = grad(function, argnum)

    def contracted(*args: Any, **kwargs: Any) -> Any:
        *given, vector = args
        return products.tensordot(gradient(*given, **kwargs), vector, np.ndim(vector))

    return grad(contracted, argnum)


def tensor_jacobian_product(function: Operator, argnum: int = 0) -> Operator:
    """The function ``(*args, tensor) -> tensor . Jacobian``, contracted over all axes of the tensor.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> ng.tensor_jacobian_product(np.sin)(np.array([0.0, 0.0]), np.array([1.0, 2.0]))
    array([1., 2.])
    """

    def contracted(*args: Any, **kwargs: Any) -> Any:
        *given, vector = args
        return products.tensordot(vector, function(*given, **kwargs), axes=np.ndim(vector))

    return jacobian(contracted, argnum)


vector_jacobian_product = tensor_jacobian_product


@unary_to_nary
def make_hvp(function: Operator, x: Any) -> tuple[Operator, Any]:
    """``make_hvp(f)(x)`` is ``(v -> Hessian . v, gradient)``.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> product, gradient = ng.make_hvp(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    >>> product(np.array([1.0, 1.0]))
    array([ 6., 12.])
    """
    return unary_vjp(grad(function), x)


@unary_to_nary
def make_jvp_reversemode(function: Operator, x: Any) -> Operator:
    """``v -> Jacobian . v`` by two reverse passes."""
    pullback, value = unary_vjp(function, x)
    return unary_vjp(pullback, map_leaves(_zeros, value))[0]


def _zeros(leaf: Any) -> Any:
    return _ones(leaf) * 0


def _half_square(x: Any) -> Any:
    return reductions.sum(as_tensor(x) ** 2, axis=-1) / 2


def make_ggnvp(f: Operator, g: Operator = _half_square, f_argnum: int = 0) -> Operator:
    """Products with the generalised Gauss-Newton matrix of ``g(f(x))``: J' H J v.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> ng.make_ggnvp(np.sin)(np.array([0.0, 0.0]))(np.array([1.0, 2.0]))
    array([1., 2.])
    """

    def at(function: Operator, x: Any) -> Operator:
        pullback, value = unary_vjp(function, x)
        curvature, _ = unary_vjp(grad(g), value)
        return lambda v: pullback(curvature(jvp(function, (x,), (v,))[1]))

    return unary_to_nary(at)(f, f_argnum)


def checkpoint(function: Operator) -> Operator:
    """`function`, whose intermediate values are computed again for backward instead of being kept.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> from numbagrad.ops.hips import checkpoint
    >>> float(ng.grad(checkpoint(lambda x: np.sin(x) * x))(0.0))
    0.0
    """
    from numbagrad.ops.checkpoint import checkpoint as run

    return functools.wraps(function, updated=())(lambda *args, **kwargs: run(function, *args, **kwargs))


__all__ = [
    "deriv",
    "grad_and_aux",
    "grad_named",
    "hessian_tensor_product",
    "holomorphic_grad",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_vjp",
    "multigrad_dict",
    "tensor_jacobian_product",
    "vector_jacobian_product",
]
