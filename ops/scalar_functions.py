"""Elementwise functions of one's own: from scalar Python to a differentiable, broadcasting op.

    @ng.elementwise
    def price(s, k):
        d = math.log(s / k)
        return d if d > 0 else math.expm1(d)

The function is read, not run: its syntax tree is evaluated on symbols, so that a conditional becomes a `where` (whose
branch not taken gives no nan) and a call of `math.log` the scalar function of that name. What comes out is an
`Elementwise` like the built-in ones: forward and backward are one loop each, derivatives of any order exist, results
broadcast. Numba's functions can call it too: there it is a plain scalar function.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import math
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from numbagrad.engine.tensor import Tensor
from numbagrad.jit import render
from numbagrad.jit.expr import ScalarExpr, call, lift, substitute, symbol
from numbagrad.jit.kernel import kernel_for
from numbagrad.jit.reference import evaluate
from numbagrad.ops.elementwise import RULES, Elementwise
from numbagrad.ops.registry import NUMPY, OPS

_RENAMED = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "fabs": "absolute",
    "abs": "absolute",
    "pow": "power",
    "max": "maximum",
    "min": "minimum",
    "round": "rint",
}
"""Names in `math` and among the builtins -> ops."""

_OPERATORS: Mapping[type, str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.Mod: "mod",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}

_TRUTH = frozenset((*_OPERATORS.values(), "logical_and", "logical_or", "logical_not")) - {
    *("add", "subtract", "multiply", "divide", "power", "mod"),
}
"""Scalar functions whose value is a boolean."""

_DEPTH = 50
"""How deep functions may call each other."""

_numbers = itertools.count()


# ----- For users -----


def elementwise(function: Callable[..., Any] | None = None, *, derivative: Callable[..., Any] | None = None) -> Any:
    """Make a differentiable, broadcasting function of arrays from a function of scalars.

    Parameters
    ----------
    function : callable
        Plain Python over numbers: assignments, ``if``, conditional expressions, comparisons, arithmetic, functions of
        `math` and their namesakes in NumPy and numbagrad, other functions of this kind (plain, jitted by Numba, or
        made by `elementwise`). Numbers from outside are taken as they are when it is read, as Numba does. It returns
        one value, or a tuple of them.
    derivative : callable, optional
        Takes the same arguments (and the value, if it has one called ``out``) and returns the partial derivatives, one
        for each argument; None where there is none. By default they are derived.

    Returns
    -------
    callable
        Takes Tensors, arrays and numbers, gives Tensors. Python numbers keep float32 arrays float32. In a function
        jitted by Numba it is a scalar function; its ``scalar_derivatives`` are its partial derivatives for such use.

    Raises
    ------
    TypeError
        If the function does something that is not scalar mathematics: the message names the line.
    OSError
        If the source of the function cannot be read.

    Notes
    -----
    A condition has no derivative; at a jump that of the branch taken is given.

    Examples
    --------
    >>> import math, numbagrad as ng
    >>> @ng.elementwise
    ... def huber(x, d):
    ...     return 0.5 * x * x if abs(x) < d else d * (abs(x) - 0.5 * d)
    >>> x = ng.tensor([0.5, -3.0], requires_grad=True)
    >>> huber(x, 1.0).sum().backward()
    >>> x.grad
    tensor([ 0.5, -1. ])
    """
    if function is None:
        return lambda f: elementwise(f, derivative=derivative)
    if not callable(function):
        raise TypeError(f"elementwise wants a function, got {type(function).__name__}")
    return ScalarFunction(_plain(function), derivative)


class ScalarFunction(Elementwise):
    """An elementwise op read from a user's function."""

    def __init__(self, function: types.FunctionType, derivative: Callable[..., Any] | None = None) -> None:
        self.signature = inspect.signature(function)
        params = _params(function, self.signature)
        symbols = [symbol(p) for p in params]
        results = _read(function, symbols)
        partials = None if derivative is None else _given(function, derivative, symbols, results)
        super().__init__(function.__name__, params, results, partials, doc=inspect.getdoc(function) or "A function.")
        self.function = function
        self.__module__ = function.__module__
        self.scalar_name = self._make_opaque() if partials is not None else None

    def _make_opaque(self) -> str:
        """Give functions that call this one its declared derivative: they see a name."""
        name = f"{self.name}_{next(_numbers)}"
        kernel_for.definitions[name] = lambda *args: substitute(self.exprs, dict(zip(self.symbols, args, strict=True)))[
            0
        ]
        rows = [self.partial(0, i) for i in range(len(self.params))]
        RULES[name] = lambda *args: [
            None if p is None else substitute([p], dict(zip(self.symbols, args, strict=True)))[0] for p in rows
        ]
        return name

    def __call__(self, *operands: Any, **named: Any) -> Any:
        if named or len(operands) != len(self.params):
            bound = self.signature.bind(*operands, **named)
            bound.apply_defaults()
            operands = tuple(bound.arguments.values())
        return self.fast(*operands)

    def applied(self, args: Sequence[Any]) -> Any:
        """What a call in another function's source means."""
        if self.scalar_name is not None:
            return call(self.scalar_name, *args)
        results = substitute(self.exprs, dict(zip(self.symbols, map(lift, args), strict=True)))
        return results[0] if len(results) == 1 else tuple(results)

    # ------------------------------------------------------------------ for Numba
    @cached_property
    def scalar(self) -> Any:
        """The function of scalars, jitted by Numba."""
        return _jitted(self.name, self.params, self.exprs)

    @cached_property
    def scalar_derivatives(self) -> tuple[Any, ...]:
        """For each argument the partial derivative of the (first) value, jitted by Numba."""
        zero = lift(0.0)
        partials = [self.partial(0, i) for i in range(len(self.params))]
        return tuple(
            _jitted(f"{self.name}_by_{p}", self.params, [zero if d is None else d])
            for p, d in zip(self.params, partials, strict=True)
        )

    @property
    def _numba_type_(self) -> Any:
        """How Numba types this object where jitted functions name it."""
        from numba import types

        return types.Dispatcher(self.scalar)


