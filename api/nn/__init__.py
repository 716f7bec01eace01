"""Layers and models with torch.nn's names, arguments and semantics.

>>> import numpy as np
>>> import numbagrad as ng
>>> model = ng.nn.Sequential(ng.nn.Linear(2, 8), ng.nn.Tanh(), ng.nn.Linear(8, 1))
>>> loss = ng.nn.MSELoss()(model(np.ones((4, 2))), np.zeros((4, 1)))
>>> loss.backward()
>>> all(p.grad is not None for p in model.parameters())
True
"""

from numbagrad.nn import functional, init, utils
from numbagrad.nn.containers import (
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
    Sequential,
)
from numbagrad.nn.functions import (
    ELU,
    GELU,
    SELU,
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Hardtanh,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    MSELoss,
    NLLLoss,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    SmoothL1Loss,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)
from numbagrad.nn.layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Bilinear,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    Identity,
    LayerNorm,
    Linear,
    PReLU,
    RMSNorm,
)
from numbagrad.nn.module import Module
from numbagrad.nn.parameter import Parameter

__all__ = [
    "ELU",
    "GELU",
    "SELU",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Hardtanh",
    "HuberLoss",
    "Identity",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "PReLU",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
    "functional",
    "init",
    "utils",
]
