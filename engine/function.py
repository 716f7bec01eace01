"""Custom functions: `Function`, whose forward and backward a user writes, with PyTorch's meaning.

Each call has a `FunctionCtx`, which is the op of the call's node. It knows the node weakly only (the node holds it), so
that a graph dies with its last reference.
"""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.anomaly import check_values
from numbagrad.engine.arithmetic import arithmetic
from numbagrad.engine.mode import grad_enabled, no_grad
from numbagrad.engine.node import Edge, Node, watches
from numbagrad.engine.saved import check_saved, saved_output
from numbagrad.engine.tensor import Tensor, View, edge_of, note_storage, share, wrap

_IN_VIEW = (
    "This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to "
    "handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect "
    "gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function."
)


class FunctionCtx:
    """What forward tells backward: saved tensors, marks, and any attribute that is set on it."""

    name: str
    """The function's name."""
    needs_input_grad: tuple[bool, ...] = ()
    """For each argument of forward whether backward's gradient for it is wanted."""
    saved_for_forward: tuple[Tensor | None, ...] = ()

    _to_save: tuple[Tensor | None, ...] = ()
    _sources: tuple[tuple[str, int], ...] = ()
    _dirty: tuple[Tensor, ...] = ()
    _constants: tuple[Tensor, ...] = ()
    _materialize = True
    _pushing = False
    """Whether jvp is running, with tensors that were saved for it."""
    _node: Callable[[], Node | None] = staticmethod(lambda: None)
    _function: type[Function]
    _places: tuple[int, ...] = ()
    """Which arguments are tensors."""
    _inputs: tuple[Any, ...] = ()
    """Their layouts."""

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward; call it at most once, in forward or setup_context.

        They are checked for in-place writes when they are used. Inputs and outputs keep their place in the graph.
        """
        self._to_save = _only_tensors(tensors, TypeError, "save_for_backward can only save variables")

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `jvp`, which finds them as `saved_tensors`."""
        _only_tensors(tensors, TypeError, "save_for_forward can only save variables")
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Tell which inputs forward has written in place. Each must be returned too."""
        self._dirty = _only_tensors(tensors, RuntimeError, "mark_dirty can only accept variables", none=False)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Tell which outputs have no gradient."""
        what = "mark_non_differentiable only accepts variable arguments"
        self._constants = _only_tensors(tensors, RuntimeError, what, none=False)

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs that nothing was computed from."""
        self._materialize = bool(value)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was saved for backward.

        Raises
        ------
        RuntimeError
            If it was freed, or written in place since it was saved.
        """
        if self._pushing:
            return self.saved_for_forward
        node = self._node()
        if node is None:
            return self._to_save
        if not self._sources:
            return ()
        found = iter(check_saved(node, self._sources))
        kinds = iter(self._sources)
        return tuple(None if t is None else self._restored(node, next(kinds), next(found)) for t in self._kept)

    @property
    def saved_variables(self) -> tuple[Tensor | None, ...]:
        """Deprecated name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def _restored(self, node: Node, source: tuple[str, int], value: Any) -> Tensor:
        kind, nr = source
        if kind != "out":
            return value
        differentiable = node.layout[nr] is not None if type(node.layout) is tuple else True
        return saved_output(node, nr, value) if differentiable and nr not in self._without else wrap(value)

    # ------------------------------------------------------------------ the op of its node
    _kept: tuple[Any, ...] = ()
    """For each saved value something, or None where None was saved."""
    _without: frozenset[int] = frozenset()
    """Numbers of the outputs that have no gradient."""

    def vjp(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        """Run the user's backward and check what it returns."""
        grads = self._given(node, grad)
        result = _backward_of(self._function)(self, *grads)
        return _checked(self, node, result if isinstance(result, tuple) else (result,))

    def _given(self, node: Node, grad: Any) -> list[Tensor | None]:
        if type(node.layout) is not tuple:
            return [grad]
        if not self._materialize:
            return list(grad)
        return [
            wrap(np.zeros(l.shape, l.dtype)) if g is None and l is not None else g
            for g, l in zip(grad, node.layout, strict=True)
        ]

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Any:
        """Run the user's jvp; derived from backward where there is none."""
        if self._function.jvp is Function.jvp:
            return arithmetic.transposed_jvp(self, node, tangents)
        given: list[Any] = [None] * len(self.needs_input_grad)
        for place, layout, tangent in zip(self._places, self._inputs, tangents, strict=True):
            zeros = self._materialize and tangent is None and layout.kind in "fc"
            given[place] = wrap(np.zeros(layout.shape, layout.dtype)) if zeros else tangent
        self._pushing = bool(self.saved_for_forward)
        try:
            result = self._function.jvp(self, *given)
        finally:
            self._pushing = False
        return _checked_tangents(self, node, result)

    def __repr__(self) -> str:
        return f"<context of {self.name}>"


