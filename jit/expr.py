"""Scalar expressions: the one language in which elementwise mathematics is said. Build, substitute, differentiate.

A `ScalarExpr` is a symbol, a constant, or a call of a named scalar function on other expressions. Equal expressions
are one object, so a shared term is computed once and identity means equality. What a name means is not known here:
`render` turns calls into Numba source, `reference` evaluates them with NumPy, and `differentiate` takes the partial
derivatives of each function from the table that its caller passes in, so a function stays opaque: the derivative of
sigmoid is the one that was declared for it, not one derived through exp.

`s` is the vocabulary: ``s.tanh(x)``, ``s.where(c, x, y)``; operators build the arithmetic.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

Partials = Callable[..., Sequence["ScalarExpr | None"]]
Number = float | int | bool


class ScalarExpr:
    """One node of an expression: ``op`` is "symbol", "const" or the name of a scalar function."""

    __slots__ = ("__weakref__", "args", "op", "value")

    op: str
    args: tuple[ScalarExpr, ...]
    value: Any
    """Name of a symbol, number of a constant."""

    _made: ClassVar[weakref.WeakValueDictionary[Any, ScalarExpr]] = weakref.WeakValueDictionary()

    def __new__(cls, op: str, args: tuple[ScalarExpr, ...] = (), value: Any = None) -> ScalarExpr:
        key = (op, tuple(map(id, args)), type(value), repr(value))
        found = cls._made.get(key)
        if found is None:
            found = object.__new__(cls)
            found.op, found.args, found.value = op, args, value
            cls._made[key] = found
        return found

    def __repr__(self) -> str:
        if self.op in ("symbol", "const"):
            return str(self.value)
        return f"{self.op}({', '.join(map(repr, self.args))})"

    def __add__(self, other: Any) -> ScalarExpr:
        return call("add", self, other)

    def __radd__(self, other: Any) -> ScalarExpr:
        return call("add", other, self)

    def __sub__(self, other: Any) -> ScalarExpr:
        return call("subtract", self, other)

    def __rsub__(self, other: Any) -> ScalarExpr:
        return call("subtract", other, self)

    def __mul__(self, other: Any) -> ScalarExpr:
        return call("multiply", self, other)

    def __rmul__(self, other: Any) -> ScalarExpr:
        return call("multiply", other, self)

    def __truediv__(self, other: Any) -> ScalarExpr:
        return call("divide", self, other)

    def __rtruediv__(self, other: Any) -> ScalarExpr:
        return call("divide", other, self)

    def __pow__(self, other: Any) -> ScalarExpr:
        return call("power", self, other)

    def __neg__(self) -> ScalarExpr:
        return call("negative", self)

    def __gt__(self, other: Any) -> ScalarExpr:
        return call("greater", self, other)

    def __ge__(self, other: Any) -> ScalarExpr:
        return call("greater_equal", self, other)

    def __lt__(self, other: Any) -> ScalarExpr:
        return call("less", self, other)

    def __le__(self, other: Any) -> ScalarExpr:
        return call("less_equal", self, other)

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of {self!r} is not known while an op is declared; use s.where(condition, a, b)")


def symbol(name: str) -> ScalarExpr:
    """A variable."""
    return ScalarExpr("symbol", value=name)


def const(value: Number) -> ScalarExpr:
    """A number, taken in the dtype of the computation."""
    return ScalarExpr("const", value=value)


def lift(value: Any) -> ScalarExpr:
    """An expression from an expression or a Python number."""
    if isinstance(value, ScalarExpr):
        return value
    if isinstance(value, (int, float)):
        return const(value)
    raise TypeError(f"a scalar expression is built from expressions and Python numbers, got {type(value).__name__}")


def is_const(e: ScalarExpr, value: Number | None = None) -> bool:
    """Whether `e` is a constant (of that value)."""
    return e.op == "const" and (value is None or e.value == value)


def call(name: str, *args: Any) -> ScalarExpr:
    """A call of the scalar function `name`, with trivial cases simplified where nan and inf cannot tell."""
    lifted = tuple(map(lift, args))
    simplified = _SIMPLIFY[name](*lifted) if name in _SIMPLIFY else None
    return simplified if simplified is not None else ScalarExpr(name, lifted)


def _simplify_multiply(x: ScalarExpr, y: ScalarExpr) -> ScalarExpr | None:
    # 0 * y is not 0: y may be nan or inf.
    if is_const(x, 1):
        return y
    if is_const(y, 1):
        return x
    if is_const(x, -1):
        return call("negative", y)
    return call("negative", x) if is_const(y, -1) else None


def _simplify_gmul(g: ScalarExpr, d: ScalarExpr) -> ScalarExpr | None:
    if is_const(d):
        return const(0) if d.value == 0 else call("multiply", g, d)
    if is_const(g):
        return const(0) if g.value == 0 else call("multiply", g, d)
    if d.op == "negative":
        return call("negative", call("gmul", g, d.args[0]))
    if d.op == "where" and (is_const(d.args[1]) or is_const(d.args[2])):
        condition, a, b = d.args
        return call("where", condition, call("gmul", g, a), call("gmul", g, b))
    return None


def _simplify_where(c: ScalarExpr, x: ScalarExpr, y: ScalarExpr) -> ScalarExpr | None:
    return x if x is y else None


def _simplify_negative(x: ScalarExpr) -> ScalarExpr | None:
    return x.args[0] if x.op == "negative" else None


_SIMPLIFY: Mapping[str, Callable[..., ScalarExpr | None]] = {
    "multiply": _simplify_multiply,
    "gmul": _simplify_gmul,
    "where": _simplify_where,
    "negative": _simplify_negative,
}


CHEAP = frozenset(
    (
        "add",
        "subtract",
        "multiply",
        "negative",
        "absolute",
        "gmul",
        "where",
        "floor",
        "ceil",
        "rint",
        "trunc",
        "copysign",
    )
    + ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
    + ("logical_and", "logical_or", "logical_not")
)
"""Scalar functions that cost about one instruction."""


class Vocabulary:
    """`s`: every attribute builds a call of the scalar function of that name."""

    def __getattr__(self, name: str) -> Callable[..., ScalarExpr]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: call(name, *args)


s = Vocabulary()


def topological(*roots: ScalarExpr, stop: Iterable[ScalarExpr] = ()) -> list[ScalarExpr]:
    """Every expression below `roots`, arguments first; nothing below those in `stop` is visited."""
    stopped = {id(e) for e in stop}
    seen: set[int] = set()
    order: list[ScalarExpr] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        e, done = stack.pop()
        if done:
            order.append(e)
        elif id(e) not in seen:
            seen.add(id(e))
            stack.append((e, True))
            if id(e) not in stopped:
                stack.extend((a, False) for a in reversed(e.args))
    return order


def substitute(roots: Sequence[ScalarExpr], replace: Mapping[ScalarExpr, ScalarExpr]) -> list[ScalarExpr]:
    """`roots` with each expression that is a key of `replace` put in place."""
    new: dict[int, ScalarExpr] = {id(k): v for k, v in replace.items()}
    for e in topological(*roots, stop=list(replace)):
        if id(e) not in new:
            new[id(e)] = call(e.op, *(new[id(a)] for a in e.args)) if e.args else e
    return [new[id(r)] for r in roots]


_PRECEDENCE = {"add": (1, "+"), "subtract": (1, "-"), "multiply": (2, "*"), "divide": (2, "/"), "power": (4, "**")}
_COMPARE = {"greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!="}


def text(e: ScalarExpr, outer: int = 0) -> str:
    """The expression as a person would write it."""
    if e.op in _PRECEDENCE:
        rank, sign = _PRECEDENCE[e.op]
        written = f"{text(e.args[0], rank)} {sign} {text(e.args[1], rank + 1)}"
        return f"({written})" if rank < outer else written
    if e.op == "gmul":
        return f"{text(e.args[0], 2)} * {text(e.args[1], 3)}" if outer <= 2 else f"({text(e)})"
    if e.op in _COMPARE:
        return f"({text(e.args[0], 1)} {_COMPARE[e.op]} {text(e.args[1], 1)})"
    if e.op == "negative":
        return f"-{text(e.args[0], 3)}" if outer <= 1 else f"(-{text(e.args[0], 3)})"
    if not e.args:
        return f"{e.value:.6g}" if isinstance(e.value, float) else str(e.value)
    return f"{e.op}({', '.join(text(a) for a in e.args)})"


def symbols(*roots: ScalarExpr) -> list[str]:
    """Names of the symbols that occur below `roots`, in order."""
    return [e.value for e in topological(*roots) if e.op == "symbol"]


def differentiate(root: ScalarExpr, wrt: ScalarExpr, partials: Mapping[str, Partials]) -> ScalarExpr | None:
    """Derivative of `root` by the symbol or expression `wrt`; None where it is zero everywhere.

    Parameters
    ----------
    root : ScalarExpr
    wrt : ScalarExpr
        Where it occurs, it counts as a variable: nothing below it is looked at.
    partials : mapping
        Name of a scalar function -> function of its arguments that gives its partial derivatives. A missing name
        means that the function is flat (comparisons, rounding).

    Notes
    -----
    The chain rule multiplies with ``gmul``, for which a zero factor from outside absorbs nan and inf.
    """
    derivative: dict[int, ScalarExpr | None] = {}
    for e in topological(root, stop=[wrt]):
        if e is wrt:
            derivative[id(e)] = const(1)
        elif e.args and e.op in partials:
            inner = [derivative[id(a)] for a in e.args]
            derivative[id(e)] = _product_rule(e, inner) if e.op == "gmul" else _chain(partials[e.op](*e.args), inner)
        else:
            derivative[id(e)] = None
    return derivative[id(root)]


def _product_rule(e: ScalarExpr, inner: Sequence[ScalarExpr | None]) -> ScalarExpr | None:
    """Derivative of ``gmul(g, d)``. A zero g absorbs the derivative of d as it does d."""
    (g, d), (by_g, by_d) = e.args, inner
    terms = [call("gmul", by_g, d)] if by_g is not None else []
    terms += [call("gmul", g, by_d)] if by_d is not None else []
    return None if not terms else terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _chain(partials: Sequence[ScalarExpr | None], inner: Sequence[ScalarExpr | None]) -> ScalarExpr | None:
    total: ScalarExpr | None = None
    for p, d in zip(partials, inner, strict=True):
        if p is None or d is None or is_const(lift(p), 0):
            continue
        term = call("gmul", d, p)
        total = term if total is None else total + term
    return total