def _plain(function: Any) -> types.FunctionType:
    """The Python function behind what was given."""
    function = getattr(function, "py_func", function)
    if not isinstance(function, types.FunctionType):
        raise TypeError(
            f"elementwise wants a Python function, whose source it reads; got {type(function).__name__}: write a def "
            "around it"
        )
    return function


def _params(function: Callable[..., Any], signature: inspect.Signature) -> list[str]:
    for p in signature.parameters.values():
        if p.kind is not p.POSITIONAL_OR_KEYWORD and p.kind is not p.POSITIONAL_ONLY:
            raise TypeError(f"{function.__name__} has the parameter {p}: elementwise wants plain positional ones")
    if not signature.parameters:
        raise TypeError(f"{function.__name__} has no parameters: elementwise wants at least one")
    return list(signature.parameters)


def _read(function: types.FunctionType, args: Sequence[Any]) -> list[ScalarExpr]:
    """What the function returns for symbols."""
    result = _Reader(function, 0).run(args)
    return [lift(r) for r in (result if isinstance(result, tuple) else (result,))]


def _given(
    function: types.FunctionType, derivative: Any, symbols: Sequence[ScalarExpr], results: Sequence[ScalarExpr]
) -> list[list[ScalarExpr | None]]:
    """The partial derivatives that the user wrote."""
    if len(results) != 1:
        raise TypeError(f"{function.__name__} returns {len(results)} values: a derivative can be given for one only")
    derivative = _plain(derivative)
    names = list(inspect.signature(derivative).parameters)
    values = dict(zip(inspect.signature(function).parameters, symbols, strict=True))
    values.setdefault("out", results[0])
    unknown = [n for n in names if n not in values]
    if unknown:
        raise TypeError(
            f"the derivative of {function.__name__} asks for {', '.join(unknown)}; there is {', '.join(values)}"
        )
    found = _Reader(derivative, 0).run([values[n] for n in names])
    found = found if isinstance(found, tuple) else (found,)
    if len(found) != len(symbols):
        raise TypeError(
            f"the derivative of {function.__name__} returns {len(found)} values, wanted one for each of its "
            f"{len(symbols)} arguments"
        )
    return [[None if f is None else lift(f) for f in found]]


# ----- Reading -----


