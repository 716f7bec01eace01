"""From scalar expressions to lines of Numba source.

Every term becomes one assignment, shared terms once. Names with a vector body (`vmath`) are inlined as text; names that
ops define by an expression are expanded here and nowhere else; the rest are calls of `math`. Numbers are written in the
dtype of the computation, because ``1.0 + x`` is float64 in Numba whatever x is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from numbagrad.jit import vmath
from numbagrad.jit.expr import ScalarExpr, s, topological

Definition = Callable[..., ScalarExpr]

_INFIX = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "-{0}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_not": "not {0}",
    "where": "{1} if {0} else {2}",
    "absolute": "abs({0})",
    # A zero factor from outside absorbs nan and inf of the partial derivative.
    "gmul": "{0} * {1} if {0} != {zero} else {zero}",
}

_MATH = {
    "exp": "math.exp",
    "expm1": "math.expm1",
    "log": "math.log",
    "log2": "math.log2",
    "log10": "math.log10",
    "log1p": "math.log1p",
    "sin": "math.sin",
    "cos": "math.cos",
    "tan": "math.tan",
    "sinh": "math.sinh",
    "cosh": "math.cosh",
    "tanh": "math.tanh",
    "arcsin": "math.asin",
    "arccos": "math.acos",
    "arctan": "math.atan",
    "arctan2": "math.atan2",
    "arcsinh": "math.asinh",
    "arccosh": "math.acosh",
    "arctanh": "math.atanh",
    "power": "math.pow",
    "sqrt": "math.sqrt",
    "erf": "math.erf",
    "erfc": "math.erfc",
    "hypot": "math.hypot",
    "fmod": "np.fmod",
    "copysign": "math.copysign",
    "floor": "np.floor",
    "ceil": "np.ceil",
    "trunc": "np.trunc",
    "rint": "np.rint",
    "exp2": "np.exp2",
    "cbrt": "np.cbrt",
    "lgamma": "math.lgamma",
}


def _logaddexp(x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
    larger, distance = s.where(x > y, x, y), s.absolute(x - y)
    # Equal infinities have the distance nan.
    return s.where(s.equal(x, y), x + math.log(2), larger + s.log1p(s.exp(-distance)))


def _mod(x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
    r = s.fmod(x, y)
    wrong_side = s.not_equal(r < 0, y < 0)
    return s.where(s.equal(r, 0), s.copysign(0, y), s.where(wrong_side, r + y, r))


_COMPOSED: Mapping[str, Definition] = {
    "mod": _mod,
    "logaddexp": _logaddexp,
}
"""Functions made of others where `vmath` has no body."""

NAMESPACE: Mapping[str, object] = {"math": math, "np": np, **vmath.NAMESPACE}
"""What rendered lines refer to."""


class Unrenderable(LookupError):
    """A scalar function has neither a body nor a definition."""


def render(
    roots: Sequence[ScalarExpr], names: Mapping[ScalarExpr, str], dtype: str, definitions: Mapping[str, Definition]
) -> tuple[list[str], list[str]]:
    """Source lines that compute `roots`, and the names that hold them.

    Parameters
    ----------
    roots : sequence of ScalarExpr
    names : mapping
        Variable for each expression that is known beforehand (the loaded inputs).
    dtype : str
        "float32" or "float64".
    definitions : mapping
        Functions that are defined by an expression of their arguments.
    """
    return _Renderer(names, dtype, definitions).render(roots)


class _Renderer:
    def __init__(self, names: Mapping[ScalarExpr, str], dtype: str, definitions: Mapping[str, Definition]) -> None:
        self.names = {id(e): name for e, name in names.items()}
        self.known = list(names)
        self.dtype = dtype
        self.definitions = definitions
        self.lines: list[str] = []
        self.count = 0
        # Expansions are made here, and ids of expressions are keys, so they are kept alive.
        self.kept: list[ScalarExpr] = []

    def render(self, roots: Sequence[ScalarExpr]) -> tuple[list[str], list[str]]:
        return self.lines, [self.variable(root) for root in roots]

    def variable(self, root: ScalarExpr) -> str:
        for e in topological(root, stop=self.known):
            if id(e) not in self.names:
                self.names[id(e)] = self.term(e)
        return self.names[id(root)]

    def term(self, e: ScalarExpr) -> str:
        if e.op == "const":
            return self.number(e.value)
        if e.op == "symbol":
            raise Unrenderable(f"symbol {e.value!r} is not among the inputs")
        args = [self.names[id(a)] for a in e.args]
        if e.op in _INFIX:
            return self.assign(_INFIX[e.op].format(*args, zero=self.number(0)))
        if e.op in vmath.SUPPORTED:
            result = self.fresh()
            self.lines += vmath.emit(e.op, self.dtype, args, result)
            return result
        definition = self.definitions.get(e.op) or _COMPOSED.get(e.op)
        if definition is not None:
            expanded = definition(*e.args)
            self.kept.append(expanded)
            return self.variable(expanded)
        if e.op in _MATH:
            return self.assign(f"{self.dtype}({_MATH[e.op]}({', '.join(args)}))")
        raise Unrenderable(f"scalar function {e.op!r} has neither a body nor a definition")

    def assign(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def number(self, value: float | int | bool) -> str:
        if isinstance(value, bool):
            return repr(value)
        if math.isinf(value) or math.isnan(value):
            return f"{self.dtype}({'-' if value < 0 else ''}np.{'nan' if math.isnan(value) else 'inf'})"
        return f"{self.dtype}({value!r})"
