"""What all optimisers share: parameter groups, state, saving, hooks."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from numbagrad.engine.mode import enable_grad, no_grad
from numbagrad.engine.node import RemovableHandle
from numbagrad.engine.tensor import Tensor, share, wrap
from numbagrad.jit.update import Update


class Optimizer:
    """Base of the optimisers: torch.optim's interface.

    Parameters
    ----------
    params : iterable of Tensor or of dict
        Leaf tensors that require grad, or groups: dicts with "params" and options of their own.
    defaults : dict
        Options of groups that do not give them.

    Raises
    ------
    TypeError
        If `params` is one tensor, or holds something else than tensors.
    ValueError
        If there are no parameters, one is no leaf, or appears twice.
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor; "
                "put it into a list"
            )
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._before: dict[int, Any] = {}
        self._after: dict[int, Any] = {}
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"a parameter group must be a dict, got {type(param_group).__name__}")
        group = dict(param_group)
        given = group["params"]
        group["params"] = [given] if isinstance(given, Tensor) else list(given)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        for p in group["params"]:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor: detach it and set requires_grad first")
            if id(p) in known:
                raise ValueError("some parameters appear in more than one parameter group, or twice in one")
            known.add(id(p))
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        self._check(group)
        self.param_groups.append(group)

    def _check(self, group: dict[str, Any]) -> None:
        """Refuse options that make no sense."""
        for name in ("lr", "eps", "weight_decay", "momentum", "lr_decay"):
            if name in group and not np.min(group[name]) >= 0:
                raise ValueError(f"Invalid {name}: {group[name]}; it must not be negative")
        for k, beta in enumerate(group.get("betas", ())):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {k}: {beta}; it must be in [0, 1)")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to zero."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                else:
                    p.grad = wrap(np.zeros(p.shape, p.dtype))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do one step with the gradients that are there.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss and its gradients anew; its result is returned.
        """
        for hook in list(self._before.values()):
            hook(self, (closure,), {})
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._update(p, p.grad, group)
        for hook in list(self._after.values()):
            hook(self, (closure,), {})
        return loss

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines no step")

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step."""
        return RemovableHandle(self._before, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return RemovableHandle(self._after, hook)

    # ------------------------------------------------------------------ saving
    def state_dict(self) -> dict[str, Any]:
        """The state and the options, with parameters by number."""
        numbers = {id(p): k for k, p in enumerate(self._all())}
        groups = [{**g, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        return {"state": {numbers[id(p)]: dict(s) for p, s in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state that `state_dict` gave, for parameters in the same order.

        Raises
        ------
        ValueError
            If the groups differ in number or size; nothing is changed then.
        """
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(f"loaded state dict has {len(saved)} parameter groups, {len(self.param_groups)} are here")
        for theirs, ours in zip(saved, self.param_groups, strict=True):
            if len(theirs["params"]) != len(ours["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"{len(theirs['params'])} against {len(ours['params'])}"
                )
        numbers = [n for g in saved for n in g["params"]]
        params = dict(zip(numbers, self._all(), strict=True))
        state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, values in state_dict["state"].items():
            state[params[number]] = {k: _taken(v, params[number]) for k, v in values.items()}
        self.state = state
        for theirs, ours in zip(saved, self.param_groups, strict=True):
            ours.update({k: copy.deepcopy(v) for k, v in theirs.items() if k != "params"})

    def _all(self) -> list[Tensor]:
        return [p for g in self.param_groups for p in g["params"]]

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": dict(self.state), "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.state = defaultdict(dict, state["state"])
        self._before, self._after = {}, {}

    def __repr__(self) -> str:
        lines = []
        for k, group in enumerate(self.param_groups):
            options = "\n".join(f"    {n}: {v}" for n, v in sorted(group.items()) if n != "params")
            lines.append(f"Parameter Group {k}\n{options}")
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def _taken(value: Any, param: Tensor) -> Any:
    if isinstance(value, Tensor):
        return wrap(np.array(value._data, param.dtype if value.shape == param.shape else None))
    return copy.deepcopy(value)


# ----- For the optimisers -----


def zeros(p: Tensor) -> Tensor:
    """A state of zeros for a parameter."""
    return wrap(np.zeros(p.shape, p.dtype))


def run(update: Update, p: Tensor, others: Sequence[Tensor], numbers: Iterable[float]) -> None:
    """Run an update whose first array is the parameter's, and count the write."""
    update([p._data, *(t._data for t in others)], list(numbers))
    share(p).version += 1


__all__ = ["Optimizer"]
