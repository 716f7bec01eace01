"""The array API standard's extension for Fourier transforms."""

import numpy as _numpy

import numbagrad.ops as _ops  # noqa: F401 - declares the ops that stand in
import numbagrad.ops.standard as _standard
from numbagrad.ops.standard import fftfreq as fftfreq
from numbagrad.ops.standard import rfftfreq as rfftfreq

globals().update(_standard.taken(_standard.FFT, _numpy.fft))
__all__ = sorted((*_standard.FFT, "fftfreq", "rfftfreq"))  # noqa: PLE0605
