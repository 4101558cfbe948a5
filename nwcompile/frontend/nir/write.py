"""Write a Network as a NIR file that every reader understands; from_nir reads an equal network back.

`nearest` chooses the nodes, `integers` the floats of a fixed-point network. Notes in their metadata store a node's
fields so that reading returns the same bits and types, provided that its parameters are unchanged. A note is a JSON
text under the key `nwcompile`. Its arrays are under `nwcompile_<field>`. An array that equals a parameter of the node
is not written twice; the note names the parameter instead.
"""

import io
import json
import operator
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from os import PathLike, fspath
from typing import Any

import numpy as np

from nwcompile.errors import ModelError, NwWarning, shown
from nwcompile.frontend.nir.integers import describe_integers, to_floats
from nwcompile.frontend.nir.nearest import is_typed, keeps_shape, lost_fields, nearest_node, nearest_operation
from nwcompile.ir import connection
from nwcompile.ir.artifact import write_bytes
from nwcompile.ir.connection import Connection, Scale
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.readout import Readout

ERROR_CODE = "NW2105"
FORMATS = (1, 2)  # 2 has integers, neuron programs, constant inputs and shared axons.
KEY = "nwcompile"
DTYPE = re.compile("[<>|][biuf][0-9]{1,2}")  # NumPy also parses other texts, such as 'f4,f4'
UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
COMPARED = "biufU"  # numbers and text
KINDS = {kind.__name__: kind for kind in connection.Connection.__subclasses__()}


def to_nir(network: Network, path, dt: float = 1e-4) -> None:
    """Write a network atomically as a NIR file at `path`; `nw.from_nir(path)` returns an equal network.

    `dt`: the time step of the time constants, in seconds as in most frameworks (`nearest_node` has the formulas).
    Other readers see the nearest standard nodes, and floats for a fixed-point network (`integers.py`). What those
    cannot express (how spikes are compared, counted and reset, clamps, refractory steps, lists of synapses, rounded
    decays, widths of states, neuron programs, ...) is in the metadata of the nodes, and one NwWarning names it. Raises
    ModelError if `network` is no Network, has layers on the host, or is too large to write, and ArtifactError if the
    file cannot be written.
    """
    if not isinstance(network, Network):
        raise ModelError(f"to_nir takes a Network, not {type(network).__name__}")
    if not isinstance(path, str | PathLike):
        raise ModelError(f"to_nir takes the path of the file to write, not {type(path).__name__}")
    number = not isinstance(dt, bool) and isinstance(dt, int | float | np.integer | np.floating)
    if not number or not np.isfinite(dt) or dt <= 0:
        raise ModelError(f"dt={shown(dt)} must be a number above 0, in seconds")
    data, lost = render_nir(network, float(dt))
    write_bytes(path, data)
    if lost:
        warnings.warn(f"{fspath(path)}: {lost}", NwWarning, stacklevel=2)


