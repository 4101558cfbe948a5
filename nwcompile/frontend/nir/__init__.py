"""Read a NIR file, with a time step and a dialect, as a Network that computes what the framework did.

Reading: file.py reads the tree, stateless.py turns weights, pooling and delays into connections, dialects.py turns
neuron nodes into NeuronSpecs, wiring.py finds the recurrent edges and places the junctions. Writing: write.py
(`to_nir`, with notes of exact values, which it also reads), nearest.py (nodes that other readers understand),
integers.py (floats of a fixed-point network, for them).
"""

import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf
from os import PathLike

import numpy as np

from nwcompile.errors import ModelError, NwWarning, shown, unknown_choice
from nwcompile.frontend.nir.dialects import DIALECTS, correct_edges, neuron_spec, select_dialect
from nwcompile.frontend.nir.file import NEURONS, NirGraph, NirNode, flat_graph, read_tree
from nwcompile.frontend.nir.stateless import delay_steps, output_shape, takes_shape
from nwcompile.frontend.nir.wiring import check_ends, delay_cycles, find_late_edges, shown_layers, wire_graph
from nwcompile.frontend.nir.write import has_notes, read_noted_network
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import CURRENT_ORDERS, MEMBRANES, RESET_TIMINGS, RESETS, SPIKES, NeuronSpec, to_plain

ERROR_CODE = "NW2102"
LATE_BIAS = "the bias of a recurrence acts in every step; norse leaves it out in step 0, where nothing is fed back yet"
OVERRIDES = (
    *(f.name for f in fields(NeuronSpec) if f.name not in ("fixed", "decay_u", "decay_v", "bias_u")),
    "norm_input",
)
OF_FLOATS = ("membrane", "beta", "gain", "leak", "k", "v_leak", "r", "alpha", "w_in", "current_order")
TRUE_OR_FALSE = ("strict", "fires", "norm_input")
CHOICES = {
    "reset": RESETS,
    "reset_timing": RESET_TIMINGS,
    "spikes": SPIKES,
    "membrane": MEMBRANES,
    "current_order": CURRENT_ORDERS,
}
SPIKING = ("IF", "LIF", "CubaLIF")


