"""Copy plan: how many copies each neuron needs on a chip with few destination cores, and on which cores they are.

A neuron that reaches more cores than allowed is placed several times, with the same inputs, and its copies share the
destinations. A core is copied whole: a copy holds those of its neurons that need it, so it fits wherever the core does.
Copies of a layer are destinations of the layers before it, which may need copies in turn.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, synapse_list
from nwcompile.ir.flat import count_neurons, csr_entries, csr_offset, neuron_offsets
from nwcompile.ir.network import Network

MOST_COPIES = 1 << 22  # Plans with more neurons than the largest chip of four million are given up.


@dataclass(frozen=True, eq=False)
class CopyPlan:
    """The number of copies of each neuron, `copies` int64[neuron], and its first core, `core_of` int64[neuron].

    Copy j > 0 of a core c is core `later[c] + j - 1`. The copies of `packed` neurons (bool[neuron]) are on one core.
    `share`: destinations of each copy of a neuron, or of a core if `by_core`.
    """

    core_of: np.ndarray
    copies: np.ndarray
    packed: np.ndarray
    later: np.ndarray  # int64[core]
    n_cores: int
    share: int
    by_core: bool

    def core_of_copy(self, neuron: np.ndarray, copy: np.ndarray) -> np.ndarray:
        """Return the core of a copy of each neuron, int64."""
        first = self.core_of[neuron]
        return np.where((copy == 0) | self.packed[neuron], first, self.later[first] + copy - 1)


def synapse_ends(network: Network, connection: Connection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return source, target and weight index of every synapse; neurons as in ir/flat.py, lines within their input."""
    pre, post, place = synapse_list(connection, network.node(connection.source).shape)
    first = neuron_offsets(network)
    pre, post = np.asarray(pre, np.int64), np.asarray(post, np.int64)
    return pre + first.get(connection.source, 0), post + first[connection.target], np.asarray(place)


def most_destinations(chip: Chip) -> tuple[int, bool] | None:
    """Return the limit on destination cores, and whether it is per core (True) or per neuron; None without a limit."""
    of_core, of_neuron = chip.limit("max_destinations"), chip.limit("max_neuron_destinations")
    limits = [int(limit.min()) for limit in (of_core, of_neuron) if limit is not None]
    return (min(limits), of_core is not None) if limits and min(limits) > 0 else None


def plan_copies(network: Network, chip: Chip, core_of: np.ndarray, packed: np.ndarray) -> CopyPlan | None:
    """Return the fewest copies for the given cores int64[neuron], or None if no number of them suffices.

    `packed` neurons come with one core each; here they are packed onto common cores, as many as fit with their copies.
    """
    limit = most_destinations(chip)
    assert limit is not None
    share, by_core = limit
    copies = _settle_copies(network, core_of, packed, share, by_core)
    if copies is None:
        return None
    together = _pack_neurons(chip, core_of, copies, packed)
    if together is None:
        return None
    n_cores = int(together.max()) + 1
    of_core = np.ones(n_cores, np.int64)
    np.maximum.at(of_core, together[~packed], copies[~packed])
    later = n_cores + np.cumsum(of_core - 1) - (of_core - 1)
    return CopyPlan(
        core_of=together,
        copies=copies,
        packed=packed,
        later=later,
        n_cores=n_cores + int((of_core - 1).sum()),
        share=share,
        by_core=by_core,
    )


def _settle_copies(network: Network, core_of, packed, share: int, by_core: bool) -> np.ndarray | None:
    """Return int64[neuron]: copies, raised until every neuron (core) has enough; None if impossible."""
    n = count_neurons(network)
    copies, n_cores = np.ones(n, np.int64), int(core_of.max()) + 1
    sender = core_of if by_core else np.arange(n)
    parts = [synapse_ends(network, c)[:2] for c in network.connections if c.source not in network.inputs]
    none = np.zeros(0, np.int64)
    pre, post = (np.concatenate(ends) for ends in zip((none, none), *parts, strict=True))
    pre, post = _expand_shared_axons(network, pre, post)
    key = sender[pre] * n_cores + core_of[post]
    order = np.argsort(key, kind="stable")
    key, post = key[order], post[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(key), 1), bool), key[1:] != key[:-1]]))
    if len(key) and _never_settles(sender[post], packed[post], key, starts, n_cores, share):
        return None
    while len(key):
        reached = np.where(packed, 1, copies)[post]
        n_reached = np.bincount(key[starts] // n_cores, np.maximum.reduceat(reached, starts), int(sender.max()) + 1)
        wanted = np.maximum(copies, -(-n_reached.astype(np.int64) // share)[sender])
        if (wanted == copies).all():
            break
        copies = wanted
        if copies.sum() > MOST_COPIES:
            return None
    return copies


def _never_settles(
    of_target: np.ndarray, packed: np.ndarray, key: np.ndarray, starts: np.ndarray, n_cores: int, share: int
) -> bool:
    """Return whether copies grow without end, because each new one is a destination that needs another copy.

    They do in a loop of senders that each reach `share` cores of the loop, if one of them reaches one core more. By
    sorted synapse: `of_target` int64, the sender of its target; `packed` bool, whether copies of the target are on one
    core; `key` int64, its sender times `n_cores` plus the core it reaches. `starts`: the first of each key.
    """
    sender, n = key // n_cores, int(max(key[-1] // n_cores, of_target.max())) + 1
    ends = sender[~packed], of_target[~packed]
    _, loop = connected_components(coo_array((np.ones(len(ends[0]), bool), ends), (n, n)), connection="strong")
    is_inside = np.logical_or.reduceat((loop[sender] == loop[of_target]) & ~packed, starts)
    n_inside = np.bincount(sender[starts], is_inside, n)
    fewest_inside, most_reached = np.full(n, n_cores), np.zeros(n, np.int64)
    np.minimum.at(fewest_inside, loop, n_inside.astype(np.int64))
    np.maximum.at(most_reached, loop, np.bincount(sender[starts], minlength=n))
    return bool(((fewest_inside >= share) & (most_reached > share)).any())


def _expand_shared_axons(network: Network, pre: np.ndarray, post: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return synapses int64[...] with those of a shared axon repeated for each neuron that sends to it."""
    first = neuron_offsets(network)
    nodes = [network.node(name) for name in network.layers]
    every = [np.arange(node.n_neurons) if node.axon_of is None else node.axon_of for node in nodes]
    axon_of = np.concatenate([axons + first[node.name] for node, axons in zip(nodes, every, strict=True)])
    offset = csr_offset(np.bincount(axon_of, minlength=len(axon_of)))
    entries = csr_entries(offset, pre)
    return np.argsort(axon_of, kind="stable")[entries], np.repeat(post, np.diff(offset)[pre])


def _pack_neurons(chip: Chip, core_of: np.ndarray, copies: np.ndarray, packed: np.ndarray) -> np.ndarray | None:
    """Put packed neurons, in order, onto cores that hold them with all their copies; cores are renumbered."""
    core_of = core_of.copy()
    neurons = np.flatnonzero(packed)
    if len(neurons):
        room = int(chip.max_neurons.min()) // int(copies[neurons].max())
        max_in_axons = chip.limit("max_in_axons")
        if max_in_axons is not None:
            room = min(room, int(max_in_axons.min()))
        if room < 1:
            return None
        core_of[neurons] = int(core_of.max()) + 1 + np.arange(len(neurons)) // room
    return np.unique(core_of, return_inverse=True)[1].reshape(-1).astype(np.int64)
