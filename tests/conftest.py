"""Settings that every test shares."""

import os

from hypothesis import settings

# No test may fail by time; where a red run must be the same for everyone, the examples are fixed.
settings.register_profile("numbagrad", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("numbagrad")
