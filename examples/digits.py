"""Train a multilayer perceptron on scikit-learn's handwritten digits, on one backend or on both.

Run it with ``python -m numbagrad demo``. The model, the loss and the optimiser are plain numbagrad, written out below.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import numbagrad as ng
from numbagrad.jit.compile import Stats

PURPOSE = "Train a multilayer perceptron on scikit-learn's handwritten digits and compare the two CPU backends."
SIZES = (64, 128, 64, 10)
BATCH = 32
LEARNING_RATE = 0.05
MOMENTUM = 0.9
AGREE = 1e-6

Params = list[tuple[Any, Any]]


# ---------------------------------------------------------------- the program


def init(rng: np.random.Generator, sizes: Sequence[int] = SIZES) -> Params:
    """Weights and biases of each layer; He's scale suits relu."""
    return [
        (
            ng.tensor(rng.normal(0, np.sqrt(2 / n_in), (n_in, n_out)), requires_grad=True),
            ng.tensor(np.zeros(n_out), requires_grad=True),
        )
        for n_in, n_out in pairwise(sizes)
    ]


def logits(params: Params, images: Any) -> Any:
    """The network's output: one unnormalised score per class."""
    *hidden, (w, b) = params
    x = images
    for w_hidden, b_hidden in hidden:
        x = ng.relu(x @ w_hidden + b_hidden)
    return x @ w + b


def cross_entropy(scores: Any, labels: np.ndarray) -> Any:
    """Mean negative log-probability of the right class."""
    log_p = ng.log_softmax(scores, axis=1)
    return -log_p[np.arange(len(labels)), labels].mean()


class SGD:
    """Stochastic gradient descent with momentum, as PyTorch defines it: v = momentum·v + grad; p -= rate·v."""

    def __init__(self, params: Params, rate: float = LEARNING_RATE, momentum: float = MOMENTUM) -> None:
        self.rate, self.momentum = rate, momentum
        self.state = [(p, ng.tensor(np.zeros(p.shape))) for layer in params for p in layer]

    def step(self) -> None:
        """Move every parameter along its velocity, and forget its gradient."""
        with ng.no_grad():
            for p, velocity in self.state:
                velocity *= self.momentum
                velocity += p.grad
                p -= self.rate * velocity
                p.grad = None


def batches(n: int, rng: np.random.Generator, size: int = BATCH) -> Iterator[np.ndarray]:
    """Indices of one epoch's mini-batches, in a new order each time."""
    order = rng.permutation(n)
    for start in range(0, n, size):
        yield order[start : start + size]


def accuracy(params: Params, images: np.ndarray, labels: np.ndarray) -> float:
    """The part of `images` whose highest score is the right class."""
    return float((predict(params, images) == labels).mean())


def predict(params: Params, images: np.ndarray) -> np.ndarray:
    """The class with the highest score, for each image."""
    with ng.no_grad():
        return logits(params, ng.tensor(images)).numpy().argmax(axis=1)


# ---------------------------------------------------------------- training, with its records


@dataclass(frozen=True)
class Data:
    """Images as rows of 64 numbers in [0, 1], and the digits that they show."""

    images: np.ndarray
    labels: np.ndarray
    held_images: np.ndarray
    held_labels: np.ndarray


@dataclass
class Run:
    """What one training run did."""

    backend: str
    losses: list[float] = field(default_factory=list)
    """one per mini-batch"""
    epoch_losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    """on the held-out third, one per epoch"""
    speeds: list[float] = field(default_factory=list)
    """images per second, one per epoch; evaluation is not in it"""
    seconds: float = 0.0
    params: Params = field(default_factory=list)
    kernels: Stats = field(default_factory=Stats)

    @property
    def speed(self) -> float:
        """Median images per second; the first epoch, in which kernels compile, is left out where there are more."""
        return statistics.median(self.speeds[1:] or self.speeds)


def load(seed: int) -> Data:
    """The 1,797 digits, split two to one with every class in proportion."""
    digits = need("sklearn.datasets", "scikit-learn").load_digits()
    split = need("sklearn.model_selection", "scikit-learn").train_test_split
    images, held_images, labels, held_labels = split(
        digits.data / 16, digits.target, test_size=1 / 3, stratify=digits.target, random_state=seed
    )
    return Data(images, labels, held_images, held_labels)


