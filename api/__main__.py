"""The command line: ``python -m numbagrad demo`` and ``python -m numbagrad info``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import numbagrad


def demo(argv: Sequence[str]) -> int:
    """Run the demo."""
    from numbagrad.examples import digits

    return digits.main(argv)


def info(argv: Sequence[str]) -> int:
    """Print what this installation is."""
    from numbagrad import info

    return info.main(argv)


def swap(argv: Sequence[str]) -> int:
    """Make programs for HIPS autograd programs for numbagrad."""
    from numbagrad import swap

    parser = argparse.ArgumentParser(prog="python -m numbagrad swap", description=swap.__doc__)
    parser.add_argument("paths", nargs="+", help="files and folders")
    parser.add_argument("--write", action="store_true", help="change the files; default: show what would change")
    options = parser.parse_args(argv)
    swap.swap(options.paths, options.write)
    return 0


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "demo": (demo, "train on handwritten digits, with the cpu backend and with the NumPy engine"),
    "info": (info, "show versions, CPU features, threads, backend, cache, extras and GPU"),
    "swap": (swap, "rewrite imports of autograd in files and folders; shows a diff, --write does it"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    width = max(map(len, COMMANDS))
    parser = argparse.ArgumentParser(
        prog="python -m numbagrad",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Gradients of NumPy-style programs on kernels compiled by Numba.",
        epilog="commands (each takes --help):\n"
        + "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()),
    )
    parser.add_argument("--version", action="version", version=f"numbagrad {numbagrad.__version__}")
    parser.add_argument("command", choices=COMMANDS, help="what to do")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="options of the command")
    options = parser.parse_args(argv)
    command, _ = COMMANDS[options.command]
    return command(options.args)


if __name__ == "__main__":
    sys.exit(main())
