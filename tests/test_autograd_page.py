"""docs/autograd.md has every public name: ours, and PyTorch's where that is installed."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "autograd.md").read_text()
ROOMS = ["", ".function", ".graph", ".functional", ".forward_ad", ".gradcheck", ".grad_mode", ".anomaly_mode"]


def names_on_the_page():
    return set(re.findall(r"`(?:ctx\.|Function\.)?(\w+)[`(]", PAGE))


def rows(verdict):
    """Names in the first column of the rows with this verdict."""
    found = re.findall(rf"^\| (.*?) \| {verdict} \|", PAGE, re.MULTILINE)
    return {name for cell in found for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("room", ROOMS)
def test_the_page_has_our_names(room):
    module = importlib.import_module(f"numbagrad.autograd{room}")
    assert set(module.__all__) - names_on_the_page() == set()


@pytest.mark.parametrize("room", ROOMS)
def test_the_page_has_pytorchs_names(room):
    pytest.importorskip("torch")
    module = importlib.import_module(f"torch.autograd{room}")
    assert set(module.__all__) - names_on_the_page() == set()


def test_the_page_has_mixed_precision():
    amp = importlib.import_module("numbagrad.amp")
    assert set(amp.__all__) - names_on_the_page() == set()


def test_the_page_has_pytorchs_mixed_precision():
    pytest.importorskip("torch")
    rooms = [importlib.import_module(f"torch.amp.{room}") for room in ("autocast_mode", "grad_scaler")]
    insides = {"OptState", "autocast_decorator"}
    assert {name for room in rooms for name in room.__all__} - names_on_the_page() == insides


def test_what_is_not_here_is_not_here():
    here = {name for room in ROOMS for name in importlib.import_module(f"numbagrad.autograd{room}").__all__}
    assert rows("not here") & here == set()
