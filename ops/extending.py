"""Primitives of one's own in HIPS autograd's manner: `primitive`, `defvjp`, `defjvp` and vector spaces.

A primitive sees plain arrays and numbers. Its rules get the value, the arguments and the gradient: plain ones in a
plain backward, Tensors where the backward pass is itself differentiated. Arguments and results may be containers.
Complex gradients follow HIPS's convention there: they are the conjugates of what ``.backward()`` accumulates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from numbagrad.engine.function import Function
from numbagrad.engine.mode import grad_enabled
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops import conversion
from numbagrad.ops.faces import face
from numbagrad.ops.operands import as_tensor, sum_to
from numbagrad.ops.registry import NUMPY
from numbagrad.ops.trees import flatten, map_leaves

Maker = Callable[..., Any]


# ----- Values and their boxes -----


def getval(value: Any) -> Any:
    """What a Tensor holds, as a plain array or number; other values as they are.

    Examples
    --------
    >>> import numbagrad as ng
    >>> from numbagrad.ops.extending import getval
    >>> getval(ng.tensor(2.0))
    np.float64(2.0)
    """
    if not isinstance(value, Tensor):
        return value
    return value._data[()] if value._data.ndim == 0 else value._data


def isbox(value: Any) -> bool:
    """Whether it is a Tensor, which takes the place of autograd's boxes."""
    return isinstance(value, Tensor)


def plain(tree: Any) -> Any:
    """`getval` of everything in a container."""
    return map_leaves(getval, tree)


# ----- Primitives -----


class Extension:
    """A function of arrays whose gradients a user gives."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.vjps: Maker | None = None
        self.jvps: Maker | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, rebuild = flatten(list(args))
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            return self.function(*args, **kwargs)
        call = _Call(self, rebuild, plain(kwargs))
        kind = _Recorded if self.jvps is None else _RecordedBothWays
        outs = kind.apply(call, *leaves)
        return call.rebuild_result(outs if isinstance(outs, tuple) else (outs,))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<primitive {getattr(self.function, '__name__', self.function)}>"


class _Call:
    """One use of an extension: how its arguments and results are built from leaves."""

    def __init__(self, op: Extension, rebuild: Callable[[Sequence[Any]], list[Any]], kwargs: dict[str, Any]) -> None:
        self.op = op
        self.rebuild = rebuild
        self.kwargs = kwargs
        self.rebuild_result: Callable[[Sequence[Any]], Any] = tuple

    def run(self, leaves: Sequence[Any]) -> list[Tensor]:
        result = self.op.function(*self.rebuild([getval(leaf) for leaf in leaves]), **self.kwargs)
        outs, self.rebuild_result = flatten(result)
        return [wrap(np.array(as_tensor(o, f"the result of {self.op.__name__}")._data)) for o in outs]  # type: ignore[attr-defined]

    def places(self, wanted: Sequence[bool]) -> tuple[list[int], list[slice]]:
        """Which arguments want a gradient, and where each argument's leaves are."""
        counts = [len(flatten(part)[0]) for part in self.rebuild(list(range(len(wanted))))]
        spans = [slice(end - n, end) for n, end in zip(counts, accumulate(counts), strict=True)]
        return [k for k, span in enumerate(spans) if any(wanted[span])], spans


