"""The demo trains, says what ran, and agrees with the same network written by hand in NumPy."""

import re
import subprocess
import sys

import numpy as np
import pytest

import numbagrad as ng

pytest.importorskip("sklearn", reason="needs the examples extra")
image = pytest.importorskip("matplotlib.image", reason="needs the examples extra")

from numbagrad.examples import digits  # noqa: E402  (needs what is asked for above)
from numbagrad.jit import backend  # noqa: E402


def silent(*args, **kwargs):
    """A progress report that goes nowhere."""


def by_hand(data, epochs, seed):
    """Losses of the same training in NumPy, the gradients derived on paper."""
    rng = np.random.default_rng(seed)
    params = [p.detach().numpy().copy() for layer in digits.init(rng) for p in layer]
    velocity = [np.zeros_like(p) for p in params]
    losses = []
    for _ in range(epochs):
        for chosen in digits.batches(len(data.images), rng):
            loss, grads = loss_and_gradients(params, data.images[chosen], data.labels[chosen])
            for p, v, g in zip(params, velocity, grads, strict=True):
                v[:] = digits.MOMENTUM * v + g
                p -= digits.LEARNING_RATE * v
            losses.append(loss)
    return losses


def loss_and_gradients(params, x, labels):
    """Softmax cross-entropy of a relu network, and its gradients by the chain rule."""
    layers = list(zip(params[::2], params[1::2], strict=True))
    inputs = [x]
    for w, b in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ w + b, 0))
    scores = inputs[-1] @ layers[-1][0] + layers[-1][1]
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(x))
    g = p.copy()
    g[rows, labels] -= 1
    g /= len(x)
    grads = []
    for (w, _), x_in in zip(reversed(layers), reversed(inputs), strict=True):
        grads = [x_in.T @ g, g.sum(axis=0), *grads]
        g = (g @ w.T) * (x_in > 0)
    return -np.log(p[rows, labels]).mean(), grads


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_losses_are_those_of_a_network_written_by_hand(name):
    data = digits.load(seed=3)
    run = digits.train(data, name, epochs=3, seed=3, report=silent)
    np.testing.assert_allclose(run.losses, by_hand(data, epochs=3, seed=3), rtol=0, atol=1e-9)


def test_demo_from_a_shell_reaches_97_percent_on_both_backends(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "numbagrad", "demo", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    accuracies = re.findall(r"^backend (\w+): .* held-out accuracy ([\d.]+);", done.stdout, re.MULTILINE)
    assert [name for name, _ in accuracies] == ["cpu", "reference"]
    assert all(float(value) >= 0.97 for _, value in accuracies)
    assert "agree: they differ by at most" in done.stdout
    assert re.fullmatch(r"speed: cpu .* is [\d.]+ times as fast", done.stdout.splitlines()[-1])
    assert drawn(tmp_path / "digits.png")


def test_a_second_process_loads_every_kernel_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_CACHE_DIR", str(tmp_path / "cache"))
    demo = ["demo", "--backend", "cpu", "--epochs", "1", "--output", str(tmp_path)]
    (compiled, _), (compiled_again, loaded) = (kernels_of(demo) for _ in range(2))
    assert compiled > 5
    assert (compiled_again, loaded) == (0, compiled)


def kernels_of(demo):
    """How many kernels a process compiled, and how many it loaded."""
    command = [sys.executable, "-m", "numbagrad", *demo]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.search(r"compiled: (\d+), loaded from the cache: (\d+)", shown).groups()))


def drawn(file):
    """Whether a PNG shows something."""
    pixels = image.imread(file)
    return min(pixels.shape[:2]) > 200 and pixels.std() > 0.05


def test_held_out_third_is_disjoint_and_in_proportion():
    data = digits.load(seed=0)
    assert len(data.held_images) == round(1797 / 3)
    assert len(data.images) + len(data.held_images) == 1797
    shares = [np.bincount(labels) / len(labels) for labels in (data.labels, data.held_labels)]
    np.testing.assert_allclose(*shares, atol=0.01)


def test_same_seed_same_losses_other_seed_others():
    data = digits.load(seed=0)
    first, again, other = (digits.train(data, "cpu", 1, seed, silent).losses for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_reference_run_compiles_nothing():
    run = digits.train(digits.load(seed=0), "reference", epochs=1, seed=0, report=silent)
    assert run.kernels.kernels_compiled == run.kernels.kernels_loaded == 0


def test_a_second_run_compiles_nothing():
    data = digits.load(seed=0)
    digits.train(data, "cpu", epochs=1, seed=0, report=silent)
    second = digits.train(data, "cpu", epochs=1, seed=0, report=silent)
    assert second.kernels.kernels_compiled == second.kernels.kernels_loaded == 0


def test_training_leaves_the_backend_as_it_was():
    with ng.use_backend("cpu"):
        digits.train(digits.load(seed=0), "reference", epochs=1, seed=0, report=silent)
        assert backend.current() == "cpu"


def test_quiet_prints_the_summary_only(tmp_path, capsys):
    assert digits.main(["--backend", "cpu", "--epochs", "1", "--quiet", "--output", str(tmp_path / "a" / "b")]) == 0
    wrote, summary = capsys.readouterr().out.splitlines()
    assert wrote == f"wrote {tmp_path / 'a' / 'b' / 'digits.png'}"
    assert summary.startswith("backend cpu: 1 epochs in ")
    assert "kernels compiled: " in summary


def test_one_line_per_epoch_where_there_is_no_terminal(tmp_path, capsys):
    digits.main(["--backend", "reference", "--epochs", "2", "--output", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "\r" not in shown
    assert len(re.findall(r"^reference +epoch +\d/2 +loss [\d.]+ ", shown, re.MULTILINE)) == 2


def test_one_updating_line_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    progress = digits.Progress("cpu", quiet=False)
    for epoch in (1, 2):
        progress(epoch, 2, 0.5, 0.9, 1000.0, done=True)
    first, second, end = re.split(r"\r|\n", capsys.readouterr().out.removeprefix("\r"))
    assert (first.split()[2], second.split()[2], end) == ("1/2", "2/2", "")


def test_losses_that_differ_are_an_error(capsys):
    first, second = (
        digits.Run(name, losses=[1.0, loss], speeds=[10.0]) for name, loss in [("cpu", 0.5), ("reference", 0.6)]
    )
    assert digits.compare(first, second) == 1
    assert "DISAGREE: they differ by at most 1.0e-01" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "distribution"), [("sklearn.datasets", "scikit-learn"), ("matplotlib.figure", "matplotlib")]
)
def test_a_missing_extra_is_named(module, distribution, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=rf"{distribution} is needed .*pip install 'numbagrad\[examples\]'"):
        digits.main(["--output", str(tmp_path)])


def test_a_folder_that_cannot_be_written_shows_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="choose another with --output"):
        digits.main(["--output", str(tmp_path / "file" / "folder")])
