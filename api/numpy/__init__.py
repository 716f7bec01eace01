"""NumPy's names, differentiable: ``import numbagrad.numpy as np``.

Plain arrays in give plain arrays out, computed by NumPy itself. When a Tensor is among the arguments, also within
lists, the result is a Tensor with its place in the graph. Everything else of NumPy (constants, types, functions
without a gradient) is there under its own name.
"""

from typing import Any

import numpy as _numpy

import numbagrad.ops as _ops
from numbagrad.numpy import fft as fft
from numbagrad.numpy import linalg as linalg
from numbagrad.ops import faces as _faces
from numbagrad.ops import interchange as _interchange

globals().update(_faces.faces_of(_numpy))
array = _faces.array_face(_ops.array)
asarray = _faces.array_face(_ops.asarray)
asanyarray = _faces.array_face(_ops.asarray, _numpy.asanyarray)
row_stack = vstack  # noqa: F821 - NumPy deprecates its own
r_, c_ = _interchange.r_, _interchange.c_
make_diagonal = _faces.own_face(_ops.make_diagonal)


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_numpy)})
