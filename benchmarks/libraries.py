"""The libraries that are compared, each with the same verbs: make an array, run a function, differentiate it.

A program is written once, over a namespace `xp` of NumPy's names; `namespace` of each library offers them. A library
turns it into a call without arguments in one of four modes:

================== ==============================================================
value              the function alone, nothing wants a gradient (in autograd: NumPy itself)
forward            the function, recorded for a gradient
backward           the gradients alone, of one recording that is kept
forward+backward   both, as a training step does it
================== ==============================================================

The call returns a list: the value (not for backward), then the gradients. `seed` is the gradient of the output.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

MODES = ("value", "forward", "backward", "forward+backward")

Program = Callable[..., Any]
Call = Callable[[], list[Any]]


class Missing(Exception):
    """A library lacks what a case needs; not a fault."""


class Names:
    """NumPy's names, looked up in several modules in turn; `extra` comes first."""

    def __init__(self, *modules: Any, **extra: Any) -> None:
        self._modules = modules
        self.__dict__.update(extra)

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise Missing(f"no {name}")


class Library:
    """One library. Subclasses say how it differentiates."""

    name: str
    needs: str
    modes = MODES

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        return importlib.util.find_spec(self.needs) is not None

    @cached_property
    def namespace(self) -> Names:
        """NumPy's names, as far as the library has them."""
        raise NotImplementedError

    def array(self, values: Any, wanted: bool = False) -> Any:
        """The library's array of these values, with a gradient if wanted."""
        return values

    def result(self, value: Any) -> np.ndarray:
        """What a call returned, for comparing."""
        return np.asarray(value)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Around each measurement: whatever global state the library needs."""
        yield

    def call(self, mode: str, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        """`program` of `inputs` in one of the modes, with gradients by the inputs in `wrt`."""
        if mode not in self.modes:
            raise Missing(f"has no mode {mode}")
        return getattr(self, "_" + mode.replace("+", "_"))(program, inputs, tuple(wrt))


class NumPy(Library):
    """NumPy and SciPy: values only; gradients where a case brings them written by hand."""

    name, needs, modes = "numpy", "numpy", ("value",)

    @cached_property
    def namespace(self) -> Names:
        modules = [np]
        if importlib.util.find_spec("scipy") is not None:
            modules.append(importlib.import_module("scipy.special"))
        return Names(*modules)

    def _value(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        xp = self.namespace
        return lambda: [program(xp, *inputs)]


class Taped(Library):
    """numbagrad and PyTorch: leaves that require grad, and backward()."""

    def _leaves(self, inputs: Sequence[Any], wrt: Sequence[int]) -> list[Any]:
        return [self.array(a, i in wrt) for i, a in enumerate(inputs)]

    def _seed(self, output: Any) -> Any:
        """All ones; None for a scalar, for which it is implied."""
        return self.array(np.ones(tuple(output.shape), self.result(output).dtype)) if tuple(output.shape) else None

    def _value(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        xp, args = self.namespace, self._leaves(inputs, ())
        return lambda: [program(xp, *args)]

    def _forward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        xp, args = self.namespace, self._leaves(inputs, wrt)
        return lambda: [program(xp, *args)]

    def _backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        args = self._leaves(inputs, wrt)
        out = program(self.namespace, *args)
        return self._gradients(lambda: out, args, wrt, self._seed(out), keep=True)

    def _forward_backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        xp, args = self.namespace, self._leaves(inputs, wrt)
        seed = self._seed(program(xp, *args))
        return self._gradients(lambda: program(xp, *args), args, wrt, seed, keep=False)

    def _gradients(self, output: Callable[[], Any], args: list[Any], wrt: Sequence[int], seed: Any, keep: bool) -> Call:
        leaves = [args[i] for i in wrt]

        def run() -> list[Any]:
            for leaf in leaves:
                leaf.grad = None
            out = output()
            out.backward(seed, retain_graph=keep)
            return [*([] if keep else [out]), *(leaf.grad for leaf in leaves)]

        return run


class Numbagrad(Taped):
    """Ours, on the compiled kernels or on the reference backend (the NumPy engine)."""

    needs = "numbagrad"

    def __init__(self, name: str, backend: str) -> None:
        self.name = name
        self.backend = backend

    @cached_property
    def namespace(self) -> Names:
        import numbagrad as ng

        return Names(ng)

    def array(self, values: Any, wanted: bool = False) -> Any:
        import numbagrad as ng

        return ng.tensor(values, requires_grad=wanted)

    def result(self, value: Any) -> np.ndarray:
        return value.detach().numpy()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        import numbagrad as ng

        if ng.current_backend() == self.backend:
            yield
        else:
            with ng.use_backend(self.backend):
                yield


class Torch(Taped):
    """PyTorch, eager."""

    name, needs = "torch", "torch"

    @cached_property
    def namespace(self) -> Names:
        import torch
        from torch.nn import functional

        torch.set_num_threads(1)
        return Names(torch, functional, max=torch.amax, min=torch.amin, mod=torch.remainder, rint=torch.round)

    def array(self, values: Any, wanted: bool = False) -> Any:
        torch = importlib.import_module("torch")
        return torch.from_numpy(np.array(values)).requires_grad_(wanted)

    def result(self, value: Any) -> np.ndarray:
        return value.detach().numpy()


class Autograd(Library):
    """HIPS autograd."""

    name, needs = "autograd", "autograd"

    @cached_property
    def namespace(self) -> Names:
        numpy = importlib.import_module("autograd.numpy")
        modules = [numpy]
        if importlib.util.find_spec("scipy") is not None:
            modules.append(importlib.import_module("autograd.scipy.special"))
        return Names(*modules)

    def _value(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        xp = self.namespace
        return lambda: [program(xp, *inputs)]

    def _pull(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Callable[[], tuple[Any, Any]]:
        autograd = importlib.import_module("autograd")
        xp = self.namespace
        make = autograd.make_vjp(lambda *args: program(xp, *args), tuple(wrt))
        return lambda: make(*inputs)

    def _forward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        record = self._pull(program, inputs, wrt)
        return lambda: [record()[1]]

    def _backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        pull, out = self._pull(program, inputs, wrt)()
        seed = np.ones_like(out)
        return lambda: list(pull(seed))

    def _forward_backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        record = self._pull(program, inputs, wrt)
        seed = np.ones_like(record()[1])

        def run() -> list[Any]:
            pull, out = record()
            return [out, *pull(seed)]

        return run


class Jax(Library):
    """JAX on the CPU: op by op, or the whole call under `jax.jit`."""

    needs = "jax"

    def __init__(self, name: str, compiled: bool) -> None:
        self.name = name
        self.modes = ("value", "forward+backward") if compiled else MODES
        self.compiled = compiled

    @cached_property
    def jax(self) -> Any:
        """The module, set up for one thread that waits for nobody."""
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        return jax

    @cached_property
    def namespace(self) -> Names:
        return Names(self.jax.numpy, importlib.import_module("jax.scipy.special"), importlib.import_module("jax.nn"))

    def array(self, values: Any, wanted: bool = False) -> Any:
        return self.jax.numpy.array(values)

    def _ready(self, function: Callable[..., list[Any]], *args: Any) -> Call:
        if self.compiled:
            function = self.jax.jit(function)
        wait = self.jax.block_until_ready
        return lambda: wait(function(*args))

    def _value(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        xp, args = self.namespace, [self.array(a) for a in inputs]
        return self._ready(lambda *given: [program(xp, *given)], *args)

    def _record(self, program: Program, wrt: Sequence[int], args: Sequence[Any]) -> tuple[Any, Any]:
        """The value, and the function from its gradient to those of the arguments in `wrt`."""
        xp = self.namespace

        def of_wanted(*wanted: Any) -> Any:
            given = dict(zip(wrt, wanted, strict=True))
            return program(xp, *(given.get(i, a) for i, a in enumerate(args)))

        return self.jax.vjp(of_wanted, *(args[i] for i in wrt))

    def _forward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        args = [self.array(a) for a in inputs]
        return self._ready(lambda *given: [self._record(program, wrt, given)[0]], *args)

    def _backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        out, pull = self._record(program, wrt, [self.array(a) for a in inputs])
        seed = self.jax.numpy.ones_like(out)
        return self._ready(lambda: list(pull(seed)))

    def _forward_backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        def both(*given: Any) -> list[Any]:
            out, pull = self._record(program, wrt, given)
            return [out, *pull(self.jax.numpy.ones_like(out))]

        return self._ready(both, *(self.array(a) for a in inputs))


LIBRARIES: dict[str, Library] = {
    library.name: library
    for library in (
        Numbagrad("numbagrad", "cpu"),
        Numbagrad("reference", "reference"),
        NumPy(),
        Torch(),
        Autograd(),
        Jax("jax", compiled=False),
        Jax("jax jit", compiled=True),
    )
}
"""Every library by name, ours first."""


def available(names: Sequence[str] | None = None) -> list[Library]:
    """The installed ones among `names`, or among all."""
    return [LIBRARIES[n] for n in names or LIBRARIES if LIBRARIES[n].installed]
