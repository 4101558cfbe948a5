"""Read a NIR file of any version into named nodes and edges, flatten nested graphs, and check every value.

The `nir` package refuses existing files (nested graphs of version 0.2.0, scalar parameters, its own wrong convolution
types), so the HDF5 tree is read directly. The format is in the nir 1.0.8 sources, `nir/serialization.py`.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.hdf5 import read_hdf5
from nwcompile.ir.neuron import is_in_float32

ERROR_CODE = "NW2101"
NEURONS = {
    "I": ("r",),
    "LI": ("tau", "r", "v_leak"),
    "IF": ("r", "v_threshold"),
    "LIF": ("tau", "r", "v_leak", "v_threshold"),
    "CubaLI": ("tau_syn", "tau_mem", "r", "v_leak"),
    "CubaLIF": ("tau_syn", "tau_mem", "r", "v_leak", "v_threshold"),
    "Threshold": ("threshold",),
}
CONVOLUTION = ("weight", "stride", "padding", "dilation", "groups")
PARAMETERS = {
    "Input": ("shape",),
    "Output": (),
    "Linear": ("weight",),
    "Affine": ("weight", "bias"),
    "Scale": ("scale",),
    "Conv1d": CONVOLUTION,
    "Conv2d": CONVOLUTION,
    "SumPool2d": ("kernel_size", "stride", "padding"),
    "AvgPool2d": ("kernel_size", "stride", "padding"),
    "Flatten": ("start_dim", "end_dim"),
    "Identity": (),
    "Delay": ("delay",),
    **NEURONS,
}
WEIGHT_DIMENSIONS = {"Linear": 2, "Affine": 2, "Conv1d": 3, "Conv2d": 4}
OPTIONAL = ("bias", "v_reset", "w_in", "input_type", "input_shape")


@dataclass(frozen=True, eq=False)
class NirNode:
    """One node: its NIR type, and its parameters as arrays or text (a padding of 'same' or 'valid')."""

    name: str
    kind: str
    values: dict[str, Any]

    def fail(self, text: str) -> ModelError:
        """Return an error that names this node and its type."""
        return ModelError(f"NIR node {self.name!r} ({self.kind}): {text}")

    def get_numbers(self, key: str, default=None) -> np.ndarray:
        """Return parameter `key` as float64, or `default` if the file lacks it."""
        return np.asarray(self.values.get(key, default), np.float64)


@dataclass(frozen=True, eq=False)
class NirGraph:
    """A flat NIR graph. Several edges into one node add up; an edge cycle is a recurrence."""

    nodes: dict[str, NirNode]
    edges: tuple[tuple[str, str], ...]

    @cached_property
    def sources(self) -> dict[str, list[str]]:
        """Names of the nodes with an edge to each node."""
        return _group_pairs(self.nodes, [(b, a) for a, b in self.edges])

    @cached_property
    def targets(self) -> dict[str, list[str]]:
        """Names of the nodes that each node has an edge to."""
        return _group_pairs(self.nodes, self.edges)


def _group_pairs(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {name: [] for name in names}
    for name, other in pairs:
        groups[name].append(other)
    return groups


def read_tree(source) -> dict:
    """Return the stored nodes of the NIR file at path `source`, or of a `nir.NIRGraph`.

    Raises ModelError for a file that is missing, not HDF5, damaged, or declares more data than its size can hold.
    """
    if hasattr(source, "to_dict"):
        empty = [name for name, node in getattr(source, "nodes", {}).items() if node is None]
        if empty:
            raise ModelError(f"NIR graph: node {empty[0]!r} is None; its exporter has no NIR node for that module")
        return source.to_dict()
    if not isinstance(source, str | PathLike):
        raise ModelError(f"from_nir takes the path of a NIR file or a nir.NIRGraph, not {type(source).__name__}")
    tree = read_hdf5(Path(source), "NIR").get("node")
    if not isinstance(tree, dict):
        raise ModelError(f"NIR file {source}: the HDF5 file has no group 'node'; write the model with nir.write")
    return tree


def flat_graph(tree: Mapping, prefix: str = "") -> NirGraph:
    """Return the graph of a tree; raise ModelError for node types, parameters and edges that cannot be used.

    Nested graphs are spliced into their parent: inner nodes become `outer.inner` (`prefix` is then `outer.`), inner
    Inputs and Outputs disappear.
    """
    where = f"NIR graph {prefix[:-1]!r}" if prefix else "NIR graph"
    if _node_type(tree) != "NIRGraph" or not isinstance(tree.get("nodes"), Mapping):
        raise ModelError(f"{where}: expected a NIRGraph with nodes, found type {_node_type(tree)!r}")
    items = {prefix + str(name): item for name, item in tree["nodes"].items()}
    edges = _match_names(where, [(prefix + a, prefix + b) for a, b in _read_edges(tree.get("edges", ()), where)], items)
    nodes: dict[str, NirNode] = {}
    for name, item in items.items():
        if not isinstance(item, Mapping):
            raise ModelError(f"NIR node {name!r}: this is a value, not a node")
        inner = None
        if _node_type(item) == "NIRGraph":
            inner = flat_graph(item, name + ".")
            edges = _splice_edges(name, edges, inner)
        inside = [node for node in inner.nodes.values() if node.kind not in ("Input", "Output")] if inner else []
        for node in inside if inner else [_read_node(name, item)]:
            if node.name in nodes:
                raise ModelError(f"{where}: two nodes are named {node.name!r}; give each its own name")
            nodes[node.name] = node
    seen = set()
    for a, b in edges:
        if a not in nodes or b not in nodes:
            raise ModelError(
                f"{where}: edge {a!r} -> {b!r} names {b if a in nodes else a!r}, which is no node; "
                f"nodes: {', '.join(nodes)}"
            )
        if (a, b) in seen:
            raise ModelError(f"{where}: edge {a!r} -> {b!r} is given twice; give it once")
        seen.add((a, b))
    return NirGraph(nodes, tuple(edges))


def _match_names(where: str, edges: list, items: Mapping) -> list:
    """Replace the only unknown name by the name of the only node without edges (paper files of nir 0.2.0)."""
    ends = {end for edge in edges for end in edge}
    owners = {end: next((n for n in _enclosing_names(end) if n in items), None) for end in ends}
    unknown = sorted(end for end, owner in owners.items() if owner is None)
    unused = sorted(set(items) - set(owners.values()))
    if len(unknown) != 1 or len(unused) != 1:
        return edges
    message = (
        f"{where}: edges name {unknown[0]!r}, which is no node; taken as {unused[0]!r}, the one node without edges"
    )
    warnings.warn(message, NwWarning, stacklevel=2)
    rename = {unknown[0]: unused[0]}
    return [(rename.get(a, a), rename.get(b, b)) for a, b in edges]


def _enclosing_names(name: str) -> Iterable[str]:
    """Yield the name, then the names of the graphs that may contain it: a.b.c, a.b, a."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _splice_edges(name: str, edges: list, inner: NirGraph) -> list:
    """Join the edges of the nested graph `name` to the targets of its Input and the sources of its Output."""
    ports = {}
    for kind, count in (("Input", sum(b == name for _, b in edges)), ("Output", sum(a == name for a, _ in edges))):
        inner_ports = [node.name for node in inner.nodes.values() if node.kind == kind]
        if count and len(inner_ports) != 1:
            raise ModelError(
                f"NIR graph {name!r}: an edge ends at it, but it has {len(inner_ports)} {kind} nodes; 1 is needed"
            )
        ports[kind] = inner_ports[0] if inner_ports else name
    edges = [(ports["Output"] if a == name else a, ports["Input"] if b == name else b) for a, b in edges]
    edges += inner.edges
    for port in (node.name for node in inner.nodes.values() if node.kind in ("Input", "Output")):
        before = [a for a, b in edges if b == port]
        after = [b for a, b in edges if a == port]
        edges = [e for e in edges if port not in e] + [(a, b) for a in before for b in after]
    return edges


