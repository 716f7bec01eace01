"""A training step of a small network, as each library's users write it: forward, backward, SGD with momentum."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import Call, Library

RATE, MOMENTUM = 0.05, 0.9
LAYERS = (64, 64, 10)
"""The network of the case; its inputs are the images, the labels, then weights and biases."""


def make(rng: np.random.Generator, size: int) -> list[np.ndarray]:
    """A batch of `size` images with labels, and fresh parameters."""
    arrays = [rng.standard_normal((size, LAYERS[0])), rng.integers(0, LAYERS[-1], size)]
    for n_in, n_out in pairwise(LAYERS):
        arrays += [rng.normal(0, (2 / n_in) ** 0.5, (n_in, n_out)), np.zeros(n_out)]
    return arrays


def loss(xp: Any, images: Any, labels: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    """Mean cross-entropy of a network with one hidden layer."""
    hidden = xp.relu(xp.matmul(images, w1) + b1)
    log_p = xp.log_softmax(xp.matmul(hidden, w2) + b2, 1)
    return -xp.mean(log_p[np.arange(len(labels)), labels])


def step_taped(library: Library, inputs: Sequence[Any]) -> Call:
    """numbagrad and torch: backward() and parameters changed in place."""
    xp = library.namespace
    images, labels, *given = inputs
    images, labels = library.argument(images), library.argument(labels) if library.name == "torch" else labels
    params = [library.argument(p, True) for p in given]
    state = [(p, library.argument(np.zeros_like(v))) for p, v in zip(params, given, strict=True)]
    no_grad = xp.no_grad

    def run() -> list[Any]:
        value = loss(xp, images, labels, *params)
        value.backward()
        with no_grad():
            for p, velocity in state:
                velocity *= MOMENTUM
                velocity += p.grad
                p -= RATE * velocity
                p.grad = None
        return [value]

    return run


def step_autograd(library: Library, inputs: Sequence[Any]) -> Call:
    """HIPS autograd: value_and_grad, and NumPy arrays changed in place."""
    xp = library.namespace
    images, labels, *given = inputs
    params = [p.copy() for p in given]
    velocities = [np.zeros_like(p) for p in params]
    value_and_grad = importlib.import_module("autograd").value_and_grad
    both = value_and_grad(lambda params: loss(xp, images, labels, *params))

    def run() -> list[Any]:
        value, grads = both(params)
        for p, velocity, grad in zip(params, velocities, grads, strict=True):
            velocity *= MOMENTUM
            velocity += grad
            p -= RATE * velocity
        return [value]

    return run


def step_jit(library: Any, inputs: Sequence[Any]) -> Call:
    """JAX: the whole step is one compiled function from state to state."""
    jax, xp = library.jax, library.namespace
    images, labels, *given = (library.argument(a) for a in inputs)
    state = [given, [jax.numpy.zeros_like(p) for p in given]]

    @jax.jit
    def step(params: Any, velocities: Any, images: Any, labels: Any) -> Any:
        value, grads = jax.value_and_grad(lambda params: loss(xp, images, labels, *params))(params)
        velocities = [MOMENTUM * v + g for v, g in zip(velocities, grads, strict=True)]
        return value, [p - RATE * v for p, v in zip(params, velocities, strict=True)], velocities

    def run() -> list[Any]:
        value, *state[:] = jax.block_until_ready(step(*state, images, labels))
        return [value]

    return run


STEPS = {
    "numbagrad": step_taped,
    "reference": step_taped,
    "torch": step_taped,
    "autograd": step_autograd,
    "jax jit": step_jit,
    "numpy": None,
    "jax": None,
}


def training() -> Iterator[Case]:
    """One step on a batch of 64 images."""
    yield Case("MLP 64-64-10, batch 64, float64", "training", "step", make, 64, own=STEPS, tiny=5, tolerance=1e-8)
