"""HIPS autograd's tools: flattening containers, plain optimisers, fixed points, checks of gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.ops import joining, shape
from numbagrad.ops.extending import defvjp, primitive, vspace
from numbagrad.ops.hips import make_vjp, unary_jvp, unary_to_nary, unary_vjp
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.trees import flatten as leaves_of

TOLERANCE = 1e-6


# ----- Containers as vectors -----


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A container as one vector, and the function that makes the container of a vector. Dicts go by sorted keys.

    Examples
    --------
    >>> import numpy as np
    >>> from numbagrad.misc import flatten
    >>> vector, unflatten = flatten({"b": np.ones(2), "a": 3.0})
    >>> vector
    array([3., 1., 1.])
    >>> unflatten(vector)["a"]
    np.float64(3.0)
    """
    leaves, rebuild = leaves_of(_sorted(value))
    shapes = [np.shape(leaf) if not isinstance(leaf, Tensor) else leaf.shape for leaf in leaves]
    ends = np.cumsum([int(np.prod(s)) for s in shapes]).tolist()

    def unflatten(vector: Any) -> Any:
        total = ends[-1] if ends else 0
        if np.shape(vector) != (total,):
            raise ValueError(f"unflatten wants a vector of {total} items, got shape {np.shape(vector)}")
        starts = [0, *ends[:-1]] if ends else []
        return rebuild([_piece(vector[a:b], s) for a, b, s in zip(starts, ends, shapes, strict=True)])

    return _joined(leaves), unflatten


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value)((k, _sorted(value[k])) for k in sorted(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_sorted, value))
    return type(value)(map(_sorted, value)) if isinstance(value, (list, tuple)) else value


def _piece(part: Any, wanted: tuple[int, ...]) -> Any:
    made = part.reshape(wanted)
    return made if wanted or isinstance(made, Tensor) else made[()]


def _joined(leaves: Sequence[Any]) -> Any:
    if any(isinstance(leaf, Tensor) for leaf in leaves):
        return joining.concatenate([shape.ravel(as_tensor(leaf)) for leaf in leaves])
    return np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.zeros(0)


def flatten_func(function: Callable[..., Any], example: Any) -> tuple[Callable[..., Any], Callable[[Any], Any], Any]:
    """A function of containers as one of vectors, the unflattening, and the example as a vector."""
    vector, unflatten = flatten(example)
    return lambda x, *args: flatten(function(unflatten(x), *args))[0], unflatten, vector


# ----- Optimisers -----


def unflatten_optimizer(optimize: Callable[..., Any]) -> Callable[..., Any]:
    """Let an optimiser of vectors take containers."""

    @functools.wraps(optimize)
    def optimized(grad: Callable[..., Any], x0: Any, callback: Any = None, *args: Any, **kwargs: Any) -> Any:
        vector, unflatten = flatten(x0)

        def of_vectors(x: Any, i: int) -> Any:
            return flatten(grad(unflatten(x), i))[0]

        told = None if callback is None else lambda x, i, g: callback(unflatten(x), i, unflatten(g))
        return unflatten(optimize(of_vectors, vector, told, *args, **kwargs))

    return optimized


@unflatten_optimizer
def sgd(
    grad: Any, x: Any, callback: Any = None, num_iters: int = 200, step_size: float = 0.1, mass: float = 0.9
) -> Any:
    """Gradient descent with momentum, for ``grad(x, i)``."""
    velocity = np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@unflatten_optimizer
