"""Moving from autograd: imports rewritten or redirected, and what is missing said with its line."""

import subprocess
import sys

import pytest

from numbagrad.__main__ import main
from numbagrad.ops.migration import rewrite

PROGRAM = '''\
"""Uses autograd in a docstring."""
import autograd.numpy as np  # autograd, in a comment
import os, autograd.numpy.random as npr
from autograd import (
    grad,  # the gradient
    hessian as H,
)
if True:
    from autograd.misc.optimizers import adam; x = 1
import autograd
from autograd.scipy.special import logsumexp
from autograd import grad, no_such_thing


def f(x):
    from autograd.numpy.linalg import inv
    ö = "autograd"; from autograd import value_and_grad
    return np.sum(np.no_such_function(x)) + autograd.numpy.sin(x) + np.linalg.norm(x) + autograd.nothing
'''

WANTED = '''\
"""Uses autograd in a docstring."""
import numbagrad.numpy as np  # autograd, in a comment
import os, numbagrad.numpy.random as npr
from numbagrad import (
    grad,  # the gradient
    hessian as H,
)
if True:
    from numbagrad.misc.optimizers import adam; x = 1
import numbagrad as autograd
from numbagrad.scipy.special import logsumexp
from numbagrad import grad, no_such_thing


def f(x):
    from numbagrad.numpy.linalg import inv
    ö = "autograd"; from numbagrad import value_and_grad
    return np.sum(np.no_such_function(x)) + autograd.numpy.sin(x) + np.linalg.norm(x) + autograd.nothing
'''


def test_imports_change_and_nothing_else():
    text, missing = rewrite(PROGRAM)
    assert text == WANTED
    found = {(f.line, f.what) for f in missing}
    assert {(12, "autograd.no_such_thing"), (18, "autograd.numpy.no_such_function"), (18, "autograd.nothing")} <= found
    assert all(line in (11, 12, 18) for line, _ in found)


def test_a_program_without_autograd_stays():
    text = "import numpy as np\nfrom .autograd import x\nimport autograded\n"
    assert rewrite(text) == (text, [])


def test_a_dotted_import_binds_what_it_bound():
    text, missing = rewrite("import autograd.numpy, sys\ny = autograd.numpy.sin(0.5), autograd.grad\n")
    assert text.startswith("import numbagrad as autograd, numbagrad.numpy, sys\n")
    assert missing == []
    scope = {}
    exec(text, scope)
    assert scope["y"][0] == pytest.approx(0.479425538604203)


def test_the_command_shows_then_writes(tmp_path, capsys):
    (tmp_path / "sub").mkdir()
    program, other, broken = tmp_path / "sub" / "a.py", tmp_path / "b.py", tmp_path / "c.py"
    program.write_text("from autograd import grad, nope\n")
    other.write_text("x = 1\n")
    broken.write_text("print 1\n")
    assert main(["swap", str(tmp_path)]) == 0
    out = capsys.readouterr()
    assert "+from numbagrad import grad, nope" in out.out
    assert f"{program}:1: autograd.nope is not in numbagrad" in out.out
    assert "c.py: left alone" in out.err
    assert "1 file to change" in out.out
    assert program.read_text() == "from autograd import grad, nope\n"
    main(["swap", str(program), "--write"])
    assert program.read_text() == "from numbagrad import grad, nope\n"
    with pytest.raises(SystemExit, match="there is no"):
        main(["swap", str(tmp_path / "nothing")])


RUN = """
import numbagrad as ng
ng.install_as_autograd()
ng.install_as_autograd()
import autograd.numpy as np
from autograd import grad
from autograd.extend import primitive
import autograd.misc.optimizers
assert grad(lambda x: np.sum(x ** 2))(3.0) == 6.0
assert autograd is ng
print("fine")
"""

LATE = """
import autograd, numbagrad as ng
try:
    ng.install_as_autograd()
except RuntimeError as error:
    print(error)
"""


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_programs_that_cannot_be_edited():
    assert run(RUN).strip() == "fine"


def test_too_late_is_said():
    pytest.importorskip("autograd")
    assert "before anything imports it" in run(LATE)