class Function:
    """An operation with a forward and a backward of one's own.

    Subclass it and write static methods: ``forward(ctx, *args)``, or ``forward(*args)`` and
    ``setup_context(ctx, inputs, output)``; ``backward(ctx, *grad_outputs)`` (or ``vjp``), which returns one gradient
    (or None) per argument of forward; and, for forward mode, ``jvp(ctx, *tangents)``, without which forward mode is
    derived from backward. Call it by ``apply``. If backward is written with numbagrad's functions it can be
    differentiated again.

    See Also
    --------
    numbagrad.autograd.function.once_differentiable : for a backward that is not.

    Examples
    --------
    >>> import numbagrad as ng
    >>> class Cube(ng.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return grad * 3 * x ** 2
    >>> x = ng.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            f"function with static forward method: call {type(self).__name__}.apply(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result. Runs with grad mode off."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, where forward does not take `ctx`."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Gradients of the arguments of forward, from those of its results."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name of `backward`."""
        raise NotImplementedError("vjp is another name of backward; implement one of them")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Tangents of the results, from those of the arguments."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward and record the call."""
        separate = cls.setup_context is not Function.setup_context
        if separate or kwargs:
            args = _bound(cls, separate, args, kwargs)
        ctx = _new_ctx(cls, args)
        with no_grad():
            output = cls.forward(*args) if separate else cls.forward(ctx, *args)
            if separate:
                cls.setup_context(ctx, args, output)
        return _record(ctx, args, output)