def render_nir(network: Network, dt: float) -> tuple[bytes, str]:
    """Return the bytes of a network's NIR file, and a sentence on what other readers do not see, or ""."""
    if network.host is not None:
        raise ModelError("to_nir: the host computes the first layers, and a NIR file has one part; write the model")
    network.verify()
    import nir

    tree = build_nir_tree(network, dt)
    graph = {"nodes": tree.nodes, "edges": tree.edges, "metadata": tree.metadata, "type_check": tree.is_typed}
    stream = io.BytesIO()
    nir.write(stream, nir.dict2NIRNode({"type": "NIRGraph", **graph}), compression_opts=1)
    lost = [f"{what} of {', '.join(where)}" for what, where in tree.lost.items()]
    if not tree.is_typed:
        lost.append("the shapes of kernels that are not square (nir.read needs type_check=False)")
    if network.readout is not None:
        lost.append("the readout of the module's answer")
    told = f"other readers do not see {'; '.join(lost)}; from_nir reads it from the metadata" if lost else ""
    return stream.getvalue(), told


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
    """Return the tree of a network for a time step of `dt`; raise ModelError if it would be too large."""
    floats, ahead = to_floats(network) if network.is_fixed else (network, {})
    tree = _Builder(network, floats, ahead, dt)
    for name, node in network.inputs.items():
        tree.add_place(name, {"type": "Input", "shape": np.array(node.shape)})
        tree.note_loss([] if node.constant is None else [f"constant={node.constant}"], repr(name))
        tree.note_loss([] if node.repeats is None else [f"lines of {node.repeats[0]!r} that it repeats"], repr(name))
    for name in network.nodes:
        tree.add_place(name, tree.layer_node(name))
    connections = [tree.add_connection(*pair) for pair in zip(network.connections, floats.connections, strict=True)]
    tree.add_ends()
    inputs = [[tree.names[name], name, *node.filled_by] for name, node in network.inputs.items()]
    nodes = [[tree.names[name], name, list(node.shape)] for name, node in network.nodes.items()]
    number = FORMATS[network.is_fixed or bool(network.programs)]
    head = {"format": number, "dt": dt, "inputs": inputs, "nodes": nodes, "connections": connections}
    if network.layout != "BT":
        head["layout"] = [network.layout, network.n_steps]
    if network.readout is not None:
        head["readout"] = network.readout.to_dict() | {"arrays": [encode_value(a) for a in network.readout.arrays]}
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
    floats: Network  # what nodes hold; `network` itself unless that is a fixed-point one
    ahead: dict[str, int]  # steps by which layers of `floats` are ahead
    dt: float
    nodes: dict[str, dict] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # network node -> its NIR node
    lost: dict[str, list[str]] = field(default_factory=dict)
    is_typed: bool = True

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return file_shapes(self.floats)

    @cached_property
    def descendants(self) -> dict[str, set[str]]:
        """The nodes that each node reaches within a step."""
        import networkx

        graph = networkx.DiGraph([(c.source, c.target) for c in self.floats.connections if not c.aligned_delay])
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
        """Return the node of a layer; a junction is a Scale by 1, which adds up its edges, and so is a program."""
        node = self.network.node(name)
        spec = node.neuron
        shape = self.shapes[name]
        if spec is None:
            return {"type": "Scale", "scale": np.broadcast_to(np.float32(1), shape)}
        values: dict[str, object]
        if isinstance(spec, NeuronProgram):
            if len(spec.inputs) > 1:
                raise ModelError(
                    f"layer {name!r}: its neurons have {len(spec.inputs)} inputs, and a node of NIR has one; save it "
                    "as a .nwc file"
                )
            values = {"type": "Scale", "scale": np.ones(shape, np.float32)}
            self.note_loss([f"neuron program {spec.name!r} (a Scale by 1 is in its place)"], repr(name))
        else:
            floats = self.floats.node(name).neuron
            values = nearest_node(floats, node.shape, self.dt)
            lost = lost_fields(floats, node.shape, values, self.dt)
            if spec.is_fixed and np.any(floats.bias_u):
                lost["bias_u"] = floats.bias_u
            whole = describe_integers(spec) if spec.is_fixed else []
            steps = self.ahead.get(name, 0)
            whole += [f"{steps} step{'s' * (steps > 1)} of delay"] if steps else []
            self.note_loss([*(f"{key}={_short_text(value)}" for key, value in lost.items()), *whole], repr(name))
            values = {key: v if isinstance(v, str) else np.asarray(v).reshape(shape) for key, v in values.items()}
        fields = spec.canonical_fields() + ([] if node.axon_of is None else [("axon_of", node.axon_of)])
        return {**values, "metadata": write_note(fields, values)}

    def note_loss(self, what: list[str], where: str) -> None:
        if what:
            self.lost.setdefault(", ".join(what), []).append(where)

    def add_connection(self, noted: Connection, connection: Connection) -> str | dict:
        """Add the nodes and edges of a connection; return the name of the node with its note, or the note.

        `noted` is the network's connection, and `connection` the same in floats.
        """
        network = self.floats
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
            chain.append((name, {**operation, "metadata": write_note(_connection_fields(noted), operation)}))
        if gives != target_shape:
            chain.append((f"{name}_flat", _flatten_node(gives)))
        added = {self.add_node(*item): item[1] for item in chain}
        places = [self.names[connection.source], *added, self.names[connection.target]]
        self.edges += zip(places[:-1], places[1:], strict=True)
        if operation is None:
            return {key: encode_value(value) for key, value in _connection_fields(noted)}
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


