"""`autograd.util`."""

from collections.abc import Iterable
from typing import Any


def subvals(values: Iterable[Any], changes: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """The values with some replaced, as a tuple."""
    given = list(values)
    for place, value in changes:
        given[place] = value
    return tuple(given)


def subval(values: Iterable[Any], place: int, value: Any) -> tuple[Any, ...]:
    """The values with one replaced, as a tuple."""
    return subvals(values, [(place, value)])


__all__ = ["subval", "subvals"]
