"""`python -m numbagrad`: its commands, its help, its mistakes."""

import importlib.metadata
import platform
import subprocess
import sys

import llvmlite.binding
import numpy as np
import pytest

import numbagrad
from numbagrad import info
from numbagrad.__main__ import main


def lines_of(text):
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "demo" in shown
    assert "info" in shown


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"numbagrad {importlib.metadata.version('numbagrad')}\n"


@pytest.mark.parametrize(
    "argv", [[], ["train"], ["info", "--cuda"], ["demo", "--backend", "gpu"], ["demo", "--epochs", "0"]]
)
def test_a_wrong_command_line_is_refused(argv, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "usage: python -m numbagrad" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["demo", "info"])
def test_each_command_has_its_own_help(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert f"usage: python -m numbagrad {command}" in capsys.readouterr().out


def test_info_from_a_shell():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "numbagrad", "info"], capture_output=True, text=True, check=True
    )
    shown = lines_of(done.stdout)
    assert shown["numpy"] == np.__version__
    assert shown["Python"].startswith(platform.python_version())
    assert llvmlite.binding.get_host_cpu_name() in shown["CPU"]
    assert done.stderr == ""


def test_info_names_the_backend_in_use():
    with numbagrad.use_backend("reference"):
        assert info.collect()["backend"].startswith("reference")
    with numbagrad.use_backend("cpu"):
        assert info.collect()["backend"].startswith("cpu")


def test_info_claims_only_simd_that_llvm_has():
    features = llvmlite.binding.get_host_cpu_features()
    assert all(features[name] for name in info.simd_features())


def test_info_says_which_extras_are_there(monkeypatch):
    def only_scipy(name):
        if name == "scipy":
            return "1.17.1"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", only_scipy)
    found = info.collect()
    assert found["extra scipy"] == "scipy 1.17.1"
    assert found["extra cuda"] == "not installed"


def test_info_loads_no_gpu_library():
    code = "import sys; from numbagrad import info; info.main([]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"cupy", "numba_cuda", "numba_cuda_mlir", "numba.cuda"} & set(done.stdout.split())
