"""Find the edges of a NIR graph that act one step late: those that close a recurrence."""

from nwcompile.errors import ModelError
from nwcompile.frontend.nir.file import NEURONS, NirGraph

ERROR_CODE = "NW2101"
ROOT = ""


def find_late_edges(graph: NirGraph, delays: frozenset[str]) -> frozenset[tuple[str, str]]:
    """Return the edges that lead back to the entry of their cycle: they carry the values of the previous step.

    `delays` names the Delay nodes of at least one step; a cycle through one already has its delay. Raises ModelError
    for nodes that no Input reaches, for a cycle without a neuron layer, and for a cycle that is entered at several
    nodes, so that its late edge is undefined.
    """
    import networkx

    flow = networkx.DiGraph([(a, b) for a, b in graph.edges if b not in delays])
    flow.add_nodes_from(graph.nodes)
    for node in graph.nodes.values():
        starts = node.kind in NEURONS and not graph.sources[node.name]
        if node.kind == "Input" or node.name in delays or starts:
            flow.add_edge(ROOT, node.name)
    flow.add_node(ROOT)
    lost = sorted(set(graph.nodes) - networkx.descendants(flow, ROOT))
    if lost:
        raise ModelError(f"NIR nodes {', '.join(map(repr, lost))}: no Input reaches them; connect or remove them")
    silent = networkx.DiGraph([e for e in graph.edges if not any(graph.nodes[n].kind in NEURONS for n in e)])
    if not networkx.is_directed_acyclic_graph(silent):
        names = ", ".join(repr(a) for a, _ in networkx.find_cycle(silent))
        raise ModelError(f"NIR graph: the cycle through {names} has no neuron layer; only spikes can be fed back")
    above = networkx.immediate_dominators(flow, ROOT)
    cycles = [c for c in networkx.strongly_connected_components(flow) if len(c) > 1 or flow.has_edge(*c, *c)]
    late = frozenset((a, b) for cycle in cycles for a, b in flow.subgraph(cycle).edges if _is_above(above, b, a))
    flow.remove_edges_from(late)
    if not networkx.is_directed_acyclic_graph(flow):
        names = ", ".join(repr(a) for a, _ in networkx.find_cycle(flow))
        raise ModelError(
            f"NIR graph: the cycle through {names} is entered at more than one node, so which of its edges acts one "
            "step late is not defined; put a Delay node of one step (delay=dt) into the cycle"
        )
    return late


def _is_above(above: dict, high: str, low: str | None) -> bool:
    """Return whether every path from the inputs to `low` passes through `high`."""
    while low != high and low != ROOT and low is not None:
        low = above.get(low)
    return low == high