def write_note(fields: Iterable[tuple[str, object]], parameters: Mapping[str, object]) -> dict[str, object]:
    """Return metadata with `fields` of a node that has these `parameters`; `read_note` is the inverse."""
    text: dict[str, object] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in fields:
        if isinstance(value, np.ndarray) and value.size and value.ndim:
            same_parameter = next((key for key, other in parameters.items() if _is_same_array(value, other)), None)
            text[name] = {"array": None} if same_parameter is None else {"parameter": same_parameter}
            if same_parameter is None:
                arrays[f"{KEY}_{name}"] = value
        else:
            text[name] = encode_value(value)
    return {KEY: json.dumps(text), **arrays}


def read_note(metadata: Mapping, parameters: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields in a node's metadata; raise ValueError, KeyError or TypeError for unreadable ones."""
    fields: dict[str, Any] = {}
    for name, value in json.loads(str(metadata[KEY])).items():
        if isinstance(value, dict) and "array" in value:
            fields[name] = _check_array(metadata[f"{KEY}_{name}"])
        elif isinstance(value, dict) and "parameter" in value:
            fields[name] = _check_array(parameters[value["parameter"]])
        else:
            fields[name] = decode_value(value)
    return fields


def _is_same_array(array: np.ndarray, other) -> bool:
    if not isinstance(other, np.ndarray) or (array.dtype.str, array.shape) != (other.dtype.str, other.shape):
        return False
    return array.tobytes() == other.tobytes()


def encode_value(value):
    """Encode a scalar, tuple, number format, or array without dimensions or values as JSON that includes its type."""
    if isinstance(value, FixedPoint):
        return {"fixed": value.to_dict()}
    if isinstance(value, tuple):
        return {"tuple": [encode_value(v) for v in value]}
    if isinstance(value, np.ndarray | np.generic):
        kind = "inline" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [value.dtype.str, list(value.shape), value.tobytes().hex()]}
    return value


def decode_value(value):
    if not isinstance(value, dict):
        return value
    if "fixed" in value:
        return FixedPoint(**value["fixed"])
    if "tuple" in value:
        return tuple(decode_value(v) for v in value["tuple"])
    ((kind, (dtype, shape, data)),) = value.items()
    array = np.frombuffer(bytes.fromhex(data), _parse_dtype(dtype)).reshape(shape).copy()
    return array[()] if kind == "scalar" else array


def _parse_dtype(text: str) -> np.dtype:
    if not DTYPE.fullmatch(text):
        raise ValueError(f"type {text!r}")
    return np.dtype(text)


def _check_array(value) -> np.ndarray:
    array = np.asarray(value)
    _parse_dtype(array.dtype.str)
    return array


def has_notes(tree: Mapping) -> bool:
    """Return whether to_nir wrote the graph of this HDF5 tree."""
    return isinstance(tree.get("metadata"), Mapping) and KEY in tree["metadata"]


