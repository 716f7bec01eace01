"""`python -m numbagrad swap`: programs for HIPS autograd made programs for numbagrad."""

import difflib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from numbagrad.ops.migration import rewrite


def files(paths: Iterable[str]) -> Iterator[Path]:
    """The Python files among paths and in folders."""
    for path in map(Path, paths):
        if not path.exists():
            sys.exit(f"swap: there is no {path}")
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def swap(paths: Iterable[str], write: bool) -> int:
    """Show (or with `write` make) the changes, and list what is not supported; gives the number of changed files."""
    changed = 0
    for path in files(paths):
        before = path.read_text(encoding="utf-8")
        try:
            after, missing = rewrite(before)
        except SyntaxError as error:
            print(f"{path}: left alone, it is not Python 3: {error}", file=sys.stderr)
            continue
        if after != before:
            changed += 1
            if write:
                path.write_text(after, encoding="utf-8")
                print(f"{path}: written")
            else:
                lines = [text.splitlines(keepends=True) for text in (before, after)]
                sys.stdout.writelines(difflib.unified_diff(*lines, str(path), str(path)))
        for finding in missing:
            print(f"{path}:{finding.line}: {finding.what} is not in numbagrad")
    print(f"{changed} file{'s' * (changed != 1)} {'changed' if write else 'to change; --write does it'}")
    return changed
