"""`numpy.fft`'s names, differentiable."""

from typing import Any

import numpy as _numpy

import numbagrad.ops.fft as _fft  # noqa: F401 - declares the ops that stand in
from numbagrad.ops import faces as _faces

globals().update(_faces.faces_of(_numpy.fft))


def __getattr__(name: str) -> Any:
    return getattr(_numpy.fft, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_numpy.fft)})
