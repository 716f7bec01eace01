"""Vector mathematics: functions of floats as source text that LLVM turns into SIMD code.

A stock Numba has no vector math library: `math.tanh` in a loop is a call of libm for each element. The bodies in
`vmath_basic`, `vmath_trig` and `vmath_special` are branch-free arithmetic, written once for both float types in a small
part of Python: assignments, a return, float arithmetic, comparisons, `a if c else b` and calls. They are never run;
`emit` reads their text and gives it for one dtype, with constants as numbers, helpers inlined and names made unique.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import operator
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from numbagrad.jit import intrinsics, vmath_basic, vmath_rare, vmath_special, vmath_trig
from numbagrad.jit.vmath_words import BODIES, IN_DOUBLE, Both, Wanted

# Importing these fills BODIES.
_MODULES = (vmath_basic, vmath_trig, vmath_special)

SUPPORTED: frozenset[str] = frozenset(BODIES)
"""Names that `emit` knows."""

_OPERATIONS = {
    name: operation
    for module in (intrinsics, vmath_rare)
    for name, operation in vars(module).items()
    if type(operation) is type(intrinsics.fma)
}

NAMESPACE: Mapping[str, object] = MappingProxyType(
    {**_OPERATIONS, "float32": np.float32, "float64": np.float64, "inf": np.inf, "nan": np.nan}
)
"""What emitted lines refer to."""


def emit(name: str, dtype: str, args: Sequence[str], result: str) -> list[str]:
    """Lines of Python that compute ``result = name(*args)``.

    Parameters
    ----------
    name : str
        One of `SUPPORTED`.
    dtype : {"float32", "float64"}
        Type of the arguments and of the result.
    args : sequence of str
        Names of variables, or typed constants.
    result : str
        Name for the result; every other variable that is set begins with it and an underscore.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        If there is no such function or dtype, or the number of arguments is wrong.

    Examples
    --------
    >>> emit("expm1", "float32", ["x"], "y")[0]
    'y_clamped = select(x < float32(-20.0), -20.0, x)'
    """
    if name not in SUPPORTED:
        raise ValueError(f"no vector body for {name!r}; there is one for {', '.join(sorted(SUPPORTED))}")
    if dtype not in Both._fields:
        raise ValueError(f"vector bodies are for float32 and float64, got {dtype!r}")
    arity = len(_definition(BODIES[name]).args.args)
    if len(args) != arity:
        raise ValueError(f"{name} takes {arity} arguments, got {len(args)}: {', '.join(args)}")
    return [line.format(*args, r=result) for line in _template(name, dtype)]


@functools.cache
def _template(name: str, dtype: str) -> tuple[str, ...]:
    """The lines with {0}, {1}, … for the arguments and {r} for the result."""
    body = BODIES[name]
    args = [f"{{{i}}}" for i in range(len(_definition(body).args.args))]
    if dtype == "float64" or name not in IN_DOUBLE:
        writer = _Writer(dtype, dtype)
        writer.assign("{r}", writer.inline(body, args, "{r}_"))
    else:
        writer = _Writer("float64", dtype)
        wide = [writer.assign(f"{{r}}_wide{i}", f"float64({arg})") for i, arg in enumerate(args)]
        value = writer.assign("{r}_wide", writer.inline(body, wide, "{r}_"))
        writer.assign("{r}", f"float32({value})")
    return tuple(writer.lines)


@functools.cache
def _definition(body: FunctionType) -> ast.FunctionDef:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(body))).body
    assert isinstance(definition, ast.FunctionDef)
    return definition


Value: TypeAlias = Any
"""Text of an expression, a Python number that is known while writing, or a tuple of these."""

_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.Pow: ("**", operator.pow),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.LShift: ("<<", operator.lshift),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}


class _Writer:
    """Writes bodies out in one dtype, for a result that is wanted in one."""

    def __init__(self, dtype: str, wanted: str) -> None:
        self.dtype = dtype
        self.wanted = wanted
        self.lines: list[str] = []
        self.inlined = 0
        self.taken: dict[str, int] = {}

    def inline(self, body: FunctionType, args: Sequence[Value], prefix: str) -> Value:
        """Write the lines of a body; what it returns."""
        definition = _definition(body)
        known = {arg.arg: value for arg, value in zip(definition.args.args, args, strict=True)}
        scope = _Scope(self, prefix, known, body.__globals__)
        return scope.run(definition.body)

    def assign(self, name: str, value: Value) -> str:
        self.lines.append(f"{name} = {_bare(self.typed(value))}")
        return name

    def simple(self, value: Value, name: str) -> Value:
        """A value that may be mentioned often: a number, or a name that nothing else will be assigned to."""
        if not isinstance(value, str) or "(" not in value:
            return value
        self.taken[name] = count = self.taken.get(name, 0) + 1
        return self.assign(name if count == 1 else f"{name}_{count}", value)

    def typed(self, value: Value) -> str:
        """Text for a place where a literal would be float64."""
        if isinstance(value, float):
            text = self.literal(value)
            return text if self.dtype == "float64" else f"float32({text})"
        return str(value)

    def literal(self, value: Value) -> str:
        """Text for an argument of an operation, which converts literals."""
        if isinstance(value, tuple):
            return ", ".join(self.literal(v) for v in value)
        if not isinstance(value, float) or not math.isfinite(value):
            return str(value)
        return repr(value) if self.dtype == "float64" else str(np.float32(value))


class _Scope:
    """One body in the course of being written."""

    def __init__(self, writer: _Writer, prefix: str, known: dict[str, Value], globals_: Mapping[str, Any]) -> None:
        self.writer = writer
        self.prefix = prefix
        self.known = known
        self.globals = globals_

    def run(self, statements: Sequence[ast.stmt]) -> Value:
        """Write statements up to a return; its value."""
        for statement in statements:
            match statement:
                case ast.Return(value=value) if value is not None:
                    return self.value(value)
                case ast.If(test=test, body=yes, orelse=no):
                    result = self.run(yes if self.static(test) else no)
                    if result is not None:
                        return result
                case ast.Assign(targets=[target], value=value):
                    self.bind(target, self.value(value))
                case ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise self.unreadable(statement)
        return None

    def bind(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Tuple(elts=names):
                for name, part in zip(names, value, strict=True):
                    self.bind(name, part)
            case ast.Name(id=name):
                self.known[name] = self.writer.simple(value, self.prefix + name)
            case _:
                raise self.unreadable(target)

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.known[name] if name in self.known else self.constant(name)
            case ast.Tuple(elts=parts):
                return tuple(self.value(part) for part in parts)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                x = self.value(operand)
                return f"(-{x})" if isinstance(x, str) else -x
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                x = self.value(operand)
                return f"(not {x})" if isinstance(x, str) else not x
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(op, self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.comparison(op, self.value(left), self.value(right))
            case ast.BoolOp(op=op, values=[left, right]):
                name = "both" if isinstance(op, ast.And) else "either"
                return f"{name}({self.value(left)}, {self.value(right)})"
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self.choice(test, yes, no)
            case ast.Subscript(value=whole, slice=ast.Constant(value=index)):
                return self.value(whole)[index]
            case ast.Subscript(value=whole, slice=ast.Slice(lower=ast.Constant(value=start), upper=None, step=None)):
                return self.value(whole)[start:]
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(self.globals[name], name, [self.value(arg) for arg in args])
        raise self.unreadable(node)

    def constant(self, name: str) -> Value:
        value = self.globals[name]
        if isinstance(value, Both):
            return getattr(value, self.writer.dtype)
        return getattr(value, self.writer.wanted) if isinstance(value, Wanted) else value

    def static(self, test: ast.expr) -> bool:
        value = self.value(test)
        if not isinstance(value, bool):
            raise self.unreadable(test)
        return value

    def comparison(self, op: ast.cmpop, x: Value, y: Value) -> Value:
        symbol, compare = _COMPARISONS[type(op)]
        if not isinstance(x, str) and not isinstance(y, str):
            return compare(x, y)
        return f"({self.writer.typed(x)} {symbol} {self.writer.typed(y)})"

    def arithmetic(self, op: ast.operator, x: Value, y: Value) -> Value:
        symbol, compute = _ARITHMETIC[type(op)]
        if not isinstance(x, str) and not isinstance(y, str):
            return compute(x, y)
        return f"({self.writer.typed(x)} {symbol} {self.writer.typed(y)})"

    def choice(self, test: ast.expr, yes: ast.expr, no: ast.expr) -> Value:
        condition = self.value(test)
        if isinstance(condition, bool):
            return self.value(yes if condition else no)
        x, y = self.value(yes), self.value(no)
        # Of two numbers at least one has to say its type.
        first = self.writer.literal(x) if isinstance(y, str) else self.writer.typed(x)
        return f"select({_bare(condition)}, {_bare(first)}, {_bare(self.writer.literal(y))})"

    def call(self, function: Any, name: str, args: list[Value]) -> Value:
        if name in _OPERATIONS:
            return f"{name}({', '.join(_bare(self.writer.literal(arg)) for arg in args)})"
        self.writer.inlined += 1
        prefix = f"{{r}}_{name.strip('_')}{self.writer.inlined}_"
        names = inspect.signature(function).parameters
        simple = [self.writer.simple(arg, prefix + n) for n, arg in zip(names, args, strict=True)]
        return self.writer.inline(function, simple, prefix)

    def unreadable(self, node: ast.AST) -> SyntaxError:
        return SyntaxError(f"a vector body may not say {ast.unparse(node)!r} (in {self.prefix})")


def _bare(text: str) -> str:
    """Without the parentheses around all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text
