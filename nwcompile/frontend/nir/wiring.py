"""Join the nodes of a NIR graph: find the late edges, choose layers and junctions, and build the connections.

The edges that close a recurrence are late: they act in the next step.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.frontend.nir.file import NEURONS, NirGraph, NirNode
from nwcompile.frontend.nir.stateless import delay_steps, wire_node
from nwcompile.ir.connection import Connection, Scale
from nwcompile.ir.neuron import NeuronSpec

ERROR_CODE = "NW2101"
VIEWS = ("Flatten", "Identity")  # A layer's values under another shape, or the same one
READOUT = NeuronSpec(fires=False, beta=0.0, reset="none")
ROOT = ""


def check_ends(graph: NirGraph) -> None:
    """Raise ModelError for a missing Input, wrong or missing edges, or a membrane that is sent on."""
    kinds = [node.kind for node in graph.nodes.values()]
    if "Input" not in kinds:
        raise ModelError("NIR graph: it has no Input node; add one before the first weights")
    silent = _silent_outputs(graph)
    for node in graph.nodes.values():
        before = graph.sources[node.name]
        after = graph.targets[node.name]
        if node.kind == "Input" and before:
            raise node.fail(f"an edge leads from {before[0]!r} into this Input; remove it")
        if node.kind == "Output" and after:
            raise node.fail(f"an edge leads from this Output to {after[0]!r}; remove it")
        if node.kind not in NEURONS and node.kind != "Input" and not before:
            raise node.fail("no edge leads to it; connect it or remove it")
        if node.kind not in NEURONS and node.kind != "Output" and not after:
            raise node.fail("it leads nowhere; connect it to an Output or remove it")
        if node.kind in ("I", "LI", "CubaLI") and any(n not in silent for n in after):
            raise node.fail(
                f"it gives its membrane value to {after[0]!r}, but only spikes can be sent on; "
                "supported: a path to an Output alone, or IF, LIF, CubaLIF in its place"
            )


def _silent_outputs(graph: NirGraph) -> dict[str, str]:
    """Return the Outputs without computation, with the layer that each shows, through a Flatten or Identity at most."""
    shown = {}
    for node in graph.nodes.values():
        if node.kind == "Output":
            before = graph.sources[node.name]
            while len(before) == 1 and graph.nodes[before[0]].kind in VIEWS:
                before = graph.sources[before[0]]
            if len(before) == 1 and graph.nodes[before[0]].kind in NEURONS:
                shown[node.name] = before[0]
    return shown


def shown_layers(graph: NirGraph) -> list[str]:
    """Return the layer that each Output shows: its source, or the layer of its own name."""
    silent = _silent_outputs(graph)
    return [silent.get(node.name, node.name) for node in graph.nodes.values() if node.kind == "Output"]


def wire_graph(graph: NirGraph, shapes: Mapping, specs: Mapping, late: frozenset | None, dt: float | None):
    """Return `(layers, connections)` for Network.from_arrays.

    `shapes`: the shape of every node, in topological order. `late`: edges that act one step later; with None, spikes
    take a step on leaving their layer instead. A stateless node is a connection if its only target adds up inputs (a
    layer, or a node with several incoming edges). Otherwise it becomes a junction with the node's name. If several
    edges enter a node that is no layer, the junction `name.sum` adds them up. If weights or several layers lead to the
    Output, a readout layer with the Output's name is added.
    """
    unused = set(_silent_outputs(graph))
    for name in reversed(shapes):
        if graph.nodes[name].kind in VIEWS and graph.targets[name] and unused.issuperset(graph.targets[name]):
            unused.add(name)
    kept = {name: graph.nodes[name] for name in shapes if name not in unused}
    sums = {n: _free_name(graph, n) for n, node in kept.items() if _is_operation(node) and len(graph.sources[n]) > 1}
    meets = {n for n, node in kept.items() if node.kind in (*NEURONS, "Output")} | sums.keys()
    after = {n: [b for b in graph.targets[n] if b not in unused] for n in kept}
    takes_any_shape = meets | {n for n, node in kept.items() if node.kind in ("Linear", "Affine")}
    views = {n for n, node in kept.items() if node.kind in VIEWS and takes_any_shape.issuperset(after[n])}
    views |= {n for n, node in kept.items() if node.kind == "Identity"}
    inline = {n for n, node in kept.items() if _is_operation(node) and len(after[n]) == 1 and after[n][0] in meets}
    inline -= views

    def output_node(name: str) -> str:
        """Return the network node that holds the output of NIR node `name`."""
        return input_node(name) if name in views else name

    def input_node(name: str) -> str:
        """Return the network node that holds the input of NIR node `name`."""
        return sums[name] if name in sums else output_node(graph.sources[name][0])

    closing = late or frozenset()
    layers: dict[str, object] = {}
    connections: list[Connection] = []
    for name, node in kept.items():
        before = graph.sources[name]
        if name in meets:
            target = sums.get(name, name)
            shape = shapes[before[0]] if name in sums else shapes[name]
            layers[target] = (specs.get(name, READOUT) if name not in sums else None, shape)
            for source in sorted(before, key=lambda n: (n, name) in closing):
                if source in inline:
                    given = wire_node(kept[source], input_node(source), target, shapes[graph.sources[source][0]], dt)
                else:
                    given = [Scale(output_node(source), target, delay=0)]
                step_late = int((source, name) in closing)
                connections += [c.replace(delay=c.aligned_delay + step_late) for c in given]
        if _is_operation(node) and name not in inline | views:
            layers[name] = (None, shapes[name])
            connections += wire_node(node, input_node(name), name, shapes[before[0]], dt)
    if late is None:
        connections = [c.replace(delay=c.aligned_delay + int(c.source in specs)) for c in connections]
    return layers, connections


def _is_operation(node: NirNode) -> bool:
    return node.kind not in (*NEURONS, "Input", "Output")


def _free_name(graph: NirGraph, name: str) -> str:
    """Return an unused name for the junction before a node."""
    free = f"{name}.sum"
    while free in graph.nodes:
        free += "_"
    return free


def delay_cycles(graph: NirGraph, dt: float | None) -> NirGraph:
    """Return the graph in which a Delay node, if it alone delays a cycle for some neurons, delays all by a step.

    Raises ModelError for a cycle in which several do, or one that other nodes read: then no delay is right for all.
    """
    import networkx

    steps = {node.name: delay_steps(node, dt) for node in graph.nodes.values() if node.kind == "Delay"}
    undelayed = networkx.DiGraph([(a, b) for a, b in graph.edges if a not in steps or steps[a].min() == 0])
    nodes = dict(graph.nodes)
    for cycle in networkx.strongly_connected_components(undelayed):
        partly = sorted(name for name in cycle if name in steps and steps[name].max() > 0) if len(cycle) > 1 else []
        for name in partly:
            if len(partly) > 1 or not cycle.issuperset(graph.targets[name]):
                why = "so does another Delay node of it" if len(partly) > 1 else "it also leads out of the cycle"
                raise nodes[name].fail(
                    f"it delays some neurons of a cycle by 0 steps, and {why}; delay all of them by at least one step"
                )
            nodes[name] = replace(nodes[name], values={**nodes[name].values, "delay": np.maximum(steps[name], 1) * dt})
    return replace(graph, nodes=nodes)


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