def _bound(cls: type[Function], separate: bool, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments by position, defaults filled in."""
    given = inspect.signature(cls.forward).bind(*(() if separate else (None,)), *args, **kwargs)
    if separate:
        given.apply_defaults()
    if given.kwargs:
        raise TypeError(f"{cls.__name__}.apply() passes arguments by position, got {', '.join(given.kwargs)}")
    return given.args if separate else given.args[1:]


def _new_ctx(cls: type[Function], args: Sequence[Any]) -> FunctionCtx:
    ctx = FunctionCtx()
    ctx._function = cls
    ctx.name = cls.__name__
    ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
    ctx._places = tuple(i for i, a in enumerate(args) if isinstance(a, Tensor))
    ctx._inputs = tuple(a._layout for a in args if isinstance(a, Tensor))
    return ctx


def _only_tensors(values: tuple[Any, ...], error: type[Exception], what: str, none: bool = True) -> tuple[Any, ...]:
    for i, value in enumerate(values):
        if not isinstance(value, Tensor) and not (none and value is None):
            raise error(f"{what}, but argument {i} is of type {type(value).__name__}")
    return values


# ----- recording -----


def _record(ctx: FunctionCtx, args: Sequence[Any], output: Any) -> Any:
    """Make the node of the call and put its results into the graph."""
    if not isinstance(output, (Tensor, tuple)):
        return output
    outs = output if isinstance(output, tuple) else (output,)
    tensors = [a for a in args if isinstance(a, Tensor)]
    recorded = grad_enabled() and any(ctx.needs_input_grad)
    _check_dirty(ctx, tensors, outs, recorded)
    # Before an input that was written gets its new history.
    edges = tuple(edge_of(t) if needs else None for t, needs in zip(tensors, _needs(ctx), strict=True))
    results = [_as_result(o, ctx, tensors, outs[:i]) for i, o in enumerate(outs)]
    if recorded:
        results = [_guarded(r, o, ctx, tensors) for r, o in zip(results, outs, strict=True)]
    if recorded:
        _make_node(ctx, edges, tensors, outs, results, single=not isinstance(output, tuple))
    ctx._to_save = ()
    return tuple(results) if isinstance(output, tuple) else results[0]


def _needs(ctx: FunctionCtx) -> list[bool]:
    return [ctx.needs_input_grad[place] for place in ctx._places]


def _among(tensor: Any, tensors: Sequence[Any]) -> int | None:
    return next((i for i, t in enumerate(tensors) if t is tensor), None)


def _check_dirty(ctx: FunctionCtx, tensors: Sequence[Tensor], outs: Sequence[Any], recorded: bool) -> None:
    for dirty in ctx._dirty:
        if _among(dirty, tensors) is None:
            warnings.warn(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
                "should be passed to ctx.mark_dirty().",
                UserWarning,
                stacklevel=4,
            )
        elif _among(dirty, outs) is None:
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )
        elif recorded and dirty.requires_grad and dirty.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad has been used in an in-place operation. Pass a copy, as in "
                "x.clone()"
            )


def _as_result(out: Any, ctx: FunctionCtx, tensors: Sequence[Tensor], before: Sequence[Any]) -> Any:
    """The tensor that the caller gets for an output."""
    if not isinstance(out, Tensor):
        return out
    if _among(out, ctx._dirty) is not None and _among(out, tensors) is not None:
        return out
    if _among(out, tensors) is not None or out.requires_grad or _among(out, before) is not None:
        alias = wrap(out._data)
        alias._storage = share(out)
        return alias
    return out


def _guarded(result: Any, out: Any, ctx: FunctionCtx, tensors: Sequence[Tensor]) -> Any:
    """A result that is a view of an input refuses writes: their history would bypass the user's backward."""
    if not isinstance(result, Tensor) or _among(result, tensors) is not None:
        return result
    if _among(out, tensors) is not None:
        return _forbid_writes(result, out, ctx)
    of = next((t for t in tensors if out._view is not None and out._view.base is _base(t)), None)
    return result if of is None else _forbid_writes(result, of, ctx)


def _base(tensor: Tensor) -> Tensor:
    return tensor if tensor._view is None else tensor._view.base


def _forbid_writes(out: Tensor, of: Tensor, ctx: FunctionCtx) -> Tensor:
    """Make a view whose backward is the user's refuse what would bypass that."""
    base = _base(of)
    out._view = View(base, (), share(base).version)
    out._view.forbidden = (
        f"Output of {ctx.name} is a view, and it, its base or another view of its base is being modified inplace. "
        f"{_IN_VIEW}"
    )
    return out


def _make_node(
    ctx: FunctionCtx,
    edges: tuple[Any, ...],
    tensors: Sequence[Tensor],
    outs: Sequence[Any],
    results: Sequence[Any],
    single: bool,
) -> None:
    constants = [_among(o, ctx._constants) is not None or not _is_floating(o) for o in outs]
    if all(constants):
        return
    layouts = tuple(o._layout if isinstance(o, Tensor) else None for o in results)
    ctx._without = frozenset(i for i, constant in enumerate(constants) if constant)
    saved = _sort_saved(ctx, tensors, outs)
    node = Node(ctx, edges, saved, layouts[0] if single else layouts)
    ctx._node = weakref.ref(node)
    for nr, (result, constant) in enumerate(zip(results, constants, strict=True)):
        if not constant:
            _connect(result, node if single else Edge(node, nr), dirty=_among(result, tensors) is not None)
    # Inputs that were written are saved with the version that they have by now.
    node.versions = _versions(ctx, saved, results)
    ctx.saved_for_forward = tuple(_without_history(t, outs) for t in ctx.saved_for_forward)
    if watches:
        check_values(node, tensors, [r for r in results if isinstance(r, Tensor)])


def _versions(ctx: FunctionCtx, saved: Sequence[Any], results: Sequence[Any]) -> tuple[int, ...]:
    values = [results[nr] if kind == "out" else v for v, (kind, nr) in zip(saved, ctx._sources, strict=True)]
    return tuple(v._version for v in values)


def _is_floating(out: Any) -> bool:
    return isinstance(out, Tensor) and out._layout.kind in "fc"


def _connect(result: Tensor, node: Any, dirty: bool) -> None:
    if dirty:
        after = wrap(result._data)
        after._node, after._requires_grad = node, True
        arithmetic.rebase(result, after)
    else:
        result._node = node
        result._requires_grad = True
    storage = result._storage
    if storage is not None:
        note_storage(result, storage)


def _sort_saved(ctx: FunctionCtx, tensors: Sequence[Tensor], outs: Sequence[Any]) -> tuple[Any, ...]:
    """What the node keeps: tensors, and for its outputs their arrays, so that it does not refer to itself."""
    saved: list[Any] = []
    sources: list[tuple[str, int]] = []
    for tensor in ctx._to_save:
        nr = None if tensor is None else _among(tensor, outs)
        if tensor is None:
            continue
        if nr is not None and (_among(tensor, tensors) is None or _among(tensor, ctx._dirty) is not None):
            saved.append(tensor._data)
            sources.append(("out", nr))
        else:
            saved.append(tensor)
            sources.append(("in", len(saved) - 1))
    ctx._kept = tuple(None if t is None else True for t in ctx._to_save)
    ctx._sources = tuple(sources)
    return tuple(saved)


def _without_history(tensor: Tensor | None, outs: Sequence[Any]) -> Tensor | None:
    return wrap(tensor._data) if tensor is not None and _among(tensor, outs) is not None else tensor


# ----- backward -----


def _backward_of(cls: type[Function]) -> Callable[..., Any]:
    own_vjp, own_backward = cls.vjp is not Function.vjp, cls.backward is not Function.backward
    if own_vjp and own_backward:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement "
            "one of them."
        )
    return cls.vjp if own_vjp else cls.backward


