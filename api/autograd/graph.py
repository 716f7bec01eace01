"""PyTorch's `torch.autograd.graph`: nodes, saved values and hooks; and what a graph keeps and looks like."""

from numbagrad.engine.graph import (
    GradientEdge,
    Node,
    Saved,
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    draw,
    get_gradient_edge,
    increment_version,
    list_saved,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)

__all__ = [
    "GradientEdge",
    "Node",
    "Saved",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "draw",
    "get_gradient_edge",
    "increment_version",
    "list_saved",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
