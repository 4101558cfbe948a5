"""Restore the network from a NIR file that to_nir wrote, provided that its parameters are unchanged."""

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.frontend.nir.write import FORMAT, KEY, build_nir_tree, decode_value, read_note
from nwcompile.ir import connection
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec

UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
COMPARED = "biufU"  # numbers and text
KINDS = {kind.__name__: kind for kind in connection.Connection.__subclasses__()}


def has_notes(tree: Mapping) -> bool:
    """Return whether to_nir wrote the graph of this HDF5 tree."""
    return isinstance(tree.get("metadata"), Mapping) and KEY in tree["metadata"]


def read_noted_network(tree: Mapping) -> tuple[Network, dict[str, str], float]:
    """Return the network of a tree with notes, the NIR node type of each layer, and dt.

    Raises ModelError if the notes cannot be read or contradict the types, parameters or edges of the graph.
    """
    try:
        head = json.loads(str(tree["metadata"][KEY]))
        if head["format"] != FORMAT:
            raise ModelError(f"its notes are of format {head['format']!r}, this version reads {FORMAT}", code="NW2106")
        network = _read_network(tree["nodes"], head)
        dt = float(head["dt"])
    except UNREADABLE as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"its notes cannot be read ({type(error).__name__}: {error})", code="NW2106") from None
    changed = _describe_changes(tree, network, dt)
    if changed:
        raise ModelError(f"{changed} changed after it was written, so its notes do not hold", code="NW2106")
    kinds = {name: str(tree["nodes"][place]["type"]) for place, name, _ in head["nodes"]}
    return network, kinds, dt


def _read_network(nodes: Mapping, head: Mapping) -> Network:
    inputs = {name: tuple(np.asarray(nodes[place]["shape"]).tolist()) for place, name in head["inputs"]}
    layers = {}
    for place, name, shape in head["nodes"]:
        node = nodes[place]
        sizes = {prod(np.shape(value)) for key, value in node.items() if key not in ("type", "metadata")}
        if sizes != {prod(shape)}:
            raise ValueError(f"shape {shape} of {place!r}")
        is_junction = KEY not in node.get("metadata", ())
        layers[name] = (None if is_junction else NeuronSpec(**read_note(node["metadata"], node)), tuple(shape))
    connections = []
    fields: dict[str, Any]
    for entry in head["connections"]:
        if isinstance(entry, str):
            fields = read_note(nodes[entry]["metadata"], nodes[entry])
        else:
            fields = {key: decode_value(value) for key, value in entry.items()}
        connections.append(KINDS[fields.pop("type")](**fields))
    network = Network.from_arrays(layers, connections, inputs)
    if network.is_fixed:
        raise ValueError("fixed-point neurons")
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