def from_nir(path, dt: float | None = None, dialect: str | None = None, neuron: Mapping | None = None) -> Network:
    """Return the float Network of a NIR file; layers have the names of its neuron nodes.

    `path`: a file of nir 0.1 to 1.0.8, nested graphs included, or a `nir.NIRGraph`. Shapes are computed from the
    weights. `dialect`: the framework that wrote the file, or whose semantics apply: lava, nir, norse, rockpool, sinabs,
    snntorch, spikingjelly, or spyx, whose neurons emit a spike one step later than those of the network. `dt`: the time
    step in the unit of the file's time constants, required if the file has any (sinabs counts steps: 1.0). `neuron`
    supplies values that NIR files do not store: `{field: value}` of NeuronSpec for every IF, LIF and CubaLIF node,
    `{node: {field: value}}` for one node, and `norm_input` of sinabs. With `reset="subtract"`, snntorch resets one step
    late unless `reset_timing` says otherwise. Its reset to zero is immediate; `reset_timing="next"` selects the
    behavior of reset_delay=True.

    A file that `to_nir` wrote needs neither `dt` nor `dialect` and returns an equal network. If its nodes were changed
    since, a dialect is required and only the nodes are read. An edge that closes a recurrence has delay 1. Raises
    ModelError for files, nodes and numbers that cannot be used and names the node. Warns with NwWarning about
    assumptions, contradictions to the dialect, and outputs that differ from the graph's Output.
    """
    dt = to_plain(dt)
    dialect = dialect.strip().lower() if isinstance(dialect, str) else dialect
    _check_choices(dt, dialect, neuron)
    neuron = {str(key): value for key, value in (neuron or {}).items()}
    tree = read_tree(path)
    if has_notes(tree):
        source = f"NIR file {path}" if isinstance(path, str | PathLike) else "NIR graph"
        network = _read_noted(tree, source, dt, dialect, neuron)
        if network is not None:
            return network
    if dialect is None:
        raise ModelError(
            "from_nir needs dialect=, because NIR files do not say how neurons are discretized, fire and reset; "
            f"choose one of: {', '.join(sorted(DIALECTS))}"
        )
    graph = flat_graph(tree)
    check_ends(graph)
    neurons = [node for node in graph.nodes.values() if node.kind in NEURONS]
    spoken = select_dialect(dialect, neurons, dt)
    graph = correct_edges(graph, spoken)
    step = spoken.dt if dt is None else dt
    if spoken.dt is not None and step != spoken.dt and any(k.startswith("tau") for n in neurons for k in n.values):
        message = f"dialect {dialect!r} counts time constants in steps (dt={spoken.dt:g}); they are read with dt={dt:g}"
        warnings.warn(message, NwWarning, stacklevel=2)
    graph = graph if spoken.sends_late else delay_cycles(graph, step)
    delays = [node for node in graph.nodes.values() if node.kind == "Delay" and delay_steps(node, step).min() > 0]
    late = find_late_edges(graph, frozenset(node.name for node in delays))
    shapes = _infer_shapes(graph)
    given = resolve_overrides(neuron, {node.name: node.kind for node in neurons}, dialect)
    specs: dict[str, NeuronSpec] = {}
    said: dict[str, list[str]] = {}
    with np.errstate(all="ignore"):  # Network.verify refuses infinite results and names them
        for node in neurons:
            specs[node.name], remarks = neuron_spec(
                node, shapes[node.name], spoken, dt, given[node.name], any(b == node.name for _, b in late)
            )
            for remark in remarks:
                said.setdefault(remark, []).append(repr(node.name))
        layers, connections = wire_graph(graph, shapes, specs, None if spoken.sends_late else late, step)
    for name in sorted({a for a, _ in late if spoken.late_bias and graph.nodes[a].get_numbers("bias", 0.0).any()}):
        said.setdefault(LATE_BIAS, []).append(repr(name))
    for remark, names in said.items():
        nodes = f"NIR node{'s' * (len(names) > 1)} {', '.join(names)}"
        warnings.warn(f"dialect {dialect!r}, {nodes}: {remark}", NwWarning, stacklevel=2)
    inputs = {name: shapes[name] for name in shapes if graph.nodes[name].kind == "Input"}
    network = Network.from_arrays(layers, connections, inputs)
    shown, alone = shown_layers(graph), [n for n in network.outputs if not (graph.sources[n] or graph.targets[n])]
    others = [name for name in network.outputs if name not in alone]
    if shown and set(shown) != set(others):
        warnings.warn(
            f"NIR graph: its Output{'s show' if len(shown) > 1 else ' shows'} {', '.join(map(repr, shown))}, but the "
            f"outputs of a network are the layers that feed no other, {', '.join(map(repr, others))}; read the others "
            "from run.spikes, and remove nodes that are left over",
            NwWarning,
            stacklevel=2,
        )
    if alone:
        message = f"NIR graph: no edge names {', '.join(map(repr, alone))}, so the network has it as an output; remove "
        warnings.warn(f"{message}it if it is left over", NwWarning, stacklevel=2)
    return network


def _check_choices(dt, dialect, neuron) -> None:
    if dialect is not None and (not isinstance(dialect, str) or dialect not in DIALECTS):
        raise ModelError(unknown_choice("dialect", dialect, DIALECTS))
    if dt is not None:
        number = not isinstance(dt, bool) and isinstance(dt, int | float | np.integer | np.floating)
        if not number or not 0 < dt < inf:
            raise ModelError(f"dt={shown(dt)} must be a number above 0, in the unit of the file's time constants")
    if neuron is not None and not isinstance(neuron, Mapping):
        raise ModelError(f"neuron={shown(neuron)} must be a dict of NeuronSpec fields, or of such dicts by node name")


def _read_noted(tree: Mapping, where: str, dt, dialect, neuron: Mapping) -> Network | None:
    """Return the network that to_nir noted in the file; warn and return None if only a dialect can read it.

    The notes are used only if the nodes still have the parameters that to_nir wrote, so no later change is ignored.
    """
    try:
        network, kinds, noted_dt = read_noted_network(tree)
    except ModelError as error:
        if dialect is None:
            advice = "to read its parameters alone, give dialect= and dt="
            raise ModelError(f"{where}: to_nir wrote it, but {error}; {advice}", code="NW2106") from None
        message = f"{where}: to_nir wrote it, but {error}; its parameters are read with dialect {dialect!r}"
        warnings.warn(message, NwWarning, stacklevel=3)
        return None
    if dialect is not None or dt not in (None, noted_dt):
        message = (
            f"{where}: to_nir wrote it and noted its neurons exactly; dialect= and dt= are not needed and not used"
        )
        warnings.warn(message, NwWarning, stacklevel=3)
    given = resolve_overrides(neuron, {name: kind for name, kind in kinds.items() if kind in NEURONS}, dialect)
    nodes = dict(network.nodes)
    for name, values in given.items():
        fields = {key: value for key, value in values.items() if key != "norm_input"}
        useless = [key for key in fields if key in OF_FLOATS] if network.is_fixed else []
        if useless:
            raise ModelError(f"neuron field {useless[0]} is for float neurons, and those of {name!r} are fixed-point")
        nodes[name] = replace(nodes[name], neuron=nodes[name].neuron.replace(**fields))
    network = replace(network, nodes=nodes)
    network.verify()
    return network


