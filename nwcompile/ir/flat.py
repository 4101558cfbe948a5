"""Flat: all neurons of a network as one vector, and lists of lists as one vector with offsets (CSR).

Neurons are numbered layer after layer, in the order of `Network.layers`; sources are the input lines, input after
input, and then the neurons: the order of `Network.offsets`. In CSR the entries of group g are
`offset[g]:offset[g + 1]` of any array by entry.
"""

from typing import TYPE_CHECKING

import numpy as np

from nwcompile.ir.network import Network

if TYPE_CHECKING:
    from nwcompile.ir.mapping import Mapping


def count_lines(network: Network) -> int:
    """How many input lines the network has: the number of its first neuron among the sources."""
    return sum(node.n_neurons for node in network.inputs.values())


def count_neurons(network: Network) -> int:
    """How many neurons the layers have together."""
    return sum(network.node(name).n_neurons for name in network.layers)


def neuron_offsets(network: Network) -> dict[str, int]:
    """Number of the first neuron of every layer."""
    n_lines = count_lines(network)
    return {name: network.offsets[name] - n_lines for name in network.layers}


def join_layers(network: Network, by_layer: dict[str, np.ndarray]) -> np.ndarray:
    """One vector [neuron] of arrays [n] by layer, of their dtype."""
    return np.concatenate([by_layer[name] for name in network.layers])


def split_layers(network: Network, vector: np.ndarray) -> dict[str, np.ndarray]:
    """A vector [neuron] cut into views [n] by layer."""
    return {name: vector[i : i + network.node(name).n_neurons] for name, i in neuron_offsets(network).items()}


def layer_numbers(network: Network) -> np.ndarray:
    """int64[neuron]: number of every neuron's layer in `Network.layers`."""
    return np.repeat(np.arange(len(network.layers)), [network.node(name).n_neurons for name in network.layers])


def locate_sources(network: Network, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the input or layer of every source, str[n], and the number of its line or neuron there, int64[n].

    Sources are numbered by `network`. A program and the same program with its registers (`Program.loaded_program`) number
    neurons differently, so whatever leaves a simulator names them this way.
    """
    first = np.fromiter(network.offsets.values(), np.int64)
    node = np.searchsorted(first, source, "right") - 1
    return np.array(list(network.offsets))[node], source - first[node]


def cores_of_sources(network: Network, core_of: np.ndarray) -> np.ndarray:
    """int32[source]: -1 for every input line, then the cores int[neuron] of the neurons."""
    return np.concatenate([np.full(count_lines(network), -1, np.int32), core_of.astype(np.int32)])


def flat_cores(network: Network, mapping: "Mapping") -> np.ndarray:
    """int32[source]: -1 for every input line, then the logical core of every neuron of a mapping."""
    return cores_of_sources(network, join_layers(network, mapping.core_of))


def neuron_places(network: Network) -> np.ndarray:
    """int64[neuron, 3]: channel, row and column of every neuron; in layers of other shapes all are channels."""
    places = []
    for name in network.layers:
        shape = network.node(name).shape
        shape = shape if len(shape) == 3 else (int(np.prod(shape)), 1, 1)
        places.append(np.indices(shape).reshape(3, -1).T)
    return np.concatenate(places).astype(np.int64)


def csr_offset(counts) -> np.ndarray:
    """int64[group + 1]: where the entries of every group begin, and the end, for whole numbers of entries [group]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def csr_groups(offset: np.ndarray) -> np.ndarray:
    """int64[entry]: group of every entry."""
    return np.repeat(np.arange(len(offset) - 1), np.diff(offset))


def csr_entries(offset: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """int64: the entries of `groups`, int[...], one group after the other; a group may come several times."""
    length = np.diff(offset)[groups]
    return np.repeat(offset[:-1][groups] - np.cumsum(length) + length, length) + np.arange(length.sum())


def csr_sums(offset: np.ndarray, values: np.ndarray) -> np.ndarray:
    """int64[group]: sum of the whole numbers `values` [entry] of every group."""
    return np.diff(csr_offset(values)[offset])
