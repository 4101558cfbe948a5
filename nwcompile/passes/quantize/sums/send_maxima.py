"""Send maxima: compute a maximum of currents once, as numbers that neurons send, for every layer that reads it.

`compare_currents` finds the maximum inside of one layer. A maximum that several layers read, or that others add to, is
found by the same tournament before quantization. Its layers send sums, and the last one the largest of each window.
"""

from collections.abc import Sequence

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, MaxPool2d, Scale, Sparse
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import LARGEST_OUTPUT
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.nonlinear import can_send_sums, find_maxima, pooled_layer
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize.approximate.ideal import Windows
from nwcompile.passes.quantize.sums.compare_currents import LEADS, SUMS, Tournament, split_terms
from nwcompile.passes.quantize.sums.send_sums import SUM, build_sender

LARGEST = "{}/max"  # Name of the neurons that send the largest current of each window.


def send_maxima(
    network: Network, chip: Chip, options: Options, compared: Sequence[str]
) -> tuple[Network, list[Change]]:
    """Replace maxima of currents that no single layer computes by neurons that send and compare them.

    The currents have to be sums of single spikes, so that a message is proved to hold them. `compared`: layers that
    compute a maximum of their own.
    """
    changes: list[Change] = []
    for pool in find_maxima(network) if can_send_sums(chip, options) and not network.is_fixed else ():
        alike = [p for p in network.out_of(pool.source) if isinstance(p, MaxPool2d) and _is_alike(p, pool)]
        others = [p for p in alike if pooled_layer(network, p) not in compared]
        if pool in others and _can_send(network, pool):
            network, n_leads = _insert_senders(network, others)
            n_sums = network.node(SUMS.format(pool.source)).n_neurons
            how = f"{n_sums} neurons send their currents, {n_leads} compare two of a window, for all that read it"
            changes.append(Change(pool.source, "maximum of currents", "sums of currents", how, EXACT))
    return (normalize(network) if changes else network), changes


def _is_alike(pool: MaxPool2d, other: MaxPool2d) -> bool:
    fields = ("kernel", "stride", "padding")
    return all(getattr(pool, name) == getattr(other, name) for name in fields)


def _can_send(network: Network, pool: MaxPool2d) -> bool:
    """Return whether the currents are sums of single spikes, with one constant in all of a window."""
    edges = network.into(pool.source)
    sources = [network.node(c.source).neuron for c in edges if c.source in network.layers]
    are_spikes = len(sources) == len(edges) and all(s.fires and s.message == "binary" for s in sources)
    is_free = SUMS.format(pool.source) not in network.nodes and network.node(pool.source).neuron is None
    if not edges or not is_free or not are_spikes or not all(c.is_linear for c in edges):
        return False
    return bool(np.ptp(_window_constants(network, pool), axis=0).max(initial=0) == 0)


def _window_constants(network: Network, pool: MaxPool2d) -> np.ndarray:
    """Return the least and the largest constant in each window, float64[2, window]."""
    node = network.node(pool.source)
    biases = [c.bias_per_neuron(node.shape) for c in network.into(pool.source)]
    constant = sum((b.astype(np.float64) for b in biases if b is not None), np.zeros(node.shape)).reshape(-1)
    source, window = pool.window_taps(node.shape)
    first = np.searchsorted(window, np.arange(window.max() + 1))
    return np.stack([reduce.reduceat(constant[source], first) for reduce in (np.minimum, np.maximum)])


def _insert_senders(network: Network, pools: list[MaxPool2d]) -> tuple[Network, int]:
    """Put a tournament of currents in front of `pools`; also return its number of comparisons."""
    pool, currents = pools[0], network.node(pools[0].source)
    source, window = pool.window_taps(currents.shape)
    first = np.searchsorted(window, np.arange(window.max() + 1))
    tournament = Tournament.from_windows(Windows(source, first, np.zeros(len(first), bool)))
    names, sums, last = [], SUMS.format(currents.name), LARGEST.format(currents.name)
    edges: list[Connection] = [c.replace(target=sums, bias=None) for c in network.into(currents.name)]
    nodes = {
        **network.nodes,
        sums: Node(sums, currents.shape, build_sender(SUM, -LARGEST_OUTPUT, LARGEST_OUTPUT, False)),
    }
    names.append(sums)
    for i, neurons in enumerate([*tournament.rounds, tournament.last], 1):
        is_last = i > len(tournament.rounds)
        name = last if is_last else LEADS.format(currents.name, i)
        shape = pool.output_shape(currents.shape) if is_last else (len(neurons),)
        nodes[name] = Node(name, shape, build_sender(SUM, -LARGEST_OUTPUT if is_last else 0, LARGEST_OUTPUT, False))
        for origin, pre, post, sign in split_terms(names, neurons):
            edges.append(Sparse(origin, name, pre=pre, post=post, weight=sign.astype(np.float32), delay=0))
        names.append(name)
    constant = _window_constants(network, pool)[0].astype(np.float32).reshape(nodes[last].shape)
    edges += [Scale(last, p.target, shift=constant, delay=p.aligned_delay) for p in pools]
    kept = [c for c in network.connections if c not in pools]
    if not any(c.source == currents.name for c in kept):
        kept = [c for c in kept if c.target != currents.name]
        del nodes[currents.name]
    return Network(network.inputs, nodes, (*kept, *edges)), sum(map(len, tournament.rounds))
