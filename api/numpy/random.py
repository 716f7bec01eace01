"""NumPy's random numbers: draws have no gradient, so they are NumPy's own."""

from typing import Any

import numpy.random as _random
from numpy.random import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(_random, name)
