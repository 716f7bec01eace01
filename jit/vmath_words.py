"""The words in which bodies of vector mathematics are written; `vmath` says how they are read."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias, TypeVar

Real: TypeAlias = Any
"""A float of the dtype a body is emitted for."""

Bits: TypeAlias = Any
"""An int of the same width."""


class Both(NamedTuple):
    """A number, or the coefficients of a polynomial, for each dtype."""

    float32: Any
    float64: Any


class Wanted(NamedTuple):
    """The same, chosen by the dtype that was asked for where float64 computes for both."""

    float32: Any
    float64: Any


BODIES: dict[str, FunctionType] = {}
"""The functions that may be emitted, by name."""

Body = TypeVar("Body", bound=Callable[..., Real])


IN_DOUBLE: set[str] = set()
"""Those that float64 computes for float32 too."""


def vector(body: Body) -> Body:
    """Make a body known under the name of its function."""
    assert isinstance(body, FunctionType)
    BODIES[body.__name__] = body
    return body


def vector_in_double(body: Body) -> Body:
    """The same for a body whose float32 result is float64's, rounded: where that is fast enough, it is simplest."""
    IN_DOUBLE.add(body.__name__)
    return vector(body)


INF = float("inf")
NAN = float("nan")
IS_FLOAT32 = Both(True, False)
WANTS_FLOAT32 = Wanted(True, False)

MANTISSA = Both(23, 52)
"""Bits after the point."""

SMALLEST_NORMAL = Both(2.0**-126, 2.0**-1022)
ONE_BITS = Both(127 << 23, 1023 << 52)
"""The bits of 1.0."""
# Added and taken away, it rounds to a whole number, which then stands in its last bits.
WHOLE = Both(1.5 * 2.0**23, 1.5 * 2.0**52)
