"""What each op is, said once, and what users call. Importing this package gives Tensor its methods."""

from importlib import import_module as _import_module

from numbagrad.ops.elementwise import Elementwise as _Elementwise
from numbagrad.ops.registry import OPS as OPS

_MODULES = (
    "creation",
    "arithmetic",
    "exponential",
    "trigonometric",
    "special",
    "logic",
    "conversion",
    "pointwise",
    "passing",
    "reductions",
    "shape",
    "arranging",
    "joining",
    "indexing",
    "sorting",
    "diagonals",
    "quantiles",
    "products",
    "padding",
    "signals",
    "polynomials",
    "counting",
    "interchange",
    "transforms",
    "hips",
    "vectorizing",
    "custom_rules",
)

__all__ = ["OPS"]
for _name in _MODULES:
    _module = _import_module(f"numbagrad.ops.{_name}")
    for _public in _module.__all__:
        _value = getattr(_module, _public)
        globals()[_public] = _value.fast if isinstance(_value, _Elementwise) else _value
        __all__ += [_public]  # noqa: PLE0604

# Their names are public as numbagrad.linalg and numbagrad.numpy.fft.
_import_module("numbagrad.ops.linalg")
_import_module("numbagrad.ops.fft")
_import_module("numbagrad.ops.methods")
