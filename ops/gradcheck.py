"""gradcheck and gradgradcheck: gradients against finite differences, with PyTorch's meaning.

A Jacobian here has one row per element of the input and one column per element of the output. Complex outputs are
looked at twice, as their real and their imaginary parts, so that every function checked is real-valued; for a complex
input the entry is then dL/dx + i dL/dy, the value that backward accumulates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbagrad.engine import autograd
from numbagrad.engine.mode import enable_grad
from numbagrad.engine.tensor import Tensor, wrap
from numbagrad.ops.transforms import push_forward

DOUBLE = (np.dtype(np.float64), np.dtype(np.complex128))


class GradcheckError(RuntimeError):
    """A gradient differs from what finite differences give."""


@dataclass(frozen=True)
class _Settings:
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare gradients with central differences.

    Parameters
    ----------
    func : callable
        Takes tensors, returns a tensor or a tuple of them.
    inputs : Tensor or tuple
        Where to check; with respect to those tensors that require grad. They should have double precision.
    eps : float, optional
        Step of the differences.
    atol, rtol : float, optional
        Tolerances.
    raise_exception : bool, optional
        Raise where a check fails; else return False.
    nondet_tol : float, optional
        How much two runs of backward may differ.
    check_undefined_grad : bool, optional
        Check that outputs without a gradient count as zeros.
    check_grad_dtypes : bool, optional
        Check that gradients have the dtypes of the inputs.
    check_batched_grad : bool, optional
        Check ``is_grads_batched`` too.
    check_batched_forward_grad : bool, optional
        Check that forward mode is linear in the tangents. Needs `check_forward_ad`.
    check_forward_ad, check_backward_ad : bool, optional
        Which modes to check.
    fast_mode : bool, optional
        Compare one random projection of the Jacobian instead of every entry.
    masked : bool, optional
        Accepted; it concerns sparse tensors.

    Returns
    -------
    bool
        True if all checks pass.

    Raises
    ------
    GradcheckError
        If one fails, with the numerical and the analytical Jacobian.
    ValueError
        If no input requires grad.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([0.5, 1.5], requires_grad=True)
    >>> ng.autograd.gradcheck(lambda x: ng.sin(x) * x, (x,))
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True when checking gradients"
        )
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    settings = _Settings(
        eps,
        atol,
        rtol,
        nondet_tol,
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        check_batched_forward_grad,
        check_forward_ad,
        check_backward_ad,
        fast_mode,
    )
    return _answer(raise_exception, lambda: _Check(func, _as_tuple(inputs), settings).run())


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Compare second derivatives with central differences of gradients.

    Parameters
    ----------
    func, inputs, eps, atol, rtol, raise_exception, nondet_tol, fast_mode, masked
        As for `gradcheck`; so are `check_undefined_grad`, `check_grad_dtypes` and `check_batched_grad`.
    grad_outputs : Tensor or tuple, optional
        Gradients of the outputs that the first backward starts with. Default: random ones.
    gen_non_contig_grad_outputs : bool, optional
        Make the random ones strided.
    check_fwd_over_rev, check_rev_over_rev : bool, optional
        Forward mode over backward, backward over backward.

    Returns
    -------
    bool

    Raises
    ------
    GradcheckError
        If a check fails.

    Examples
    --------
    >>> import numbagrad as ng
    >>> x = ng.tensor([0.5, 1.5], requires_grad=True)
    >>> ng.autograd.gradgradcheck(ng.sin, (x,))
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    given = _as_tuple(inputs)
    if grad_outputs is None:
        seeds = _random_seeds(_differentiable(func(*given)), gen_non_contig_grad_outputs)
    else:
        seeds = _as_tuple(grad_outputs)
    count = len(seeds)

    def first(*args: Any) -> tuple[Tensor, ...]:
        at, gradients = args[:-count], args[-count:]
        with enable_grad():
            outs = _differentiable(func(*at))
            wanted = [a for a in at if isinstance(a, Tensor) and a.requires_grad]
            found = autograd.grad(outs, wanted, gradients, create_graph=True, allow_unused=True)
        return tuple(g for g in found if isinstance(g, Tensor))

    return gradcheck(
        first,
        (*given, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _answer(raise_exception: bool, check: Callable[[], None]) -> bool:
    try:
        check()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _as_tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _differentiable(outputs: Any) -> list[Tensor]:
    return [o for o in _as_tuple(outputs) if isinstance(o, Tensor) and o.requires_grad]


def _random_seeds(outs: Sequence[Tensor], strided: bool) -> tuple[Tensor, ...]:
    rng = np.random.default_rng(0)
    seeds = []
    for out in outs:
        values = _random_like(out, rng)
        if strided and values.ndim:
            wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
            wide[..., ::2] = values
            values = wide[..., ::2]
        seed = wrap(values)
        seed._requires_grad = True
        seeds.append(seed)
    return tuple(seeds)


def _random_like(out: Tensor, rng: np.random.Generator) -> np.ndarray:
    """Numbers of absolute value from 0.1 to 1.1, so that none hides an error by being zero."""

    def part() -> np.ndarray:
        return rng.uniform(0.1, 1.1, out.shape) * rng.choice([-1, 1], out.shape)

    values = part() + 1j * part() if out.dtype.kind == "c" else part()
    return np.asarray(values, out.dtype)


@dataclass(frozen=True)
class _Part:
    """A real-valued view of an output: all of it, or one part of a complex one."""

    nr: int
    real: bool
    complex: bool

    def of(self, values: np.ndarray) -> np.ndarray:
        """The part of the output's values, flat."""
        return np.ravel(values.real if self.real else values.imag)

    def seed(self, out: Tensor, flat: np.ndarray) -> Tensor:
        """The gradient at the output for a gradient `flat` at the part."""
        values = flat.reshape(out.shape).astype(out.dtype)
        return wrap(values if self.real else 1j * values)

    @property
    def prefix(self) -> str:
        """How an error begins."""
        which = "real" if self.real else "imag"
        return f"While considering the {which} part of complex outputs only, " if self.complex else ""


