"""Linear algebra on Tensors, under NumPy's names."""

import numbagrad.ops.linalg as _linalg
from numbagrad.ops.linalg import *  # noqa: F403

__all__ = list(_linalg.__all__)
