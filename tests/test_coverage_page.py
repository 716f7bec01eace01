"""docs/coverage.md says nothing that is not so, leaves out no function, and gives a reason for each hole.

What is better by now than the page says does not fail: `scripts/coverage` writes it anew, `--check` compares strictly.
"""

import csv
import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "coverage.md").read_text()
LIST = list(csv.DictReader((ROOT / "docs" / "coverage.csv").read_text().splitlines()))


def load_script():
    loader = importlib.machinery.SourceFileLoader("coverage_script", str(ROOT / "scripts" / "coverage"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


SCRIPT = load_script()
ROWS = {
    cells[0].strip("`"): dict(zip((*SCRIPT.COLUMNS, "reason"), cells[1:], strict=True))
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for cells in [[c.strip() for c in line.strip("|").split(" | ")]]
}


def test_every_function_of_the_list_is_on_the_page():
    assert list(ROWS) == [e["function"] for e in LIST]
    assert len(ROWS) >= 487


@pytest.mark.parametrize("name", ROWS)
def test_no_hole_without_its_reason(name):
    row = ROWS[name]
    assert "differs" not in row.values()
    holes = [c for c in SCRIPT.COLUMNS[:6] if row[c] == SCRIPT.NOT_YET and c != "batching"]
    if holes or row["gradient"] == SCRIPT.FLAT:
        assert row["reason"]
    if row["forward"] == "yes":
        assert row["tested by"] != SCRIPT.NOT_YET


@pytest.mark.parametrize("kind", sorted({e["kind"] for e in LIST}))
def test_what_the_page_claims_is_so(kind):
    entries = [e for e in LIST if e["kind"] == kind and ROWS[e["function"]]["forward"] == "yes"]
    for measured in SCRIPT.rows([e["function"] for e in entries]) if entries else ():
        claimed = ROWS[measured.name]
        for column in SCRIPT.COLUMNS[:6]:
            if claimed[column] == "yes":
                assert measured.answers[column] == "yes", f"{measured.name}: {column}"
