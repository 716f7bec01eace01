"""Optimisers with torch.optim's names, arguments and arithmetic; a step over a parameter is one kernel.

>>> import numbagrad as ng
>>> w = ng.tensor([1.0, -2.0], requires_grad=True)
>>> optimizer = ng.optim.Adam([w], lr=0.1)
>>> for _ in range(100):
...     optimizer.zero_grad()
...     loss = (w * w).sum()
...     loss.backward()
...     optimizer.step()
>>> loss.item() < 0.1
True
"""

from numbagrad.optim import lr_scheduler
from numbagrad.optim.algorithms import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop
from numbagrad.optim.optimizer import Optimizer

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
]
