"""The optimisers. Each step over a parameter is one kernel, whose expressions stand here."""

from __future__ import annotations

import functools
import math
from typing import Any

from numbagrad.engine.tensor import Tensor
from numbagrad.jit.expr import ScalarExpr, s, symbol
from numbagrad.jit.update import Update
from numbagrad.optim.optimizer import Optimizer, run, zeros

P, G, M, V = map(symbol, ("p", "g", "m", "v"))
LR, DECAY = symbol("lr"), symbol("decay")


def _gradient(decay: bool, maximize: bool) -> ScalarExpr:
    """The gradient with weight decay, of what is minimised."""
    g = -G if maximize else G
    return g + DECAY * P if decay else g


def _update(name: str, arrays: str, numbers: str, **stores: Any) -> Update:
    return Update(name, tuple(arrays.split()), tuple(numbers.split()), tuple(stores.items()))


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value >= 0:
            raise ValueError(f"Invalid {name}: {value}; it must not be negative")


# ----- SGD -----


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Sutskever et al., 2013).

    Parameters
    ----------
    params : iterable
    lr : float
    momentum, dampening, weight_decay : float
    nesterov : bool
        Nesterov's momentum.
    maximize : bool

    Examples
    --------
    >>> import numbagrad as ng
    >>> w = ng.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = ng.optim.SGD([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0., 0.])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**options, "nesterov": nesterov, "maximize": maximize})

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p] if group["momentum"] else {}
        first = "momentum_buffer" not in state
        if first and group["momentum"]:
            state["momentum_buffer"] = zeros(p)
        update = _sgd(bool(group["weight_decay"]), bool(group["momentum"]), first, group["nesterov"], group["maximize"])
        numbers = (group["lr"], group["weight_decay"], group["momentum"], 1 - group["dampening"])
        run(update, p, [grad, *state.values()], numbers)


@functools.cache
def _sgd(decay: bool, momentum: bool, first: bool, nesterov: bool, maximize: bool) -> Update:
    g = _gradient(decay, maximize)
    if not momentum:
        return _update("sgd", "p g", "lr decay mu keep", p=P - LR * g)
    mu, keep = symbol("mu"), symbol("keep")
    moved = g if first else mu * M + keep * g
    return _update(
        "sgd_momentum", "p g m", "lr decay mu keep", p=P - LR * (g + mu * moved if nesterov else moved), m=moved
    )


# ----- Adam and its kin -----


class Adam(Optimizer):
    """Adam (Kingma and Ba, arXiv:1412.6980).

    Parameters
    ----------
    params : iterable
    lr : float
    betas : pair of float
        Decay of the running means of gradients and of their squares.
    eps : float
    weight_decay : float
        Added to the gradient; `AdamW` shrinks the parameter instead.
    amsgrad : bool
        Divide by the largest mean of squares so far (Reddi et al., 2018).
    maximize : bool

    Examples
    --------
    >>> import numbagrad as ng
    >>> w = ng.tensor([1.0], requires_grad=True)
    >>> optimizer = ng.optim.Adam([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.75])
    """

    decoupled = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**options, "amsgrad": amsgrad, "maximize": maximize})

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": 0, "exp_avg": zeros(p), "exp_avg_sq": zeros(p)}
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = zeros(p)
        state["step"] += 1
        (b1, b2), t = group["betas"], state["step"]
        moments = [state[k] for k in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if k in state]
        decay = group["weight_decay"]
        update = _adam(bool(decay) and not self.decoupled, self.decoupled, group["amsgrad"], group["maximize"])
        kept = 1 - group["lr"] * decay if self.decoupled else decay
        corrections = group["lr"] / (1 - b1**t), math.sqrt(1 - b2**t)
        run(update, p, [grad, *moments], (corrections[0], kept, 1 - b1, b2, 1 - b2, corrections[1], group["eps"]))