def _read_node(name: str, item: Mapping) -> NirNode:
    kind = _node_type(item)
    if kind not in PARAMETERS:
        raise ModelError(
            f"NIR node {name!r}: type {kind!r} is not supported; supported: {', '.join(sorted(PARAMETERS))}, NIRGraph"
        )
    known = (*PARAMETERS[kind], *OPTIONAL)
    values = {k: _read_value(v) for k, v in item.items() if k in known and v is not None}
    node = NirNode(name, kind, values)
    unknown = sorted(set(item) - {*known, "type", "metadata", "shape"})
    if unknown:
        warnings.warn(
            f"NIR node {name!r} ({kind}): {', '.join(unknown)} is no parameter of it and is not used", NwWarning, 2
        )
    for key in PARAMETERS[kind]:
        if key not in values:
            raise node.fail(f"parameter {key!r} is missing; write the file again with nir.write")
    for key, value in values.items():
        if isinstance(value, str):
            if key != "padding":
                raise node.fail(f"{key} is the text {value!r}; it must be numbers")
        elif not np.issubdtype(value.dtype, np.number) or np.issubdtype(value.dtype, np.complexfloating):
            raise node.fail(f"{key} is of type {value.dtype}; it must be real numbers")
        elif not value.size:
            raise node.fail(f"{key} has shape {value.shape}, so no values; export the model again")
        elif np.isnan(value).any() or (kind not in NEURONS and not np.isfinite(value).all()):
            raise node.fail(f"{key} has NaN or infinite values; the model is not usable, train or export it again")
        elif not key.startswith(("tau", "delay")) and not is_in_float32(value[np.isfinite(value)]):
            raise node.fail(f"{key} has values beyond float32, which networks compute with; choose smaller units")
    n_dimensions = WEIGHT_DIMENSIONS.get(kind)
    if n_dimensions is not None and np.ndim(values["weight"]) != n_dimensions:
        raise node.fail(f"weight has shape {np.shape(values['weight'])}; it must have {n_dimensions} dimensions")
    return node


def _read_value(value) -> np.ndarray | str:
    value = _decode_text(value)
    if isinstance(value, str):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        return np.asarray(None)


def _decode_text(value):
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item() if value.dtype.kind in "OSU" else value
    return value.decode("utf8", "replace") if isinstance(value, bytes) else value


def _node_type(item: Mapping) -> str:
    """Return the type of a node as text, even if it is not stored as text."""
    kind = _decode_text(item.get("type"))
    return kind if isinstance(kind, str) else type(kind).__name__


def _read_edges(value, where: str) -> list[tuple[str, str]]:
    pairs = list(value) if isinstance(value, list | tuple) or np.ndim(value) else [value]
    pairs = [pair if isinstance(pair, list | tuple | np.ndarray) and np.size(pair) == 2 else () for pair in pairs]
    edges = [tuple(_decode_text(end) for end in pair) for pair in pairs]
    if any(len(edge) != 2 or not all(isinstance(end, str) for end in edge) for edge in edges):
        raise ModelError(f"{where}: edges must be pairs of node names; write the file again with nir.write")
    return edges
