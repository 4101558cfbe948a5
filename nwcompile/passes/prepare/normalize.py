"""Normalize: fold batch norm, pooling, flattening and chained linear maps into direct connections between layers."""

from dataclasses import dataclass

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, Sparse
from nwcompile.ir.network import Network, Node
from nwcompile.passes.prepare.fold import add_maps, apply_map, compose, constant_offset, linear_map, to_connection

ERROR_CODE = "NW5008"


@dataclass(frozen=True, eq=False)
class Path:
    """A linear map (see `fold`) from one input or layer, `delay` aligned steps late."""

    source: str
    delay: int
    map: object


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum that a junction computes: paths from inputs and layers, and a constant, float64[n] or None."""

    paths: tuple[Path, ...]
    constant: np.ndarray | None


def normalize(network: Network) -> Network:
    """Return an equivalent network of inputs and neuron layers, joined by Dense, Conv2d and Sparse connections.

    Junctions, Pool2d and Scale are multiplied into the connections (float64, rounded once to float32). Delays along a
    chain add up; biases and shifts are carried through it. A product of convolutions stays one if possible; with a
    Dense it becomes a Dense (a Sparse if mostly zeros); anything else becomes a Sparse. MaxPool2d and MatMul are not
    linear, so they and the junctions at their ends stay. Spikes are equal up to float32 rounding. A fixed-point network
    is only checked, and its Conv1d rewritten as Conv2d. Raises ModelError.
    """
    network.verify()
    if network.is_fixed:
        for name, node in network.nodes.items():
            if node.neuron is None:
                wrong = f"junction {name!r} in a fixed-point network"
                raise ModelError(f"{wrong}: connect its sources to its targets directly")
        edges = tuple(_to_conv2d(c, network.node(c.source)) for c in network.connections)
        return Network(network.inputs, network.nodes, edges)
    sums = _sum_junctions(network)
    _verify_used(network)
    nodes = {name: node for name, node in network.nodes.items() if name not in sums}
    connections = [c for name in nodes for c in _into_kept(network, name, sums)]
    normalized = Network(network.inputs, nodes, tuple(connections))
    normalized.verify()
    return normalized


def _to_conv2d(edge: Connection, source: Node) -> Connection:
    return edge.as_conv2d((source.shape[0], source.shape[1])) if isinstance(edge, Conv1d) else edge


def _sum_junctions(network: Network) -> dict[str, Sum]:
    """Return the Sum of every junction that only linear maps join, in topological order."""
    sums: dict[str, Sum] = {}
    kept = {end for c in network.connections if not c.is_linear for end in (c.source, c.target)}
    pending = [name for name in network.order if network.node(name).neuron is None and name not in kept]
    feeds = {name: {c.source for c in network.into(name)} for name in pending}
    while pending:
        ready = [name for name in pending if not feeds[name] & (set(pending) - set(sums))]
        if not ready:
            names = ", ".join(repr(name) for name in pending)
            raise ModelError(f"junctions {names} feed each other without a neuron layer; put a layer into the loop")
        for name in ready:
            sums[name] = _sum_paths(network, name, network.into(name), sums)
        pending = [name for name in pending if name not in sums]
    return sums


def _verify_used(network: Network) -> None:
    feeding = {c.source for c in network.connections}
    for name, node in network.nodes.items():
        if node.neuron is None and name not in feeding:
            raise ModelError(
                f"junction {name!r} feeds no layer, so a chip cannot show it; end the network with a neuron layer "
                "(NeuronSpec(fires=False) for a readout)"
            )
        if node.neuron is None and not network.into(name):
            raise ModelError(f"junction {name!r} receives nothing; connect it or leave it out")


def _sum_paths(network: Network, name: str, connections, sums: dict[str, Sum]) -> Sum:
    """Add up `connections`, all into `name`."""
    shape = network.node(name).input_shape
    paths: list[Path] = []
    constant = None
    for c in connections:
        source_shape = network.node(c.source).shape
        linear = linear_map(c, source_shape, shape)
        if c.source in sums:
            reached = [Path(p.source, p.delay + c.aligned_delay, compose(linear, p.map)) for p in sums[c.source].paths]
            constant = _add_constants(constant, _carry_constant(c, linear, sums[c.source].constant))
        else:
            reached = [Path(c.source, c.aligned_delay, linear)]
        for path in reached:
            _add_path(paths, path)
        constant = _add_constants(constant, constant_offset(c, source_shape, shape))
    return Sum(tuple(paths), constant)


def _carry_constant(edge: Connection, linear, constant: np.ndarray | None) -> np.ndarray | None:
    if constant is None or not constant.any():
        return None
    if edge.aligned_delay:
        raise edge.fail(
            f"delays a bias or shift by {edge.aligned_delay} steps, which no neuron's bias can; "
            f"move the delay to the connections into {edge.source!r}"
        )
    return apply_map(linear, constant[None])[0]


def _add_constants(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    return b if a is None else a if b is None else a + b


def _add_path(paths: list[Path], new: Path) -> None:
    """Add a path, merged with a parallel one if their maps are of the same kind."""
    for i, old in enumerate(paths):
        if (old.source, old.delay) == (new.source, new.delay):
            total = add_maps(old.map, new.map)
            if total is not None:
                paths[i] = Path(old.source, old.delay, total)
                return
    paths.append(new)


def _into_kept(network: Network, name: str, sums: dict[str, Sum]) -> list[Connection]:
    """Return the connections into a layer or kept junction: direct ones, then one for each folded path."""
    into = network.into(name)
    direct = [c for c in into if c.source not in sums]
    kept = [c for c in direct if isinstance(c, Dense | Conv1d | Conv2d | Sparse) or not c.is_linear]
    shape = network.node(name).input_shape
    total = _sum_paths(network, name, [c for c in into if c not in kept], sums)
    connections = [_to_conv2d(_to_float32(c), network.node(c.source)) for c in kept]
    constant = total.constant
    for path in total.paths:
        source_shape = network.node(path.source).shape
        connections.append(to_connection(path.map, path.source, name, path.delay, constant, source_shape, shape))
        constant = None
    return connections


def _to_float32(edge: Connection) -> Connection:
    if not edge.is_linear:
        return edge
    bias = None if edge.bias is None else np.asarray(edge.bias, np.float32)
    return edge.replace(weight=np.asarray(edge.weight, np.float32), bias=bias)