@functools.cache
def _adam(decay: bool, decoupled: bool, amsgrad: bool, maximize: bool) -> Update:
    g = _gradient(decay, maximize)
    a, b2, b, root, eps, x = map(symbol, ("a", "b2", "b", "root", "eps", "x"))
    m = M + (g - M) * a
    v = b2 * V + b * g * g
    top = s.maximum(x, v) if amsgrad else v
    p = (P * DECAY if decoupled else P) - LR * m / (s.sqrt(top) / root + eps)
    stores = {"p": p, "m": m, "v": v} | ({"x": top} if amsgrad else {})
    return _update("adam", "p g m v x" if amsgrad else "p g m v", "lr decay a b2 b root eps", **stores)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101)."""

    decoupled = True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


class Adamax(Optimizer):
    """Adam with the largest gradient in place of the root mean square (Kingma and Ba, arXiv:1412.6980)."""

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": 0, "exp_avg": zeros(p), "exp_inf": zeros(p)}
        state["step"] += 1
        (b1, b2), decay = group["betas"], group["weight_decay"]
        numbers = (group["lr"] / (1 - b1 ** state["step"]), decay, 1 - b1, b2, group["eps"])
        run(_adamax(bool(decay), group["maximize"]), p, [grad, state["exp_avg"], state["exp_inf"]], numbers)


@functools.cache
def _adamax(decay: bool, maximize: bool) -> Update:
    g = _gradient(decay, maximize)
    a, b2, eps = map(symbol, ("a", "b2", "eps"))
    m = M + (g - M) * a
    v = s.maximum(b2 * V, s.absolute(g) + eps)
    return _update("adamax", "p g m v", "lr decay a b2 eps", p=P - LR * m / v, m=m, v=v)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016)."""

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        *,
        maximize: bool = False,
    ) -> None:
        _positive(momentum_decay=momentum_decay)
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**options, "momentum_decay": momentum_decay, "maximize": maximize})

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": 0, "mu_product": 1.0, "exp_avg": zeros(p), "exp_avg_sq": zeros(p)}
        state["step"] += 1
        (b1, b2), t, decay, lr = group["betas"], state["step"], group["weight_decay"], group["lr"]
        mu, ahead = (b1 * (1 - 0.5 * 0.96 ** (k * group["momentum_decay"])) for k in (t, t + 1))
        state["mu_product"] *= mu
        by_g = lr * (1 - mu) / (1 - state["mu_product"])
        by_m = lr * ahead / (1 - state["mu_product"] * ahead)
        numbers = (by_g, by_m, decay, 1 - b1, b2, 1 - b2, math.sqrt(1 - b2**t), group["eps"])
        run(_nadam(bool(decay), group["maximize"]), p, [grad, state["exp_avg"], state["exp_avg_sq"]], numbers)


@functools.cache
def _nadam(decay: bool, maximize: bool) -> Update:
    g = _gradient(decay, maximize)
    by_g, by_m, a, b2, b, root, eps = map(symbol, ("by_g", "by_m", "a", "b2", "b", "root", "eps"))
    m = M + (g - M) * a
    v = b2 * V + b * g * g
    p = P - (by_g * g + by_m * m) / (s.sqrt(v) / root + eps)
    return _update("nadam", "p g m v", "by_g by_m decay a b2 b root eps", p=p, m=m, v=v)


class RAdam(Optimizer):
    """Adam that waits until its variance is known (Liu et al., arXiv:1908.03265)."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": 0, "exp_avg": zeros(p), "exp_avg_sq": zeros(p)}
        state["step"] += 1
        (b1, b2), t, decay = group["betas"], state["step"], group["weight_decay"]
        longest = 2 / (1 - b2) - 1
        length = longest - 2 * t * b2**t / (1 - b2**t)
        known = length > 5
        lr = group["lr"] / (1 - b1**t)
        if known:
            ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            lr *= math.sqrt(ratio) * math.sqrt(1 - b2**t)
        numbers = (lr, decay, 1 - b1, b2, 1 - b2, group["eps"])
        run(_radam(bool(decay), group["maximize"], known), p, [grad, state["exp_avg"], state["exp_avg_sq"]], numbers)


@functools.cache
def _radam(decay: bool, maximize: bool, known: bool) -> Update:
    g = _gradient(decay, maximize)
    a, b2, b, eps = map(symbol, ("a", "b2", "b", "eps"))
    m = M + (g - M) * a
    v = b2 * V + b * g * g
    p = P - LR * m / (s.sqrt(v) + eps) if known else P - LR * m
    return _update("radam", "p g m v", "lr decay a b2 b eps", p=p, m=m, v=v)


# ----- Divided by what came before -----


class RMSprop(Optimizer):
    """Gradients divided by their running root mean square (Hinton's lecture 6e; centred: Graves, arXiv:1308.0850)."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        _positive(alpha=alpha)
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**options, "centered": centered, "maximize": maximize})

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": 0, "square_avg": zeros(p)}
            state |= {"momentum_buffer": zeros(p)} if group["momentum"] > 0 else {}
            state |= {"grad_avg": zeros(p)} if group["centered"] else {}
        state["step"] += 1
        used = [state[k] for k in ("square_avg", "momentum_buffer", "grad_avg") if k in state]
        update = _rmsprop(
            bool(group["weight_decay"]), group["maximize"], "momentum_buffer" in state, "grad_avg" in state
        )
        alpha = group["alpha"]
        numbers = (group["lr"], group["weight_decay"], alpha, 1 - alpha, group["eps"], group["momentum"])
        run(update, p, [grad, *used], numbers)