class _Reader:
    """Evaluates the syntax tree of a function on symbols."""

    def __init__(self, function: types.FunctionType, depth: int) -> None:
        if depth > _DEPTH:
            raise TypeError(f"{function.__name__} calls itself: elementwise functions cannot recurse")
        self.function = function
        self.depth = depth
        self.tree = _tree(function)
        self.outside = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}

    def run(self, args: Sequence[Any]) -> Any:
        """What the function returns for these arguments."""
        bound = inspect.signature(self.function).bind(*args)
        bound.apply_defaults()
        if isinstance(self.tree, ast.Lambda):
            return self.value(self.tree.body, dict(bound.arguments))
        return self.block(self.tree.body, dict(bound.arguments))

    # ------------------------------------------------------------------ statements
    def block(self, body: Sequence[ast.stmt], names: dict[str, Any]) -> Any:
        """What is returned from here on."""
        for k, statement in enumerate(body):
            if isinstance(statement, ast.Return):
                if statement.value is None:
                    raise self.error(statement, "it returns nothing")
                return self.value(statement.value, names)
            if isinstance(statement, ast.If):
                rest = body[k + 1 :]
                condition = self.truth(statement.test, names)
                if not isinstance(condition, ScalarExpr):
                    return self.block([*(statement.body if condition else statement.orelse), *rest], names)
                if _returns(statement):
                    taken = self.block([*statement.body, *rest], dict(names))
                    return self.choose(statement, condition, taken, self.block([*statement.orelse, *rest], names))
                self.merge(statement, condition, names)
            else:
                self.statement(statement, names)
        raise self.error(body[-1] if body else self.tree, "a path ends without a return")

    def merge(self, statement: ast.If, condition: ScalarExpr, names: dict[str, Any]) -> None:
        """Both branches, and for every name a choice between what they leave."""
        left, right = dict(names), dict(names)
        self.straight(statement.body, left)
        self.straight(statement.orelse, right)
        for name in left.keys() | right.keys():
            if name in left and name in right:
                a, b = left[name], right[name]
                names[name] = a if a is b else self.choose(statement, condition, a, b)
            else:
                # As Python: an error if it is read later.
                names.pop(name, None)

    def straight(self, body: Sequence[ast.stmt], names: dict[str, Any]) -> None:
        for statement in body:
            if isinstance(statement, ast.If):
                condition = self.truth(statement.test, names)
                if isinstance(condition, ScalarExpr):
                    self.merge(statement, condition, names)
                else:
                    self.straight(statement.body if condition else statement.orelse, names)
            else:
                self.statement(statement, names)

    def statement(self, statement: ast.stmt, names: dict[str, Any]) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                found = self.value(value, names)
                for target in targets:
                    self.assign(target, found, names)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign(target, self.value(value, names), names)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                names[name] = self.operate(statement, op, self.name(statement, name, names), self.value(value, names))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Assert():
                pass
            case _:
                raise self.error(statement, f"it has a {type(statement).__name__.lower()} statement")

    def assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, tuple) and len(value) == len(target.elts):
            for one, part in zip(target.elts, value, strict=True):
                self.assign(one, part, names)
        else:
            raise self.error(target, "it assigns to something else than names")

    # ------------------------------------------------------------------ expressions
    def value(self, e: ast.expr, names: dict[str, Any]) -> Any:
        """The value of an expression: a number, a scalar expression, a tuple, or something to call."""
        match e:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Constant(value=None):
                return None
            case ast.Name(id=name):
                return self.name(e, name, names)
            case ast.Attribute(value=inner, attr=attr):
                return getattr(self.value(inner, names), attr)
            case ast.Tuple(elts=elts):
                return tuple([self.value(x, names) for x in elts])
            case ast.BinOp(left=left, op=op, right=right):
                return self.operate(e, op, self.value(left, names), self.value(right, names))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.negated(self.truth(operand, names))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.scalar(operand, names)
                return call("negative", value) if isinstance(value, ScalarExpr) else -value
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.scalar(operand, names)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition = self.truth(test, names)
                if not isinstance(condition, ScalarExpr):
                    return self.value(body if condition else orelse, names)
                return self.choose(e, condition, self.value(body, names), self.value(orelse, names))
            case ast.Compare() | ast.BoolOp():
                return self.truth(e, names)
            case ast.Call(func=func, args=args, keywords=keywords):
                if keywords or any(isinstance(a, ast.Starred) for a in args):
                    raise self.error(e, "it calls a function with keywords or stars")
                return self.called(e, self.value(func, names), [self.value(a, names) for a in args])
        raise self.error(e, f"it has a {type(e).__name__.lower()}")

    def name(self, at: ast.AST, name: str, names: dict[str, Any]) -> Any:
        if name in names:
            return names[name]
        value = self.outside.get(name, getattr(builtins, name, self.outside))
        if value is self.outside:
            raise self.error(at, f"the name {name!r} is not known there")
        if isinstance(value, np.generic) and value.ndim == 0 and value.dtype.kind in "biuf":
            return value.item()
        if isinstance(value, (np.ndarray, Tensor)):
            raise self.error(at, f"{name} is an array from outside: pass it as an argument")
        return value

    def scalar(self, e: ast.expr, names: dict[str, Any]) -> Any:
        return self.checked(e, self.value(e, names))

    def checked(self, at: ast.AST, value: Any) -> Any:
        """`value`, if it is a number or a scalar expression."""
        if isinstance(value, (ScalarExpr, bool, int, float)):
            return value
        raise self.error(at, f"it computes with a {type(value).__name__}")

    def truth(self, e: ast.expr, names: dict[str, Any]) -> Any:
        """The truth of an expression: a boolean, or a scalar expression that is one."""
        match e:
            case ast.BoolOp(op=op, values=values):
                parts = [self.truth(v, names) for v in values]
                return self.joined("logical_and" if isinstance(op, ast.And) else "logical_or", parts)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                values = [self.scalar(x, names) for x in (left, *comparators)]
                pairs = zip(ops, values[:-1], values[1:], strict=True)
                return self.joined("logical_and", [self.operate(e, op, a, b) for op, a, b in pairs])
        value = self.scalar(e, names)
        if not isinstance(value, ScalarExpr):
            return bool(value)
        return value if value.op in _TRUTH else call("not_equal", value, 0)

    def joined(self, op: str, parts: Sequence[Any]) -> Any:
        """``and`` or ``or`` of truths, some of which may be known."""
        ends = op == "logical_or"
        open_ones = [p for p in parts if isinstance(p, ScalarExpr)]
        if any(bool(p) is ends for p in parts if not isinstance(p, ScalarExpr)):
            return ends
        if not open_ones:
            return not ends
        total = open_ones[0]
        for p in open_ones[1:]:
            total = call(op, total, p)
        return total

    def negated(self, truth: Any) -> Any:
        return call("logical_not", truth) if isinstance(truth, ScalarExpr) else not truth

    def operate(self, at: ast.AST, op: ast.AST, x: Any, y: Any) -> Any:
        name = _OPERATORS.get(type(op))
        if name is None:
            raise self.error(at, f"it has the operator {type(op).__name__}")
        return self.apply(name, [self.checked(at, x), self.checked(at, y)])

    def choose(self, at: ast.AST, condition: ScalarExpr, x: Any, y: Any) -> Any:
        if isinstance(x, tuple) or isinstance(y, tuple):
            if not (isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y)):
                raise self.error(at, "its branches give different numbers of values")
            return tuple(self.choose(at, condition, a, b) for a, b in zip(x, y, strict=True))
        return call("where", condition, self.checked(at, x), self.checked(at, y))

    # ------------------------------------------------------------------ calls
    def called(self, at: ast.AST, function: Any, args: Sequence[Any]) -> Any:
        """The call of a function of scalars."""
        if isinstance(function, ScalarFunction):
            return function.applied(args)
        name = _op_name(function)
        if name == "where" and len(args) == 3:
            condition = args[0] if args[0].op in _TRUTH else call("not_equal", args[0], 0)
            return self.choose(at, condition, args[1], args[2])
        if name in _SPELT_OUT:
            return _SPELT_OUT[name](self, *args)
        if name is not None:
            return self.apply(name, [self.checked(at, a) for a in args], at)
        inner = getattr(function, "py_func", function)
        if isinstance(inner, types.FunctionType):
            return _Reader(inner, self.depth + 1).run(args)
        raise self.error(at, f"it calls {getattr(function, '__name__', function)!r}, which is no function of scalars")

    def apply(self, name: str, args: Sequence[Any], at: ast.AST | None = None) -> Any:
        """An op on scalars; computed now where all of them are numbers."""
        if name in ("maximum", "minimum") and len(args) > 2:
            return self.apply(name, [self.apply(name, args[:-1], at), args[-1]], at)
        wanted = 2 if name in _TRUTH else len(OPS[name].params)
        if len(args) != wanted:
            raise self.error(at or self.tree, f"{name} takes {wanted} arguments, got {len(args)}")
        if any(isinstance(a, ScalarExpr) for a in args):
            # x * x is exact where power may be off by a rounding.
            return call("square", args[0]) if name == "power" and args[1] == 2 else call(name, *args)
        (found,) = evaluate(
            [ScalarExpr(name, tuple(map(lift, args)))], {}, np.dtype(np.float64), kernel_for.definitions
        )
        return found.item()

    def error(self, at: ast.AST, what: str) -> TypeError:
        line = self.function.__code__.co_firstlineno + getattr(at, "lineno", 1) - 1
        return TypeError(
            f"elementwise cannot read {self.function.__name__} ({self.function.__code__.co_filename}:{line}): {what}. "
            "It may have assignments, if, conditional expressions, arithmetic, comparisons, and functions of math"
        )


