"""The project holds together: lint, types, import directions, packaging, and what its pages promise."""

import doctest
import importlib
import importlib.metadata
import importlib.util
import io
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import numbagrad

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = PYPROJECT["tool"]["setuptools"]["package-dir"]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
README = (ROOT / "README.md").read_text()


# ----- Tools -----


@pytest.mark.parametrize(
    ("tool", "module"), [("ruff", "ruff"), ("mypy", "mypy"), ("imports", "importlinter")], ids=lambda x: x
)
def test_check_passes(tool, module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: it comes with the test extra")
    done = run(sys.executable, "scripts/check", tool)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_refuses_a_tool_it_does_not_have():
    done = run(sys.executable, "scripts/check", "pylint")
    assert done.returncode == 2
    assert "choose from ruff, mypy, imports" in done.stderr


# ----- Packaging -----


def test_every_folder_with_code_is_a_package_of_the_wheel():
    folders = {
        file.parent.relative_to(ROOT).as_posix() for room in ROOMS.values() for file in (ROOT / room).rglob("*.py")
    }
    packages = {folder_of(package) for package in PYPROJECT["tool"]["setuptools"]["packages"]}
    assert folders == packages


def test_only_numpy_and_numba_are_needed():
    needed = {re.split(r"[<>=!~ ]", line)[0] for line in PYPROJECT["project"]["dependencies"]}
    assert needed == {"numpy", "numba"}


def test_version_is_the_one_that_is_installed():
    assert numbagrad.__version__ == importlib.metadata.version("numbagrad") == PYPROJECT["project"]["version"]


def test_import_loads_no_extra():
    code = "import sys, numbagrad; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run(sys.executable, "-c", code, check=True).stdout.split())
    extras = {"torch", "jax", "autograd", "cupy", "numba_cuda", "dask", "sklearn", "matplotlib", "pytest"}
    assert "numbagrad" in loaded
    assert not loaded & extras


# ----- Examples in the code and on the pages -----


def modules():
    """Every module of the package, by its whole name."""
    found = {"numbagrad"}
    for package, room in ROOMS.items():
        found |= {f"{package}.{module.name}" for module in pkgutil.iter_modules([str(ROOT / room)])}
        found.add(package)
    return sorted(name for name in found if not name.endswith("__main__"))


def names_with_generated_docstrings():
    """Public functions that belong to no module, so that doctest's finder does not see them."""
    return [name for name in numbagrad.__all__ if getattr(getattr(numbagrad, name), "__module__", "") is None]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name):
    assert_examples_run(doctest.DocTestFinder().find(importlib.import_module(name)))


@pytest.mark.parametrize("name", names_with_generated_docstrings())
def test_examples_in_generated_docstrings_run(name):
    case = doctest.DocTestParser().get_doctest(getattr(numbagrad, name).__doc__, {}, name, None, None)
    assert case.examples
    assert_examples_run([case])


def assert_examples_run(cases):
    """Run docstrings' examples, each with the names of its own module."""
    output = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for case in cases:
        runner.run(case, out=output.write)
    assert runner.failures == 0, output.getvalue()


def test_first_program_of_the_readme_prints_what_the_readme_says():
    program, output = re.search(r"```python\n(.*?)```\s*prints\s*```\n(.*?)```", README, re.DOTALL).groups()
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    assert printed.getvalue() == output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_readme_names_only_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)", README)) <= targets


def test_ci_runs_what_the_readme_says():
    commands = [
        line.removeprefix("exec ")
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    assert commands == ["make test"]
    assert "make test" in README


# ----- Helpers -----


def folder_of(package):
    """The folder of a package, through the mapping of its nearest mapped parent."""
    mapped = max((name for name in ROOMS if f"{package}.".startswith(f"{name}.")), key=len)
    return "/".join([ROOMS[mapped], *package.removeprefix(mapped).strip(".").split(".")]).strip("/")


def run(*command, check=False):
    """Run a command from the root, warnings being errors."""
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONWARNINGS": "default"}, capture_output=True, text=True, check=check
    )
