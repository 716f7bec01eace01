"""The array API standard's extension for linear algebra."""

import numpy as _numpy

import numbagrad.ops as _ops  # noqa: F401 - declares the ops that stand in
import numbagrad.ops.standard as _standard

globals().update(_standard.taken(_standard.LINALG, _numpy.linalg))
__all__ = sorted(_standard.LINALG)  # noqa: PLE0605
