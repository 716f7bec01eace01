"""The stubs for editors are those of the code."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_stubs_are_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "stubs", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
