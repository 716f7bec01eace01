"""`python -m benchmarks`."""

import sys

from benchmarks.machine import use_one_thread

use_one_thread()

from benchmarks.run import main  # noqa: E402 - NumPy reads the number of threads when it is imported

if __name__ == "__main__":
    sys.exit(main())
