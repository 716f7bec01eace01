"""Random programs of Functions, in-place Functions, hooks and checkpoints, in numbagrad and in PyTorch: the same
gradients, second derivatives and order of what hooks see."""

import random
import warnings

import numpy as np
import pytest
from both import LIBRARIES

import numbagrad as ng


def define(lib, forward, backward):
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Made", (lib.autograd.Function,), methods).apply


def two_results(lib):
    def forward(ctx, x, y):
        z = lib.sin(x) * y
        ctx.save_for_backward(x, y, z)
        return z, x * y

    def backward(ctx, g, h):
        x, y, _ = ctx.saved_tensors
        return g * lib.cos(x) * y + h * y, g * lib.sin(x) + h * x

    return define(lib, forward, backward)


def halving(lib):
    def forward(ctx, x):
        x.mul_(0.5)
        ctx.mark_dirty(x)
        return x

    return define(lib, forward, lambda ctx, g: g * 0.5)


def checkpoint(lib, f, *args):
    if lib.name == "numbagrad":
        return ng.checkpoint(f, *args)
    from torch.utils.checkpoint import checkpoint as original

    return original(f, *args, use_reentrant=False)


class Program:
    """What a seed stands for: it makes the same choices in each library."""

    def __init__(self, lib, seed):
        self.lib, self.choose, self.seen = lib, random.Random(seed), []
        values = np.random.default_rng(seed).normal(size=(3, 3)) * 0.5
        self.leaves = [lib.leaf(v) for v in values]
        self.pool = list(self.leaves)
        self.two_results, self.halve = two_results(lib), halving(lib)

    def steps(self):
        return [
            lambda a, b: [a * b],
            lambda a, b: [self.lib.exp(self.lib.sin(a)) + b],
            lambda a, b: list(self.two_results(a, b)),
            lambda a, b: [self.halve(a * 1)],
            self.halve_a_part,
            self.checkpointed,
            self.packed,
            self.hooked,
        ]

    def halve_a_part(self, a, b):
        z = a * 1
        self.halve(z[:2])
        return [z * b]

    def checkpointed(self, a, b):
        c = self.choose.random()
        return [checkpoint(self.lib, lambda a, b: self.lib.sin(self.lib.exp(a) * b) * c, a, b)]

    def packed(self, a, b):
        with self.lib.autograd.graph.saved_tensors_hooks(lambda t: self.seen.append("pack") or t, lambda t: t):
            return [self.lib.exp(a) * b]

    def hooked(self, a, b):
        z = self.lib.sin(a)
        z.register_hook(lambda g: self.seen.append([f"{v:.6g}" for v in self.lib.values(g)]) or g * 0.5)
        return [z * b]

    def run(self):
        """First and second derivatives by grad, first by backward, and what hooks saw."""
        for _ in range(self.choose.randrange(2, 9)):
            step = self.choose.choice(self.steps())
            self.pool += step(self.choose.choice(self.pool), self.choose.choice(self.pool))
        loss = sum((p * (i + 1)).sum() for i, p in enumerate(self.pool))
        first = self.lib.autograd.grad(loss, self.leaves, create_graph=True)
        again = [g * g for g in first]
        second = self.lib.autograd.grad(sum(again).sum(), self.leaves, allow_unused=True, retain_graph=True)
        loss.backward()
        grads = [*first, *second, *(leaf.grad for leaf in self.leaves)]
        return [np.zeros(3) if g is None else self.lib.values(g) for g in grads], self.seen


def outcome(name, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Program(LIBRARIES[name](), seed).run()
        except RuntimeError as error:
            return str(error)[:40]


@pytest.mark.parametrize("seeds", [range(i, i + 20) for i in range(0, 100, 20)], ids=lambda r: f"{r.start}-{r.stop}")
def test_random_programs_agree_with_pytorch(seeds):
    pytest.importorskip("torch")
    for seed in seeds:
        ours, theirs = outcome("numbagrad", seed), outcome("torch", seed)
        assert isinstance(ours, str) == isinstance(theirs, str), (seed, ours, theirs)
        if isinstance(ours, str):
            assert ours == theirs, seed
            continue
        for a, b in zip(ours[0], theirs[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=f"seed {seed}")
        assert ours[1] == theirs[1], seed