def _log(reader: _Reader, x: Any, base: Any = None) -> Any:
    log = reader.apply("log", [x])
    return log if base is None else reader.apply("divide", [log, reader.apply("log", [base])])


_SPELT_OUT: Mapping[str, Callable[..., Any]] = {
    "float": lambda reader, x: x,
    "log": _log,
    "isnan": lambda reader, x: call("not_equal", x, x),
    "isinf": lambda reader, x: call("equal", reader.apply("absolute", [x]), math.inf),
    "isfinite": lambda reader, x: call("less", reader.apply("absolute", [x]), math.inf),
    "degrees": lambda reader, x: reader.apply("multiply", [x, 180 / math.pi]),
    "radians": lambda reader, x: reader.apply("multiply", [x, math.pi / 180]),
}
"""Functions that are written with ops."""


def _op_name(function: Any) -> str | None:
    """The op, or the function of `_SPELT_OUT`, that a function of math, NumPy or numbagrad stands for."""
    if isinstance(function, Elementwise):
        return function.name if OPS.get(function.name) is function else None
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", "")
    if module in ("math", "builtins") or isinstance(function, np.ufunc):
        name = _RENAMED.get(name, name)
        return name if name in _SPELT_OUT or isinstance(OPS.get(name), Elementwise) else _stand_in(function)
    op = OPS.get(name)
    if isinstance(op, Elementwise) and function in (op.fast, op.call, op):
        return name
    return _stand_in(function)