def _checked(ctx: FunctionCtx, node: Node, result: tuple[Any, ...]) -> list[Tensor | None]:
    """One gradient per edge from what the user's backward returned."""
    count = len(ctx.needs_input_grad)
    if len(result) < count or any(g is not None for g in result[count:]):
        raise RuntimeError(
            f"function {node.name()} returned an incorrect number of gradients (expected {count}, got {len(result)})"
        )
    for place, grad in enumerate(result[:count]):
        if grad is not None and place not in ctx._places:
            raise RuntimeError(
                f"function {node.name()} returned a gradient different than None at position {place + 1}, but the "
                "corresponding forward input was not a Variable"
            )
    grads = [result[place] for place in ctx._places]
    return [
        None if g is None or edge is None else _fitted(node, i, g, layout)
        for i, (g, edge, layout) in enumerate(zip(grads, node.edges, ctx._inputs, strict=True))
    ]


def _fitted(node: Node, i: int, grad: Any, layout: Any) -> Tensor:
    if not isinstance(grad, Tensor):
        raise RuntimeError(f"{node.name()}: expected Variable or None (got {type(grad).__name__})")
    if not _expands(layout.shape, grad.shape):
        raise RuntimeError(
            f"Function {node.name()} returned an invalid gradient at index {i} - got {list(grad.shape)} but expected "
            f"shape compatible with {list(layout.shape)}"
        )
    fitted = arithmetic.fit(grad, layout)
    if grad_enabled() and fitted._requires_grad:
        return fitted
    # The user may keep what backward returned, so the sweep must not take over its memory.
    alias = wrap(fitted._data.view())
    alias._layout = fitted._layout
    return alias


def _expands(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    """Whether an array of `shape` broadcasts to `wide`."""
    lead = len(wide) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, wide[lead:], strict=True))


def _checked_tangents(ctx: FunctionCtx, node: Node, result: Any) -> Any:
    tangents = result if isinstance(result, tuple) else (result,)
    layouts = node.layout if type(node.layout) is tuple else (node.layout,)
    if len(tangents) != len(layouts):
        raise RuntimeError(f"{ctx.name}.jvp returned {len(tangents)} tangents, but forward has {len(layouts)} outputs")
    for i, (t, l) in enumerate(zip(tangents, layouts, strict=True)):
        if t is not None and (not isinstance(t, Tensor) or t.shape != l.shape):
            got = t.shape if isinstance(t, Tensor) else type(t).__name__
            raise RuntimeError(f"{ctx.name}.jvp returned {got} as tangent {i}, expected a Tensor of shape {l.shape}")
    filled = tuple(
        wrap(np.zeros(l.shape, l.dtype)) if t is None and l is not None else t
        for t, l in zip(tangents, layouts, strict=True)
    )
    return filled if type(node.layout) is tuple else filled[0]


# ----- once_differentiable -----


class _Once:
    """The op behind gradients that cannot be differentiated."""

    name = "once_differentiable"

    def vjp(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        """Refuse."""
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable; write its backward "
            "with numbagrad's functions and leave the mark out, or detach the gradient"
        )

    jvp = vjp


_once = _Once()


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a backward that may use plain NumPy: it runs with grad mode off, and differentiating its result
    raises.

    Examples
    --------
    >>> import numpy as np, numbagrad as ng
    >>> from numbagrad.autograd.function import once_differentiable
    >>> class Sine(ng.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.x = x.detach().numpy()
    ...         return ng.sin(x)
    ...     @staticmethod
    ...     @once_differentiable
    ...     def backward(ctx, grad):
    ...         return ng.tensor(grad.numpy() * np.cos(ctx.x))
    >>> x = ng.tensor(0.0, requires_grad=True)
    >>> ng.autograd.grad(Sine.apply(x), x)
    (tensor(1.),)
    """

    @functools.wraps(backward)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            result = backward(ctx, *(_constant(g) for g in grads))
        if not grad_enabled() or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return result
        edges = tuple(edge_of(g) for g in grads if isinstance(g, Tensor))
        return tuple(_dead_end(r, edges) for r in result) if isinstance(result, tuple) else _dead_end(result, edges)

    return wrapper


def _constant(grad: Any) -> Any:
    return wrap(grad._data) if isinstance(grad, Tensor) else grad


def _dead_end(result: Any, edges: tuple[Any, ...]) -> Any:
    if not isinstance(result, Tensor):
        return result
    out = wrap(result._data)
    out._node = Node(_once, edges, (), out._layout)
    out._requires_grad = True
    return out


__all__ = ["Function", "FunctionCtx", "once_differentiable"]