def rmsprop(
    grad: Any,
    x: Any,
    callback: Any = None,
    num_iters: int = 100,
    step_size: float = 0.1,
    gamma: float = 0.9,
    eps: float = 1e-8,
) -> Any:
    """Steps divided by the root of the running mean of squares (Hinton's lecture 6e)."""
    mean_square = np.ones(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        mean_square = gamma * mean_square + (1 - gamma) * g**2
        x = x - step_size * g / (mean_square**0.5 + eps)
    return x


@unflatten_optimizer
def adam(
    grad: Any,
    x: Any,
    callback: Any = None,
    num_iters: int = 100,
    step_size: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Any:
    """Adam (Kingma and Ba, arXiv:1412.6980)."""
    mean, square = np.zeros(len(x)), np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        mean = b1 * mean + (1 - b1) * g
        square = b2 * square + (1 - b2) * g**2
        corrected = mean / (1 - b1 ** (i + 1)), square / (1 - b2 ** (i + 1))
        x = x - step_size * corrected[0] / (corrected[1] ** 0.5 + eps)
    return x


# ----- Fixed points -----


@primitive
def fixed_point(f: Any, a: Any, x0: Any, distance: Any, tol: Any) -> Any:
    """The x with ``f(a)(x) = x``, by iteration from x0 until ``distance(x, before) <= tol``.

    Its gradient is the fixed point of the transposed linearisation (implicit function theorem).
    """
    step = f(a)
    x, before = step(x0), x0
    while distance(x, before) > tol:
        x, before = step(x), x
    return x


def _fixed_point_vjp(ans: Any, f: Any, a: Any, x0: Any, distance: Any, tol: Any) -> Callable[[Any], Any]:
    def reverse(params: Any) -> Callable[[Any], Any]:
        a, at, from_outside = params
        back, _ = make_vjp(f(a))(at)
        return lambda g: vspace(at).add(back(g), from_outside)

    to_a, _ = make_vjp(lambda a, x: f(a)(x))(a, ans)
    return lambda g: to_a(fixed_point(reverse, (a, ans, g), vspace(ans).zeros(), distance, tol))


defvjp(fixed_point, None, _fixed_point_vjp, None)


# ----- Checks -----


def _numerical_jvp(function: Callable[..., Any], x: Any, step: float = 1e-6) -> Callable[[Any], Any]:
    of_x, of_y = vspace(x), vspace(function(x))

    def along(v: Any) -> Any:
        ahead = function(of_x.add(x, of_x.scalar_mul(v, step / 2)))
        behind = function(of_x.add(x, of_x.scalar_mul(v, -step / 2)))
        return of_y.scalar_mul(of_y.add(ahead, of_y.scalar_mul(behind, -1.0)), 1 / step)

    return along


def _close(a: float, b: float) -> bool:
    return abs(a - b) < TOLERANCE or abs(a - b) / abs(a + b) < TOLERANCE


def _check_vjp(function: Callable[..., Any], x: Any) -> None:
    pullback, value = unary_vjp(function, x)
    of_x, of_y = vspace(x), vspace(value)
    v, w = of_x.randn(), of_y.randn()
    back = of_x.covector(pullback(of_y.covector(w)))
    exact, numeric = of_x.inner_prod(v, back), of_y.inner_prod(w, _numerical_jvp(function, x)(v))
    if not _close(numeric, exact):
        raise AssertionError(
            f"Derivative (VJP) check of {_name(function)} failed with arg {x}: analytic {exact}, numeric {numeric}"
        )


def _check_jvp(function: Callable[..., Any], x: Any) -> None:
    v = vspace(x).randn()
    exact, numeric = unary_jvp(function, x)(v)[1], _numerical_jvp(function, x)(v)
    space = vspace(numeric)
    if vspace(exact) != space:
        raise AssertionError(f"the tangent of {_name(function)} is in {vspace(exact)}, its value in {space}")
    w = space.randn()
    a, b = space.inner_prod(w, exact), space.inner_prod(w, numeric)
    if not _close(a, b):
        raise AssertionError(
            f"Derivative (JVP) check of {_name(function)} failed with arg {x}: analytic {a}, numeric {b}"
        )


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))


@unary_to_nary
def check_grads(function: Callable[..., Any], x: Any, modes: Sequence[str] = ("fwd", "rev"), order: int = 2) -> None:
    """Compare derivatives with differences, along random directions.

    Parameters
    ----------
    function : callable
    argnum : int or sequence of int, optional
    modes : sequence of {"fwd", "rev"}, optional
    order : int, optional
        The derivatives of derivatives up to this order are checked too.

    Raises
    ------
    AssertionError
        If they differ by more than 1e-6, absolutely and relatively.

    Examples
    --------
    >>> import numbagrad.numpy as np
    >>> from numbagrad.test_util import check_grads
    >>> check_grads(np.tanh)(0.5)
    """
    if any(m not in ("fwd", "rev") for m in modes):
        raise ValueError(f"modes are fwd and rev, got {modes}")
    for mode in modes:
        (_check_jvp if mode == "fwd" else _check_vjp)(function, x)
        if order > 1:
            v = (vspace(x) if mode == "fwd" else vspace(function(x))).randn()
            check_grads(_derivative(function, mode), (0, 1), modes, order=order - 1)(x, v)


def _derivative(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    def along(x: Any, v: Any) -> Any:
        return unary_jvp(function, x)(v)[1]

    def back(x: Any, v: Any) -> Any:
        return unary_vjp(function, x)[0](v)

    return along if mode == "fwd" else back


def combo_check(function: Callable[..., Any], *check_args: Any, **check_kwargs: Any) -> Callable[..., None]:
    """`check_grads` for all combinations of the given arguments."""

    def check(*choices: Any, **named: Any) -> None:
        for args in product(*choices):
            for values in product(*named.values()):
                kwargs = dict(zip(named, values, strict=True))
                check_grads(functools.partial(function, **kwargs), *check_args, **check_kwargs)(*args)

    return check


__all__ = [
    "adam",
    "check_grads",
    "combo_check",
    "fixed_point",
    "flatten",
    "flatten_func",
    "rmsprop",
    "sgd",
    "unflatten_optimizer",
]
