"""The libraries that are compared, each with the same verbs: make an array, run a function, differentiate it.

A program is written once, over a namespace `xp` of NumPy's names; `namespace` of each library offers them. A library
turns it into a call without arguments in one of four modes:

================== ==============================================================
value              the function alone, nothing wants a gradient (in autograd: NumPy itself)
forward            the function, recorded for a gradient
backward           the gradients alone, of one recording that is kept
forward+backward   both, as a training step does it
================== ==============================================================

The call returns a list: the value (not for backward), then the gradients.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

MODES = ("value", "forward", "backward", "forward+backward")

Program = Callable[..., Any]
Call = Callable[[], list[Any]]


class Missing(Exception):
    """A library lacks what a case needs; not a fault."""


COMPOSED: dict[str, Program] = {
    "sigmoid": lambda xp, x: xp.expit(x),
    "softplus": lambda xp, x: xp.logaddexp(x, 0.0),
    "log_sigmoid": lambda xp, x: -xp.logaddexp(-x, 0.0),
    "relu": lambda xp, x: xp.maximum(x, 0.0),
    "leaky_relu": lambda xp, x, slope: xp.where(x > 0, x, slope * x),
    "elu": lambda xp, x, alpha: xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0.0))),
    "gelu": lambda xp, x: x * (0.5 * (1 + xp.erf(x * 0.5**0.5))),
    "silu": lambda xp, x: x * xp.sigmoid(x),
    "clip_between": lambda xp, x, low, high: xp.clip(x, low, high),
    "clip_below": lambda xp, x, low: xp.clip(x, low, None),
    "clip_above": lambda xp, x, high: xp.clip(x, None, high),
    "log1mexp": lambda xp, x: xp.where(x < 0.693, xp.log(-xp.expm1(-x)), xp.log1p(-xp.exp(-x))),
    "softmax": lambda xp, x, axis: xp.exp(x - xp.logsumexp(x, axis, keepdims=True)),
    "log_softmax": lambda xp, x, axis: x - xp.logsumexp(x, axis, keepdims=True),
}
"""How people write a function in a library that has no name for it."""


class Names:
    """NumPy's names, looked up in several modules in turn; `extra` comes first, what is composed last."""

    def __init__(self, *modules: Any, **extra: Any) -> None:
        self._modules = modules
        self.__dict__.update(extra)

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            if hasattr(module, name):
                return getattr(module, name)
        if name not in COMPOSED:
            raise Missing(f"no {name}")
        return partial(COMPOSED[name], self)


def seed_like(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The gradient of the output that everybody starts from: no two alike, 1 for a scalar."""
    count = int(np.prod(shape))
    return np.cos(np.arange(count, dtype=np.float64)).astype(dtype).reshape(shape)


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

    def argument(self, value: Any, wanted: bool = False) -> Any:
        """What a program gets for an input: numbers stay numbers."""
        return self.array(value, wanted) if isinstance(value, np.ndarray) else value

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
        return [self.argument(a, i in wrt) for i, a in enumerate(inputs)]

    def _seed(self, output: Any) -> Any:
        """None for a scalar, for which it is implied."""
        shape = tuple(output.shape)
        return self.array(seed_like(shape, self.result(output).dtype)) if shape else None

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
        return Names(
            torch,
            functional,
            max=torch.amax,
            mod=torch.remainder,
            power=torch.pow,
            rint=torch.round,
            log_sigmoid=functional.logsigmoid,
            heaviside=lambda x, at_zero: torch.heaviside(x, torch.full((), at_zero, dtype=x.dtype)),
        )

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
        seed = seed_like(np.shape(out), out.dtype)
        return lambda: list(pull(seed))

    def _forward_backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        record = self._pull(program, inputs, wrt)
        out = record()[1]
        seed = seed_like(np.shape(out), out.dtype)

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
        nn = importlib.import_module("jax.nn")
        special = importlib.import_module("jax.scipy.special")
        return Names(
            self.jax.numpy,
            special,
            nn,
            gelu=partial(nn.gelu, approximate=False),
            softmax=lambda x, axis: nn.softmax(x, axis=axis),
            log_softmax=lambda x, axis: nn.log_softmax(x, axis=axis),
        )

    def array(self, values: Any, wanted: bool = False) -> Any:
        return self.jax.numpy.array(values)

    def _ready(self, function: Callable[..., list[Any]], *args: Any) -> Call:
        if self.compiled:
            function = self.jax.jit(function)
        wait = self.jax.block_until_ready
        return lambda: wait(function(*args))

    def _value(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        xp, args = self.namespace, [self.argument(a) for a in inputs]
        return self._ready(lambda *given: [program(xp, *given)], *args)

    def _record(self, program: Program, wrt: Sequence[int], args: Sequence[Any]) -> tuple[Any, Any]:
        """The value, and the function from its gradient to those of the arguments in `wrt`."""
        xp = self.namespace

        def of_wanted(*wanted: Any) -> Any:
            given = dict(zip(wrt, wanted, strict=True))
            return program(xp, *(given.get(i, a) for i, a in enumerate(args)))

        return self.jax.vjp(of_wanted, *(args[i] for i in wrt))

    def _forward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        args = [self.argument(a) for a in inputs]
        return self._ready(lambda *given: [self._record(program, wrt, given)[0]], *args)

    def _backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        out, pull = self._record(program, wrt, [self.argument(a) for a in inputs])
        seed = self.array(seed_like(out.shape, out.dtype))
        return self._ready(lambda: list(pull(seed)))

    def _forward_backward(self, program: Program, inputs: Sequence[Any], wrt: Sequence[int]) -> Call:
        args = [self.argument(a) for a in inputs]
        out = self.jax.eval_shape(lambda: program(self.namespace, *args))

        def both(seed: Any, *given: Any) -> list[Any]:
            out, pull = self._record(program, wrt, given)
            return [out, *pull(seed)]

        return self._ready(both, self.array(seed_like(out.shape, out.dtype)), *args)


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
