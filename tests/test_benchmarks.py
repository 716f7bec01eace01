"""The benchmarks measure what they say: all libraries compute the same, each op has its row, bounds are judged."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from numbagrad.ops.elementwise import Elementwise
from numbagrad.ops.registry import every_op

# The benchmarks are no package that is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import fresh, report, run
from benchmarks.apart import Apart, Failed
from benchmarks.case import Bound, Case, check_same, results
from benchmarks.cases import all_cases
from benchmarks.libraries import LIBRARIES, Missing, available
from benchmarks.measure import Here, Timing, measure
from benchmarks.report import Row, Verdict

CASES = all_cases()


# ----- The table -----


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_all_libraries_compute_the_same(case):
    inputs = case.inputs(case.tiny)
    ours = results(case, LIBRARIES["numbagrad"], inputs)
    assert ours
    assert all(r.size for r in ours)
    for library in available():
        try:
            with library.active():
                theirs = results(case, library, inputs)
        except (Missing, NotImplementedError):
            continue
        check_same(case, ours, theirs, library.name)


def test_names_of_cases_differ():
    assert len({case.id for case in CASES}) == len(CASES)


def test_every_elementwise_op_has_a_row_in_each_precision():
    named = {op.name for op in every_op(Elementwise) if not op.name.startswith("_")}
    for dtype in ("float32", "float64"):
        rows = {case.name for case in CASES if case.group == f"elementwise {dtype}" and case.mode == "value"}
        assert rows == named


def test_every_differentiable_op_is_timed_with_its_gradient():
    rows = {case.name for case in CASES if case.group.startswith("elementwise") and case.mode == "forward+backward"}
    flat = {case.name for case in CASES if case.group.startswith("elementwise")} - rows
    assert flat == {"sign", "floor", "ceil", "trunc", "rint", "heaviside"}


def test_bounds_name_libraries_that_exist():
    assert {bound.against for case in CASES for bound in case.bounds} <= set(LIBRARIES)


def test_a_library_that_computes_something_else_is_caught():
    case = Case("wrong", "test", "value", lambda rng, size: [np.ones(3)], 3)
    right, wrong = [np.array([1.0, 2.0, 3.0])], [np.array([1.0, 2.0, 3.1])]
    check_same(case, right, right, "torch")
    with pytest.raises(AssertionError, match="result 0 of torch"):
        check_same(case, right, wrong, "torch")
    with pytest.raises(AssertionError, match="float32"):
        check_same(case, right, [right[0].astype(np.float32)], "torch")


# ----- Measuring -----


def test_ratio_is_taken_round_by_round():
    # The machine was ten times as slow in the second round, for both.
    assert Timing((1.0, 10.0, 1.0)).over(Timing((2.0, 20.0, 2.0))) == 0.5


def test_failure_of_one_library_leaves_the_others():
    def program(xp, x):
        if xp is LIBRARIES["numpy"].namespace:
            raise ValueError("on purpose")
        return x + x

    case = Case("fails", "test", "value", lambda rng, size: [rng.random(size)], 5, program)
    result = measure(case, [Here(LIBRARIES[name]) for name in ("numbagrad", "reference", "numpy")], 0.0)
    assert result.failed == {"numpy": "ValueError: on purpose"}
    assert set(result.times) == {"numbagrad", "reference"}
    assert all(t.median > 0 for t in result.times.values())


@pytest.mark.parametrize(("ratio", "reached"), [(0.5, True), (0.6, True), (0.7, False), (None, None)])
def test_bound_is_judged(ratio, reached):
    ratios = {} if ratio is None else {"torch": ratio}
    assert run.verdict(Bound("torch", 0.6), ratios) == Verdict("≤ 0.6x torch", ratio, reached, 0.6)


def test_fresh_process_tells_what_it_cost():
    figures = fresh.child("import", "numbagrad")
    assert figures["seconds"] > 0


def test_fresh_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match="no_such_module"):
        fresh.child("import", "no_such_module")


def test_process_of_a_library_computes_the_case_and_ends():
    apart, case = Apart("numbagrad"), next(c for c in CASES if c.group == "overhead")
    try:
        got = apart.start(case)
        check_same(case, results(case, LIBRARIES["numbagrad"], case.inputs()), got, "the process")
        assert apart.sample(3) > 0
        with pytest.raises(Failed, match="TypeError"):
            apart.sample("three")
        apart.stop()
    finally:
        apart.close()


def test_process_that_died_is_started_again():
    apart, case = Apart("numpy"), next(c for c in CASES if c.mode == "value")
    apart.start(case)
    apart._process.kill()
    with pytest.raises(Failed, match="died"):
        apart.sample(1)
    try:
        assert apart.start(case)
    finally:
        apart.close()


# ----- Reporting -----

ROWS = [
    Row(
        "one",
        "a*b",
        "value",
        "s",
        {"numbagrad": 2e-6, "torch": 4e-6},
        {"torch": 0.5},
        (Verdict("≤ 0.6x torch", 0.5, True, 0.6),),
        noise=1.1,
    ),
    Row(
        "one",
        "a|b",
        "value",
        "s",
        {"numbagrad": 3e-3, "torch": 2e-3},
        {"torch": 1.5},
        (Verdict("≤ 0.6x torch", 1.5, False, 0.6),),
    ),
    Row("two", "memory", "", "MB", {"numbagrad": 1.25}, failed={"torch": "RuntimeError: gone"}),
]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(2.0, "s", "2 s"), (1.234e-3, "s", "1.23 ms"), (5e-7, "s", "500 ns"), (0.0, "s", "0 ns"), (1.5, "MB", "1.5 MB")],
)
def test_quantities_are_readable(value, unit, text):
    assert report.quantity(value, unit) == text


def test_table_shows_times_ratios_and_verdicts():
    cells = report.table(ROWS[:2], ["numbagrad", "torch", "jax"])
    assert cells[0] == ["case", "mode", "numbagrad", "torch", "asked", "measured", "reached", "noise"]
    assert cells[1] == ["a*b", "value", "2 µs", "4 µs (0.50)", "≤ 0.6x torch", "0.50", "yes", "1.10"]
    assert cells[2][6] == "NO"


def test_summary_names_what_was_missed_and_what_failed():
    text = report.summary(ROWS)
    assert text.startswith("1 of 2 bounds reached")
    assert "one: a|b, value: asked ≤ 0.6x torch, measured 1.5" in text
    assert "torch: RuntimeError: gone" in text


def test_files_hold_every_row(tmp_path):
    pytest.importorskip("matplotlib")
    files = report.write(tmp_path, ROWS, ["numbagrad", "torch"], {"date": "2000-01-01"})
    assert [f.name for f in files] == ["results.json", "results.md", "one.png"]
    saved = json.loads(files[0].read_text())
    assert [r["name"] for r in saved["rows"]] == ["a*b", "a|b", "memory"]
    assert "a\\|b" in files[1].read_text()
    assert files[2].read_bytes().startswith(b"\x89PNG")


def test_record_replaces_what_is_behind_the_marker(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{report.MARKER}\n\nold figures\n")
    report.record(page, ROWS, ["numbagrad", "torch"], {"date": "2000-01-01", "Python": "3.x"})
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{report.MARKER}\n\n2000-01-01: Python 3.x.")
    assert "old figures" not in text
    assert "| a\\*b | value | 2 µs |" in text


def test_record_wants_a_marker(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n")
    with pytest.raises(ValueError, match="has no line"):
        report.record(page, ROWS, [], {"date": "2000-01-01"})


def test_pivot_has_one_line_for_each_name():
    rows = [
        Row("elementwise float32", "exp", mode, "s", {"numbagrad": 2e-6, "numpy": 4e-6}, {"numpy": 0.5})
        for mode in ("value", "forward+backward")
    ]
    assert report.pivot(rows) == [
        ["op", "value", "forward+backward"],
        ["exp", "2 µs; numpy 0.50", "2 µs; numpy 0.50"],
    ]


# ----- The command -----


def test_command_measures_what_k_selects(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run.machine, "pin", lambda core: None)
    options = ["--seconds", "0", "--libraries", "numbagrad", "numpy", "--output", str(tmp_path)]
    assert run.main(["-k", "overhead y = * x, value", *options]) == 0
    printed = capsys.readouterr().out
    assert "y = y * x" in printed
    assert "y = y * c" not in printed
    assert (tmp_path / "results.json").exists()


def test_command_says_when_nothing_matches(capsys):
    assert run.main(["-k", "no-such-case"]) == 2
    assert "--list" in capsys.readouterr().err


def test_libraries_that_are_not_installed_are_named(capsys, monkeypatch):
    monkeypatch.setattr(type(LIBRARIES["torch"]), "installed", False)
    assert [library.name for library in run.ready(["numpy", "torch"])] == ["numpy"]
    assert "not installed, so left out: torch" in capsys.readouterr().out