def read_noted_network(tree: Mapping) -> tuple[Network, dict[str, str], float]:
    """Return the network of a tree with notes, the NIR node type of each layer, and dt.

    Raises ModelError if the notes cannot be read or contradict the types, parameters or edges of the graph.
    """
    try:
        head = json.loads(str(tree["metadata"][KEY]))
        if head["format"] not in FORMATS:
            known = ", ".join(map(str, FORMATS))
            raise ModelError(f"its notes are of format {head['format']!r}, this version reads {known}", code="NW2106")
        network = _read_network(tree["nodes"], head)
        dt = float(head["dt"])
        changed = _describe_changes(tree, network, dt)
    except UNREADABLE as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"its notes cannot be read ({type(error).__name__}: {error})", code="NW2106") from None
    if changed:
        raise ModelError(f"{changed} changed after it was written, so its notes do not hold", code="NW2106")
    kinds = {name: str(tree["nodes"][place]["type"]) for place, name, _ in head["nodes"]}
    return network, kinds, dt


def _read_network(nodes: Mapping, head: Mapping) -> Network:
    inputs: dict[str, tuple] = {}
    sources: dict[str, Node] = {}
    for place, name, *filled_by in head["inputs"]:
        inputs[name] = tuple(np.asarray(nodes[place]["shape"]).tolist())
        sources[name] = Node.from_file(name, inputs[name], filled_by)
    layers: dict[str, tuple] = {}
    axons: dict[str, np.ndarray] = {}
    fields: dict[str, Any]
    for place, name, shape in head["nodes"]:
        node = nodes[place]
        sizes = {prod(np.shape(value)) for key, value in node.items() if key not in ("type", "metadata")}
        if sizes != {prod(shape)}:
            raise ValueError(f"shape {shape} of {place!r}")
        neuron: NeuronSpec | NeuronProgram | None = None
        if KEY in node.get("metadata", ()):
            fields = read_note(node["metadata"], node)
            if "axon_of" in fields:
                axons[name] = fields.pop("axon_of")
            neuron = NeuronProgram.from_canonical(fields) if "program" in fields else NeuronSpec(**fields)
        layers[name] = (neuron, tuple(shape))
    connections = []
    for entry in head["connections"]:
        if isinstance(entry, str):
            fields = read_note(nodes[entry]["metadata"], nodes[entry])
        else:
            fields = {key: decode_value(value) for key, value in entry.items()}
        connections.append(KINDS[fields.pop("type")](**fields))
    network = Network.from_arrays(layers, connections, inputs)
    shared = {name: replace(node, axon_of=axons.get(name)) for name, node in network.nodes.items()}
    layout, n_steps = head.get("layout", ("BT", None))
    n_steps = None if n_steps is None else operator.index(n_steps)
    network = replace(network, inputs=sources, nodes=shared, layout=layout, n_steps=n_steps)
    if "readout" in head:
        arrays = tuple(decode_value(value) for value in head["readout"]["arrays"])
        readout = Readout.from_dict(head["readout"], arrays)
        readout.verify({*network.layers})
        network = replace(network, readout=readout)
    network.verify()
    return network


def _describe_changes(tree: Mapping, network: Network, dt: float) -> str:
    """Name what differs from the graph that to_nir writes for the network: nodes, or the edges; "" for nothing."""
    fresh = build_nir_tree(network, dt)
    names = [n for n in {**fresh.nodes, **tree["nodes"]} if not _is_same(fresh.nodes.get(n), tree["nodes"].get(n))]
    if names:
        return f"node{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
    edges = {tuple(e.decode() if isinstance(e, bytes) else str(e) for e in pair) for pair in tree["edges"]}
    return "" if edges == set(fresh.edges) else "the edges"


def _is_same(values: Mapping | None, others) -> bool:
    if (
        values is None
        or not isinstance(others, Mapping)
        or values.keys() - {"metadata"} != others.keys() - {"metadata"}
    ):
        return False
    pairs = [(np.asarray(values[key]), np.asarray(others[key])) for key in values if key != "metadata"]
    return all(other.dtype.kind in COMPARED and np.array_equal(other, value) for value, other in pairs)
