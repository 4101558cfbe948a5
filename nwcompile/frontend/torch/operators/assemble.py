"""Build a network's layers and connections from the graph of one step."""

from collections import Counter
from itertools import product
from typing import Any

import networkx as nx
import torch

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.build import READOUT, Builder
from nwcompile.frontend.torch.kind import ReadNeurons
from nwcompile.frontend.torch.operations import DELAYING, affine_operation
from nwcompile.frontend.torch.operators.builtin import recognize_neuron
from nwcompile.frontend.torch.operators.connect import Connector, is_binary
from nwcompile.frontend.torch.operators.graph import MOVES, Node, StepGraph, find_operand_nodes, run_node
from nwcompile.frontend.torch.operators.neurons import (
    WEIGHTED,
    Region,
    build_program,
    drop_ones,
    find_regions,
    is_elementwise,
    is_linear,
    is_of_messages,
    is_whole,
)
from nwcompile.frontend.torch.operators.ops import CrashError, Op, is_op
from nwcompile.frontend.torch.operators.parts import Part
from nwcompile.frontend.torch.operators.roll import find_users
from nwcompile.frontend.torch.symbols import Picked, Pooled, Source, Symbol, with_shape
from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

ERROR_CODE = "NW2307"
ASSUMED = (
    "the product of the input with spikes is a logical AND in the network: right for inputs of 0 and 1, as in the "
    "example; give an example with other values if the module gets some"
)
NO_NEURONS = (
    "has no spiking layer that is called on the example; it needs at least one, of nwcompile.nn, snnTorch, "
    "SpikingJelly, sinabs or norse, or written by hand"
)
STEPPED = ("round", "heaviside")  # operators that make a spike of a number
KEEPS_VALUE = (  # operators that choose between values, or compare them, and compute no new ones
    "where", "masked_fill", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "_to_copy", "reshape", *MOVES,
)  # fmt: skip
MOST_INPUTS = 4  # of neurons that are tried with every combination of spikes