class _Recorded(Function):
    """The node of a call."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> Any:
        outs = call.run(leaves)
        ctx.call = call
        ctx.constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        ctx.tensors = [isinstance(leaf, Tensor) for leaf in leaves]
        kept = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        ctx.save_for_backward(*kept, *outs)
        ctx.save_for_forward(*kept, *outs)
        return tuple(outs) if len(outs) != 1 else outs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call, op = ctx.call, ctx.call.op
        if op.vjps is None:
            raise NotImplementedError(f"VJP of {op.__name__} is not defined: give it one with defvjp")
        leaves, outs = _values(ctx, grad_enabled())
        wanted = ctx.needs_input_grad[1:]
        argnums, spans = call.places(wanted)
        g = call.rebuild_result([_conjugate(_seen(g, grad_enabled())) for g in grads])
        found = op.vjps(argnums, call.rebuild_result(outs), tuple(call.rebuild(leaves)), call.kwargs)(g)
        result: list[Any] = [None] * len(leaves)
        for k, gradient in zip(argnums, found, strict=True):
            for place, leaf in zip(range(spans[k].start, spans[k].stop), flatten(gradient)[0], strict=True):
                if wanted[place]:
                    result[place] = _fitted(leaf, leaves[place])
        return (None, *result)


class _RecordedBothWays(_Recorded):
    """With a forward rule too."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        call, op = ctx.call, ctx.call.op
        leaves, outs = _values(ctx, grad_enabled())
        given = tangents[1:]
        argnums, _ = call.places([t is not None for t in given])
        full = [
            _seen(t, grad_enabled()) if t is not None else (v * 0 if moving else v)
            for t, v, moving in zip(given, leaves, ctx.tensors, strict=True)
        ]
        moves = call.rebuild(full)
        args = tuple(call.rebuild(leaves))
        found = op.jvps(argnums, [moves[k] for k in argnums], call.rebuild_result(outs), args, call.kwargs)
        results = [
            conversion.astype(sum_or_spread(as_tensor(t), o), o.dtype)
            for t, o in zip(flatten(found)[0], [as_tensor(o) for o in outs], strict=True)
        ]
        return tuple(results) if len(results) != 1 else results[0]


def sum_or_spread(tangent: Tensor, like: Tensor) -> Tensor:
    """The tangent in the shape of its value."""
    from numbagrad.ops.shape import broadcast_to

    return tangent if tangent.shape == like.shape else broadcast_to(tangent, like.shape)


def _values(ctx: Any, as_tensors: bool) -> tuple[list[Any], list[Any]]:
    """The leaves of the arguments, and those of the result."""
    saved = iter(_seen(t, as_tensors) for t in ctx.saved_tensors)
    leaves = [next(saved) if moving else c for moving, c in zip(ctx.tensors, ctx.constants, strict=True)]
    return leaves, list(saved)


def _seen(tensor: Tensor, as_tensors: bool) -> Any:
    return tensor if as_tensors else getval(tensor)


def _conjugate(g: Any) -> Any:
    if isinstance(g, Tensor):
        return conversion.conj(g) if g.dtype.kind == "c" else g
    return np.conj(g) if np.iscomplexobj(g) else g


def _fitted(gradient: Any, value: Any) -> Tensor:
    """A rule's gradient in our convention, of the shape of its argument."""
    found = _conjugate(as_tensor(gradient, "a gradient"))
    shape = np.shape(getval(value))
    if found.shape != shape and found.size >= int(np.prod(shape)):
        found = sum_to(found, shape)
    return found


def primitive(function: Callable[..., Any]) -> Extension:
    """A function of arrays that is recorded as one op; its gradient comes from `defvjp`.

    Examples
    --------
    >>> import numpy, numbagrad as ng
    >>> from numbagrad.extend import defvjp, primitive
    >>> @primitive
    ... def twice(x):
    ...     return 2 * x
    >>> defvjp(twice, lambda ans, x: lambda g: 2 * g)
    >>> float(ng.grad(lambda x: twice(x) ** 2)(3.0))
    24.0
    """
    return Extension(function)


def notrace_primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of plain values, whose result has no gradient."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*[plain(a) for a in args], **{k: plain(v) for k, v in kwargs.items()})

    return wrapped


# ----- Rules -----


def _extension(function: Any) -> Extension:
    if not isinstance(function, Extension):
        raise TypeError(
            f"rules are given to functions made by extend.primitive, got {getattr(function, '__name__', function)!r}; "
            "wrap it first, as in mine = primitive(function)"
        )
    return function


def defvjp_argnums(function: Any, maker: Maker) -> None:
    """One rule for all arguments: ``maker(argnums, ans, args, kwargs)`` gives ``g -> gradients``."""
    _extension(function).vjps = maker


