"""What was measured, as rows; and rows as text, markdown, JSON and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

MARKER = "<!-- results: python -m benchmarks --record docs/benchmarks.md -->"
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Verdict:
    """One thing that was asked, what was measured, and whether that is within it. None: not measured."""

    asked: str
    measured: float | None
    reached: bool | None
    ratio: float | None = None
    """The ratio asked, where it is one."""

    @property
    def word(self) -> str:
        """yes, NO or nothing."""
        return "–" if self.reached is None else "yes" if self.reached else "NO"


@dataclass(frozen=True)
class Row:
    """One line of the table: figures by column, ours first."""

    group: str
    name: str
    mode: str
    unit: str
    """"s" for times, which are printed in the unit that suits them; else printed as it is."""
    figures: dict[str, float]
    ratios: dict[str, float] = field(default_factory=dict)
    """Ours divided by theirs, where that says something."""
    verdicts: tuple[Verdict, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    noise: float | None = None
    """How much a fixed piece of NumPy work varied meanwhile: second worst over second best."""

    @property
    def id(self) -> str:
        """Group, name and mode."""
        return f"{self.group}: {self.name}, {self.mode}"


def quantity(value: float, unit: str) -> str:
    """Three digits and a unit: 0.00123 s is 1.23 ms."""
    if unit != "s":
        return f"{value:.3g} {unit}"
    scale, word = next((u for u in UNITS if value >= u[0]), UNITS[-1])
    return f"{value / scale:.3g} {word}"


# ----- tables -----


def table(rows: Sequence[Row], columns: Sequence[str]) -> list[list[str]]:
    """The cells of one group: head, then rows."""
    more = dict.fromkeys(c for r in rows for c in r.figures if c not in columns)
    used = [c for c in (*columns, *more) if any(c in r.figures or c in r.failed for r in rows)]
    head = ["case", "mode", *used, "asked", "measured", "reached", "noise"]
    return [head, *([r.name, r.mode, *(_cell(r, c) for c in used), *_asked(r), _noise(r)] for r in rows)]


def _cell(row: Row, column: str) -> str:
    if column in row.failed:
        return "failed"
    if column not in row.figures:
        return ""
    text = quantity(row.figures[column], row.unit)
    return f"{text} ({row.ratios[column]:.2f})" if column in row.ratios else text


def _asked(row: Row) -> list[str]:
    known = [v for v in row.verdicts if v.reached is not None]
    measured = [f"{v.measured:.2f}" for v in known]
    return ["; ".join(v.asked for v in known), "; ".join(measured), ", ".join(v.word for v in known)]


def _noise(row: Row) -> str:
    return "" if row.noise is None else f"{row.noise:.2f}"


def as_text(cells: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, for a terminal."""
    widths = [max(len(line[k]) for line in cells) for k in range(len(cells[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def as_markdown(cells: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    escaped = [[c.replace("|", "\\|").replace("*", "\\*") for c in line] for line in cells]
    head, *body = [f"| {' | '.join(line)} |" for line in escaped]
    return "\n".join([head, "|" + "---|" * len(cells[0]), *body])


def by_group(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows of each group, in the order in which the groups came."""
    return [(group, list(members)) for group, members in groupby(rows, key=lambda r: r.group)]


def summary(rows: Sequence[Row]) -> str:
    """How many bounds were reached, and which were not."""
    verdicts = [(r, v) for r in rows for v in r.verdicts if v.reached is not None]
    lines = [f"{sum(v.reached or False for _, v in verdicts)} of {len(verdicts)} bounds reached"]
    misses = [(r, v) for r, v in verdicts if not v.reached]
    lines += [f"  not reached: {r.id}: asked {v.asked}, measured {v.measured:.3g}" for r, v in misses]
    lines += [f"  failed: {r.id}: {name}: {why}" for r in rows for name, why in r.failed.items()]
    return "\n".join(lines)


# ----- files -----


def write(folder: Path, rows: Sequence[Row], columns: Sequence[str], machine: dict[str, Any]) -> list[Path]:
    """Write results.json, results.md and one picture for each group; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "results.json", folder / "results.md"]
    files[0].write_text(json.dumps({"machine": machine, "rows": [asdict(r) for r in rows]}, indent=1) + "\n")
    files[1].write_text(markdown(rows, columns, machine))
    return files + draw(folder, rows)


def markdown(rows: Sequence[Row], columns: Sequence[str], machine: dict[str, Any]) -> str:
    """The whole report."""
    facts = "; ".join(f"{k} {v}" for k, v in machine.items())
    parts = [f"{facts}.", "```\n" + summary(rows) + "\n```"]
    parts += [f"### {group}\n\n{as_markdown(table(members, columns))}" for group, members in by_group(rows)]
    return "\n\n".join(parts) + "\n"


def record(page: Path, rows: Sequence[Row], columns: Sequence[str], machine: dict[str, Any]) -> None:
    """Put a shortened report behind the marker of a page, in place of what is there."""
    text, marker, _ = page.read_text().partition(MARKER)
    if not marker:
        raise ValueError(f"{page} has no line {MARKER}, behind which the results would go")
    parts = [f"{machine['date']}: {'; '.join(f'{k} {v}' for k, v in machine.items() if k != 'date')}."]
    parts.append("```\n" + summary(rows) + "\n```")
    for group, members in by_group(rows):
        cells = pivot(members) if group.startswith("elementwise") else table(members, columns)
        parts.append(f"### {group}\n\n{as_markdown(cells)}")
    page.write_text(text + marker + "\n\n" + "\n\n".join(parts) + "\n")


def pivot(rows: Sequence[Row]) -> list[list[str]]:
    """One line for each name, one column for each mode: our time, and ours over theirs."""
    modes = list(dict.fromkeys(r.mode for r in rows))
    cells = {(r.name, r.mode): _against(r) for r in rows}
    names = dict.fromkeys(r.name for r in rows)
    return [["op", *modes], *([n, *(cells.get((n, m), "") for m in modes)] for n in names)]


def _against(row: Row) -> str:
    if not row.figures:
        return "failed"
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in row.ratios.items())
    return f"{quantity(next(iter(row.figures.values())), row.unit)}; {ratios}"


def draw(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """A picture of the ratios of each group; nothing without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    files = []
    for group, members in by_group(rows):
        shown = [r for r in members if r.ratios]
        if shown:
            files.append(folder / f"{''.join(c if c.isalnum() else '-' for c in group)}.png")
            _draw_group(Figure, group, shown).savefig(files[-1], dpi=110)
    return files


def _draw_group(figure_class: Any, group: str, rows: Sequence[Row]) -> Any:
    """One panel for each mode: our time over theirs, on a logarithmic axis; a bar where it is asked to be."""
    modes = list(dict.fromkeys(r.mode for r in rows))
    names = list(dict.fromkeys(r.name for r in rows))
    figure = figure_class(figsize=(4.5 + 3.5 * len(modes), 1.8 + 0.22 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(modes), sharey=True, squeeze=False)[0]
    libraries = list(dict.fromkeys(lib for r in rows for lib in r.ratios))
    for panel, mode in zip(panels, modes, strict=True):
        _draw_panel(panel, [r for r in rows if r.mode == mode], names, libraries)
        panel.set_title(mode)
    panels[0].set_yticks(range(len(names)), names, fontsize=8)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(libraries) + 1, fontsize=8)
    figure.suptitle(f"{group}: numbagrad's time over theirs (left of 1 is faster)", fontsize=10)
    return figure


def _draw_panel(panel: Any, rows: Sequence[Row], names: Sequence[str], libraries: Sequence[str]) -> None:
    for k, library in enumerate(libraries):
        points = [(r.ratios[library], names.index(r.name)) for r in rows if library in r.ratios]
        panel.plot(*_columns(points), "osD^vP*X"[k % 8], label=library, markersize=5, color=f"C{k}")
    bounds = [(v.ratio, names.index(r.name)) for r in rows for v in r.verdicts if v.ratio is not None]
    panel.plot(*_columns(bounds), "|", label="asked", markersize=13, color="black")
    panel.axvline(1, color="gray", linewidth=0.8)
    panel.set_xscale("log")
    panel.grid(axis="x", alpha=0.3)


def _columns(points: Sequence[tuple[float, int]]) -> tuple[list[float], list[int]]:
    return [x for x, _ in points], [y for _, y in points]
