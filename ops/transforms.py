"""Functional transforms: from a function to the function of its gradient, Jacobian, Hessian or products with them.

Names and arguments are those of HIPS autograd where it has them (`argnum`), else those of JAX. They nest in any number
and order: each call makes variables of its own, linked to the outer ones by the graph, so no derivative is taken for
another. At the top level plain arrays and numbers come back; within another transform, or for Tensors, Tensors.
Complex numbers: `grad` and `vjp` give the derivative's own value (HIPS's convention), the conjugate of what
``.backward()`` accumulates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine import autograd
from numbagrad.engine.layout import kind_of
from numbagrad.engine.mode import enable_grad, grad_enabled, mode
from numbagrad.engine.node import Edge, Node
from numbagrad.engine.sweep import reachable
from numbagrad.engine.tensor import Tensor, edge_of, make_private, wrap
from numbagrad.ops import conversion, joining, shape
from numbagrad.ops.batching import Level, dressed, open_levels, spread
from numbagrad.ops.operands import as_tensor
from numbagrad.ops.trees import flatten, is_container, map_leaves

Argnum = int | Sequence[int]


class _Trace:
    """One call of the differentiated function: its variables, its result, and how to give results back."""

    def __init__(
        self, function: Callable[..., Any], argnum: Argnum, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self.levels = open_levels()
        self.several = type(argnum) is not int and not isinstance(argnum, (int, np.integer))
        self.numbers = _checked_argnums(function, argnum if self.several else [argnum], args)
        chosen = [args[n] for n in self.numbers]
        self.given, self.rebuild = flatten(chosen)
        self.tensors = any([isinstance(leaf, Tensor) for leaf in self.given])  # noqa: C419 - a list is faster here
        self.linked = self.tensors and any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in self.given)
        if grad_enabled():
            self._trace(function, args, kwargs)
        else:
            with enable_grad():
                self._trace(function, args, kwargs)

    def _trace(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.sources = [_variable(leaf, function, self.levels) for leaf in self.given]
        # Within a vmap a variable belongs to each entry, so that the gradients of entries stay apart.
        self.variables = [dressed(v, self.levels) for v in self.sources] if self.levels else self.sources
        traced = list(args)
        for n, value in zip(self.numbers, self.rebuild(self.variables), strict=True):
            traced[n] = value
        self.result = function(*traced, **kwargs)
        for variable in self.sources:
            if variable._node is None:
                make_private(variable)

    def like_arguments(self, values: Sequence[Any]) -> Any:
        """`values`, one per variable, in the containers of the chosen arguments."""
        built = self.rebuild(values)
        return tuple(built) if self.several else built[0]

    def is_nested(self, outputs: Sequence[Any]) -> bool:
        """Whether results belong to an outer graph: the outputs depend on more than the variables."""
        return self.linked or _depends_on_others(self.behind(outputs), self.sources)

    def behind(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """The tensors in the graph behind those of the function."""
        return [spread(as_tensor(t), self.levels) for t in tensors] if self.levels else tensors

    def dressed(self, found: Sequence[Tensor]) -> list[Tensor]:
        """The reverse of `behind`."""
        return [dressed(t, self.levels) for t in found]

    def given_back(self, value: Any, nested: bool) -> Any:
        """What the caller gets: an ndarray or a number at the top level, else a Tensor."""
        if not isinstance(value, Tensor) or nested:
            return value
        if self.tensors or self.levels:
            return value.detach()
        array = value._data
        return array[()] if array.ndim == 0 else array.copy() if array.base is not None else array

    def gradients(
        self, outputs: Sequence[Tensor], seeds: Sequence[Any] | None, record: bool, keep: bool = False
    ) -> list[Tensor]:
        """Gradients at the variables; zeros where the outputs do not depend on them."""
        if self.levels:
            seeds = [wrap(np.ones(o.shape, o.dtype)) for o in outputs] if seeds is None else seeds
            return self.dressed(self._gradients(self.behind(outputs), self.behind(seeds), record, keep))
        return self._gradients(outputs, seeds, record, keep)

    def _gradients(
        self, outputs: Sequence[Tensor], seeds: Sequence[Any] | None, record: bool, keep: bool
    ) -> list[Tensor]:
        active = [
            (o, None if seeds is None else s) for o, s in zip(outputs, seeds or outputs, strict=True) if o.requires_grad
        ]
        if not active:
            return [wrap(np.zeros(v.shape, v.dtype)) for v in self.sources]
        if not record:
            return autograd.leaf_gradients([o for o, _ in active], self.sources, [s for _, s in active], keep)
        with enable_grad():
            found = autograd.grad(
                [o for o, _ in active],
                self.sources,
                tuple(s for _, s in active),
                retain_graph=True,
                create_graph=True,
                materialize_grads=True,
            )
        return [g for g in found if g is not None]


class _unchanged:
    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...


def _checked_argnums(function: Callable[..., Any], argnums: Any, args: Sequence[Any]) -> list[int]:
    for n in argnums:
        if not isinstance(n, (int, np.integer)) or not -len(args) <= n < len(args):
            raise IndexError(
                f"argnum {n!r} of {_name(function)}: it was called with {len(args)} positional arguments; "
                "pass the argument by position to differentiate with respect to it"
            )
    return [int(n) % len(args) for n in argnums]


def _variable(leaf: Any, function: Callable[..., Any], levels: Sequence[Level] = ()) -> Tensor:
    """A fresh tensor that requires grad, with the value of `leaf` (for every entry) and linked to it in the graph."""
    if levels:
        given = as_tensor(leaf, f"an argument of {_name(function)}")
        whole = spread(given, levels)
        leaf = whole if isinstance(leaf, (np.ndarray, Tensor)) or whole._layout.kind in "fc" else whole.astype(float)
    if type(leaf) is np.ndarray and leaf.dtype.kind in "fc":
        out = wrap(leaf)
        out._requires_grad = True
        return out
    if isinstance(leaf, Tensor) and leaf.requires_grad:
        return _alias(leaf)
    given = as_tensor(leaf, f"an argument of {_name(function)}")
    if kind_of(given.dtype) not in "fc":
        if (given.dtype.kind != "i" and given.dtype.kind != "u") or isinstance(leaf, (np.ndarray, Tensor)):
            raise TypeError(
                f"{_name(function)} is differentiated with respect to a value of dtype {given.dtype}; "
                "only floating and complex numbers have gradients: convert it first, as in x.astype(float)"
            )
        given = wrap(given._data.astype(np.float64))
    out = wrap(given._data)
    out._requires_grad = True
    return out


def _alias(leaf: Tensor) -> Tensor:
    return shape.reshape(leaf, leaf.shape) if leaf.size else conversion.clone(leaf)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _depends_on_others(outputs: Sequence[Any], variables: Sequence[Tensor]) -> bool:
    """Whether the graph of `outputs` has a leaf that someone else waits for."""
    own = {id(v) for v in variables}
    stack = [edge_of(o) for o in outputs if isinstance(o, Tensor) and o.requires_grad]
    seen: set[int] = set()
    while stack:
        edge = stack.pop()
        node = edge if type(edge) is Node else edge.node if type(edge) is Edge else None
        if node is None:
            if edge is not None and id(edge) not in own and (edge._extra is None or not edge._extra.private):
                return True
        elif node.seq not in seen:
            seen.add(node.seq)
            stack.extend(node.edges)
    return False


def _scalar(result: Any, function: Callable[..., Any], what: str) -> Tensor:
    if result is None:
        raise TypeError(f"{what} needs a function that returns a number, but {_name(function)} returned None")
    out = as_tensor(result, f"the result of {_name(function)}")
    if out.size != 1:
        raise TypeError(
            f"{what} only applies to real scalar-output functions: {_name(function)} returned shape {out.shape}; "
            "try jacobian or elementwise_grad, or reduce the result"
        )
    return out


def _conjugated(grads: Sequence[Tensor]) -> list[Tensor]:
    """From the convention of ``.backward()`` to the derivative itself."""
    return [conversion.conj(g) if g._layout.dtype.kind == "c" else g for g in grads]


def grad(function: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """The function that computes the gradient of a scalar-valued function.

    Parameters
    ----------
    function : callable
        Returns one number (a Tensor, array or Python number of one element).
    argnum : int or sequence of int, optional
        Which positional arguments to differentiate with respect to. They may be numbers, arrays, Tensors, or nested
        containers of these.

    Returns
    -------
    callable
        Takes the arguments of `function`; gives the gradient in the form of the argument (a tuple of them for several
        argnums): plain arrays and numbers, or Tensors within another transform or for Tensor arguments.

    Raises
    ------
    TypeError
        If the function does not return a single number, or an argument is not floating or complex.

    See Also
    --------
    value_and_grad, jacobian, hessian, numbagrad.autograd.grad

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> ng.grad(lambda x: np.sum(x ** 3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    both = value_and_grad(function, argnum)

    @functools.wraps(function, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def value_and_grad(function: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., tuple[Any, Any]]:
    """Like `grad`, but the function gives (value, gradient).

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> value, gradient = ng.value_and_grad(lambda x: np.sum(x * x))(np.array([1.0, 2.0]))
    >>> float(value), gradient
    (5.0, array([2., 4.]))
    """

    @functools.wraps(function, updated=())
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        trace = _Trace(function, argnum, args, kwargs)
        out = _scalar(trace.result, function, "grad")
        nested = trace.is_nested([out])
        seed = None if out.dtype.kind != "c" else [wrap(np.ones(out.shape, out.dtype))]
        grads = _conjugated(trace.gradients([out], seed, nested))
        return trace.given_back(out, nested), trace.like_arguments([trace.given_back(g, nested) for g in grads])

    return value_and_gradient


def elementwise_grad(function: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """Gradient of the sum of the outputs: for an elementwise function, its derivative at every element.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> ng.elementwise_grad(np.square)(np.array([1.0, 2.0]))
    array([2., 4.])
    """

    @functools.wraps(function, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        trace = _Trace(function, argnum, args, kwargs)
        out = as_tensor(trace.result)
        nested = trace.is_nested([out])
        grads = _conjugated(trace.gradients([out], [wrap(np.ones(out.shape, out.dtype))], nested))
        return trace.like_arguments([trace.given_back(g, nested) for g in grads])

    return gradient


def vjp(function: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Value of a function, and the function that multiplies vectors with its Jacobian from the left.

    Parameters
    ----------
    function : callable
    *args
        Where to evaluate; all are differentiated with respect to.

    Returns
    -------
    value
        ``function(*args)``.
    pullback : callable
        Takes a cotangent in the form of the value, gives a tuple with one gradient per argument. May be called
        several times.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> value, pullback = ng.vjp(lambda x, y: x * y, np.array([1.0, 2.0]), 3.0)
    >>> pullback(np.array([1.0, 1.0]))[0]
    array([3., 3.])
    """
    trace = _Trace(function, tuple(range(len(args))), args, {})
    leaves, rebuild = flatten(trace.result)
    outputs = [as_tensor(leaf) for leaf in leaves]
    nested = trace.is_nested(outputs)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        seeds = _matching(cotangent, outputs, "cotangent")
        record = nested or any(s.requires_grad for s in seeds)
        grads = _conjugated(trace.gradients(outputs, [conversion.conj(s) for s in seeds], record, keep=True))
        return trace.like_arguments([trace.given_back(g, record) for g in grads])

    return rebuild([trace.given_back(o, nested) for o in outputs]), pullback


def _matching(tree: Any, like: Sequence[Tensor], what: str) -> list[Tensor]:
    """The leaves of `tree` as tensors of the shapes and dtypes of `like`."""
    # A list may also be how someone writes an array.
    several = is_container(tree) and (len(like) > 1 or not isinstance(tree, list))
    leaves = flatten(tree)[0] if several else [tree]
    if len(leaves) != len(like):
        raise ValueError(f"got {len(leaves)} {what}s, {len(like)} were wanted")
    out = []
    for leaf, wanted in zip(leaves, like, strict=True):
        value = as_tensor(leaf, what)
        if value.shape != wanted.shape:
            raise ValueError(f"a {what} has shape {value.shape}, but its counterpart has shape {wanted.shape}")
        out.append(conversion.astype(value, wanted.dtype))
    return out


def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Value of a function, and its Jacobian times a vector: forward mode, from the same partial derivatives.

    Parameters
    ----------
    function : callable
    primals : sequence
        The arguments.
    tangents : sequence
        For each argument its direction, in the same form.

    Returns
    -------
    value, tangent
        Both in the form of the function's result.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> value, tangent = ng.jvp(np.sin, (0.0,), (2.0,))
    >>> float(tangent)
    2.0
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("jvp takes the arguments and their tangents as two tuples, as in jvp(f, (x,), (v,))")
    trace = _Trace(function, tuple(range(len(primals))), primals, {})
    leaves, rebuild = flatten(trace.result)
    outputs = [as_tensor(leaf) for leaf in leaves]
    given, _ = flatten(list(tangents))
    moves = _matching(given if len(given) != 1 else given[0], trace.variables, "tangent")
    nested = trace.is_nested(outputs) or any(m.requires_grad for m in moves)
    with enable_grad() if nested else _unchanged():
        pushed = push_forward(trace.behind(outputs), trace.sources, trace.behind(moves), nested)
    pushed = trace.dressed(pushed)
    values = rebuild([trace.given_back(o, nested) for o in outputs])
    return values, rebuild([trace.given_back(t, nested) for t in pushed])


def push_forward(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], tangents: Sequence[Tensor], record: bool
) -> list[Tensor]:
    """Tangents of `outputs` for given tangents of `inputs`: a sweep over the recorded graph, oldest node first."""
    moving: dict[int, Any] = {}
    for leaf, t in zip(inputs, tangents, strict=True):
        edge = edge_of(leaf)
        moving[_key(edge)] = t
    roots = [edge_of(o) if o.requires_grad else None for o in outputs]
    before, mode.enabled = mode.enabled, record
    try:
        for node in sorted(reachable(r for r in roots if r is not None), key=lambda n: n.seq, reverse=True):
            given = [None if e is None else moving.get(_key(e)) for e in node.edges]
            if node.seq in moving or all(t is None for t in given):
                continue
            result = node.op.jvp(node, given)
            if type(node.layout) is tuple:
                moving.update({(node.seq, nr): t for nr, t in enumerate(result)})  # type: ignore[misc]
            else:
                moving[node.seq] = result
    finally:
        mode.enabled = before
    found = [None if r is None else moving.get(_key(r)) for r in roots]
    return [wrap(np.zeros(o.shape, o.dtype)) if t is None else t for o, t in zip(outputs, found, strict=True)]


def _key(edge: Any) -> Any:
    """Where the tangent of an edge is kept: sequence numbers are never positive, addresses are."""
    if type(edge) is Node:
        return edge.seq
    return (edge.node.seq, edge.nr) if type(edge) is Edge else id(edge)


def jacobian(function: Callable[..., Any], argnum: Argnum = 0) -> Callable[..., Any]:
    """The function that computes the Jacobian, of shape ``output.shape + input.shape``.

    Parameters
    ----------
    function : callable
        Returns an array, or a container of arrays.
    argnum : int or sequence of int, optional

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> ng.jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """

    @functools.wraps(function, updated=())
    def full_jacobian(*args: Any, **kwargs: Any) -> Any:
        trace = _Trace(function, argnum, args, kwargs)
        leaves, rebuild = flatten(trace.result)
        outputs = [as_tensor(leaf) for leaf in leaves]
        nested = trace.is_nested(outputs)
        parts = [_jacobian_of(trace, out, nested) for out in outputs]
        return rebuild([trace.like_arguments([trace.given_back(j, nested) for j in part]) for part in parts])

    return full_jacobian


def _jacobian_of(trace: _Trace, out: Tensor, record: bool) -> list[Tensor]:
    """One Jacobian per variable, row by row."""
    rows: list[list[Tensor]] = []
    for k in range(out.size):
        seed = np.zeros(out.shape, out.dtype)
        seed.flat[k] = 1
        rows.append(_conjugated(trace.gradients([out], [wrap(seed)], record, keep=True)))
    if not rows:
        return [wrap(np.zeros(out.shape + v.shape, v.dtype)) for v in trace.variables]
    return [
        shape.reshape(joining.stack([row[i] for row in rows]), out.shape + v.shape)
        for i, v in enumerate(trace.variables)
    ]


def hessian(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The function that computes the matrix of second derivatives, of shape ``input.shape + input.shape``.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> ng.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    return jacobian(jacobian(function, argnum), argnum)


def hessian_vector_product(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The function ``(*args, vector) -> Hessian @ vector`` of a scalar-valued function, without the Hessian.

    Examples
    --------
    >>> import numbagrad as ng, numbagrad.numpy as np
    >>> hvp = ng.hessian_vector_product(lambda x: np.sum(x ** 3))
    >>> hvp(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 6., 12.])
    """
    gradient = grad(function, argnum)

    def product(*args: Any, **kwargs: Any) -> Any:
        *args_, vector = args
        at = args_[argnum]

        def directional(x: Any) -> Any:
            return gradient(*args_[:argnum], x, *args_[argnum + 1 :], **kwargs)

        return jvp(directional, (at,), (vector,))[1]

    return product


__all__ = [
    "elementwise_grad",
    "grad",
    "hessian",
    "hessian_vector_product",
    "jacobian",
    "jvp",
    "map_leaves",
    "push_forward",
    "value_and_grad",
    "vjp",
]