class Assembler:
    """Builds the layers and connections of a graph; `used` are the nodes that the network computes.

    `n_first`: the number of operators of the module's first result. `parts`: those that are not looked into, and in
    `fed` what each is given in every step. `has_spikes`: whether the input is 0 or 1. `has_host_maps`: whether the host
    computes a map, because it takes membranes.
    """

    def __init__(
        self,
        graph: StepGraph,
        input_name: str,
        shape: tuple[int, ...],
        n_first: int,
        parts: list[Part],
        fed: dict[str, list[Op]],
        has_spikes: bool,
        maps: dict[str, torch.nn.Module],
    ):
        self.graph, self.regions, self.has_host_maps = graph, find_regions(graph), False
        self.parts, self.fed_ops = {part.name: part for part in parts}, fed
        self.fed = {part.name: self._find_fed(part) for part in parts}
        if not self.regions and not any(part.kind for part in parts):
            verify_later(graph)
            raise ModelError(f"the module {NO_NEURONS}", code="NW2301")
        self.source = Source(input_name, tuple(shape))
        self.layers: dict[str, Region] = {}
        self.neurons: dict[str, NeuronSpec | NeuronProgram] = {}
        self.used: set[Node] = set()
        self.binary = {p.name for p in parts if p.kind and p.kind.gives(p.module) == "spikes"}  # they send 0 or 1
        self.has_spikes = has_spikes and bool(parts)
        self.takes_spikes = False
        self.assumed: list[str] = []  # what is right only if the input is 0 or 1
        inputs = {node: self.source for node in graph.nodes if node.name == "input"}
        self.connector = Connector(graph, inputs, self._is_binary, maps, self._connect_record)
        self.results: dict[str, Node] = {}  # of each layer
        self.shapes = {part.name: part.shape if part.weight is None else (len(part.weight),) for part in parts}
        self.n_first = n_first
        self.network = self._build_network()

    def _find_fed(self, part: Part) -> Node:
        """Return the node of what a part is given."""
        last = self.fed_ops[part.name][-1]
        node, t = self.graph.node_of.get(last, (None, 0))
        if node is None or t != self.graph.n_steps - 1:
            raise ModelError(
                f"layer {part.name!r} is fed differently in the last step of the example than in the steps before; "
                "from_torch needs the same computation in every step",
                code="NW2304",
            )
        return node

    def verify_feeds(self, runs: list[tuple[dict, dict]]) -> None:
        """Raise ModelError if a part is not given in every step what the network gives it."""
        for name, ops in self.fed_ops.items():
            node = self.fed[name]
            for expected, values in runs:
                pairs = [(values[node, t], expected.get(op, op.value)) for t, op in enumerate(ops)]
                wrong = [t for t, (a, b) in enumerate(pairs) if not torch.equal(a.reshape(-1), b.reshape(-1))]
                if not wrong:
                    continue
                late = max((ref.delay for n in find_operand_nodes([node]) for ref in n.refs), default=0)
                if wrong[-1] < late:
                    text = f"by a tensor that is not zero before step {wrong[0]}; start from zeros"
                else:
                    text = (
                        f"differently in step {wrong[0]} and in the last step of the example; "
                        "from_torch needs the same computation in every step"
                    )
                raise ModelError(f"layer {name!r} is fed {text}", code="NW2304")

    def _connect_record(self, node: Node) -> Symbol:
        layer, place = node.op.args
        part = self.parts[layer]
        if part.kind is None:
            return part.connect_delays(self._connect_fed(part), node.op.value)
        if place == 0 and part.fires:
            return part.connect_spikes(self.shapes[layer])
        raise ModelError(
            f"{node.op.site}: the membrane of layer {layer!r} is used by other layers; only its spikes can be sent"
        )

    def _connect_fed(self, part: Part) -> Symbol:
        return with_shape(self.connector.connect(self.fed[part.name]), part.shape)

    def _build_network(self) -> Network:
        named = list(zip(_name_layers(self.regions, self.graph), self.regions, strict=True))
        taken = find_operand_nodes(self.fed.values())  # by layers that are not looked into
        for name, region in named:
            region.fires |= region.result in taken
            if region.has_state and not self._is_of_states(region):
                self._add_neurons(name, region)
        inside = [node for region in self.regions if region.has_state or region.fires for node in region.nodes]
        inside += self.fed.values()
        read = find_operand_nodes(ref.node for node in inside for ref in node.refs)  # the others are the host's
        for name, region in named:
            symbol = None if region.has_state else self._as_function(region)
            if symbol is not None:
                self.connector.symbols[region.result] = symbol
            elif not region.has_state and (region.fires or region.result in read):
                self._add_neurons(name, region)
        self.layers = {name: region for name, region in named if name in self.layers}
        builder = Builder(self.source, {*self.layers, *(part.name for part in self.parts.values() if part.kind)})
        place = {node: i for i, node in enumerate(self.graph.nodes)}
        starts = {name: place[region.nodes[-1]] for name, region in self.layers.items()}
        starts |= {name: place[self.fed[name]] for name, part in self.parts.items() if part.kind is not None}
        for name in sorted(starts, key=starts.__getitem__):
            if name in self.parts:
                part = self.parts[name]
                neurons = self._read_neurons(part)
                builder.add_layer(name, neurons.spec, part.weigh_input(self._connect_fed(part)))
                builder.connections += neurons.recurrent
                self.used |= find_operand_nodes([self.fed[name]])
                continue
            region = self.layers[name]
            if not region.inputs:
                raise ModelError(f"{region}: the neurons have no input; a layer needs one")
            if region.signs:
                fed = self.connector.sum_refs(region.inputs, region.signs, 0, region.shape)
            else:  # inputs that are not added are those of its program
                fed = self.connector.stack_refs(region.inputs, region.shape)
            builder.add_layer(name, self.neurons[name], fed, drop_ones(region.shape))
            self.used |= find_operand_nodes(region.nodes)
        self.results = {name: region.result for name, region in self.layers.items()}
        for node in self.graph.nodes:
            if node.name == "record" and node.op.args[1] == 0 and self.parts[node.op.args[0]].kind is not None:
                self.results[node.op.args[0]] = node
        for node in dict.fromkeys((*self._find_readouts(), *self._find_read_maps())):
            if not self.graph.sends_membranes and self._takes_membranes(node):
                self.has_host_maps = True
                continue
            self.used |= find_operand_nodes([node])
            symbol = self.connector.connect(node)
            name = builder.free_name(symbol)
            builder.add_layer(name, READOUT, symbol)
            self.results[name] = node
        self._verify_delays(builder.connections)
        return builder.build_network()

    def _read_neurons(self, part: Part) -> ReadNeurons:
        try:
            return part.read_neurons()
        except NwError:
            raise
        except Exception as e:
            what = f"{type(part.module).__name__} ({type(e).__name__}: {e})"
            raise CrashError(f"{part.name!r}: nwcompile fails on {what}; please report it") from e

    def _is_of_states(self, region: Region) -> bool:
        """Return whether a region only follows states of known layers, after which the host computes."""
        nodes = find_operand_nodes(region.nodes)
        states = [n for n in nodes if n.name == "record" and self._is_state(n)]
        read = find_operand_nodes(self.fed.values())
        return bool(states) and not region.fires and not read & region.members

    def _verify_delays(self, connections: list[Connection]) -> None:
        """Raise ModelError if neurons take values of each other in the same step."""
        edges = nx.DiGraph([(c.source, c.target) for c in connections if not c.aligned_delay])
        loops = [edge for edge in edges.edges if edge[0] in nx.descendants(edges, edge[1]) | {edge[1]}]
        region = next((region for name, region in self.layers.items() if name in {n for n, _ in loops}), None)
        if region is not None:
            raise ModelError(
                f"{region}: a value of these neurons reaches them again in the same step, through a sum over neurons, "
                "weights, or a move; neurons get the values of others from the step before"
            )

    def _add_neurons(self, name: str, region: Region) -> None:
        stem = _common_path(region).rpartition(".")[2] or "neuron"
        class_name = "".join(c for c in stem if c.isalnum() or c == "_")
        neuron = recognize_neuron(build_program(region, self.graph, class_name))
        self.layers[name], self.neurons[name] = region, neuron
        if neuron.fires and neuron.message == "binary":
            self.binary.add(name)
        self.connector.symbols[region.result] = Source(name, drop_ones(region.shape))

    def _find_readouts(self) -> list[Node]:
        """Return the last delays, and maps with weights, that feed no layer."""
        ends: list[Node] = []
        given = [o for ops in self.fed_ops.values() for op in ops for o in op.operands]  # the first step's may be apart
        reached = {*self.used, *(self.graph.node_of[o][0] for o in given if o in self.graph.node_of)}
        for node in reversed(self.graph.nodes):
            is_delay = self._is_delay(node)
            is_map = is_delay or (node.name in WEIGHTED and len(node.refs) == 1)
            if is_map and node not in reached:
                ends.append(node)
            if node in reached or node in ends:
                reached |= find_operand_nodes([self.fed[node.op.args[0]]] if is_delay else [r.node for r in node.refs])
        return ends[::-1]

    def _takes_membranes(self, node: Node) -> bool:
        """Return whether a map takes values that no layer sends: states, or functions that are no layer."""
        inside = {n: region.members for region in self.layers.values() for n in region.nodes}
        sent = {n for name, n in self.results.items() if name not in self.layers or self.layers[name].fires}
        seen = {node}
        waiting = [ref.node for ref in node.refs]
        while waiting:
            source = waiting.pop()
            if source in seen or source in sent:
                continue
            seen.add(source)
            is_function = is_elementwise(source) and not is_linear(source) and not is_whole(source)
            is_inner = (source in inside or is_function) and not is_of_messages(source, inside.get(source, set()))
            if is_inner or (source.name == "record" and self._is_state(source)):
                return True
            waiting += [ref.node for ref in source.refs]
        return False

    def _is_state(self, record: Node) -> bool:
        layer, place = record.op.args
        return bool(place) or not self.parts[layer].fires

    def _find_read_maps(self) -> list[Node]:
        """Return the delays, and maps with weights, that the module's first result takes besides what they feed."""
        inside = {node for region in self.layers.values() for node in region.nodes}
        maps: list[Node] = []
        seen: set[Any] = set()
        waiting: list[Any] = list(self.graph.outputs[: self.n_first])
        while waiting:
            item: Any = waiting.pop()
            item = self.graph.node_of[item][0] if item in self.graph.node_of else item
            if item in seen or item in inside or (is_op(item) and not item.depends):
                continue
            seen.add(item)
            if isinstance(item, Node) and (self._is_delay(item) or (item.name in WEIGHTED and len(item.refs) == 1)):
                maps.append(item)
            else:
                waiting += [ref.node for ref in item.refs] if isinstance(item, Node) else item.operands
        return [node for node in self.graph.nodes if node in maps]

    def _is_delay(self, node: Node) -> bool:
        return node.name == "record" and isinstance(self.parts[node.op.args[0]].module, DELAYING)

    def _is_binary(self, symbol: Symbol, on_example: bool = False) -> bool:
        """Return whether a symbol certainly is 0 or 1; `on_example`: or if the input is, as in the example."""

        def is_spikes(part: Symbol) -> bool:
            if isinstance(part, Picked):
                return all(map(is_spikes, part.sources))
            if isinstance(part, Pooled):
                return part.operation.kind == "and" or is_spikes(part.source)
            if on_example and self.has_spikes and part is self.source:
                self.takes_spikes = True
                return True
            return isinstance(part, Source) and part.name in self.binary

        return is_binary(symbol, is_spikes)

    def _as_function(self, region: Region) -> Symbol | None:
        """Return neurons without a state whose inputs are spikes as a sum of these, or as a logical product."""
        if not 0 < len(region.inputs) <= MOST_INPUTS:
            return None
        try:
            given = [self.connector.broadcast(ref, region.shape) for ref in region.inputs]
        except ModelError:
            return None
        if not all(self._is_binary(fed, on_example=True) for fed in given):
            return None
        is_certain = all(map(self._is_binary, given))
        if not is_certain and not (any(map(self._is_binary, given)) and region.result.name == "mul"):
            return None
        table: dict[tuple[int, ...], float] = {}
        for bits in product((0, 1), repeat=len(given)):
            value = _try_inputs(region, bits)
            if value is None:
                return None
            table[bits] = value
        n = len(given)
        base = table[(0,) * n]
        slopes = [table[tuple(int(k == i) for k in range(n))] - base for i in range(n)]
        is_sum = all(
            value == base + sum(k * b for k, b in zip(slopes, bits, strict=True)) for bits, value in table.items()
        )
        if is_sum and is_certain:
            return self.connector.sum_refs(region.inputs, slopes, base, region.shape)
        fires = [bits for bits, value in table.items() if value]
        if len(fires) != 1 or table[fires[0]] != 1:
            return None
        if not is_certain:
            self.assumed.append(f"{region}: {ASSUMED}")
        total = self.connector.sum_refs(region.inputs, [1 if bit else -1 for bit in fires[0]], 0, region.shape)
        name = self.connector.name_place(region.result)
        operation = affine_operation(name, "and", 1, 1 - sum(fires[0]))
        return Pooled(operation, total, total.shape)


