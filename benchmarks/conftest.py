"""One thread on one core for the suite too."""

from benchmarks.machine import pin, use_one_thread

use_one_thread()
pin()