def train(data: Data, backend: str, epochs: int, seed: int, report: Callable[..., None]) -> Run:
    """Train a fresh network; the same seed gives the same program on every backend."""
    run = Run(backend)
    before = ng.stats()
    start = time.perf_counter()
    with ng.use_backend(backend):
        rng = np.random.default_rng(seed)
        run.params = init(rng)
        optimiser = SGD(run.params)
        for epoch in range(1, epochs + 1):
            train_epoch(run, data, optimiser, rng, lambda *now, epoch=epoch: report(epoch, epochs, *now))
            run.accuracies.append(accuracy(run.params, data.held_images, data.held_labels))
            report(epoch, epochs, run.epoch_losses[-1], run.accuracies[-1], run.speeds[-1], done=True)
    run.seconds = time.perf_counter() - start
    run.kernels = Stats(*(now - then for now, then in zip(astuple(ng.stats()), astuple(before), strict=True)))
    return run


def train_epoch(run: Run, data: Data, optimiser: SGD, rng: np.random.Generator, report: Callable[..., None]) -> None:
    """One pass over the training images."""
    start, seen, total = time.perf_counter(), 0, 0.0
    for chosen in batches(len(data.images), rng):
        loss = cross_entropy(logits(run.params, ng.tensor(data.images[chosen])), data.labels[chosen])
        loss.backward()
        optimiser.step()
        run.losses.append(loss.item())
        seen += len(chosen)
        total += run.losses[-1] * len(chosen)
        report(total / seen, run.accuracies[-1] if run.accuracies else 0.0, seen / (time.perf_counter() - start))
    run.speeds.append(seen / (time.perf_counter() - start))
    run.epoch_losses.append(total / seen)


class Progress:
    """One line that updates on a terminal; elsewhere one line per epoch."""

    def __init__(self, backend: str, quiet: bool) -> None:
        self.backend, self.quiet = backend, quiet
        self.live = sys.stdout.isatty()
        self.shown = 0.0

    def __call__(self, epoch: int, epochs: int, loss: float, right: float, speed: float, done: bool = False) -> None:
        if self.quiet or not (done or self.is_due()):
            return
        line = (
            f"{self.backend:<9}  epoch {epoch:>3}/{epochs}  loss {loss:.6f}  "
            f"held-out accuracy {right:.4f}  {speed:>8,.0f} images/s"
        )
        last = not self.live or (done and epoch == epochs)
        print(f"\r{line}" if self.live else line, end="\n" if last else "", flush=True)

    def is_due(self) -> bool:
        """Whether to redraw now: ten times a second, on a terminal only."""
        now = time.monotonic()
        due = self.live and now - self.shown > 0.1
        if due:
            self.shown = now
        return due


# ---------------------------------------------------------------- what the reader gets


def summary(run: Run) -> str:
    """What ran, and what it cost."""
    k = run.kernels
    return (
        f"backend {run.backend}: {len(run.speeds)} epochs in {run.seconds:.1f} s, "
        f"loss {run.epoch_losses[-1]:.6f}, held-out accuracy {run.accuracies[-1]:.4f}; "
        f"kernels compiled: {k.kernels_compiled}, loaded from the cache: {k.kernels_loaded}, "
        f"seconds compiling: {k.seconds_compiling:.2f}, loading: {k.seconds_loading:.2f}"
    )


def disagreement(first: Run, second: Run) -> float:
    """The largest difference between two runs' losses, over every mini-batch."""
    return float(np.abs(np.subtract(first.losses, second.losses)).max())


def comparison(cpu: Run, reference: Run) -> str:
    """The two speeds, in one line."""
    ratio = cpu.speed / reference.speed
    return (
        f"speed: cpu {cpu.speed:,.0f} images/s, reference (NumPy engine) {reference.speed:,.0f} images/s: "
        f"cpu is {ratio:.2f} times as fast"
    )


