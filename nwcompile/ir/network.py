"""Network: neuron layers, inputs and junctions, joined by connections; float or fixed-point."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, shown, unknown_choice
from nwcompile.ir.connection import Connection
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.shown import count_text, format_lines
from nwcompile.lazy_names import look_up

if TYPE_CHECKING:
    from nwcompile.ir.host import Host

ERROR_CODE = "NW3001"
LARGEST_LAYER = 1 << 31  # Neurons of a layer are numbered in 32 bits.
# How samples lie in an array: by steps or samples first, or one sample that every step takes.
LAYOUTS = {"BT": "[B, T, *shape]", "TB": "[T, B, *shape]", "B": "[B, *shape]"}


@dataclass(frozen=True, eq=False)
class Node:
    """A place in the network: an input or a junction (`neuron is None`; a junction only sums) or a neuron layer.

    `constant`: of an input that nobody gives samples for, the value of its lines in every step. `axon_of`, int64[n], of
    a layer whose neurons share axons: the neuron of the layer whose axons, of one bit each, a neuron's spikes set. Only
    neurons with axons of their own have synapses.
    """

    name: str
    shape: tuple[int, ...]
    neuron: Any = None  # NeuronSpec | NeuronProgram | None; which of them a layer has: `Network.built_in`, `programs`
    constant: int | None = None
    axon_of: np.ndarray | None = None

    def __post_init__(self):
        if isinstance(self.neuron, NeuronSpec | NeuronProgram):
            object.__setattr__(self, "neuron", self.neuron.align_arrays(self.shape))

    @property
    def n_neurons(self) -> int:
        """Number of neurons, or of input lines."""
        return prod(self.shape)

    def merge_axon_spikes(self, spikes: np.ndarray) -> np.ndarray:
        """What readers get of spikes [..., *shape]: of neurons that share an axon one spike, if any of them does."""
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

    Several connections into one node add up. Frozen; every stage makes a new one. `layout`, one of LAYOUTS, says how
    whoever made the network lays out samples; in "B" each is repeated `n_steps` times, unless it comes as
    `[B, T, *shape]`. Results are `[B, T, *shape]` in every layout. `host`: what the CPU computes of samples before
    this network, which is then the part on the chip (`ir.host`). `real_example`: the example that it was imported with
    has values that are not whole numbers. `left_out`: a sentence on what of the imported model's result is not in the
    network, "" for nothing; it changes neither results nor hashes.
    """

    inputs: dict[str, Node]
    nodes: dict[str, Node]
    connections: tuple[Connection, ...]
    layout: str = "BT"
    n_steps: int | None = None
    host: "Host | None" = None
    real_example: bool = False
    left_out: str = ""

    @classmethod
    @checked()
    def from_arrays(cls, layers: dict, connections: Sequence, inputs: dict | None = None) -> "Network":
        """Build a network from `layers={name: neuron | (neuron, shape)}`, connections, `inputs={name: shape}`.

        A neuron is a NeuronSpec or a NeuronProgram. A layer without a shape gets that of the first connection into it
        whose output has one. Weights are float (float32 is what is computed) or integer mantissas; then every neuron is
        fixed-point. Raises ModelError.
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
        return format_lines(head, rows, "layers")

    def _repr_html_(self) -> str:
        return look_up("nwcompile.ir.network", "html_of_network")(self)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the neuron layers in topological order."""
        return tuple(n for n in self.order if self.node(n).neuron is not None)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Layers and junctions such that every connection without delay points forward; ties as given."""
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
        """Layers that feed no other, directly or through junctions: what `run.output` shows; or else the last one."""
        return tuple(n for n in self.layers if self._find_fed_layers(n) <= {n}) or self.layers[-1:]

    def _find_fed_layers(self, name: str) -> set[str]:
        """The layers that a layer's spikes arrive at, directly or through junctions."""
        seen, pending = set(), [name]
        while pending:
            source = pending.pop()
            for target in (c.target for c in self.out_of(source)):
                if target not in seen:
                    seen.add(target)
                    pending += [target] if self.node(target).neuron is None else []
        return {target for target in seen if self.node(target).neuron is not None}

    @property
    def graph(self):
        """The network as a networkx.MultiDiGraph: node attributes `shape`, `neuron`; edge attribute `connection`."""
        import networkx

        graph = networkx.MultiDiGraph()
        for node in (*self.inputs.values(), *self.nodes.values()):
            graph.add_node(node.name, shape=node.shape, neuron=node.neuron)
        for c in self.connections:
            graph.add_edge(c.source, c.target, connection=c)
        return graph

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Index of the first line or neuron of every input and layer in one flat numbering: inputs, then layers."""
        offsets, total = {}, 0
        for name in (*self.inputs, *self.layers):
            offsets[name] = total
            total += self.node(name).n_neurons
        return offsets

    @property
    def given_inputs(self) -> dict[str, Node]:
        """The inputs that a person gives samples for: those of the host, then those that the chip takes as they are."""
        taken = {name: node for name, node in self.inputs.items() if node.constant is None}
        if self.host is None:
            return taken
        taken = {name: node for name, node in taken.items() if name not in self.host.gives}
        return {**self.host.network.inputs, **taken}

    def change_layout(self, layout: str, n_steps: int | None = None) -> "Network":
        """The same network for samples of that layout."""
        return replace(self, layout=layout, n_steps=n_steps)

    @property
    def is_fixed(self) -> bool:
        """Whether this is a fixed-point network."""
        return any(node.neuron is not None and node.neuron.is_fixed for node in self.nodes.values())

    @cached_property
    def built_in(self) -> tuple[str, ...]:
        """Names of the layers whose neurons are NeuronSpecs, which rewritings can change; in topological order."""
        return tuple(n for n in self.layers if isinstance(self.node(n).neuron, NeuronSpec))

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """Names of the layers whose neurons are programs, in topological order."""
        return tuple(n for n in self.layers if isinstance(self.node(n).neuron, NeuronProgram))

    def node(self, name: str) -> Node:
        """The input, layer or junction of that name."""
        return self.inputs[name] if name in self.inputs else self.nodes[name]

    def into(self, name: str) -> tuple[Connection, ...]:
        """Connections that end at `name`, in the order given."""
        return self._by_target.get(name, ())

    def out_of(self, name: str) -> tuple[Connection, ...]:
        """Connections that begin at `name`, in the order given."""
        return self._by_source.get(name, ())

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
            raise ModelError("the network has no neuron layer; it needs at least one")
        for c in self.connections:
            for end in (c.source, c.target):
                if end not in self.inputs and end not in self.nodes:
                    raise ModelError(f"connection {c.source!r} -> {c.target!r}: there is no layer or input {end!r}")
            if c.target in self.inputs:
                raise ModelError(f"connection {c.source!r} -> {c.target!r}: {c.target!r} is an input")
            c.verify(self.node(c.source).shape, self.node(c.target).shape)
        for node in self.nodes.values():
            if node.neuron is not None:
                node.neuron.verify(node.name, node.shape)
            _verify_axons(node)
        self._verify_numbers()
        _ = self.order

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
            for name, value in node.neuron.canonical_fields() if node.neuron is not None else ():
                _update_digest(digest, name, value)
            if node.axon_of is not None:
                _update_digest(digest, "axon_of", node.axon_of)
        for c in self.connections:
            for name, value in c.canonical_fields():
                _update_digest(digest, name, value)
        return digest.hexdigest()


def _group_connections(connections: tuple[Connection, ...], end: str) -> dict[str, tuple[Connection, ...]]:
    """The connections by the name of their `source` or `target`."""
    groups: dict[str, list[Connection]] = {}
    for c in connections:
        groups.setdefault(getattr(c, end), []).append(c)
    return {name: tuple(group) for name, group in groups.items()}


def _verify_axons(node: Node) -> None:
    """Raise ModelError unless neurons share axons of neurons that have their own, and send spikes of one bit."""
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
