"""Build the tree of NIR nodes of a float Network: the nearest standard nodes for every reader, and exact notes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import prod

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.frontend.nir.nearest_neuron import lost_fields, nearest_node
from nwcompile.frontend.nir.nearest_operation import is_typed, keeps_shape, nearest_operation
from nwcompile.frontend.nir.notes import KEY, encode_value, write_note
from nwcompile.ir.connection import Connection, Scale
from nwcompile.ir.network import Network

ERROR_CODE = "NW2105"
FORMAT = 1


@dataclass(frozen=True, eq=False)
class NirTree:
    """NIR nodes by name (dicts of type, parameters and metadata), edges, and the notes of the graph.

    `lost`: fields that standard nodes cannot express, with their layers and connections. `is_typed`: whether nir 1.0.8
    computes the right shape for every node.
    """

    nodes: dict[str, dict]
    edges: list[tuple[str, str]]
    metadata: dict[str, object]
    lost: dict[str, list[str]]
    is_typed: bool


def build_nir_tree(network: Network, dt: float) -> NirTree:
    """Return the tree of a float network for a time step of `dt`; raise ModelError if it would be too large."""
    tree = _Builder(network, dt)
    for name, node in network.inputs.items():
        tree.add_place(name, {"type": "Input", "shape": np.array(node.shape)})
    for name in network.nodes:
        tree.add_place(name, tree.layer_node(name))
    connections = [tree.add_connection(c) for c in network.connections]
    tree.add_ends()
    inputs = [[tree.names[name], name] for name in network.inputs]
    nodes = [[tree.names[name], name, list(node.shape)] for name, node in network.nodes.items()]
    head = {"format": FORMAT, "dt": dt, "inputs": inputs, "nodes": nodes, "connections": connections}
    return NirTree(tree.nodes, tree.edges, {KEY: json.dumps(head)}, tree.lost, tree.is_typed)


def file_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Return each node's shape in the file: its own, or (n,) if its sources produce a flat shape."""
    shapes = {node.name: node.shape for node in (*network.inputs.values(), *network.nodes.values())}
    changed = True
    while changed:
        changed = False
        for c in network.connections:
            shape = shapes[c.target]
            if len(shape) > 1 and _written_shape(c, network, shapes) != shape:
                shapes[c.target], changed = (prod(shape),), True
    return shapes


