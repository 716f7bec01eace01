"""Elementwise ops: one declaration of value and partial derivatives, everything else derived.

    @elementwise(numpy=np.tanh, sample=(-3, 3))
    def tanh(x):
        \"\"\"Hyperbolic tangent.\"\"\"
        y = s.tanh(x)
        return y, (1 - y * y,)

The function runs once, on symbols. Its partials decide what is saved: mentioning ``y`` saves the output, mentioning
``x`` the input. `Plan` is what is derived for one choice of "which inputs want a gradient": a further `Elementwise`
that maps (gradient, saved values) to the gradients, and so has a derivative of its own, to any order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from numbagrad.engine.anomaly import check_values
from numbagrad.engine.layout import CODES, FAST_SIZE, Layout, code_of, dense_layout, kind_of, layout_of
from numbagrad.engine.mode import mode
from numbagrad.engine.node import Edge, Node, batching, watches
from numbagrad.engine.tensor import Tensor, edge_of, wrap
from numbagrad.jit import backend, mapping, memory
from numbagrad.jit.expr import (
    Partials,
    ScalarExpr,
    call,
    const,
    differentiate,
    is_const,
    lift,
    s,
    substitute,
    symbol,
    topological,
)
from numbagrad.jit.kernel import kernel_for
from numbagrad.jit.mapping import Program
from numbagrad.jit.pull import Pull
from numbagrad.jit.team import get_num_threads
from numbagrad.ops import fastpath
from numbagrad.ops.batching import batching_rules
from numbagrad.ops.composing import compose
from numbagrad.ops.describing import docstring
from numbagrad.ops.fused_backward import run_fused
from numbagrad.ops.operands import (
    NUMBERS,
    OPERANDS,
    broadcast_shape,
    layout_at,
    operand,
    promoted_half,
    stretched_axes,
    unbroadcast,
)
from numbagrad.ops.pushing import numbers_in, push
from numbagrad.ops.registry import NUMPY, Sampling, register
from numbagrad.ops.saved import check_saved, saved_output, versions_of

RULES: dict[str, Partials] = {}
"""Name of a scalar function -> its partial derivatives as expressions of its arguments."""

Sources = Sequence[tuple[str, int]]


class Elementwise:
    """One scalar function of its operands: value and partial derivatives, mapped over arrays."""

    real_only = False
    """Whether complex numbers are refused: the formulas would be wrong for them."""

    def __init__(
        self,
        name: str,
        params: Sequence[str],
        exprs: Sequence[ScalarExpr],
        partials: Sequence[Sequence[ScalarExpr | None]] | None = None,
        conditions: frozenset[str] = frozenset(),
        numpy: Any = None,
        doc: str | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name = name
        self.params = tuple(params)
        self.symbols = [symbol(p) for p in params]
        self.exprs = tuple(exprs)
        self.conditions = conditions
        self.numpy = numpy
        self.sampling = sampling or Sampling()
        self.program = Program(name, self.params, self.exprs, conditions)
        self.map = mapping.Map(self.program)
        self._partials = partials
        self._plans: dict[tuple[tuple[bool, ...], tuple[bool, ...]], Plan] = {}
        self._loops: dict[Any, np.dtype] = {}
        self._decided: dict[Any, tuple[np.dtype, tuple[int, ...]]] = {}
        _DECISIONS.append(self._decided)
        self._known: dict[Any, tuple[Layout, mapping.Recipe]] = {}
        """For dense tensors that are large or broadcast, by their layouts: layout of the result, and how to run."""
        _DECISIONS.append(self._known)
        self.summary = (doc or f"Derivative of an op: {name}.").strip()
        self.__name__ = self.__qualname__ = name
        self._make_fast()

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return docstring(self)

    # ------------------------------------------------------------------ calling
    def _make_fast(self) -> None:
        """Make `fast`, the function that users call, and for two operands `operator` and `reflected`, its forms as
        methods of Tensor, which give other types their turn."""
        self.tables: dict[str, list[Any]] = {}
        self.shots: dict[Any, Any] = {}
        _DECISIONS.append(self.shots)
        self.fast: Callable[..., Any] = self.call
        # One output and no condition: the operands may share a layout.
        if len(self.exprs) > 1 or self.conditions or len(self.params) > 2:
            return
        patterns = ("T",) if len(self.params) == 1 else ("TT", "TN", "NT")
        self.tables = {p: _new_table() for p in patterns}
        plans = {p: _PlanTable(self, p) for p in patterns}
        self.fast = fastpath.forward(self, patterns, plans, self.call)
        if len(self.params) == 2:
            self.operator = fastpath.forward(self, ("TT", "TN"), plans, self._operator)
            backwards = fastpath.forward(self, ("NT",), plans, lambda x, y: self._operator(x, y))
            self.reflected: Callable[..., Any] = lambda self, other: backwards(other, self)

    def _operator(self, x: Any, y: Any) -> Any:
        return self.call(x, y) if isinstance(x, OPERANDS) and isinstance(y, OPERANDS) else NotImplemented

    def __call__(self, *operands: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError(f"{self.name}() takes no keyword arguments, got {', '.join(kwargs)}")
        if len(operands) != len(self.params):
            raise TypeError(
                f"{self.name}() takes {len(self.params)} arguments ({', '.join(self.params)}), got {len(operands)}"
            )
        return self.fast(*operands)

    def call(self, *operands: Any) -> Any:
        """The general way: any operands, dtypes, shapes and layouts."""
        kinds = tuple([v._layout if type(v) is Tensor else type(v) for v in operands])
        known = self._known.get((kinds, get_num_threads()))
        if known is not None:
            return self._call_known(operands, *known)
        if batching and (out := batching_rules().elementwise(self, operands)) is not None:
            return out
        given = [v if type(v) is Tensor else operand(v, p) for v, p in zip(operands, self.params, strict=True)]
        if self.tables and any([type(v) is np.ndarray for v in operands]):  # noqa: C419 - a list is faster here
            return self.fast(*given)
        if self.tables and any([_is_small_strided(v) for v in given]):  # noqa: C419
            return self._call_small(given)
        key = tuple([_kind(v) for v in given])
        compute, shape = self._decided.get(key) or self._decide(key, given)
        values = [v._data if isinstance(v, Tensor) else v for v in given]
        outs = self.evaluate(self._cast(values, compute), shape, compute)
        tensors = [wrap(o) for o in outs]
        if kind_of(compute) in "fc" and mode.enabled:
            self._record(given, tensors)
        if len(tensors) > 1:
            return tuple(tensors)
        self._keep_known(kinds, values, tensors[0])
        return tensors[0]

    def _call_known(self, operands: Sequence[Any], layout: Layout, recipe: mapping.Recipe) -> Tensor:
        out = memory.empty(layout.shape, layout.dtype)
        recipe([v._data if type(v) is Tensor else v for v in operands], (out,))
        tensor = wrap(out)
        if mode.enabled:
            self._record(operands, (tensor,))
        return tensor

    def _keep_known(self, kinds: tuple[Any, ...], values: Sequence[Any], out: Tensor) -> None:
        """Remember how to run over dense tensors of these layouts, and numbers."""
        layout = out._layout
        usual = layout.dense and code_of(layout.dtype) >= 0 and layout.code < 0
        if not usual or not all(map(_is_usual, kinds, [p in self.conditions for p in self.params], repeat(layout))):
            return
        recipe, turned = self.map.recipe(values, layout.shape, layout.dtype)
        if turned:
            return
        if len(self._known) >= mapping.RECIPES_AT_MOST:
            self._known.clear()
        self._known[kinds, get_num_threads()] = layout, recipe

    def _call_small(self, given: Sequence[Any]) -> Tensor:
        """Small strided operands are copied: that costs less than finding out how to walk over them."""
        out = self.fast(*[wrap(v._data.copy(order="C")) if _is_small_strided(v) else v for v in map(_bare, given)])
        if out._layout.kind in "fc" and mode.enabled:
            self._record(given, [out])
        return out

    def _decide(self, key: tuple[Any, ...], given: Sequence[Any]) -> tuple[np.dtype, tuple[int, ...]]:
        """Dtype of the computation and shape of the result; kept for operands that may come again."""
        compute = self.loop_dtype(given)
        shape = broadcast_shape(self.name, [v.shape for v in given if isinstance(v, Tensor)])
        if len(self._decided) >= mapping.RECIPES_AT_MOST:
            self._decided.clear()
        self._decided[key] = compute, shape
        if all(not isinstance(v, Tensor) or v._layout.dense for v in given):
            self._resolve(given, compute, shape)
        return compute, shape

    def _cast(self, values: Sequence[Any], dtype: np.dtype) -> list[Any]:
        return [
            v if not isinstance(v, np.ndarray) or v.dtype == dtype else _cast(v, dtype, p in self.conditions)
            for v, p in zip(values, self.params, strict=True)
        ]

    def evaluate(self, values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype) -> list[np.ndarray]:
        """Values of the outputs for arrays of `dtype` and numbers."""
        if code_of(dtype) >= 0:
            try:
                return self.map(values, shape, dtype)
            except TypeError:
                # A kernel refuses memory that is not aligned; nothing has run yet.
                return self.map(
                    [np.require(v, requirements="A") if isinstance(v, np.ndarray) else v for v in values], shape, dtype
                )
        if isinstance(self.numpy, np.ufunc) and len(self.exprs) == 1:
            with np.errstate(all="ignore"):
                return [np.asarray(self.numpy(*values))]
        typed = [v if isinstance(v, np.ndarray) else np.asarray(v, dtype) for v in values]
        results = mapping.evaluate(
            self.exprs, dict(zip(self.params, typed, strict=True)), dtype, kernel_for.definitions
        )
        return [np.array(np.broadcast_to(r, shape), dtype=dtype) for r in results]

    def loop_dtype(self, given: Sequence[Any]) -> np.dtype:
        """The dtype that NumPy computes in for these operands."""
        key = tuple(
            v._layout.dtype if isinstance(v, Tensor) else type(v)
            for v, p in zip(given, self.params, strict=True)
            if p not in self.conditions
        )
        found = self._loops.get(key)
        if found is None:
            found = self._loops[key] = self._find_loop(key)
        return found

    def _find_loop(self, key: Sequence[Any]) -> np.dtype:
        found = promoted_half(key)
        if found is not None:
            return found
        if isinstance(self.numpy, np.ufunc) and self.numpy.nin == len(key):
            given = tuple(np.dtype(bool) if k is bool else k for k in key)
            return self.numpy.resolve_dtypes((*given, *([None] * self.numpy.nout)))[0]
        samples = [k(1) if isinstance(k, type) and k in NUMBERS else k for k in key]
        dtype = np.result_type(*samples)
        if self.real_only and dtype.kind == "c":
            raise TypeError(f"{self.name} is defined for real numbers only, got dtype {dtype}; take real or abs first")
        return np.dtype(np.float64) if dtype.kind in "biu" else dtype

    def _resolve(self, given: Sequence[Any], dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Fill the fast table of this pattern of operands."""
        if "TT" in self.tables and all(isinstance(v, Tensor) and v._layout.dtype == dtype for v in given):
            self._keep_shot(given, dtype, shape)
        table = self.tables.get("".join("T" if isinstance(v, Tensor) else "N" for v in given))
        code = code_of(dtype)
        if table is not None and code >= 0 and table[code] is None:
            table[code] = self.map.entry(dtype, [not isinstance(v, Tensor) for v in given])

    def _keep_shot(self, given: Sequence[Tensor], dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Make a small broadcast of dense tensors fast from now on."""
        layout = dense_layout(shape, dtype)
        if layout.code >= 0 and layout.size and given[0]._layout is not given[1]._layout:
            nested = self.map.nested([v._data for v in given], shape, dtype)
            if nested is not None:
                if len(self.shots) >= mapping.RECIPES_AT_MOST:
                    self.shots.clear()
                self.shots[given[0]._layout, given[1]._layout] = layout, *nested

    # ------------------------------------------------------------------ recording
    def _record(self, given: Sequence[Any], outs: Sequence[Tensor]) -> None:
        edges = tuple(edge_of(v) if isinstance(v, Tensor) else None for v in given)
        wants = tuple(e is not None for e in edges)
        if not any(wants):
            return
        if len(outs) == 1:
            self._record_one(given, outs[0], edges, wants)
            return
        node = Node(self, edges, tuple(given), tuple(o._layout for o in outs))
        node.versions = versions_of(node.saved)
        for nr, out in enumerate(outs):
            out._node = Edge(node, nr)
            out._requires_grad = True
        if watches:
            check_values(node, given, outs)

    def _record_one(self, given: Sequence[Any], out: Tensor, edges: tuple[Any, ...], wants: tuple[bool, ...]) -> None:
        plan = self.plan((True,), wants, tuple(not isinstance(v, Tensor) for v in given))
        alike = all(v._layout is out._layout for v in given if isinstance(v, Tensor))
        node = Node(plan if alike else plan.careful, edges, plan.save(*given, out._data), out._layout)
        plan.note_versions(node)
        out._node = node
        out._requires_grad = True
        if watches:
            check_values(node, given, [out])

    def plan(self, outs: tuple[bool, ...], wants: tuple[bool, ...], numbers: tuple[bool, ...] | None = None) -> Plan:
        """How gradients of the outputs marked in `outs` give those of the operands marked in `wants`.

        `numbers` marks the operands that are Python numbers.
        """
        numbers = numbers or (False,) * len(self.params)
        found = self._plans.get((outs, wants, numbers))
        if found is None:
            found = self._plans[outs, wants, numbers] = Plan(self, outs, wants, numbers)
        return found

    def partial(self, out: int, argument: int) -> ScalarExpr | None:
        """Partial derivative of an output by an operand, None where it is zero."""
        if self._partials is None:
            return differentiate(self.exprs[out], self.symbols[argument], RULES)
        p = self._partials[out][argument]
        return None if p is None or is_const(lift(p), 0) else lift(p)

    def vjp(self, node: Node, grad: Any) -> Sequence[Tensor | None]:
        """Gradients of the operands of a node with several outputs."""
        wants = tuple(e is not None for e in node.edges)
        plan = self.plan(tuple(g is not None for g in grad), wants, numbers_in(check_saved(node, self._sources)))
        return plan.general_several(node, [g for g in grad if g is not None])

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Any:
        """Tangents of the outputs of a node with several outputs."""
        saved = dict(zip(self._sources, check_saved(node, self._sources), strict=True))
        return tuple(push(self, nr, node, tangents, saved) for nr in range(len(self.exprs)))

    @property
    def _sources(self) -> list[tuple[str, int]]:
        return [("in", i) for i in range(len(self.params))]

    def __repr__(self) -> str:
        return f"<elementwise {self.name}({', '.join(self.params)})>"


class _PlanTable(dict[int, "Plan"]):
    """Backward plans by the bits of "operand i requires grad", made when first asked for."""

    def __init__(self, op: Elementwise, pattern: str) -> None:
        super().__init__()
        self.op = op
        self.numbers = tuple(letter == "N" for letter in pattern)

    def __missing__(self, bits: int) -> Plan:
        wants = tuple(bool(bits >> i & 1) for i in range(len(self.op.params)))
        plan = self[bits] = self.op.plan((True,), wants, self.numbers)
        return plan


class Plan:
    """The backward of an op for one choice of outputs with a gradient and operands that want one.

    It is what nodes of one output refer to as their op: the sweep calls its `vjp`.
    """

    def __init__(
        self, op: Elementwise, outs: tuple[bool, ...], wants: tuple[bool, ...], numbers: tuple[bool, ...]
    ) -> None:
        self.name = op.name
        self.source = op
        self.outs = outs
        self.wants = wants
        self.numbers = numbers
        self.arity = len(wants)
        self.cotangents = [symbol(f"{_free_prefix(op.params)}{k}") for k, has in enumerate(outs) if has]
        formulas = {i: self._formula(i) for i, wanted in enumerate(wants) if wanted}
        self.flat = tuple(i for i, f in formulas.items() if f is None)
        self.passed = tuple(i for i, f in formulas.items() if len(self.cotangents) == 1 and f is self.cotangents[0])
        self.computed = tuple(i for i, f in formulas.items() if f is not None and i not in self.passed)
        self.saves, exprs = self._find_saved([formulas[i] for i in self.computed])
        params = [c.value for c in self.cotangents] + [_saved_name(op, kind, nr) for kind, nr in self.saves]
        saved_inputs = [op.params[nr] for kind, nr in self.saves if kind == "in"]
        self.op = Elementwise(f"{op.name}_backward", params, exprs, conditions=op.conditions & set(saved_inputs))
        self.pull = Pull(self.op.program)
        self.kernels = _new_table()
        self.save = self._make_save()
        self.fusible = self if len(self.cotangents) == 1 and not self.flat else None
        """What a fused backward may take in."""
        self.careful = Careful(self)

    def _formula(self, argument: int) -> ScalarExpr | None:
        total: ScalarExpr | None = None
        for g, nr in zip(self.cotangents, [k for k, has in enumerate(self.outs) if has], strict=True):
            p = self.source.partial(nr, argument)
            if p is not None:
                term = call("gmul", g, p) if not is_const(p, 1) else g
                total = term if total is None else total + term
        return total

    def _find_saved(self, formulas: Sequence[ScalarExpr | None]) -> tuple[list[tuple[str, int]], list[ScalarExpr]]:
        """What the formulas need of operands and outputs: the first known value on every path."""
        roots = [f for f in formulas if f is not None]
        leaves = {id(e): ("in", i) for i, e in enumerate(self.source.symbols)}
        if self.source._partials is not None:
            for k, e in enumerate(self.source.exprs):
                leaves.setdefault(id(e), ("out", k))
        known = [*self.source.symbols, *self.source.exprs] if self.source._partials is not None else self.source.symbols
        order = topological(*roots, stop=known)
        saves = sorted({leaves[id(e)] for e in order if id(e) in leaves})
        replace = {
            self.source.exprs[nr]: symbol(_saved_name(self.source, "out", nr)) for kind, nr in saves if kind == "out"
        }
        return saves, substitute(roots, replace) if roots else []

    def _make_save(self) -> Callable[..., tuple[Any, ...]]:
        """A function of the operands and the output array that gives what is saved."""
        params = ", ".join((*self.source.params, "out_"))
        picked = [self.source.params[nr] if kind == "in" else "out_" for kind, nr in self.saves]
        return eval(f"lambda {params}: ({''.join(f'{p}, ' for p in picked)})")

    def letter(self, source: tuple[str, int]) -> str:
        """The fast path's letter for a saved value."""
        kind, nr = source
        return "A" if kind == "out" else "N" if self.numbers[nr] else "T"

    def note_versions(self, node: Node) -> None:
        """Remember the versions of what was saved."""
        node.versions = versions_of(node.saved)

    # ------------------------------------------------------------------ running
    def vjp(self, node: Node, grad: Tensor) -> Sequence[Tensor | None]:
        """Gradients of the operands; the first call makes the fast path."""
        if not self.flat and not self.source.conditions:
            self.vjp = fastpath.backward(self)  # type: ignore[method-assign]
        return self.general(node, grad)

    def jvp(self, node: Node, tangents: Sequence[Tensor | None]) -> Tensor:
        """Tangent of the output."""
        saved = dict(zip(self.saves, check_saved(node, self.saves), strict=True))
        return push(self.source, 0, node, tangents, saved)

    def general(self, node: Node, grad: Tensor) -> Sequence[Tensor | None]:
        """The general way, for one output. Large arrays may take the nodes that follow along."""
        if node.layout.size > FAST_SIZE:
            done = run_fused(node, grad)
            if done is not None:
                return done
        return self.general_several(node, [grad])

    def general_several(self, node: Node, grads: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Any layouts, broadcasting, dtypes; recorded when grad mode is on."""
        saved = self._unpack(node)
        found: list[Tensor | None] = [None] * self.arity
        for i in self.passed:
            found[i] = grads[0]
        if self.computed:
            results = self._sums(node, grads, saved) or self._results(node, grads, saved)
            for i, r in zip(self.computed, results, strict=True):
                found[i] = r
        for i in self.flat:
            at = layout_at(node.edges[i])
            found[i] = wrap(np.zeros(at.shape, at.dtype))
        return [None if g is None else unbroadcast(g, layout_at(e)) for g, e in zip(found, node.edges, strict=True)]

    def _sums(self, node: Node, grads: Sequence[Tensor], saved: Sequence[Any]) -> Sequence[Tensor] | None:
        """The gradients of large arrays, those of broadcast operands summed in the loop that computes them; None where
        there is nothing to sum."""
        wide, dtype = grads[0].shape, grads[0].dtype
        shapes = [layout_at(node.edges[i]).shape for i in self.computed]
        if mode.enabled or grads[0].size <= FAST_SIZE or code_of(dtype) < 0 or all(s == wide for s in shapes):
            return None
        values = [v._data if isinstance(v, Tensor) else v for v in (*grads, *saved)]
        values = [
            _cast(v, dtype, p in self.op.conditions) if isinstance(v, np.ndarray) else v
            for v, p in zip(values, self.op.params, strict=True)
        ]
        targets = tuple([None if s == wide else stretched_axes(s, wide) for s in shapes])
        found = self.pull(values, wide, dtype, targets)
        if found is None:
            return None
        # A view would count as somebody else's memory.
        return [wrap(f if f.shape == s else f.reshape(s)) for f, s in zip(found, shapes, strict=True)]

    def _unpack(self, node: Node) -> list[Any]:
        if node.op is self.source:
            given = check_saved(node, self.source._sources)
            return [given[nr] for _, nr in self.saves]
        return list(check_saved(node, self.saves)) if self.saves else []

    def _results(self, node: Node, grads: Sequence[Tensor], saved: Sequence[Any]) -> Sequence[Tensor]:
        if mode.enabled:
            tensors = [
                saved_output(node, nr, v) if kind == "out" else v
                for v, (kind, nr) in zip(saved, self.saves, strict=True)
            ]
            return self._recorded([*grads, *tensors], grads[0].dtype)
        values = [v._data if isinstance(v, Tensor) else v for v in (*grads, *saved)]
        dtype, layout = grads[0].dtype, grads[0]._layout
        if layout.size <= FAST_SIZE and len(grads) == 1 and code_of(dtype) >= 0 and backend.current() == "cpu":
            return self._results_small(values, layout)
        names = self.op.params
        values = [
            v if not isinstance(v, np.ndarray) else _cast(v, dtype, p in self.op.conditions)
            for v, p in zip(values, names, strict=True)
        ]
        if dtype.kind == "c":
            return self._recorded([wrap(v) if isinstance(v, np.ndarray) else v for v in values], dtype)
        outs = self.op.evaluate(values, layout.shape, dtype)
        if code_of(dtype) >= 0 and len(self.cotangents) == 1:
            self._entry(dtype)
        return [wrap(o) for o in outs]

    def _results_small(self, values: Sequence[Any], layout: Layout) -> Sequence[Tensor]:
        """By the kernel for dense arrays of one shape; small arrays that are not so are copied."""
        shape, dtype = layout.shape, layout.dtype
        dense = [
            _spread(v, shape, np.dtype(bool) if p in self.op.conditions else dtype) if isinstance(v, np.ndarray) else v
            for v, p in zip(values, self.op.params, strict=True)
        ]
        outs = [np.empty(shape, dtype) for _ in self.computed]
        if layout.size:
            self._entry(dtype)(*dense, *outs)
        return [wrap(o) for o in outs]

    def _entry(self, dtype: np.dtype) -> Callable[..., Any]:
        """The kernel over dense arrays of one shape, from the fast table."""
        code = code_of(dtype)
        if self.kernels[code] is None:
            numbers = [False, *(self.letter(source) == "N" for source in self.saves)]
            self.kernels[code] = self.op.map.entry(dtype, numbers)
        return self.kernels[code]

    def _recorded(self, operands: Sequence[Any], dtype: np.dtype) -> Sequence[Tensor]:
        if dtype.kind == "c":
            return compose(self, operands)
        out = self.op.call(*operands)
        return out if isinstance(out, tuple) else (out,)


class Careful:
    """A plan for nodes whose operands differ in layout: always the general way."""

    def __init__(self, plan: Plan) -> None:
        self.name = plan.name
        self.plan = plan
        self.fusible = plan.fusible
        self.vjp = plan.general
        self.jvp = plan.jvp


def _free_prefix(params: Sequence[str]) -> str:
    """A prefix for the names of cotangents: a derivative's own derivative has arguments called grad already."""
    prefix = "grad"
    while any(p.startswith(prefix) for p in params):
        prefix = "d" + prefix
    return prefix


_TABLES: list[list[Any]] = []
"""All fast tables, to be forgotten when the backend changes."""


def _new_table() -> list[Any]:
    """Entry points by layout code; the last one, for layouts that have no code, stays None."""
    table: list[Any] = [None] * (CODES + 1)
    _TABLES.append(table)
    return table


_DECISIONS: list[dict[Any, Any]] = []
"""What ops decided on calls, which fills the tables on its way."""


def _forget_kernels() -> None:
    for table in _TABLES:
        table[:] = [None] * len(table)
    for decided in _DECISIONS:
        decided.clear()


backend.on_switch(_forget_kernels)


def _saved_name(op: Elementwise, kind: str, nr: int) -> str:
    return op.params[nr] if kind == "in" else f"out_{nr}"


def _is_usual(kind: Any, condition: bool, layout: Layout) -> bool:
    """Whether an operand is a number, or a dense tensor that needs no cast."""
    if type(kind) is Layout:
        return kind.dense and kind.dtype == (np.bool_ if condition else layout.dtype)
    return kind is float or kind is int


def _is_small_strided(value: Any) -> bool:
    return type(value) is Tensor and not value._layout.dense and value._layout.size <= FAST_SIZE


def _bare(value: Any) -> Any:
    """The operand outside the graph."""
    return wrap(value._data) if type(value) is Tensor and value._requires_grad else value


def _kind(value: Any) -> Any:
    """What decisions on calls depend on: type of a number, shape and dtype of a tensor."""
    if not isinstance(value, Tensor):
        return type(value)
    layout = value._layout
    return layout if layout.dense else (layout.shape, layout.dtype)


def _spread(array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The array broadcast and cast into a dense one, unless it is that already."""
    flags = array.flags
    if array.shape == shape and array.dtype == dtype and flags.c_contiguous and flags.aligned:
        return array
    out = np.empty(shape, dtype)
    out[...] = array
    return out


def _cast(array: np.ndarray, dtype: np.dtype, condition: bool) -> np.ndarray:
    wanted = np.dtype(bool) if condition else dtype
    return array if array.dtype == wanted else array.astype(wanted)


def elementwise(
    numpy: Any = None,
    sample: tuple[float, float] | Sequence[tuple[float, float]] = (-2.0, 2.0),
    special: Sequence[tuple[float, ...]] = (),
    conditions: Sequence[str] = (),
    order: int = 2,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Elementwise]:
    """Declare an elementwise op.

    Parameters
    ----------
    numpy : callable, optional
        NumPy's function of the same meaning: it settles promotion, and Tensors given to it come here.
    sample : pair or sequence of pairs of float
        Where tests take the arguments from: one range, or one for each argument.
    special : sequence of tuples
        Arguments worth a test of their own.
    conditions : sequence of str
        Names of boolean arguments.
    order : int
        How often the op can be differentiated.
    name : str, optional
        Name of the op and of its scalar function. Default: the function's.

    Returns
    -------
    callable
        Decorator for a function of symbols that returns the value and a tuple with one partial derivative per
        argument (None: no derivative).
    """
    ranges = (sample,) if isinstance(sample[0], (int, float)) else tuple(sample)

    def declare(rule: Callable[..., Any]) -> Elementwise:
        params = list(inspect.signature(rule).parameters)
        value, partials = rule(*map(symbol, params))
        op = Elementwise(
            name or rule.__name__,
            params,
            [lift(value)],
            [tuple(partials)],
            frozenset(conditions),
            numpy,
            rule.__doc__,
            Sampling(ranges, tuple(special), order),
        )
        _declare_scalar(op, rule)
        if numpy is not None:
            NUMPY[numpy] = op
        if op.fast != op.call:
            op.fast.__doc__ = docstring(op)
        return register(op)

    return declare


def _declare_scalar(op: Elementwise, rule: Callable[..., Any]) -> None:
    """Make the scalar function known to the chain rule and, unless it is a basic one, to rendering."""
    RULES[op.name] = lambda *args: [None if p is None else lift(p) for p in rule(*args)[1]]
    if op.exprs[0].op != op.name:
        kernel_for.definitions[op.name] = lambda *args: lift(rule(*args)[0])


RULES["gmul"] = lambda g, d: (d, g)
__all__ = ["RULES", "Elementwise", "Plan", "const", "elementwise", "layout_of", "s"]
