"""Search and replace in graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numbagrad.fx.graph import Graph
from numbagrad.fx.module import GraphModule
from numbagrad.fx.node import Node, map_arg


@dataclass(frozen=True)
class Match:
    """One place where a pattern was found: its last step, and which step stands for each step of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Any]


def replace_pattern(module: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace every place of the graph that computes `pattern` by `replacement`.

    Places do not overlap, and what is inside one may not be used outside of it.

    Parameters
    ----------
    module : GraphModule
        Changed in place.
    pattern, replacement : callable or GraphModule
        Functions with the same arguments, of one result.

    Returns
    -------
    list of Match
        The places, in terms of the steps that were there.

    Examples
    --------
    >>> import numbagrad as ng
    >>> from numbagrad import fx
    >>> traced = fx.symbolic_trace(lambda x: ng.log(ng.exp(x) + 1) * 2)
    >>> found = fx.replace_pattern(traced, lambda a: ng.log(ng.exp(a) + 1), lambda a: ng.logaddexp(a, 0.0))
    >>> [node.name for node in traced.graph]
    ['x', 'logaddexp', 'mul', 'output']
    """
    wanted, new = _graph_of(pattern), _graph_of(replacement)
    inputs, anchor = _ends(wanted)
    if len(inputs) != len(_ends(new)[0]):
        raise ValueError(f"the pattern takes {len(inputs)} arguments, the replacement {len(_ends(new)[0])}")
    matches = _find(module.graph, anchor)
    now: dict[Node, Node] = {}
    for match in matches:
        _replace(module.graph, match, inputs, new, now)
    module.graph.eliminate_dead_code()
    module.recompile()
    return matches


def _graph_of(program: Callable[..., Any] | GraphModule) -> Graph:
    from numbagrad.fx.tracer import symbolic_trace

    graph = program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph
    if graph.find_nodes(op="get_attr"):
        raise ValueError("a pattern or replacement cannot hold arrays; make them arguments")
    return graph


def _ends(graph: Graph) -> tuple[list[Node], Any]:
    return graph.find_nodes(op="placeholder"), graph.find_nodes(op="output")[0].args[0]


def _find(graph: Graph, anchor: Any) -> list[Match]:
    if not isinstance(anchor, Node) or anchor.op == "placeholder":
        raise ValueError("a pattern computes one result from its arguments")
    taken: set[Node] = set()
    found = []
    for node in reversed(graph.nodes):
        known: dict[Node, Any] = {}
        if not _same(anchor, node, known):
            continue
        inside = {n for p, n in known.items() if p.op != "placeholder"}
        closed = all(set(n.users) <= inside for n in inside if n is not node)
        if closed and not inside & taken:
            taken |= inside
            found.append(Match(node, known))
    return found[::-1]


def _same(wanted: Any, given: Any, known: dict[Node, Any]) -> bool:
    """Whether `given` is what `wanted` describes; notes in `known` what stands for what."""
    if isinstance(wanted, Node):
        return _same_step(wanted, given, known)
    if type(wanted) is not type(given):
        return False
    if isinstance(wanted, (tuple, list)):
        return len(wanted) == len(given) and all(_same(w, g, known) for w, g in zip(wanted, given, strict=True))
    if isinstance(wanted, dict):
        return wanted.keys() == given.keys() and all(_same(wanted[k], given[k], known) for k in wanted)
    if isinstance(wanted, slice):
        return all(_same(getattr(wanted, n), getattr(given, n), known) for n in ("start", "stop", "step"))
    return wanted is given or bool(wanted == given)


def _same_step(wanted: Node, given: Any, known: dict[Node, Any]) -> bool:
    if wanted in known:
        return known[wanted] is given
    if wanted.op == "placeholder":
        known[wanted] = given
        return True
    if not isinstance(given, Node) or (wanted.op, wanted.target) != (given.op, given.target):
        return False
    known[wanted] = given
    return _same(wanted.args, given.args, known) and _same(wanted.kwargs, given.kwargs, known)


def _replace(graph: Graph, match: Match, inputs: list[Node], new: Graph, now: dict[Node, Node]) -> None:
    """Put `new` in the place of a match; `now` says what stands for steps that were replaced before."""
    current = lambda value: map_arg(value, lambda node: now.get(node, node))
    into = {place: current(match.nodes_map[was]) for was, place in zip(inputs, _ends(new)[0], strict=True)}
    with graph.inserting_before(match.anchor):
        result = graph.graph_copy(new, into)
    if not isinstance(result, Node):
        raise ValueError("a replacement gives one result that it computes or was given")
    now[match.anchor] = result
    match.anchor.replace_all_uses_with(result)
    graph.erase_node(match.anchor)