def defvjp_argnum(function: Any, maker: Maker) -> None:
    """One rule for any argument: ``maker(argnum, ans, args, kwargs)`` gives ``g -> gradient``."""

    def makers(argnums: Sequence[int], *rest: Any) -> Callable[[Any], Iterable[Any]]:
        rules = [maker(k, *rest) for k in argnums]
        return lambda g: [rule(g) for rule in rules]

    defvjp_argnums(function, makers)


def defvjp(function: Any, *makers: Any, argnums: Iterable[int] | None = None) -> None:
    """A rule for each argument: ``maker(ans, *args, **kwargs)`` gives ``g -> gradient``; None where it is zero.

    Parameters
    ----------
    function : callable
        Made by `primitive`.
    *makers : callable or None
    argnums : iterable of int, optional
        Which arguments the rules are for. Default: the first ones.
    """
    table = _table(function, makers, argnums, "vjp")

    def one(argnum: int, ans: Any, args: Any, kwargs: Any) -> Callable[[Any], Any]:
        if argnum not in table:
            raise NotImplementedError(f"VJP of {function.__name__} wrt argnum {argnum} not defined")
        maker = table[argnum]
        return (lambda g: vspace(args[argnum]).zeros()) if maker is None else maker(ans, *args, **kwargs)

    defvjp_argnum(function, one)


def defjvp_argnums(function: Any, maker: Maker) -> None:
    """One forward rule: ``maker(argnums, tangents, ans, args, kwargs)`` gives the tangent."""
    _extension(function).jvps = maker


def defjvp_argnum(function: Any, maker: Maker) -> None:
    """One forward rule for any argument: ``maker(argnum, tangent, ans, args, kwargs)``; their results are added."""

    def makers(argnums: Sequence[int], tangents: Sequence[Any], ans: Any, args: Any, kwargs: Any) -> Any:
        space = vspace(ans)
        parts = [maker(k, g, ans, args, kwargs) for k, g in zip(argnums, tangents, strict=True)]
        return functools.reduce(space.add, parts)

    defjvp_argnums(function, makers)


def defjvp(function: Any, *makers: Any, argnums: Iterable[int] | None = None) -> None:
    """A forward rule for each argument: ``maker(tangent, ans, *args, **kwargs)``; "same" where the function is linear
    in it, None where the tangent is zero."""
    table = _table(function, makers, argnums, "jvp")

    def one(argnum: int, g: Any, ans: Any, args: Any, kwargs: Any) -> Any:
        maker = table.get(argnum)
        if maker is None:
            return vspace(ans).zeros()
        if isinstance(maker, str):
            return function(*args[:argnum], g, *args[argnum + 1 :], **kwargs)
        return maker(g, ans, *args, **kwargs)

    defjvp_argnum(function, one)


def def_linear(function: Any) -> None:
    """Tell that a function is linear in each of its arguments."""
    defjvp_argnum(function, lambda k, g, ans, args, kwargs: function(*args[:k], g, *args[k + 1 :], **kwargs))


def _table(function: Any, makers: Sequence[Any], argnums: Iterable[int] | None, what: str) -> dict[int, Any]:
    _extension(function)
    allowed = ("same",) if what == "jvp" else ()
    for maker in makers:
        if maker is not None and not callable(maker) and maker not in allowed:
            raise TypeError(f"a {what} rule of {function.__name__} must be a function or None, got {maker!r}")
    return dict(zip(count() if argnums is None else argnums, makers, strict=False))


# ----- Vector spaces -----


