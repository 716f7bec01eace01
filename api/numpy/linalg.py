"""`numpy.linalg`'s names, differentiable."""

from typing import Any

import numpy as _numpy

import numbagrad.ops as _ops  # noqa: F401 - declares the ops that stand in
from numbagrad.ops import faces as _faces

globals().update(_faces.faces_of(_numpy.linalg))


def __getattr__(name: str) -> Any:
    return getattr(_numpy.linalg, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_numpy.linalg)})
