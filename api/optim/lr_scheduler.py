"""Schedules of learning rates, as torch.optim.lr_scheduler: they set ``group["lr"]`` of an optimiser, step by step."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from numbagrad.optim.optimizer import Optimizer


class LRScheduler:
    """Base of the schedules: `rates` gives the learning rates for ``last_epoch``.

    Parameters
    ----------
    optimizer : Optimizer
    last_epoch : int
        -1 to begin; else the groups must have "initial_lr".
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{k}] when resuming a scheduler")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rates(self) -> list[float]:
        """The learning rate of each group at `last_epoch`."""
        raise NotImplementedError(f"{type(self).__name__} has no rates")

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next learning rate, or to that of an epoch, from the beginning."""
        if epoch is None:
            self.last_epoch += 1
            self._set(self.rates())
            return
        self._set(self.base_lrs)
        for self.last_epoch in range(epoch + 1):
            self._set(self.rates())

    def _set(self, rates: Sequence[float]) -> None:
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = lr
        self._last_lr = list(rates)

    def get_last_lr(self) -> list[float]:
        """The learning rates that are set."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimiser and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.__dict__.update(state_dict)

    @property
    def _lrs(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        several = isinstance(lr_lambda, (list, tuple))
        self.lr_lambdas = list(lr_lambda) if several else [lr_lambda] * len(optimizer.param_groups)
        if len(self.lr_lambdas) != len(optimizer.param_groups):
            raise ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        return [lr * f(self.last_epoch) for lr, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}


class MultiplicativeLR(LambdaLR):
    """The rate before times a function of the epoch."""

    def rates(self) -> list[float]:
        if self.last_epoch == 0:
            return self._lrs
        return [lr * f(self.last_epoch) for lr, f in zip(self._lrs, self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """Times gamma every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        changes = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [lr * self.gamma if changes else lr for lr in self._lrs]


class MultiStepLR(LRScheduler):
    """Times gamma at each milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        return [lr * self.gamma ** self.milestones[self.last_epoch] for lr in self._lrs]


class ConstantLR(LRScheduler):
    """Times `factor` until `total_iters`."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"Constant multiplicative factor expected to be between 0 and 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        if self.last_epoch == 0:
            return [lr * self.factor for lr in self._lrs]
        return [lr / self.factor if self.last_epoch == self.total_iters else lr for lr in self._lrs]


class LinearLR(LRScheduler):
    """A factor that goes linearly from `start_factor` to `end_factor`."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(f"factors must be in (0, 1] and [0, 1], got {start_factor} and {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        done = min(self.last_epoch, self.total_iters) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return [lr * factor for lr in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        return [lr if self.last_epoch == 0 else lr * self.gamma for lr in self._lrs]


class PolynomialLR(LRScheduler):
    """Down to zero as a power of what is left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        left = 1 - min(self.last_epoch, self.total_iters) / self.total_iters
        return [lr * left**self.power for lr in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to `eta_min` in `T_max` epochs, and back (Loshchilov and Hutter, 2016)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (lr - self.eta_min) * height for lr in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine that begins again after `T_0` epochs, then after `T_mult` times as many (SGDR)."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or T_mult < 1:
            raise ValueError(f"Expected T_0 >= 1 and T_mult >= 1, but got {T_0} and {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        at, length = self.last_epoch, self.T_0
        while at >= length:
            at, length = at - length, length * self.T_mult
        height = (1 + math.cos(math.pi * at / length)) / 2
        return [self.eta_min + (lr - self.eta_min) * height for lr in self.base_lrs]


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and down far below the beginning, in `total_steps` (Smith and Topin, arXiv:1708.07120).

    Momentum is cycled the other way where the optimiser has "momentum" or "betas".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy!r}")
        self.total_steps = int(total_steps if total_steps is not None else epochs * steps_per_epoch)  # type: ignore[operator]
        self.peak = pct_start * self.total_steps - 1
        self.anneal_strategy, self.cycle_momentum = anneal_strategy, cycle_momentum
        self.momenta = (max_momentum, base_momentum)
        maxima = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(optimizer.param_groups)
        for group, top in zip(optimizer.param_groups, maxima, strict=True):
            group.update(initial_lr=top / div_factor, max_lr=top, min_lr=top / div_factor / final_div_factor)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) / 2 * (1 + math.cos(math.pi * share))

    def _phase(self) -> tuple[bool, float]:
        """Whether it goes up, and how far."""
        if self.last_epoch <= self.peak:
            return True, self.last_epoch / self.peak if self.peak else 1.0
        return False, (self.last_epoch - self.peak) / (self.total_steps - 1 - self.peak)

    def rates(self) -> list[float]:
        if self.last_epoch > self.total_steps:
            raise ValueError(
                f"Tried to step {self.last_epoch} times. The specified number of total steps is {self.total_steps}"
            )
        rising, share = self._phase()
        found = []
        for group in self.optimizer.param_groups:
            low, high = (group["initial_lr"], group["max_lr"]) if rising else (group["max_lr"], group["min_lr"])
            found.append(self._between(low, high, share))
            if self.cycle_momentum:
                self._set_momentum(group, rising, share)
        return found

    def _set_momentum(self, group: dict[str, Any], rising: bool, share: float) -> None:
        value = self._between(*(self.momenta if rising else self.momenta[::-1]), share)
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        elif "momentum" in group:
            group["momentum"] = value


class SequentialLR(LRScheduler):
    """One schedule after the other, changing at milestones."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"{len(schedulers)} schedulers need {len(schedulers) - 1} milestones, got {len(milestones)}"
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("SequentialLR expects all schedulers to belong to the same optimizer")
        self.optimizer, self.schedulers, self.milestones = optimizer, list(schedulers), list(milestones)
        self.last_epoch = 0
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self.schedulers:
            scheduler.last_epoch -= 1
        self.schedulers[0].step()
        self._last_lr = self.schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next learning rate."""
        if epoch is not None:
            raise ValueError("SequentialLR goes step by step: it takes no epoch")
        self.last_epoch += 1
        k = bisect.bisect_right(self.milestones, self.last_epoch)
        begins = k > 0 and self.milestones[k - 1] == self.last_epoch
        self.schedulers[k].step(0) if begins else self.schedulers[k].step()
        self._last_lr = self.schedulers[k].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        return {
            "last_epoch": self.last_epoch,
            "milestones": self.milestones,
            "schedulers": [s.state_dict() for s in self.schedulers],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.last_epoch, self.milestones = state_dict["last_epoch"], state_dict["milestones"]
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a quantity has not become better for `patience` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, got {factor}")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"mode is min or max and threshold_mode rel or abs, got {mode!r} and {threshold_mode!r}")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lr = min_lr
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = self._lrs

    def step(self, metrics: Any) -> None:  # type: ignore[override]
        """Tell the quantity of this epoch."""
        value = float(metrics)
        self.last_epoch += 1
        if self._better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._lrs

    def _better(self, value: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1)
        if math.isinf(self.best):
            return sign * value < sign * self.best
        reached = self.best * (1 - sign * self.threshold) if self.threshold_mode == "rel" else self.best - sign * margin
        return sign * value < sign * reached

    def _reduce(self) -> None:
        for group in self.optimizer.param_groups:
            lr = max(group["lr"] * self.factor, self.min_lr)
            if group["lr"] - lr > self.eps:
                group["lr"] = lr


__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
