"""Activations and losses as modules: each is a function of `functional` with its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numbagrad.nn import functional as F
from numbagrad.nn.module import Module


def _module(name: str, function: Callable[..., Any], inputs: int) -> type[Module]:
    """A module class whose options are the parameters of `function` after its inputs."""
    given = list(inspect.signature(function).parameters.values())[inputs:]
    signature = inspect.Signature(given)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        Module.__init__(self)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if "reduction" in bound.arguments and bound.arguments["reduction"] not in ("mean", "sum", "none", "batchmean"):
            raise ValueError(f"{bound.arguments['reduction']!r} is not a valid value for reduction")
        for option, value in bound.arguments.items():
            setattr(self, option, value)

    def forward(self: Any, *tensors: Any) -> Any:
        if len(tensors) != inputs:
            raise TypeError(f"{name} takes {inputs} tensors, got {len(tensors)}")
        return function(*tensors, **{p.name: getattr(self, p.name) for p in given})

    def extra_repr(self: Any) -> str:
        shown = [(p.name, getattr(self, p.name)) for p in given]
        return ", ".join(f"{n}={v}" for n, v in shown if not hasattr(v, "shape") and v is not None)

    doc = (inspect.getdoc(function) or "").partition("\n")[0]
    body = {"__init__": __init__, "forward": forward, "extra_repr": extra_repr, "__doc__": doc, "__module__": __name__}
    __init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *given]
    )
    return type(name, (Module,), body)


ReLU = _module("ReLU", F.relu, 1)
ReLU6 = _module("ReLU6", F.relu6, 1)
Hardtanh = _module("Hardtanh", F.hardtanh, 1)
LeakyReLU = _module("LeakyReLU", F.leaky_relu, 1)
ELU = _module("ELU", F.elu, 1)
SELU = _module("SELU", F.selu, 1)
GELU = _module("GELU", F.gelu, 1)
SiLU = _module("SiLU", F.silu, 1)
Mish = _module("Mish", F.mish, 1)
Sigmoid = _module("Sigmoid", F.sigmoid, 1)
LogSigmoid = _module("LogSigmoid", F.logsigmoid, 1)
Tanh = _module("Tanh", F.tanh, 1)
Softplus = _module("Softplus", F.softplus, 1)
Softsign = _module("Softsign", F.softsign, 1)
Softmax = _module("Softmax", F.softmax, 1)
LogSoftmax = _module("LogSoftmax", F.log_softmax, 1)

MSELoss = _module("MSELoss", F.mse_loss, 2)
L1Loss = _module("L1Loss", F.l1_loss, 2)
HuberLoss = _module("HuberLoss", F.huber_loss, 2)
SmoothL1Loss = _module("SmoothL1Loss", F.smooth_l1_loss, 2)
BCELoss = _module("BCELoss", F.binary_cross_entropy, 2)
BCEWithLogitsLoss = _module("BCEWithLogitsLoss", F.binary_cross_entropy_with_logits, 2)
NLLLoss = _module("NLLLoss", F.nll_loss, 2)
CrossEntropyLoss = _module("CrossEntropyLoss", F.cross_entropy, 2)
KLDivLoss = _module("KLDivLoss", F.kl_div, 2)

__all__ = [
    "ELU",
    "GELU",
    "SELU",
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "Hardtanh",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "Mish",
    "NLLLoss",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
]