def _try_inputs(region: Region, bits: tuple[int, ...]) -> float | None:
    """Return a region's result if its inputs have these values in every entry; None if entries differ."""
    values: dict[tuple[Node, int], Any] = {
        (ref.node, ref.delay): torch.full_like(ref.node.op.value, bit)
        for ref, bit in zip(region.inputs, bits, strict=True)
    }
    for node in region.nodes:
        values[node, 0] = run_node(node, lambda ref: values[ref.node, ref.delay])
    result = values[region.result, 0].reshape(-1).double()
    return result[0].item() if bool((result == result[0]).all()) else None


def _name_layers(regions: list[Region], graph: StepGraph) -> list[str]:
    """Return the names of layers: the module's path, or the path of the map that feeds it, if only one layer has it."""
    paths = [_common_path(region) for region in regions]
    feeds = [_feeding_path(region, graph) for region in regions]
    once = Counter(paths)
    stems = [
        path if path and once[path] == 1 else feed or path or "neurons" for path, feed in zip(paths, feeds, strict=True)
    ]
    names: list[str] = []
    for stem in stems:
        k = stems[: len(names)].count(stem)
        names.append(f"{stem}/{k + 1}" if k else stem)
    return names


def _common_path(region: Region) -> str:
    """Return the path of the innermost module that contains all nodes of a region."""
    parts = [node.op.site.path.split(".") for node in region.nodes if any(r.node in region.members for r in node.refs)]
    parts = parts or [region.path.split(".")]
    shared = [names[0] for names in zip(*parts, strict=False) if len(set(names)) == 1]
    length = next((i for i, names in enumerate(zip(*parts, strict=False)) if len(set(names)) > 1), len(shared))
    return ".".join(parts[0][:length])