class _Check:
    """One call of gradcheck."""

    def __init__(self, func: Callable[..., Any], inputs: tuple[Any, ...], settings: _Settings) -> None:
        self.func = func
        self.inputs = inputs
        self.settings = settings
        self.moving = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
        self._check_inputs()
        self.raw = _as_tuple(func(*inputs))
        self.outs = _differentiable(self.raw)
        self.parts = [
            _Part(nr, real, out.dtype.kind == "c")
            for nr, out in enumerate(self.outs)
            for real in ((True, False) if out.dtype.kind == "c" else (True,))
        ]
        self.rng = np.random.default_rng(0)

    def _check_inputs(self) -> None:
        if not self.moving:
            raise ValueError(
                "gradcheck expects at least one input tensor to require gradient, but none of the them have "
                "requires_grad=True."
            )
        for i in self.moving:
            if self.inputs[i].dtype not in DOUBLE:
                warnings.warn(
                    f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                    "will likely fail if all the inputs are not of double precision floating point or complex.",
                    stacklevel=6,
                )

    def run(self) -> None:
        """All checks."""
        if not self.outs:
            self._check_constant()
            return
        settings = self.settings
        compare = self._compare_fast if settings.fast_mode else self._compare
        if settings.check_forward_ad:
            compare("forward", self._forward_column)
        if not settings.check_backward_ad:
            return
        compare("reverse", None)
        self._check_reentrant()
        self._check_scaling()
        if settings.check_batched_grad:
            self._check_batched()
        if settings.check_undefined_grad:
            self._check_undefined()

    # ------------------------------------------------------------------ differences
    def _values(self, which: int, array: np.ndarray) -> list[np.ndarray]:
        """Outputs with one input replaced."""
        args = list(self.inputs)
        for i in self.moving:
            made = wrap(array if i == which else self.inputs[i]._data.copy(order="K"))
            made._requires_grad = True
            args[i] = made
        outs = _as_tuple(self.func(*args))
        kept = [o for o, raw in zip(outs, self.raw, strict=True) if isinstance(raw, Tensor) and raw.requires_grad]
        return [o._data.copy() for o in (kept if self.outs else outs)]

    def _difference(self, which: int, direction: np.ndarray) -> list[np.ndarray]:
        """Central differences of the outputs along a direction of one input."""
        at, eps = self.inputs[which]._data, self.settings.eps
        ahead = self._values(which, at + np.asarray(eps * direction, at.dtype))
        behind = self._values(which, at - np.asarray(eps * direction, at.dtype))
        return [(a - b) / (2 * eps) for a, b in zip(ahead, behind, strict=True)]

    def _units(self, which: int) -> Iterator[tuple[int, complex, np.ndarray]]:
        """For each element of an input: its number, the unit (1, and i where complex) and the direction."""
        x = self.inputs[which]
        for k in range(x.size):
            for unit in (1, 1j) if x.dtype.kind == "c" else (1,):
                direction = np.zeros(x.shape, x.dtype)
                direction.flat[k] = unit
                yield k, unit, direction

    def _columns(self, which: int, derivative: Callable[[int, np.ndarray], list[np.ndarray]]) -> list[np.ndarray]:
        """The Jacobians of all parts with respect to an input, from directional derivatives."""
        x = self.inputs[which]
        found = [np.zeros((x.size, self.outs[p.nr].size), x.dtype) for p in self.parts]
        for k, unit, direction in self._units(which):
            slopes = derivative(which, direction)
            for jacobian, part in zip(found, self.parts, strict=True):
                jacobian[k] += unit * part.of(slopes[part.nr])
        return found

    # ------------------------------------------------------------------ both modes
    def _forward_column(self, which: int, direction: np.ndarray) -> list[np.ndarray]:
        tangent = wrap(direction)
        pushed = push_forward(self.outs, [self.inputs[which]], [tangent], record=False)
        return [t._data for t in pushed]

    def _backward_row(self, part: _Part, flat: np.ndarray) -> list[Tensor | None]:
        """Gradients of all inputs for a gradient at one part."""
        out = self.outs[part.nr]
        wanted = [self.inputs[i] for i in self.moving]
        return list(autograd.grad(out, wanted, part.seed(out, flat), retain_graph=True, allow_unused=True))

    def _backward(self) -> list[list[np.ndarray]]:
        """Jacobians by backward: for each moving input one for each part."""
        found = [
            [np.zeros((self.inputs[i].size, self.outs[p.nr].size), self.inputs[i].dtype) for p in self.parts]
            for i in self.moving
        ]
        for nr, part in enumerate(self.parts):
            for k in range(self.outs[part.nr].size):
                flat = np.zeros(self.outs[part.nr].size)
                flat[k] = 1
                for jacobians, g, i in zip(found, self._backward_row(part, flat), self.moving, strict=True):
                    if g is not None:
                        self._check_gradient(g, self.inputs[i])
                        jacobians[nr][:, k] = np.ravel(g._data)
        return found

    def _check_gradient(self, grad: Tensor, x: Tensor) -> None:
        if grad.shape != x.shape:
            raise GradcheckError("Analytical gradient has incorrect size")
        if self.settings.check_grad_dtypes and grad.dtype != x.dtype:
            raise GradcheckError("Analytical gradient has incorrect dtype")

    def _compare(self, mode: str, column: Callable[[int, np.ndarray], list[np.ndarray]] | None) -> None:
        analytical = self._backward() if column is None else [self._columns(i, column) for i in self.moving]
        for place, i in enumerate(self.moving):
            numerical = self._columns(i, self._difference)
            for part, a, n in zip(self.parts, analytical[place], numerical, strict=True):
                if not self._close(a, n):
                    raise GradcheckError(_mismatch(mode, part, i, n, a))

    def _close(self, a: np.ndarray, n: np.ndarray) -> bool:
        return bool(np.all(np.abs(a - n) <= self.settings.atol + self.settings.rtol * np.abs(n)))

    def _compare_fast(self, mode: str, column: Callable[[int, np.ndarray], list[np.ndarray]] | None) -> None:
        """Compare v·J·u for one random u per input and v per output."""
        for place, i in enumerate(self.moving):
            u = _unit(_random_like(self.inputs[i], self.rng))
            numerical = self._difference(i, u)
            pushed = None if column is None else column(i, u)
            for part in self.parts:
                v = _unit(self.rng.uniform(0.1, 1.1, self.outs[part.nr].size))
                n = v @ part.of(numerical[part.nr])
                if pushed is None:
                    a = _projected(self._backward_row(part, v)[place], u)
                else:
                    a = v @ part.of(pushed[part.nr])
                if not self._close(np.asarray(a), np.asarray(n)):
                    self._explain(mode, column, part, i, n, a)

    def _explain(self, mode: str, column: Any, part: _Part, i: int, n: Any, a: Any) -> None:
        """The error of fast mode, with the entries of the Jacobians where they can be told apart."""
        message = _mismatch(mode, part, i, np.asarray(n), np.asarray(a))
        try:
            self._compare(mode, column)
        except GradcheckError as slow:
            raise GradcheckError(
                f"{message}\nThe above quantities relating the numerical and analytical jacobians are computed in fast "
                f"mode. The Jacobians entry by entry:\n{slow}"
            ) from None
        raise GradcheckError(
            f"{message}\nThe above quantities are computed in fast mode; entry by entry the Jacobians agree within the "
            "tolerances, so they may be too tight for fast mode"
        )

    # ------------------------------------------------------------------ further questions
    def _check_constant(self) -> None:
        for i in self.moving:
            for k, _, direction in self._units(i):
                for nr, slope in enumerate(self._difference(i, direction)):
                    if np.any(slope != 0):
                        raise GradcheckError(
                            "Numerical gradient for function expected to be zero: output "
                            f"{nr} does not require grad but depends on element {k} of input {i}"
                        )

    def _all_gradients(self, seeds: Sequence[Tensor]) -> list[Tensor | None]:
        wanted = [self.inputs[i] for i in self.moving]
        return list(autograd.grad(self.outs, wanted, seeds, retain_graph=True, allow_unused=True))

    def _check_reentrant(self) -> None:
        seeds = [wrap(_random_like(o, self.rng)) for o in self.outs]
        for g, h in zip(self._all_gradients(seeds), self._all_gradients(seeds), strict=True):
            if g is not None and h is not None and np.any(np.abs(g._data - h._data) > self.settings.nondet_tol):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                    "gives different values, although analytical gradient matches numerical gradient. The tolerance "
                    f"for nondeterminism was {self.settings.nondet_tol}."
                )

    def _check_scaling(self) -> None:
        zeros = [wrap(np.zeros(o.shape, o.dtype)) for o in self.outs]
        for g in self._all_gradients(zeros):
            if g is not None and np.any(g._data != 0):
                raise GradcheckError("backward not multiplied by grad_output")

    def _check_batched(self) -> None:
        """A batch of gradients gives what they give one by one."""
        wanted = [self.inputs[i] for i in self.moving]
        for out in self.outs:
            seeds = np.stack([_random_like(out, self.rng) for _ in range(3)])
            options = {"retain_graph": True, "allow_unused": True}
            batched = autograd.grad(out, wanted, wrap(seeds), is_grads_batched=True, **options)
            single = [autograd.grad(out, wanted, wrap(s), **options) for s in seeds]
            for place, g in enumerate(batched):
                rows = [row[place] for row in single]
                if g is not None and not self._close(g._data, np.stack([r._data for r in rows])):
                    raise GradcheckError(
                        f"While testing batched gradient computation: input {self.moving[place]} gets another gradient "
                        "by is_grads_batched than one by one"
                    )

    def _check_undefined(self) -> None:
        """An output without a gradient counts as one with a gradient of zeros."""
        for nr, out in enumerate(self.outs):
            seed = wrap(_random_like(out, self.rng))
            zeros = [wrap(np.zeros(o.shape, o.dtype)) for o in self.outs]
            filled = self._all_gradients([*zeros[:nr], seed, *zeros[nr + 1 :]])
            wanted = [self.inputs[i] for i in self.moving]
            alone = autograd.grad(out, wanted, seed, retain_graph=True, allow_unused=True)
            for g, h in zip(filled, alone, strict=True):
                if not self._close(_or_zero(g), _or_zero(h)):
                    raise GradcheckError(
                        "Expected backward function to handle undefined output grads: with zeros for the gradients of "
                        f"the other outputs, that of output {nr} gives another result than by itself"
                    )


def _or_zero(grad: Tensor | None) -> np.ndarray:
    return np.zeros(()) if grad is None else grad._data


def _unit(values: np.ndarray) -> np.ndarray:
    """A vector of length 1 of the same direction."""
    length = np.sqrt(np.sum(np.abs(values) ** 2))
    return values / length if length else values


def _projected(grad: Tensor | None, direction: np.ndarray) -> Any:
    """Change of a real number along `direction`, from its gradient dL/dx + i dL/dy."""
    return 0.0 if grad is None else np.sum(np.conj(grad._data) * direction).real


def _mismatch(mode: str, part: _Part, i: int, n: np.ndarray, a: np.ndarray) -> str:
    how = "computed with forward mode " if mode == "forward" else ""
    return (
        f"{part.prefix}Jacobian {how}mismatch for output {part.nr} with respect to input {i},\n"
        f"numerical:{np.array2string(n, separator=', ')}\nanalytical:{np.array2string(a, separator=', ')}\n"
    )


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