def _stand_in(function: Any) -> str | None:
    try:
        ours = NUMPY.get(function)
    except TypeError:
        return None
    return ours.name if isinstance(ours, Elementwise) else None


def _returns(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))


def _tree(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
    """The syntax tree of the function itself."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError as error:
        raise OSError(
            f"the source of {function.__name__} cannot be read, and elementwise reads functions: define it in a file "
            f"or a notebook cell ({error})"
        ) from None
    found = [n for n in ast.walk(_parsed(source)) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    wanted = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    found = [n for n in found if isinstance(n, wanted)]
    if wanted is ast.Lambda and len(found) > 1:
        raise TypeError("elementwise finds several lambdas on one line: write a def")
    if not found:
        raise TypeError(f"elementwise finds no function in the source of {function.__name__}: write a def")
    return found[0]


def _parsed(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except SyntaxError:
        # A lambda within an expression over several lines.
        return ast.parse(f"({source.strip().rstrip(',')})")


# ----- For Numba -----


def _jitted(name: str, params: Sequence[str], exprs: Sequence[ScalarExpr]) -> Any:
    """A dispatcher for scalars: float32 if all arguments are, else float64."""
    import numba

    names = {symbol(p): f"v_{p}" for p in params}
    variants = {}
    for dtype in ("float32", "float64"):
        lines, results = render.render(exprs, names, dtype, kernel_for.definitions)
        body = "\n".join(f"    {line}" for line in [*lines, f"return {', '.join(results)}"])
        typed = "\n".join(f"    v_{p} = {dtype}(v_{p})" for p in params)
        source = f"def {name}({', '.join(names.values())}):\n{typed}\n{body}\n"
        scope: dict[str, Any] = {**render.NAMESPACE, "float32": np.float32, "float64": np.float64}
        exec(source, scope)
        variants[dtype] = numba.njit(scope[name])
    return _chosen(name, params, variants)


def _chosen(name: str, params: Sequence[str], variants: Mapping[str, Any]) -> Any:
    """A jitted function that calls the variant for its arguments' dtype."""
    import numba
    from numba.core import types as nb
    from numba.extending import overload

    def pick(*args: Any) -> Any:
        raise NotImplementedError

    def typed(*args: Any) -> Any:
        single = all(a == nb.float32 for a in args)
        inner = variants["float32" if single else "float64"]
        scope = {"inner": inner}
        exec(f"def {name}({', '.join(params)}): return inner({', '.join(params)})", scope)
        return scope[name]

    scope: dict[str, Any] = {"pick": pick, "typed": typed}
    arguments = ", ".join(params)
    exec(f"def pick({arguments}): raise NotImplementedError\ndef typed_({arguments}): return typed({arguments})", scope)
    overload(scope["pick"], inline="never")(scope["typed_"])
    exec(f"def {name}({arguments}): return pick({arguments})", scope)
    return numba.njit(scope[name])


__all__ = ["ScalarFunction", "elementwise"]