def _feeding_path(region: Region, graph: StepGraph) -> str:
    """Return the path of the nearest module before a region."""
    waiting = [ref.node for ref in region.inputs]
    while waiting:
        node = waiting.pop(0)
        if node.op.site.path:
            return node.op.site.path
        waiting += [ref.node for ref in node.refs if not ref.delay]
    return ""


def verify_later(graph: StepGraph) -> None:
    """Raise ModelError if neurons take a value that is known after the last step only.

    One choice after the last step (torch.where, a comparison) is a readout's; one that is repeated may be a spike.
    """
    joins = [op for op in graph.later if len({o.step for o in op.operands if o.depends}) == graph.n_steps]
    behind = find_users(graph.later, joins)
    repeated = Counter((op.site, op.name) for op in graph.later if op in behind)
    is_neuron = any(
        repeated[op.site, op.name] > 1 if op in behind else Node(op).is_spike or op.name in STEPPED
        for op in graph.later
        if Node(op).is_message
    )
    is_neuron |= _repeats_choices(graph.later)
    if not is_neuron:
        return
    if joins:
        join = next((op for op in graph.later if op.name not in MOVES and joins[0] in op.operands), joins[0])
        joining = f"{join.site}: {join.title} joins all steps before"
        if not any(node.is_message for node in graph.nodes):
            raise ModelError(
                f"{joining} the first neurons, but a chip gets one step after the other; "
                "compute it outside the module, or use numbers that are fixed after training"
            )
        raise ModelError(f"{joining} other neurons, which a chip runs step by step; give them the spikes of each step")
    first = graph.later[0]
    raise ModelError(
        f"{first.site}: {first.title}: step {first.step} of the example computes something else than the steps "
        "before; a chip has one network, with the same numbers, for every step"
    )


def _repeats_choices(ops: list[Op]) -> bool:
    """Return whether arithmetic leads from a choice to a later one of the same place, as from a reset to a spike.

    Without arithmetic, choices only keep a value, such as the step of the first spike.
    """
    choices = {op for op in ops if Node(op).is_message}
    first = {(op.site, op.name): op for op in sorted(choices, key=lambda op: op.serial, reverse=True)}
    for place, source in first.items():
        computed = [op for op in find_users(ops, [source]) - {source} if op.name not in KEEPS_VALUE]
        if any((op.site, op.name) == place for op in find_users(ops, computed) & choices):
            return True
    return False
