"""The Python array API standard, edition 2024.12, for Tensors: what ``tensor.__array_namespace__()`` gives.

Creation functions make Tensors here, unlike those of `numbagrad.numpy`.

>>> import numbagrad as ng
>>> x = ng.tensor([3.0, 4.0], requires_grad=True)
>>> xp = x.__array_namespace__()
>>> xp.linalg.vector_norm(x).backward()
>>> x.grad
tensor([0.6, 0.8])
"""

import numpy as _numpy
from numpy import bool as bool
from numpy import isdtype as isdtype

import numbagrad.ops.standard as _standard
from numbagrad.array_api import fft as fft
from numbagrad.array_api import linalg as linalg
from numbagrad.ops.interchange import from_dlpack as from_dlpack
from numbagrad.ops.standard import *  # noqa: F403

__array_api_version__ = "2024.12"
__array_namespace_info__ = _standard.Info
_NAMED = {name: getattr(_numpy, name) for name in (*_standard.DTYPES, *_standard.CONSTANTS)}
globals().update(_NAMED)
globals().update(_standard.taken(_standard.FROM_NUMPY, _numpy))
__all__ = sorted(  # noqa: PLE0605
    {
        *("__array_namespace_info__", "bool", "fft", "from_dlpack", "isdtype", "linalg"),
        *(*_NAMED, *_standard.FROM_NUMPY, *_standard.__all__),
    }
)