def _written_shape(connection: Connection, network: Network, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the output shape of the node for `connection` in the file."""
    shape = shapes[connection.source]
    if not keeps_shape(connection, shape):
        return (network.node(connection.target).n_neurons,)
    given = shape if isinstance(connection, Scale) else connection.output_shape(shape)
    return shape if given is None else tuple(given)


@dataclass(eq=False)
class _Builder:
    network: Network
    dt: float
    nodes: dict[str, dict] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # network node -> its NIR node
    lost: dict[str, list[str]] = field(default_factory=dict)
    is_typed: bool = True

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return file_shapes(self.network)

    @cached_property
    def descendants(self) -> dict[str, set[str]]:
        """The nodes that each node reaches within a step."""
        import networkx

        graph = networkx.DiGraph([(c.source, c.target) for c in self.network.connections if not c.aligned_delay])
        graph.add_nodes_from((*self.network.inputs, *self.network.nodes))
        return {name: networkx.descendants(graph, name) for name in self.network.nodes}

    def add_node(self, name: str, node: dict) -> str:
        """Add a node under `name`, or under a similar free name that HDF5 allows."""
        name = name.replace("/", "_")
        name = name if name.strip(".") else name.replace(".", "_")
        free, n = name, 1
        while free in self.nodes:
            n += 1
            free = f"{name}_{n}"
        self.nodes[free] = node
        return free

    def add_place(self, name: str, node: dict) -> None:
        self.names[name] = self.add_node(name, node)

    def layer_node(self, name: str) -> dict:
        """Return the node of a layer; a junction is a Scale by 1, which adds up its edges."""
        node = self.network.node(name)
        shape = self.shapes[name]
        if node.neuron is None:
            return {"type": "Scale", "scale": np.broadcast_to(np.float32(1), shape)}
        if name in self.network.programs:
            raise ModelError(f"layer {name!r} is a neuron program, and NIR has no node for it; save it as a .nwc file")
        values = nearest_node(node.neuron, node.shape, self.dt)
        lost = lost_fields(node.neuron, node.shape, values, self.dt)
        self.note_loss([f"{key}={_short_text(value)}" for key, value in lost.items()], repr(name))
        values = {key: v if isinstance(v, str) else np.asarray(v).reshape(shape) for key, v in values.items()}
        return {**values, "metadata": write_note(node.neuron.canonical_fields(), values)}

    def note_loss(self, what: list[str], where: str) -> None:
        if what:
            self.lost.setdefault(", ".join(what), []).append(where)

    def add_connection(self, connection: Connection) -> str | dict:
        """Add the nodes and edges of a connection; return the name of the node with its note, or the note."""
        network = self.network
        shape = self.shapes[connection.source]
        target_shape = self.shapes[connection.target]
        source = network.node(connection.source)
        target = network.node(connection.target)
        operation, lost = nearest_operation(connection, shape, source.shape, target.shape)
        self.note_loss(
            [f"{name}={_short_text(getattr(connection, name))}" for name in lost],
            f"{connection.source!r} -> {connection.target!r}",
        )
        gives = _written_shape(connection, network, self.shapes)
        name = f"{self.names[connection.source]}_to_{self.names[connection.target]}"
        chain: list[tuple[str, dict]] = []
        if connection.aligned_delay > 1 or (connection.aligned_delay and not self.is_implied(connection)):
            delay = np.broadcast_to(connection.aligned_delay * self.dt, shape)
            chain.append((f"{name}_delay", {"type": "Delay", "delay": delay}))
        if operation is not None and operation["type"] in ("Linear", "Affine") and len(shape) > 1:
            chain.append((f"{name}_flat", _flatten_node(shape)))
        if operation is None and not chain and gives == target_shape and self.has_edge(connection):
            operation = {"type": "Scale", "scale": np.broadcast_to(np.float32(1), shape)}
        if operation is not None:
            self.is_typed = self.is_typed and (is_typed(connection) or not keeps_shape(connection, shape))
            chain.append((name, {**operation, "metadata": write_note(_connection_fields(connection), operation)}))
        if gives != target_shape:
            chain.append((f"{name}_flat", _flatten_node(gives)))
        added = {self.add_node(*item): item[1] for item in chain}
        places = [self.names[connection.source], *added, self.names[connection.target]]
        self.edges += zip(places[:-1], places[1:], strict=True)
        if operation is None:
            return {key: encode_value(value) for key, value in _connection_fields(connection)}
        return next(place for place, node in added.items() if "metadata" in node)

    def is_implied(self, connection: Connection) -> bool:
        """Return whether a delay of one step is implied because the connection closes a recurrence."""
        return connection.source == connection.target or connection.source in self.descendants[connection.target]

    def has_edge(self, connection: Connection) -> bool:
        return (self.names[connection.source], self.names[connection.target]) in self.edges

    def add_ends(self) -> None:
        """Add an Output after each output layer and dead end, and an Input before each node that no input reaches."""
        leading = {a for a, _ in self.edges}
        ends = [self.names[name] for name in self.network.outputs]
        ends += [name for name in self.nodes if name not in leading and name not in ends]
        for end in ends:
            shape = self.shapes[next(name for name, node in self.names.items() if node == end)]
            output = self.add_node(
                "output" if len(ends) == 1 else f"output_{end}", {"type": "Output", "shape": np.array(shape)}
            )
            self.edges.append((end, output))
        after: dict[str, list[str]] = {}
        for a, b in self.edges:
            after.setdefault(a, []).append(b)
        reached: set[str] = set()
        for name in (*self.network.inputs, *self.network.nodes):
            if self.names[name] not in reached and name in self.network.nodes:
                driver = self.add_node(
                    f"input_{self.names[name]}", {"type": "Input", "shape": np.array(self.shapes[name])}
                )
                self.edges.append((driver, self.names[name]))
            waiting = [self.names[name]]
            while waiting:
                place = waiting.pop()
                if place not in reached:
                    reached.add(place)
                    waiting += after.get(place, [])


def _connection_fields(c: Connection) -> list[tuple[str, object]]:
    return [("type", type(c).__name__), *((f.name, getattr(c, f.name)) for f in fields(c))]


def _flatten_node(shape: tuple[int, ...]) -> dict:
    return {"type": "Flatten", "input_type": np.array(shape), "start_dim": np.int64(0), "end_dim": np.int64(-1)}


def _short_text(value) -> str:
    return "per neuron" if isinstance(value, np.ndarray) else repr(value)
