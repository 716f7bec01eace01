"""Primitives: ops that are not elementwise. Forward on arrays, gradients written with other ops.

    @primitive(linear=True)
    def flip(x, *, axis):
        \"\"\"Reverse the order along some axes.\"\"\"
        return np.flip(x, axis)

    @flip.vjp("x")
    def _(g, axis):
        return flip(g, axis=axis)

Positional parameters are tensors (``*xs``: any number of them), keyword-only ones are settings. A rule for one tensor
names what it needs, and naming is saving:

========== =====================================================================
``g``      gradient of the output (for several outputs a list, zeros filled in)
``x``      the tensor argument of that name; for ``*xs`` the list of all
``x_shape`` its shape only, which saves nothing; ``x_dtype`` its dtype
``out``    the output; ``out_shape`` its shape
``i``      for ``*xs``: the number of the tensor whose gradient is wanted
others     a setting, or a value that the forward handed over with `Handed`
========== =====================================================================

Because rules are written with ops, they can be differentiated again. A rule may return a gradient that broadcasts
against its tensor: it is summed back, and cast, in one place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.anomaly import check_values
from numbagrad.engine.autograd import grad as gradients
from numbagrad.engine.layout import is_half
from numbagrad.engine.mode import enable_grad, grad_enabled, mode
from numbagrad.engine.node import Edge, Node, batching, watches
from numbagrad.engine.tensor import Tensor, become_view, edge_of, make_private, wrap
from numbagrad.ops.autocast import KINDS, cast, casting
from numbagrad.ops.batching import batching_rules
from numbagrad.ops.operands import as_tensor, unbroadcast
from numbagrad.ops.registry import register
from numbagrad.ops.saved import check_saved, saved_output, versions_of

Rule = Callable[..., Any]


class Handed:
    """What a forward returns when its rules need more than the output: ``Handed(out, order=order)``."""

    __slots__ = ("out", "values")

    def __init__(self, out: Any, **values: Any) -> None:
        self.out = out
        self.values = values


class Call:
    """One recorded use: settings, what the forward handed over, and layouts of the tensors."""

    __slots__ = ("layouts", "saved_names", "settings")

    def __init__(
        self, settings: Mapping[str, Any], layouts: Sequence[Any], saved_names: Sequence[tuple[str, int]]
    ) -> None:
        self.settings = settings
        self.layouts = layouts
        self.saved_names = saved_names

    def __repr__(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self.settings.items())


class _Use:
    """A node whose rules run: where the values of their parameters come from."""

    __slots__ = ("call", "g", "node", "saved")

    def __init__(self, node: Node, grad: Any) -> None:
        self.node = node
        self.call: Call = node.statics
        names = self.call.saved_names
        self.saved: dict[tuple[str, int], Any] = (
            dict(zip(names, check_saved(node, names), strict=True)) if names else {}
        )
        self.g = _filled(node, grad) if type(node.layout) is tuple else grad
        if node.op.wide:
            self._widen()

    def _widen(self) -> None:
        """Rules that go through values which 16 bits may not hold are computed in float32."""
        self.g = [_widened(g) for g in self.g] if type(self.g) is list else _widened(self.g)
        self.saved = {key: _widened(v) if isinstance(v, Tensor) else v for key, v in self.saved.items()}

    def out(self) -> Any:
        """The output, within the graph where backward is recorded; a list for several."""
        recorded = grad_enabled()
        outs = [
            saved_output(self.node, nr, value) if recorded else wrap(value)
            for (kind, nr), value in self.saved.items()
            if kind == "out"
        ]
        if self.node.op.wide:
            outs = [_widened(o) for o in outs]
        return outs if type(self.node.layout) is tuple else outs[0]

    def setting(self, name: str) -> Any:
        """A setting, or what the forward handed over."""
        try:
            return self.call.settings[name]
        except KeyError:
            raise TypeError(
                f"a gradient rule of {self.node.op.name} asks for {name!r}, which is neither a tensor nor a setting"
            ) from None


def _all_inputs(use: _Use, nr: int) -> list[Any]:
    return [use.saved["in", k] for k in range(len(use.call.layouts))]


_GETTERS: Mapping[str, Callable[[_Use, int], Any]] = {
    "g": lambda use, nr: use.g,
    "i": lambda use, nr: nr,
    "out": lambda use, nr: use.out(),
    "out_shape": lambda use, nr: use.node.layout.shape,
}


class Primitive:
    """An op with a forward on arrays and a gradient rule for each tensor argument."""

    def __init__(
        self,
        forward: Callable[..., Any],
        linear: bool,
        view: bool,
        name: str | None = None,
        wide: str = "",
        casts: str = "",
    ) -> None:
        if wide not in ("", "rules", "all"):
            raise ValueError(f"wide is {wide!r}, wanted 'rules' or 'all'")
        if casts not in KINDS:
            raise ValueError(f"casts is {casts!r}, wanted one of {KINDS}")
        self.name = name or forward.__name__
        self.wide = wide
        self.casts = casts
        self.forward = forward
        self.linear = linear
        self.view = view
        self.__name__ = self.__qualname__ = self.name
        self.__doc__ = forward.__doc__
        kinds = list(inspect.signature(forward).parameters.values())
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in kinds)
        self.params = [
            p.name for p in kinds if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY, p.VAR_POSITIONAL)
        ]
        self.rules: dict[str, tuple[Rule, tuple[str, ...], list[Callable[[_Use, int], Any]]]] = {}
        self._jvp: Rule | None = None
        self._setting_names = {p.name for p in kinds if p.kind is p.KEYWORD_ONLY}
        self._found_sources: dict[Any, Sequence[tuple[str, int]]] = {}

    # ------------------------------------------------------------------ declaring
    def vjp(self, *args: Any) -> Any:
        """``@op.vjp("x")`` declares the rule for the tensor ``x``; called by the sweep, runs the rules of a node."""
        if isinstance(args[0], str):
            return lambda rule: self._declare(args[0], rule)
        return self._run_rules(*args)

    def _declare(self, param: str, rule: Rule) -> Rule:
        if param not in self.params:
            raise ValueError(f"{self.name} has no tensor {param!r}, only {', '.join(self.params)}")
        names = tuple(inspect.signature(rule).parameters)
        self.rules[param] = (rule, names, [self._getter(name) for name in names])
        return rule

    def jvp(self, *args: Any) -> Any:
        """``@op.jvp`` declares a rule ``(tangents, *tensors, out, **settings)``; called by a sweep, runs it."""
        if callable(args[0]) and not isinstance(args[0], Node):
            self._jvp = args[0]
            return args[0]
        return self._push(*args)

    # ------------------------------------------------------------------ calling
    def __call__(self, *values: Any, **settings: Any) -> Any:
        tensors = [v if type(v) is Tensor else self._tensor(v, i) for i, v in enumerate(values)]
        if self.casts and casting:
            tensors = cast(self.casts, tensors)
        if batching and (out := batching_rules().primitive(self, tensors, settings)) is not None:
            return out
        result = (self.forward if self.wide != "all" else self._run_wide)(*[t._data for t in tensors], **settings)
        used = settings
        if type(result) is Handed:
            result, used = result.out, {**settings, **result.values}
        single = type(result) is not tuple
        outs = [wrap(o if type(o) is np.ndarray else np.asarray(o)) for o in ((result,) if single else result)]
        for t in tensors:
            if t._requires_grad:
                if grad_enabled():
                    self._record(tensors, outs, used, single)
                break
        if self.view:
            self._note_views(outs, tensors[0], settings, single)
        return outs[0] if single else tuple(outs)

    def _run_wide(self, *arrays: np.ndarray, **settings: Any) -> Any:
        """The forward, on float32 where floats of 16 bits are the widest that came."""
        dtypes = [a.dtype for a in arrays if is_half(a.dtype)]
        if not dtypes:
            return self.forward(*arrays, **settings)
        result = self.forward(*[a.astype(np.float32) if is_half(a.dtype) else a for a in arrays], **settings)
        dtype = dtypes[0] if len(set(dtypes)) == 1 else np.dtype(np.float32)
        if type(result) is Handed:
            return Handed(_narrowed(result.out, dtype), **result.values)
        return _narrowed(result, dtype)

    def _tensor(self, value: Any, place: int) -> Tensor:
        return as_tensor(value, self.params[0 if self.variadic else place])

    def _note_views(self, outs: Sequence[Tensor], of: Tensor, settings: Mapping[str, Any], single: bool) -> None:
        memory = of._data
        for nr, out in enumerate(outs):
            base = out._data.base
            if out._data is memory or base is memory or (base is not None and base is memory.base):
                become_view(out, of, self._step(settings, None if single else nr))

    def _step(self, settings: Mapping[str, Any], nr: int | None) -> Callable[[Any], Any]:
        """How to get this view again from its base."""
        return lambda base: self(base, **settings) if nr is None else self(base, **settings)[nr]

    def _record(
        self, tensors: Sequence[Tensor], outs: Sequence[Tensor], settings: Mapping[str, Any], single: bool
    ) -> None:
        edges = tuple([edge_of(t) for t in tensors])
        floating = [nr for nr, o in enumerate(outs) if o._layout.kind in "fc"]
        if not floating:
            return
        sources = self._sources(edges, len(outs))
        saved = tuple([tensors[nr] if kind == "in" else outs[nr]._data for kind, nr in sources])
        layout = outs[0]._layout if single else tuple([o._layout for o in outs])
        node = Node(self, edges, saved, layout, Call(settings, [t._layout for t in tensors], sources))
        if saved:
            node.versions = versions_of(saved)
        for nr in floating:
            outs[nr]._node = node if single else Edge(node, nr)
            outs[nr]._requires_grad = True
        if watches:
            check_values(node, tensors, outs)

    def _sources(self, edges: Sequence[Any], outs: int) -> Sequence[tuple[str, int]]:
        """What the rules of the wanted gradients need: (\"in\", nr) and (\"out\", nr)."""
        key = (tuple([e is not None for e in edges]), outs)
        found = self._found_sources.get(key)
        if found is None:
            found = self._found_sources[key] = self._find_sources(*key)
        return found

    def _find_sources(self, wants: Sequence[bool], outs: int) -> Sequence[tuple[str, int]]:
        needed: set[tuple[str, int]] = set()
        for nr, wanted in enumerate(wants):
            for name in self._rule(nr)[1] if wanted else ():
                if name in self.params:
                    needed |= {("in", k) for k in (range(len(wants)) if self.variadic else [self.params.index(name)])}
                elif name == "out":
                    needed |= {("out", k) for k in range(outs)}
        return sorted(needed)

    def _rule(self, nr: int) -> tuple[Rule, tuple[str, ...], list[Callable[[_Use, int], Any]]]:
        param = self.params[0] if self.variadic else self.params[nr]
        if param not in self.rules:
            raise NotImplementedError(f"{self.name} has no gradient with respect to {param}")
        return self.rules[param]

    # ------------------------------------------------------------------ backward
    def _run_rules(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        use = _Use(node, grad)
        results: list[Tensor | None] = []
        for nr, edge in enumerate(node.edges):
            if edge is None:
                results.append(None)
                continue
            rule, _, getters = self._rule(nr)
            result = rule(*[get(use, nr) for get in getters])
            if result is not None and result._layout is not use.call.layouts[nr]:
                result = unbroadcast(result, use.call.layouts[nr])
            results.append(result)
        return results

    def _getter(self, name: str) -> Callable[[_Use, int], Any]:
        """How to find what a rule means by the name of a parameter."""
        if name in _GETTERS:
            return _GETTERS[name]
        if name in self.params:
            place = ("in", self.params.index(name))
            return _all_inputs if self.variadic else lambda use, nr: use.saved[place]
        base, _, what = name.rpartition("_")
        if what in ("shape", "dtype") and base in self.params:
            if self.variadic:
                return lambda use, nr: [getattr(layout, what) for layout in use.call.layouts]
            at = self.params.index(base)
            return lambda use, nr: getattr(use.call.layouts[at], what)
        return lambda use, nr: use.setting(name)

    # ------------------------------------------------------------------ forward mode
    def _push(self, node: Node, tangents: Sequence[Tensor | None]) -> Any:
        """Tangent of the output; derived from the gradient rules where no rule was declared."""
        settings = {k: v for k, v in node.statics.settings.items() if k in self._setting_names}
        if self.linear and not self.variadic and len(tangents) == 1:
            return self(tangents[0], **settings)
        if self.linear and self.variadic:
            zeros = [wrap(np.zeros(l.shape, l.dtype)) for l in node.statics.layouts]
            return self(*(z if t is None else t for z, t in zip(zeros, tangents, strict=True)), **settings)
        if self._jvp is not None:
            return self._jvp(node, tangents)
        return transposed_jvp(self, node, tangents)

    def __repr__(self) -> str:
        return f"<primitive {self.name}({', '.join(self.params)})>"


def _widened(x: Tensor) -> Tensor:
    from numbagrad.ops.conversion import astype

    return astype(x, np.float32) if is_half(x._layout.dtype) else x


def _narrowed(result: Any, dtype: np.dtype) -> Any:
    """What was computed in float32, in the dtype of the operands."""
    if type(result) is tuple:
        return tuple(_narrowed(r, dtype) for r in result)
    with np.errstate(over="ignore"):
        return np.asarray(result, dtype) if np.asarray(result).dtype == np.float32 else result


def _filled(node: Node, grads: Sequence[Tensor | None]) -> list[Tensor]:
    return [wrap(np.zeros(l.shape, l.dtype)) if g is None else g for g, l in zip(grads, node.layout, strict=True)]


def transposed_jvp(op: Any, node: Node, tangents: Sequence[Tensor | None]) -> Any:
    """Forward mode from reverse mode: the gradient is linear in g, and its transpose is the push-forward."""
    layouts = node.layout if type(node.layout) is tuple else (node.layout,)
    recorded = mode.enabled
    with enable_grad():
        seeds = [wrap(np.zeros(l.shape, l.dtype)) for l in layouts]
        for seed in seeds:
            seed._requires_grad = seed._layout.kind in "fc"
            make_private(seed)
        grads = op.vjp(node, seeds if type(node.layout) is tuple else seeds[0])
        pairs = [
            (g, t) for g, t in zip(grads, tangents, strict=True) if g is not None and t is not None and g.requires_grad
        ]
        wanted = [s for s in seeds if s._requires_grad]
        found = gradients(
            [g for g, _ in pairs], wanted, [t for _, t in pairs], create_graph=recorded, materialize_grads=True
        )
    moving = iter(found)
    outs = tuple(next(moving) if s._requires_grad else s for s in seeds)
    return outs if type(node.layout) is tuple else outs[0]


def primitive(
    linear: bool = False, view: bool = False, name: str | None = None, wide: str = "", casts: str = ""
) -> Callable[[Callable[..., Any]], Primitive]:
    """Declare a primitive from its forward on arrays.

    Parameters
    ----------
    linear : bool
        The output is linear in the tensors together, so forward mode is the op itself.
    view : bool
        The output may share the memory of the first tensor.
    name : str, optional
        Default: the function's.
    wide : {"", "rules", "all"}
        What is computed in float32 for floats of 16 bits: the gradient rules, or the forward too. A forward that is
        made of kernels, or only moves items, needs nothing.
    casts : {"", "low", "single", "widest"}
        What autocast makes of its operands; see `ops/autocast.py`.
    """

    def declare(forward: Callable[..., Any]) -> Primitive:
        return register(Primitive(forward, linear, view, name, wide, casts))

    return declare


__all__ = ["Call", "Handed", "Primitive", "primitive", "transposed_jvp"]
