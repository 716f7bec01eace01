"""The reference backend: NumPy evaluates the expressions. It says what every kernel means, slowly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from numbagrad.jit.expr import ScalarExpr, topological


def _gmul(g: Any, d: Any) -> Any:
    return np.where(g == 0, np.zeros_like(g), g * d)


def _erf(x: Any) -> Any:
    return _special("erf", x)


def _special(name: str, *args: Any) -> Any:
    """A function of SciPy where it is installed, else the one of `math`, element by element."""
    try:
        import scipy.special
    except ImportError:
        import math

        dtype = np.result_type(*args)
        return np.vectorize(getattr(math, _MATH_NAMES.get(name, name)), otypes=[np.float64])(*args).astype(dtype)
    return getattr(scipy.special, name)(*args)


_MATH_NAMES = {"gammaln": "lgamma"}


def _sigmoid(x: Any) -> Any:
    # exp of a negative number only: it never overflows.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(np.asarray(x).dtype)


def _softplus(x: Any) -> Any:
    return np.logaddexp(x, np.zeros_like(x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gmul": _gmul,
    "erf": _erf,
    "erfc": lambda x: _special("erfc", x),
    "erfinv": lambda x: _special("erfinv", x),
    "ndtr": lambda x: _special("ndtr", x),
    "log_ndtr": lambda x: _special("log_ndtr", x),
    "lgamma": lambda x: _special("gammaln", x),
    "digamma": lambda x: _special("digamma", x),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "log_sigmoid": lambda x: -_softplus(-x),
    "mod": np.remainder,
}
"""Scalar functions that are not NumPy's of the same name."""


def evaluate(
    roots: Sequence[ScalarExpr],
    values: Mapping[str, Any],
    dtype: np.dtype,
    definitions: Mapping[str, Callable[..., ScalarExpr]],
) -> list[Any]:
    """Values of `roots`, given those of the symbols; numbers are taken in `dtype`."""
    known: dict[int, Any] = {}
    kept: list[ScalarExpr] = []

    def value(root: ScalarExpr) -> Any:
        for e in topological(root):
            if id(e) not in known:
                known[id(e)] = term(e)
        return known[id(root)]

    def term(e: ScalarExpr) -> Any:
        if e.op == "symbol":
            return values[e.value]
        if e.op == "const":
            return e.value if isinstance(e.value, bool) else dtype.type(e.value)
        function = FUNCTIONS.get(e.op)
        if function is None and e.op in definitions:
            kept.append(definitions[e.op](*e.args))
            return value(kept[-1])
        if function is None:
            function = getattr(np, e.op)
        return function(*(known[id(a)] for a in e.args))

    with np.errstate(all="ignore"):
        return [value(root) for root in roots]