@functools.cache
def _rmsprop(decay: bool, maximize: bool, momentum: bool, centered: bool) -> Update:
    g = _gradient(decay, maximize)
    alpha, rest, eps, mu, mean = map(symbol, ("alpha", "rest", "eps", "mu", "mean"))
    v = alpha * V + rest * g * g
    new_mean = mean + (g - mean) * rest
    root = s.sqrt(v - new_mean * new_mean) if centered else s.sqrt(v)
    stores: dict[str, Any] = {"v": v}
    if momentum:
        stores["m"] = mu * M + g / (root + eps)
    if centered:
        stores["mean"] = new_mean
    moved = stores["m"] if momentum else g / (root + eps)
    arrays = " ".join(["p g v", *["m"] * momentum, *["mean"] * centered])
    return _update("rmsprop", arrays, "lr decay alpha rest eps mu", p=P - LR * moved, **stores)


class Adagrad(Optimizer):
    """Gradients divided by the root of the sum of their squares (Duchi et al., 2011)."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        _positive(initial_accumulator_value=initial_accumulator_value)
        options = {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}
        super().__init__(
            params, {**options, "initial_accumulator_value": initial_accumulator_value, "maximize": maximize}
        )

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": 0, "sum": zeros(p)}
            state["sum"]._data.fill(group["initial_accumulator_value"])
        state["step"] += 1
        lr = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        numbers = (lr, group["weight_decay"], group["eps"])
        run(_adagrad(bool(group["weight_decay"]), group["maximize"]), p, [grad, state["sum"]], numbers)


@functools.cache
def _adagrad(decay: bool, maximize: bool) -> Update:
    g = _gradient(decay, maximize)
    v = V + g * g
    return _update("adagrad", "p g v", "lr decay eps", p=P - LR * g / (s.sqrt(v) + symbol("eps")), v=v)


class Adadelta(Optimizer):
    """Steps in the units of the parameter (Zeiler, arXiv:1212.5701)."""

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        if not 0 <= rho <= 1:
            raise ValueError(f"Invalid rho: {rho}; it must be in [0, 1]")
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": 0, "square_avg": zeros(p), "acc_delta": zeros(p)}
        state["step"] += 1
        numbers = (group["lr"], group["weight_decay"], group["rho"], 1 - group["rho"], group["eps"])
        update = _adadelta(bool(group["weight_decay"]), group["maximize"])
        run(update, p, [grad, state["square_avg"], state["acc_delta"]], numbers)


@functools.cache
def _adadelta(decay: bool, maximize: bool) -> Update:
    g = _gradient(decay, maximize)
    rho, rest, eps = map(symbol, ("rho", "rest", "eps"))
    v = rho * V + rest * g * g
    step = s.sqrt(M + eps) / s.sqrt(v + eps) * g
    return _update("adadelta", "p g v m", "lr decay rho rest eps", p=P - LR * step, v=v, m=rho * M + rest * step * step)


class Rprop(Optimizer):
    """Steps that grow while the sign of the gradient stays (Riedmiller and Braun, 1993)."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        maximize: bool = False,
    ) -> None:
        if not 0 < etas[0] < 1 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas}; wanted 0 < first < 1 < second")
        super().__init__(params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize})

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": 0, "prev": zeros(p), "step_size": zeros(p)}
            state["step_size"]._data.fill(group["lr"])
        state["step"] += 1
        numbers = (*group["etas"], *group["step_sizes"])
        run(_rprop(group["maximize"]), p, [grad, state["prev"], state["step_size"]], numbers)


@functools.cache
def _rprop(maximize: bool) -> Update:
    g = _gradient(False, maximize)
    down, up, low, high = map(symbol, ("down", "up", "low", "high"))
    agree = M * g
    factor = s.where(agree > 0, up, s.where(agree < 0, down, 1))
    size = s.minimum(s.maximum(V * factor, low), high)
    used = s.where(agree < 0, 0, g)
    sign = s.where(used > 0, 1, s.where(used < 0, -1, 0))
    return _update("rprop", "p g m v", "down up low high", p=P - sign * size, m=used, v=size)


__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"]