def _infer_shapes(graph: NirGraph) -> dict[str, tuple[int, ...]]:
    """Return the output shape of every node, in the order in which inputs reach the nodes."""
    shapes: dict[str, tuple[int, ...]] = {}
    ready: deque[NirNode] = deque()
    for node in graph.nodes.values():
        if node.kind == "Input":
            shapes[node.name] = _input_shape(graph, node)
        elif node.kind in NEURONS and not graph.sources[node.name]:
            sizes = [np.shape(v) for v in node.values.values() if np.ndim(v)]
            shapes[node.name] = sizes[0] if sizes else (1,)
        else:
            continue
        ready.append(node)
    while ready:
        source = ready.popleft()
        for name in graph.targets[source.name]:
            if name not in shapes:
                node = graph.nodes[name]
                shape = shapes[source.name]
                shapes[name] = shape if node.kind in (*NEURONS, "Output") else output_shape(node, source.name, shape)
                ready.append(node)
    return shapes


def _input_shape(graph: NirGraph, node: NirNode) -> tuple[int, ...]:
    """Return the shape of an input; drop a leading batch dimension, which norse and rockpool write, with a warning."""
    sizes = node.get_numbers("shape").reshape(-1)
    if not sizes.size or (sizes < 1).any() or (sizes != np.trunc(sizes)).any():
        raise node.fail(f"shape {sizes.tolist()} must be whole numbers >= 1")
    shape = tuple(int(n) for n in sizes)
    fed = [graph.nodes[name] for name in graph.targets[node.name]]
    for batch in range(len(shape)):
        if all(takes_shape(other, shape[batch:]) for other in fed):
            if batch:
                message = (
                    f"NIR node {node.name!r} (Input): shape {shape} read as {shape[batch:]}, the rest as a batch size"
                )
                warnings.warn(message, NwWarning, stacklevel=4)
            return shape[batch:]
    return shape


def resolve_overrides(neuron: Mapping, kinds: Mapping[str, str], dialect: str | None) -> dict[str, dict]:
    """Return the fields that `neuron=` sets for each neuron node; fields of a named node override common ones.

    `kinds`: the NIR type of every neuron node by name. Common fields apply to spiking nodes. Raises ModelError for
    unknown nodes, unknown fields, and values of the wrong type.
    """
    common = {key: value for key, value in neuron.items() if not isinstance(value, Mapping)}
    for name in neuron:
        if name not in common and name not in kinds:
            raise ModelError(unknown_choice("neuron node", name, kinds))
    for values in (common, *(value for value in neuron.values() if isinstance(value, Mapping))):
        for key, value in values.items():
            _check_field(key, value)
        if "norm_input" in values and dialect != "sinabs":
            raise ModelError(f"neuron field norm_input belongs to dialect 'sinabs', not {dialect!r}; leave it out")
    settings = {name: {**(common if kind in SPIKING else {}), **neuron.get(name, {})} for name, kind in kinds.items()}
    return {name: {key: to_plain(value) for key, value in fields.items()} for name, fields in settings.items()}


def _check_field(key, value) -> None:
    """Raise ModelError unless `key` can be set and `value` has its type; ranges are checked later."""
    if key not in OVERRIDES:
        raise ModelError(unknown_choice("neuron field", key, OVERRIDES))
    if key in TRUE_OR_FALSE:
        if not isinstance(value, bool | np.bool_):
            raise ModelError(f"neuron field {key}={shown(value)} must be True or False")
    elif key in CHOICES:
        if not isinstance(value, str) or value not in CHOICES[key]:
            raise ModelError(f"neuron field {key}: {unknown_choice(key, value, CHOICES[key])}")
    elif value is None and key in NeuronSpec.MAY_BE_NONE:
        return
    else:
        try:
            np.asarray(to_plain("" if value is None else value), np.float64)
        except (TypeError, ValueError):
            raise ModelError(f"neuron field {key}={shown(value)} must be a number, or one for each neuron") from None
