"""Programs as data, in torch.fx's model: trace a function into a `Graph`, look at it, change it, run it.

>>> import numbagrad as ng
>>> from numbagrad import fx
>>> traced = fx.symbolic_trace(lambda x, w: ng.tanh(x * w).sum())
>>> print(traced.code.strip())
def forward(self, x, w):
    mul = x * w
    tanh = ng.tanh(mul)
    sum_1 = tanh.sum()
    return sum_1
>>> float(traced(ng.tensor([0.0, 1.0]), 0.0))
0.0
"""

from numbagrad.fx.graph import Graph
from numbagrad.fx.module import GraphModule, Interpreter, Transformer
from numbagrad.fx.node import Node, map_arg
from numbagrad.fx.proxy import Proxy, TraceError
from numbagrad.fx.rewriter import Match, replace_pattern
from numbagrad.fx.tracer import Tracer, symbolic_trace, wrap

__all__ = [
    "Graph",
    "GraphModule",
    "Interpreter",
    "Match",
    "Node",
    "Proxy",
    "TraceError",
    "Tracer",
    "Transformer",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]
