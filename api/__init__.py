"""numbagrad: PyTorch's autograd semantics, NumPy's API, kernels compiled by Numba.

>>> import numbagrad as ng
>>> x = ng.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> y = (ng.tanh(x) * x).sum()
>>> y.backward()
>>> x.grad.shape
(3,)
"""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

from numpy import (
    bool_,
    complex64,
    complex128,
    e,
    float16,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)

import numbagrad.ops as _ops
from numbagrad import autograd as autograd
from numbagrad import linalg as linalg
from numbagrad.autograd import graph as graph
from numbagrad.engine.autograd import Variable
from numbagrad.engine.inference import inference_mode, is_inference_mode_enabled
from numbagrad.engine.mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from numbagrad.engine.tensor import Tensor
from numbagrad.jit.backend import current as current_backend
from numbagrad.jit.backend import use_backend
from numbagrad.jit.compile import stats
from numbagrad.jit.team import get_num_threads, set_num_threads
from numbagrad.ops import *
from numbagrad.ops import tree as tree
from numbagrad.ops.checkpoint import CheckpointError, checkpoint
from numbagrad.ops.migration import install_as_autograd
from numbagrad.ops.scalar_functions import elementwise
from numbagrad.ops.serialization import load, save

try:
    __version__ = _version("numbagrad")
except _PackageNotFoundError:
    __version__ = "0+unknown"

_NUMPYS = [
    *("bool_", "complex64", "complex128", "float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("e", "inf", "nan", "newaxis", "pi"),
]
_OWN = [
    "CheckpointError",
    "Tensor",
    "Variable",
    "amp",
    "autograd",
    "checkpoint",
    "current_backend",
    "elementwise",
    "enable_grad",
    "get_num_threads",
    "fx",
    "graph",
    "inference_mode",
    "install_as_autograd",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "linalg",
    "load",
    "no_grad",
    "nn",
    "numpy",
    "optim",
    "save",
    "set_grad_enabled",
    "set_num_threads",
    "stats",
    "tree",
    "use_backend",
]
__all__ = sorted({*_NUMPYS, *_OWN, *_ops.__all__} - {"OPS"})  # noqa: PLE0605


def __getattr__(name: str) -> object:
    # What most programs do without is loaded when it is first wanted.
    if name in ("amp", "fx", "nn", "numpy", "optim"):
        from importlib import import_module

        return import_module(f"numbagrad.{name}")
    if name == "bfloat16":
        from numbagrad.jit.storage import dtype_of

        return dtype_of("bfloat16").type
    raise AttributeError(f"module 'numbagrad' has no attribute {name!r}")