def draw(runs: Sequence[Run], data: Data, file: Path) -> None:
    """Write a PNG: loss and accuracy by epoch, and some held-out digits with what the network says."""
    figure = need("matplotlib.figure", "matplotlib").Figure(figsize=(11, 4.2), layout="constrained")
    curves, digits = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    draw_curves(curves.subplots(), runs)
    draw_digits(digits, runs[0], data)
    figure.savefig(file, dpi=120)


def draw_curves(axes: Any, runs: Sequence[Run]) -> None:
    """Training loss (log scale) of each run, and held-out accuracy of the first."""
    for run, style in zip(runs, ("-", "--"), strict=False):
        axes.semilogy(range(1, len(run.epoch_losses) + 1), run.epoch_losses, style, label=f"loss, {run.backend}")
    axes.set(xlabel="epoch", ylabel="training loss")
    right = axes.twinx()
    right.plot(range(1, len(runs[0].accuracies) + 1), runs[0].accuracies, color="tab:green", label="accuracy")
    right.set(ylabel="held-out accuracy", ylim=(min(0.9, *runs[0].accuracies), 1.0))
    axes.legend(handles=[*axes.get_lines(), *right.get_lines()], loc="center right")


def draw_digits(figure: Any, run: Run, data: Data, rows: int = 4, columns: int = 6) -> None:
    """The held-out images that the network gets wrong, then others, with its answers."""
    said = predict(run.params, data.held_images)
    wrong_first = np.argsort(said == data.held_labels, kind="stable")
    for axes, i in zip(figure.subplots(rows, columns).flat, wrong_first, strict=False):
        right = said[i] == data.held_labels[i]
        axes.imshow(data.held_images[i].reshape(8, 8), cmap="gray_r")
        axes.set_title(f"{said[i]}" if right else f"{said[i]}, not {data.held_labels[i]}", fontsize=9)
        axes.title.set_color("black" if right else "red")
        axes.set_axis_off()
    figure.suptitle("held-out digits, as the network reads them (errors first)", fontsize=10)


# ---------------------------------------------------------------- the command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if it ran and, where two backends did, their losses agree."""
    options = parse(argv)
    file = output_file(options.output)
    data = load(options.seed)
    need("matplotlib.figure", "matplotlib")
    backends = ["cpu", "reference"] if options.backend == "both" else [options.backend]
    runs = [train(data, name, options.epochs, options.seed, Progress(name, options.quiet)) for name in backends]
    with ng.use_backend(backends[0]):
        draw(runs, data, file)
    for line in [f"wrote {file}", *map(summary, runs)]:
        print(line)
    return compare(*runs) if len(runs) == 2 else 0


def compare(cpu: Run, reference: Run) -> int:
    """Print how far the losses differ and which was faster; 1 if they differ too far."""
    difference = disagreement(cpu, reference)
    agree = difference <= AGREE
    print(
        f"losses of {len(cpu.losses)} mini-batches {'agree' if agree else 'DISAGREE'}: "
        f"they differ by at most {difference:.1e} (allowed {AGREE:g})"
    )
    print(comparison(cpu, reference))
    return 0 if agree else 1


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(prog="python -m numbagrad demo", description=PURPOSE)
    parser.add_argument("--backend", choices=["cpu", "reference", "both"], default="both", help="default: both")
    parser.add_argument("--epochs", type=positive, default=30, metavar="N", help="default: 30")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), metavar="DIR", help="default: demo-output")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="default: 0")
    parser.add_argument("--quiet", action="store_true", help="print the summary only")
    return parser.parse_args(argv)


def positive(text: str) -> int:
    """A whole number from 1, for argparse."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {value}")
    return value


def natural(text: str) -> int:
    """A whole number from 0, for argparse."""
    if (value := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, not {value}")
    return value


def output_file(folder: Path) -> Path:
    """Where the picture goes; the folder is made before the training, so that a bad one shows at once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"demo: cannot write to {folder}: {error.strerror}; choose another with --output") from None
    return folder / "digits.png"


def need(module: str, distribution: str) -> ModuleType:
    """Import a module of the examples extra, or say how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SystemExit(
            f"demo: {distribution} is needed and cannot be imported ({error}); "
            "install it with: pip install 'numbagrad[examples]'"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
