"""Linear algebra on Tensors, under NumPy's names."""

try:
    import numbagrad.ops.linalg as _linalg
    from numbagrad.ops.linalg import *  # noqa: F403

    __all__ = list(_linalg.__all__)
except ImportError:
    __all__ = []
