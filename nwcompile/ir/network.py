"""Network: neuron layers, inputs and junctions with connections between them; float or fixed-point."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, shown, unknown_choice
from nwcompile.ir.connection import Connection
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.readout import Readout, choose_readout
from nwcompile.ir.shown import count_text, format_lines
from nwcompile.lazy_names import look_up

if TYPE_CHECKING:
    from nwcompile.ir.host import Host

ERROR_CODE = "NW3001"
LARGEST_LAYER = 1 << 31  # Neurons of a layer are numbered in 32 bits.
# Array layouts of samples: batch first, time first, or one value for all steps.
NO_LAYER = "has no neuron layer"
LAYOUTS = {"BT": "[B, T, *shape]", "TB": "[T, B, *shape]", "B": "[B, *shape]"}


@dataclass(frozen=True, eq=False)
class Node:
    """An input, a junction or a neuron layer. Inputs and junctions have no `neuron`; a junction only sums.

    `constant` is the value of all lines in every step, for an input that takes no samples. `axon_of`, int64[n], is set
    for a layer whose neurons share axons: each neuron's spikes set the one-bit axons of neuron `axon_of`. Only neurons
    with axons of their own have synapses. `repeats`: for an input that repeats lines, int64[n], of another input.
    """

    name: str
    shape: tuple[int, ...]
    neuron: Any = None  # NeuronSpec | NeuronProgram | None; see `Network.built_in` and `Network.programs`
    constant: int | None = None
    axon_of: np.ndarray | None = None
    repeats: tuple[str, np.ndarray] | None = None

    @property
    def filled_by(self) -> list:
        """Plain values for files: the constant of an input that takes no samples, or None, an input and its lines."""
        if self.repeats is not None:
            return [None, self.repeats[0], self.repeats[1].tolist()]
        return [] if self.constant is None else [self.constant]

    @classmethod
    def from_file(cls, name: str, shape: tuple[int, ...], filled_by: list) -> "Node":
        """Return the input with these values of `filled_by`. Raises ValueError, TypeError or IndexError for others."""
        constant, *repeats = filled_by or [None]
        lines = (str(repeats[0]), np.array(repeats[1], np.int64)) if repeats else None
        return cls(name, shape, constant=None if constant is None else index(constant), repeats=lines)

    def __post_init__(self):
        if isinstance(self.neuron, NeuronSpec | NeuronProgram):
            object.__setattr__(self, "neuron", self.neuron.align_arrays(self.shape))

    @property
    def n_neurons(self) -> int:
        """Number of neurons or input lines."""
        return prod(self.shape)

    @property
    def n_inputs(self) -> int:
        """Number of synaptic inputs of each neuron."""
        return len(self.neuron.inputs) if isinstance(self.neuron, NeuronProgram) else 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape that connections into the node fill: `shape`, with the channels of all inputs of its neurons."""
        return (self.n_inputs * self.shape[0], *self.shape[1:])

    @property
    def n_sums(self) -> int:
        """Number of synaptic sums: that of input k of neuron i is number k * n_neurons + i."""
        return self.n_inputs * self.n_neurons

    def merge_axon_spikes(self, spikes: np.ndarray) -> np.ndarray:
        """Merge spikes [..., *shape] of neurons that share an axon: one spike if any of them spikes."""
        if self.axon_of is None:
            return spikes
        flat = spikes.reshape(*spikes.shape[: spikes.ndim - len(self.shape)], self.n_neurons)
        order = np.argsort(self.axon_of, kind="stable")
        first = np.flatnonzero(np.diff(self.axon_of[order], prepend=-1))
        out = np.zeros_like(flat)
        out[..., self.axon_of[order][first]] = np.maximum.reduceat(flat[..., order], first, axis=-1)
        return out.reshape(spikes.shape)


