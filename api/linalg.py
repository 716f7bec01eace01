"""Linear algebra on Tensors, under NumPy's names."""

import numbagrad.ops.linalg as _linalg
from numbagrad.ops.linalg import *  # noqa: F403

# Functions that differ from those of the same name at the top, as NumPy's do.
globals().update(_linalg.ONLY_HERE)
__all__ = [*_linalg.__all__, *_linalg.ONLY_HERE]  # noqa: PLE0604
