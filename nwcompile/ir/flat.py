"""Flat numbering: all neurons of a network as one vector, and lists of lists as one vector with offsets (CSR).

Neurons are numbered by layer, in the order of `Network.layers`. Sources are the lines of all inputs, then the neurons:
the order of `Network.offsets`. In CSR, the entries of group g are `offset[g]:offset[g + 1]` of any array by entry.
"""

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from nwcompile.ir.network import Network

if TYPE_CHECKING:
    from nwcompile.ir.mapping import Mapping


def count_lines(network: Network) -> int:
    """Number of input lines, which is the source index of the first neuron."""
    return sum(node.n_neurons for node in network.inputs.values())


def count_neurons(network: Network) -> int:
    """Number of neurons of all layers."""
    return sum(network.node(name).n_neurons for name in network.layers)


def neuron_offsets(network: Network) -> dict[str, int]:
    """Index of the first neuron of every layer."""
    n_lines = count_lines(network)
    return {name: network.offsets[name] - n_lines for name in network.layers}


def join_layers(network: Network, by_layer: dict[str, np.ndarray]) -> np.ndarray:
    """Concatenate arrays [n] by layer into one vector [neuron] of the same dtype."""
    return np.concatenate([by_layer[name] for name in network.layers])


def split_layers(network: Network, vector: np.ndarray) -> dict[str, np.ndarray]:
    """Split a vector [neuron] into views [n] by layer."""
    return {name: vector[i : i + network.node(name).n_neurons] for name, i in neuron_offsets(network).items()}


def layer_numbers(network: Network) -> np.ndarray:
    """int64[neuron]: index of every neuron's layer in `Network.layers`."""
    return np.repeat(np.arange(len(network.layers)), [network.node(name).n_neurons for name in network.layers])


def locate_sources(network: Network, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the input or layer of every source, str[n], and its line or neuron index there, int64[n].

    Sources are numbered by `network`. `Program.loaded_program` numbers neurons differently from its program, so results
    of simulators name sources this way.
    """
    first = np.fromiter(network.offsets.values(), np.int64)
    node = np.searchsorted(first, source, "right") - 1
    return np.array(list(network.offsets))[node], source - first[node]


def cores_of_sources(network: Network, core_of: np.ndarray) -> np.ndarray:
    """int32[source]: -1 for every input line, then the core of every neuron, from int[neuron]."""
    return np.concatenate([np.full(count_lines(network), -1, np.int32), core_of.astype(np.int32)])


def flat_cores(network: Network, mapping: "Mapping") -> np.ndarray:
    """int32[source]: -1 for every input line, then every neuron's logical core in a mapping."""
    return cores_of_sources(network, join_layers(network, mapping.core_of))


def neuron_places(network: Network) -> np.ndarray:
    """int64[neuron, 3]: channel, row and column of every neuron; without three axes every neuron is a channel."""
    places = []
    for name in network.layers:
        shape = network.node(name).shape
        shape = shape if len(shape) == 3 else (int(np.prod(shape)), 1, 1)
        places.append(np.indices(shape).reshape(3, -1).T)
    return np.concatenate(places).astype(np.int64)


def csr_offset(counts) -> np.ndarray:
    """int64[group + 1]: begin of every group's entries, then the end, from entry counts [group]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def csr_groups(offset: np.ndarray) -> np.ndarray:
    """int64[entry]: group of every entry."""
    return np.repeat(np.arange(len(offset) - 1), np.diff(offset))


def csr_entries(offset: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """int64: indices of the entries of `groups`, int[...], in this order; groups may repeat."""
    length = np.diff(offset)[groups]
    return np.repeat(offset[:-1][groups] - np.cumsum(length) + length, length) + np.arange(length.sum())


def csr_counts(offset: np.ndarray, column: np.ndarray, n_columns: int) -> csr_array:
    """Return the sparse matrix int64[group, column] that counts the entries of every group by `column`, int[entry].

    `offset` may be a part of a longer one: then `column` has the entries of all groups.
    """
    column = column[offset[0] : offset[-1]]
    return csr_array((np.ones(len(column), np.int64), column, offset - offset[0]), (len(offset) - 1, n_columns))


def csr_sums(offset: np.ndarray, values: np.ndarray) -> np.ndarray:
    """int64[group]: sum of the integers `values` [entry] of every group."""
    return np.diff(csr_offset(values)[offset])
