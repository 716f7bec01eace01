"""The runner: measure the cases, print the table, write the files."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.apart import Apart
from benchmarks.case import OURS, Bound, Case
from benchmarks.cases import all_cases
from benchmarks.fresh import FRESH, Fresh
from benchmarks.libraries import LIBRARIES, Library
from benchmarks.measure import Here, Result, measure
from benchmarks.report import Row, Verdict

PURPOSE = "Time numbagrad beside other libraries, interleaved, on one core; print the table and write files."
RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 1 when a library failed where it should run."""
    options = parse(argv)
    selected = select([*FRESH, *all_cases()], options.k)
    if options.list:
        print("\n".join(c.id for c in selected))
        return 0
    if not selected:
        print(f"no case matches -k {options.k!r}; --list shows them all", file=sys.stderr)
        return 2
    core = machine.pin(options.core)
    libraries = ready(options.libraries)
    rows = run(selected, libraries, options.seconds, options.together)
    columns, about = [lib.name for lib in libraries], facts(core)
    finish(rows, columns, about, options.output)
    if options.record:
        report.record(options.record, rows, columns, about)
    return 1 if any(r.failed for r in rows) else 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=PURPOSE)
    parser.add_argument("-k", default="", metavar="WORDS", help="only cases with all these words in their name")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--libraries", nargs="+", choices=list(LIBRARIES), metavar="NAME", help="default: all")
    parser.add_argument("--seconds", type=float, default=0.4, metavar="S", help="for each case; default: 0.4")
    parser.add_argument("--together", action="store_true", help="all libraries in one process; see docs/benchmarks.md")
    parser.add_argument("--core", type=int, metavar="N", help="the core to run on; default: the last")
    parser.add_argument("--record", type=Path, metavar="PAGE", help="put a shortened table into this page")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="DIR", help="default: benchmarks/results")
    return parser.parse_args(argv)


def select(cases: Sequence[Any], words: str) -> list[Any]:
    """The cases whose name holds every one of the words."""
    return [c for c in cases if all(w.lower() in c.id.lower() for w in words.split())]


def ready(names: Sequence[str] | None) -> list[Library]:
    """The libraries that can be imported; the others are named."""
    wanted = [LIBRARIES[n] for n in names or LIBRARIES]
    absent = [lib.name for lib in wanted if not lib.installed]
    if absent:
        print(f"not installed, so left out: {', '.join(absent)}")
    return [lib for lib in wanted if lib.installed]


def run(cases: Sequence[Case | Fresh], libraries: Sequence[Library], seconds: float, together: bool) -> list[Row]:
    """Measure each case; a terminal shows which one it is at."""
    runners = [Here(lib) if together else Apart(lib.name) for lib in libraries]
    start = time.monotonic()
    rows: list[Row] = []
    for number, case in enumerate(cases, 1):
        if sys.stderr.isatty():
            print(f"\r\033[K{number}/{len(cases)} {time.monotonic() - start:.0f} s  {case.id}", end="", file=sys.stderr)
        rows += case.rows(libraries) if isinstance(case, Fresh) else [row_of(case, measure(case, runners, seconds))]
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    for runner in runners:
        runner.close()
    return rows


def row_of(case: Case, result: Result) -> Row:
    """The row for one case."""
    ours = result.times.get(OURS)
    ratios = {} if ours is None else {n: ours.over(t) for n, t in result.times.items() if n != OURS}
    return Row(
        case.group,
        case.name,
        case.mode,
        "s",
        {n: t.median / case.per for n, t in result.times.items()},
        ratios,
        tuple(verdict(b, ratios) for b in case.bounds),
        result.missing,
        result.failed,
        result.control.spread if result.control else None,
    )


def verdict(bound: Bound, ratios: dict[str, float]) -> Verdict:
    """Whether a bound was reached."""
    measured = ratios.get(bound.against)
    return Verdict(str(bound), measured, None if measured is None else measured <= bound.ratio, bound.ratio)


def finish(rows: Sequence[Row], columns: Sequence[str], about: dict[str, Any], folder: Path) -> None:
    """Print the tables and write the files."""
    for group, members in report.by_group(rows):
        print(f"\n{group}: times, in brackets ours over theirs")
        print(report.as_text(report.table(members, columns)))
    print("\n" + report.summary(rows))
    files = report.write(folder, rows, columns, about)
    print("wrote " + ", ".join(os.path.relpath(f) for f in files))


def facts(core: int | None) -> dict[str, Any]:
    """When and where the figures were taken."""
    known = machine.versions(("numbagrad", "numpy", "scipy", "numba", "torch", "autograd", "jax"))
    return {
        "date": datetime.date.today().isoformat(),
        "processor": machine.processor(),
        "core": "one thread, not pinned" if core is None else "one thread, pinned to one core",
        "Python": platform.python_version(),
        **known,
    }


if __name__ == "__main__":
    sys.exit(main())