@dataclass(frozen=True, eq=False)
class Network:
    """`inputs` and `nodes` (layers and junctions) by name, and the connections between them.

    Several connections into one node are summed. A network is frozen; every stage returns a new one. `layout`, one of
    LAYOUTS, is the array layout of samples. In layout "B" each sample is repeated `n_steps` times, unless it has shape
    `[B, T, *shape]`. Results have shape `[B, T, *shape]` in every layout. `host` is the part that the CPU computes
    before this network, which is then the part on the chip (`ir.host`). `real_example`: the example at import had
    values that are not integers. `left_out`: a sentence about results of the imported model that are not in the
    network, or "". `readout`: how the module turns its layers into its first result; None if that is the output, in
    every step, summed or averaged; it decides `outputs` only if every layer feeds another. `left_out` and `readout`
    change no spikes, states or hashes.
    """

    inputs: dict[str, Node]
    nodes: dict[str, Node]
    connections: tuple[Connection, ...]
    layout: str = "BT"
    n_steps: int | None = None
    host: "Host | None" = None
    real_example: bool = False
    left_out: str = ""
    readout: Readout | None = None

    @classmethod
    @checked()
    def from_arrays(cls, layers: dict, connections: Sequence, inputs: dict | None = None) -> "Network":
        """Build a network from `layers={name: neuron | (neuron, shape)}`, connections, `inputs={name: shape}`.

        A neuron is a NeuronSpec or a NeuronProgram. A layer without a shape gets the output shape of the first
        connection into it that has one. Weights are float (computed as float32), or integer mantissas; then every
        neuron must be fixed-point. Raises ModelError.
        """
        for c in connections:
            if not isinstance(c, Connection):
                raise ModelError(f"a connection is an nw.Dense, nw.Conv2d, nw.Sparse, ..., not {type(c).__name__}")
        inputs = {name: Node(name, _check_shape(name, shape)) for name, shape in (inputs or {}).items()}
        specs, shapes = {}, {name: node.shape for name, node in inputs.items()}
        for name, value in layers.items():
            spec, shape = value if isinstance(value, tuple) else (value, None)
            if not isinstance(spec, NeuronSpec | NeuronProgram) and spec is not None:
                kind = type(spec).__name__
                raise ModelError(
                    f"layer {name!r}: expected a NeuronSpec or a NeuronProgram, or (neuron, shape), got {kind}"
                )
            specs[name] = spec
            if shape is not None:
                shapes[name] = _check_shape(name, shape)
        pending = True
        while pending:
            pending = False
            for c in connections:
                if c.target in specs and c.target not in shapes and c.source in shapes:
                    shape = c.output_shape(shapes[c.source])
                    if shape is not None:
                        shape = _divide_channels(shape, specs[c.target])
                        shapes[c.target], pending = _check_shape(c.target, shape), True
        for name in specs:
            if name not in shapes:
                raise ModelError(f"layer {name!r}: no connection tells its shape; give (neuron, shape)")
        nodes = {name: Node(name, shapes[name], spec) for name, spec in specs.items()}
        network = cls(inputs, nodes, tuple(connections))
        network.verify()
        return network

    def __repr__(self) -> str:
        layers = [node for node in self.nodes.values() if node.neuron is not None]
        n_neurons = count_text(sum(node.n_neurons for node in layers), "neuron")
        kind = "fixed-point" if self.is_fixed else "float"
        head = f"Network ({kind}): {count_text(len(layers), 'layer')}, {n_neurons}, "
        head += count_text(len(self.connections), "connection")
        rows = [f"input {node.name} {list(node.shape)}" for node in self.inputs.values()]
        for node in self.nodes.values():
            what = "junction" if node.neuron is None else "layer"
            sources = ", ".join(f"{type(c).__name__} from {c.source}" for c in self.into(node.name))
            rows.append(f"{what} {node.name} {list(node.shape)}: {sources or 'no connection'}")
        if self.readout is not None:
            rows.append(f"class: {self.readout.text}")
        return format_lines(head, rows, "layers")

    def _repr_html_(self) -> str:
        return look_up("nwcompile.ir.network", "html_of_network")(self)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the neuron layers in topological order."""
        return tuple(n for n in self.order if self.node(n).neuron is not None)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Layers and junctions in topological order of the connections without delay; ties keep the given order."""
        rank = {name: i for i, name in enumerate(self.nodes)}
        n_before = dict.fromkeys(self.nodes, 0)
        after: dict[str, list[str]] = {name: [] for name in (*self.inputs, *self.nodes)}
        for c in self.connections:
            if c.aligned_delay == 0 and c.source in self.nodes:
                n_before[c.target] += 1
                after[c.source].append(c.target)
        ready = [rank[n] for n, count in n_before.items() if count == 0]
        ready.sort()
        names, order = list(self.nodes), []
        while ready:
            name = names[heappop(ready)]
            order.append(name)
            for target in after[name]:
                n_before[target] -= 1
                if n_before[target] == 0:
                    heappush(ready, rank[target])
        if len(order) < len(names):
            stuck = ", ".join(repr(n) for n in names if n not in order)
            raise ModelError(f"cycle without delay through {stuck}; give one connection of the cycle delay=1")
        return tuple(order)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Layers that feed no other layer, directly or through junctions; `run.output` has them.

        If every layer feeds another: the layers that the readout reads, else the last layer.
        """
        read = {layer for layer, _ in self.readout.records} if self.readout is not None else set()
        ends = tuple(n for n in self.layers if self._find_fed_layers(n) <= {n})
        return ends or tuple(n for n in self.layers if n in read) or self.layers[-1:]

    def _find_fed_layers(self, name: str) -> set[str]:
        """Find the layers that receive a layer's spikes, directly or through junctions."""
        seen, pending = set(), [name]
        while pending:
            source = pending.pop()
            for target in (c.target for c in self.out_of(source)):
                if target not in seen:
                    seen.add(target)
                    pending += [target] if self.node(target).neuron is None else []
        return {target for target in seen if self.node(target).neuron is not None}

    def find_reached(self, name: str) -> set[str]:
        """Find the nodes that spikes of node `name` can affect; `name` itself is among them only in a loop."""
        reached: set[str] = set()
        pending = [name]
        while pending:
            fed = {c.target for c in self.out_of(pending.pop())} - reached
            reached |= fed
            pending += fed
        return reached

    @property
    def graph(self):
        """networkx.MultiDiGraph of the network; node attributes `shape`, `neuron`, edge attribute `connection`."""
        import networkx

        graph = networkx.MultiDiGraph()
        for node in (*self.inputs.values(), *self.nodes.values()):
            graph.add_node(node.name, shape=node.shape, neuron=node.neuron)
        for c in self.connections:
            graph.add_edge(c.source, c.target, connection=c)
        return graph

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Index of the first line or neuron of every input and layer, in a flat numbering of inputs, then layers."""
        offsets, total = {}, 0
        for name in (*self.inputs, *self.layers):
            offsets[name] = total
            total += self.node(name).n_neurons
        return offsets

    @property
    def given_inputs(self) -> dict[str, Node]:
        """Inputs that take samples: those of the host, then those that the chip takes unchanged."""
        taken = {name: node for name, node in self.inputs.items() if node.constant is None and node.repeats is None}
        if self.host is None:
            return taken
        taken = {name: node for name, node in taken.items() if name not in self.host.gives}
        return {**self.host.network.inputs, **taken}

    def change_layout(self, layout: str, n_steps: int | None = None) -> "Network":
        """Return the same network for samples of another layout."""
        return replace(self, layout=layout, n_steps=n_steps)

    def change_readout(self, rule: str) -> "Network":
        """Return the network with another readout of its output: "sum", "last", "max" or "first-spike".

        A number after the rule, like "sum:10", is the number of classes; each class is a group of neighboring neurons.
        Raises OptionError, and ModelError if there are several output layers.
        """
        if len(self.outputs) != 1:
            raise ModelError(f"readout={rule!r} needs one output layer; this network has {', '.join(self.outputs)}")
        node = self.node(self.outputs[0])
        state = None if node.neuron.fires else node.neuron.readout
        return replace(self, readout=choose_readout(rule, node.name, state, node.n_neurons))

    @cached_property
    def is_fixed(self) -> bool:
        """Whether this is a fixed-point network."""
        return any(node.neuron is not None and node.neuron.is_fixed for node in self.nodes.values())

    @cached_property
    def built_in(self) -> tuple[str, ...]:
        """Names of the layers whose neurons are NeuronSpecs, in topological order."""
        return tuple(n for n in self.layers if isinstance(self.node(n).neuron, NeuronSpec))

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """Names of the layers whose neurons are programs, in topological order."""
        return tuple(n for n in self.layers if isinstance(self.node(n).neuron, NeuronProgram))

    def node(self, name: str) -> Node:
        """Return the input, layer or junction of that name."""
        return self.inputs[name] if name in self.inputs else self.nodes[name]

    def into(self, name: str) -> tuple[Connection, ...]:
        """Return the connections that end at `name`, in the given order."""
        return self._by_target.get(name, ())

    def free_name(self, name: str, layer: str = "{}") -> str:
        """Return `name`, or `name/2`, `name/3` and so on: the first for which no node is called `layer.format(...)`."""
        names = (f"{name}/{k}" if k > 1 else name for k in count(1))
        return next(free for free in names if layer.format(free) not in self.nodes)

    def out_of(self, name: str) -> tuple[Connection, ...]:
        """Return the connections that begin at `name`, in the given order."""
        return self._by_source.get(name, ())

    @cached_property
    def index_of(self) -> dict[Connection, int]:
        """Index of every connection in `connections`."""
        return {c: i for i, c in enumerate(self.connections)}

    @cached_property
    def _by_target(self) -> dict[str, tuple[Connection, ...]]:
        return _group_connections(self.connections, "target")

    @cached_property
    def _by_source(self) -> dict[str, tuple[Connection, ...]]:
        return _group_connections(self.connections, "source")

    def verify(self) -> None:
        """Raise ModelError unless names, shapes, numbers, delays and the layout are usable."""
        if self.layout not in LAYOUTS:
            raise ModelError(unknown_choice("layout", self.layout, LAYOUTS))
        for name in (*self.inputs, *self.nodes):
            if not isinstance(name, str) or not name or not name.isprintable():
                raise ModelError(f"name {name!r} of an input or a layer must be a text of printable characters")
        both = set(self.inputs) & set(self.nodes)
        if both:
            raise ModelError(f"name {sorted(both)[0]!r} is used by an input and a layer; give each its own name")
        if not any(node.neuron is not None for node in self.nodes.values()):
            raise ModelError(f"the network {NO_LAYER}; it needs at least one")
        for c in self.connections:
            for end in (c.source, c.target):
                if end not in self.inputs and end not in self.nodes:
                    raise ModelError(f"connection {c.source!r} -> {c.target!r}: there is no layer or input {end!r}")
            if c.target in self.inputs:
                raise ModelError(f"connection {c.source!r} -> {c.target!r}: {c.target!r} is an input")
            c.verify(self.node(c.source).shape, self.node(c.target).input_shape)
        for node in self.inputs.values():
            if node.repeats is not None:
                self._verify_repeats(node, *node.repeats)
        for node in self.nodes.values():
            if node.repeats is not None:
                raise ModelError(f"layer {node.name!r}: only an input repeats lines of another")
            if node.neuron is not None:
                node.neuron.verify(node.name, node.shape)
            _verify_axons(node)
        self._verify_numbers()
        _ = self.order

    def _verify_repeats(self, node: Node, of: str, lines: np.ndarray) -> None:
        source = self.inputs.get(of)
        n_lines = 0 if source is None or source.repeats is not None or node.constant is not None else source.n_neurons
        is_index = lines.dtype.kind in "iu" and lines.shape == (node.n_neurons,)
        if not is_index or lines.min() < 0 or lines.max() >= n_lines:
            text = "repeats must be an input that repeats none, and one of its lines for each line"
            raise ModelError(f"input {node.name!r}: {text}")

    def _verify_numbers(self) -> None:
        fixed = {node.name: node.neuron.is_fixed for node in self.nodes.values() if node.neuron is not None}
        if len(set(fixed.values())) > 1:
            names = [next(n for n, f in fixed.items() if f is kind) for kind in (True, False)]
            a, b = names
            raise ModelError(f"layer {a!r} is fixed-point but {b!r} is float; use one kind for all layers")
        for c in self.connections if any(fixed.values()) else ():
            if not c.is_integer:
                raise ModelError(
                    f"connection {c.source!r} -> {c.target!r}: a fixed-point network needs integer weights in a "
                    "Dense, Conv1d, Conv2d or Sparse connection"
                )
            if c.bias is not None and (np.asarray(c.bias) != np.trunc(c.bias)).any():
                raise c.fail("a fixed-point network needs a bias of whole numbers")

    @cached_property
    def hash(self) -> str:
        """SHA-256 over names, shapes, neurons and weights."""
        digest = hashlib.sha256()
        for node in (*self.inputs.values(), *self.nodes.values()):
            always = () if node.constant is None else (node.constant,)
            digest.update(repr((node.name, node.shape, *always)).encode())
            if node.repeats is not None:
                _update_digest(digest, node.repeats[0], node.repeats[1])
            for name, value in node.neuron.canonical_fields() if node.neuron is not None else ():
                _update_digest(digest, name, value)
            if node.axon_of is not None:
                _update_digest(digest, "axon_of", node.axon_of)
        for c in self.connections:
            for name, value in c.canonical_fields():
                _update_digest(digest, name, value)
        return digest.hexdigest()


def _group_connections(connections: tuple[Connection, ...], end: str) -> dict[str, tuple[Connection, ...]]:
    """Group connections by the name of their `source` or `target`."""
    groups: dict[str, list[Connection]] = {}
    for c in connections:
        groups.setdefault(getattr(c, end), []).append(c)
    return {name: tuple(group) for name, group in groups.items()}


def _verify_axons(node: Node) -> None:
    """Raise ModelError unless shared axons belong to neurons that have their own, and spikes are binary."""
    if node.axon_of is None:
        return
    axons, n = np.asarray(node.axon_of), node.n_neurons
    whole = axons.shape == (n,) and axons.dtype == np.int64 and axons.min(initial=0) >= 0 and axons.max(initial=0) < n
    if not whole or (axons[axons] != axons).any():
        raise ModelError(f"layer {node.name!r}: axon_of must name, for each neuron, one that has axons of its own")
    if node.neuron is None or not node.neuron.fires or node.neuron.message != "binary":
        raise ModelError(f"layer {node.name!r}: only neurons of binary spikes share axons of one bit")


def _check_shape(name: str, shape) -> tuple[int, ...]:
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    if not shape or not all(map(_is_size, shape)):
        raise ModelError(f"{name!r}: shape {shown(shape)} must be whole numbers >= 1")
    shape = tuple(int(n) for n in shape)
    if prod(shape) >= LARGEST_LAYER:
        raise ModelError(
            f"{name!r}: shape {shown(shape)} has {shown(prod(shape))} neurons; the limit is {LARGEST_LAYER - 1}"
        )
    return shape


def _divide_channels(shape: tuple[int, ...], neuron) -> tuple[int, ...]:
    """Return the shape of a layer from the joint shape of its inputs."""
    n = len(neuron.inputs) if isinstance(neuron, NeuronProgram) else 1
    channels, *rest = shape
    return shape if channels % n else (channels // n, *rest)


def _is_size(n) -> bool:
    try:
        return bool(int(n) == n and n >= 1)
    except (TypeError, ValueError, OverflowError):
        return False


def _update_digest(digest, name: str, value) -> None:
    digest.update(name.encode())
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    else:
        digest.update(repr(value).encode())