class VSpace:
    """The space of values like one: arrays of its shape and dtype, or containers of such."""

    def __init__(self, value: Any) -> None:
        leaves, self._rebuild = flatten(value)
        arrays = [np.asarray(getval(leaf)) for leaf in leaves]
        for array in arrays:
            if array.dtype.kind not in "biufc":
                raise TypeError(f"Can't find vector space for value {value} of type {type(value)}")
        self._layouts = [(a.shape, a.dtype if a.dtype.kind in "fc" else np.dtype(float)) for a in arrays]
        single = len(arrays) == 1 and self._rebuild([0]) == 0
        self.shape: Any = arrays[0].shape if single else map_leaves(VSpace, value)
        self.dtype = self._layouts[0][1] if single else None
        self.iscomplex = any(dtype.kind == "c" for _, dtype in self._layouts)

    @property
    def size(self) -> int:
        """How many real numbers make a value."""
        return sum(int(np.prod(shape)) * (2 if dtype.kind == "c" else 1) for shape, dtype in self._layouts)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def _made(self, make: Callable[..., Any]) -> Any:
        return self._rebuild([make(shape, dtype) for shape, dtype in self._layouts])

    def zeros(self) -> Any:
        """The value of zeros."""
        return self._made(np.zeros)

    def ones(self) -> Any:
        """The value of ones; 1 + 1j for complex numbers."""
        return self._made(lambda shape, dtype: np.full(shape, 1 + 1j if dtype.kind == "c" else 1, dtype))

    def randn(self) -> Any:
        """A value of normal numbers, from NumPy's global generator."""
        return self._made(_normal)

    def standard_basis(self) -> Iterator[Any]:
        """Values with one 1 each (and one 1j, for complex numbers)."""
        for k, (shape, dtype) in enumerate(self._layouts):
            for index in np.ndindex(*shape):
                for unit in (1, 1j) if dtype.kind == "c" else (1,):
                    leaves = [np.zeros(s, d) for s, d in self._layouts]
                    leaves[k][index] = unit
                    yield self._rebuild(leaves)

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self._rebuild([a + b for a, b in zip(flatten(x)[0], flatten(y)[0], strict=True)])

    def mut_add(self, x: Any, y: Any) -> Any:
        """x + y; x may be None for zeros. Nothing is written."""
        return self.add(self.zeros() if x is None else x, y)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """a x."""
        return map_leaves(lambda leaf: leaf * a, x)

    def covector(self, x: Any) -> Any:
        """The conjugate."""
        return map_leaves(_conjugate, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """Sum of the products, the first conjugated; its real part."""
        from numbagrad.ops import reductions

        pairs = zip(flatten(x)[0], flatten(y)[0], strict=True)
        if any(isinstance(leaf, Tensor) for tree in (x, y) for leaf in flatten(tree)[0]):
            parts = [reductions.sum(conversion.real(_conjugate(as_tensor(a)) * b)) for a, b in pairs]
        else:
            parts = [np.sum(np.real(np.conj(a) * b)) for a, b in pairs]
        return functools.reduce(lambda p, q: p + q, parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VSpace) or self._layouts != other._layouts:
            return False
        numbers = list(range(len(self._layouts)))
        return self._rebuild(numbers) == other._rebuild(numbers)

    def __hash__(self) -> int:
        return hash(tuple(self._layouts))

    def __repr__(self) -> str:
        return f"VSpace({self._rebuild([f'{d}{list(s)}' for s, d in self._layouts])!r})"


def _normal(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    real = np.random.standard_normal(shape)  # noqa: NPY002 - as autograd: the global generator
    if dtype.kind == "c":
        real = real + 1j * np.random.standard_normal(shape)  # noqa: NPY002
    return np.asarray(real).astype(dtype)


def vspace(value: Any) -> VSpace:
    """The vector space of a value.

    Examples
    --------
    >>> import numpy as np
    >>> from numbagrad.extend import vspace
    >>> vspace(np.ones((2, 3))).size
    6
    """
    return VSpace(value)


# ----- Namespaces -----


def wrap_namespace(old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """Put what `old` holds into `new`: functions as ours where there is one, else as primitives without rules."""
    for name, value in old.items():
        if (
            isinstance(value, (FunctionType, BuiltinFunctionType, np.ufunc))
            or type(value).__name__ == "_ArrayFunctionDispatcher"
        ):
            ours = NUMPY.get(value)
            new[name] = primitive(value) if ours is None else face(getattr(ours, "fast", ours), value)
        elif isinstance(value, (type, float, int, complex)) or value is None:
            new[name] = value


__all__ = [
    "VSpace",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "getval",
    "isbox",
    "notrace_primitive",
    "primitive",
    "vspace",
    "wrap_namespace",
]
