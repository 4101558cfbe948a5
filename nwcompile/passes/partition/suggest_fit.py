"""Suggest fit: changes with which a network would fit: more cores, fewer bits per weight, or a smaller layer.

Each is tried exactly, on the slices of `sequential`, so a suggested change does fit; a smaller one may fit as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import ceil
from typing import Any

import numpy as np

from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import FitError, NwError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network, Node
from nwcompile.ir.options import Options
from nwcompile.ir.resources import RESOURCES, SYNAPSE_BITS
from nwcompile.passes.analyze.check import least_cores
from nwcompile.passes.analyze.core_rules import has_rules
from nwcompile.passes.partition.partition import partition

CAPACITIES = {"cores", "sites", *(resource.name for resource in RESOURCES)}
TOTALS = {"cores", "neurons", RESOURCES[SYNAPSE_BITS].name}
SLICES = Options(partitioner="sequential")
FALL_BACK = ("sequential", "floorline", "coarse")  # partitioners that return slices wherever these fit
MOST_GROWTH = 64  # factor of the chip's columns
N_LAYERS = 3  # number of largest layers, each of which is reduced
LARGEST = 2_000_000  # Synapses above which only missing cores are counted: every try visits all of them.
LARGEST_WITH_RULES = 200_000  # The same if a chip limits layers or destinations of a core, where tries take longer.
LARGEST_COUNTED = 20_000_000  # Synapses above which not even missing cores are counted.


def smallest_change(network: Network, chip: Chip, error: FitError, options: Options) -> str | None:
    """Return changes that each alone make a normalized network fit, the relatively smallest first, or None.

    Changes of `options` come first, because they cost nothing. Returns None too if `error` shows that something
    other than room is missing, and on a chip whose sources have one sign, as copies are not counted here.
    """
    if chip.weights.source_sign or not all(v.what in CAPACITIES for v in error.violations):
        return None
    n_synapses = sum(synapse_count(network, c) for c in network.connections)
    if n_synapses > (LARGEST if has_rules(chip) else LARGEST_COUNTED):
        return None
    if least_cores(network, chip) <= chip.n_cores and _try_fit(network, chip):
        return _other_options(network, chip, options)
    is_small = n_synapses <= (LARGEST_WITH_RULES if has_rules(chip) else LARGEST)
    lacks_cores = any(v.what in TOTALS and v.where == f"network -> {chip.name}" for v in error.violations)
    changes = [*_more_cores(network, chip)] if is_small or lacks_cores else []
    if is_small:
        changes += [*_fewer_bits(network, chip), *_smaller_layer(network, chip)]
    return ", or ".join(text for _, text in sorted(changes)) or None


def wider_messages(error: FitError, chip: Chip, made: Callable[[Chip], Network]) -> str | None:
    """Return the payload with which a network fits whose sums exceed the chip's messages, or None.

    `made(chip)`: the network with the neurons that send them, in integers, on a chip of wider messages.
    """
    if any(v.what != "payload bits" for v in error.violations):
        return None
    bits = max(int(v.used) for v in error.violations)
    try:
        wider = chip.replace({"noc.payload_bits": bits})
        network = made(wider)
    except NwError:
        return None
    if sum(synapse_count(network, c) for c in network.connections) > LARGEST or _try_fit(network, wider) is None:
        return None
    return f"messages of {bits} bits (noc.payload_bits={bits})"


def _try_fit(network: Network, chip: Chip, options: Options = SLICES) -> Mapping | None:
    try:
        return partition(network, chip, Activity.uniform(network, 1), options).mapping
    except (FitError, OptionError):
        return None


def _other_options(network: Network, chip: Chip, options: Options) -> str | None:
    """Return the fewest choices of `options` to drop so that slices fit; None if no choice prevents it."""
    other = [] if options.partitioner in FALL_BACK else ["partitioner='sequential'"]
    given = [name for name in ("n_cores", "fixed_sites") if getattr(options, name) is not None]
    for n in range(not other, len(given) + 1):
        for names in combinations(given, n):
            kept = {name: getattr(options, name) for name in given if name not in names}
            if _try_fit(network, chip, replace(SLICES, **kept)):
                return " and ".join([*other, *(f"{name} left out" for name in names)])
    return None


def _more_cores(network: Network, chip: Chip) -> Iterator[tuple[float, str]]:
    """Yield how many more columns of the same cores are needed."""
    growth, mapping, a_column = 1, None, chip.noc.rows * chip.noc.cores_per_router
    n_least = least_cores(network, chip)
    while 2 * growth * chip.n_cores < n_least:
        growth *= 2
    try:
        while mapping is None and growth < MOST_GROWTH:
            growth *= 2
            mapping = _try_fit(network, chip.replace({"noc.columns": chip.noc.columns * growth}))
        if mapping is None:
            return
        columns = chip.noc.columns + ceil(max(1, mapping.n_cores - chip.n_cores) / a_column)
        while columns < chip.noc.columns * growth and not _try_fit(network, chip.replace({"noc.columns": columns})):
            columns += 1
    except NwError:  # each core has its own figures, or such a large grid is impossible
        return
    n = (columns - chip.noc.columns) * a_column
    yield n / chip.n_cores, f"{n} more core{'s' if n > 1 else ''} (noc.columns={columns})"


def _fewer_bits(network: Network, chip: Chip) -> Iterator[tuple[float, str]]:
    """Yield the largest width of weights, below the present one, with which the synapse memory holds the network."""
    max_bits = max((c.weight_bits or chip.weights.bits for c in network.connections), default=1)

    def narrowed(bits: int) -> Network:
        edges = (c.replace(weight_bits=min(bits, c.weight_bits or chip.weights.bits)) for c in network.connections)
        return Network(network.inputs, network.nodes, tuple(edges))

    bits = _find_most(1, max_bits - 1, lambda bits: _try_fit(narrowed(bits), chip) is not None)
    if bits is not None:
        yield (max_bits - bits) / max_bits, f"{bits}-bit weights instead of {max_bits}-bit ones"


def _smaller_layer(network: Network, chip: Chip) -> Iterator[tuple[float, str]]:
    """Yield, for each of the largest layers, the largest smaller size with which the network fits."""
    by_size = sorted(network.layers, key=lambda name: -network.node(name).n_neurons)
    n_all = count_neurons(network)
    for name in by_size[:N_LAYERS]:
        node = network.node(name)
        if not all(_can_shrink(c, name) for c in network.connections):
            continue
        n = _find_most(1, node.shape[0] - 1, lambda n, name=name: _try_fit(shrink(network, name, n), chip) is not None)
        if n is not None:
            word = "channels" if len(node.shape) > 1 else "neurons"
            lost = node.n_neurons * (node.shape[0] - n) / node.shape[0]
            yield lost / n_all, f"{n} {word} in {name} instead of {node.shape[0]}"


def _find_most(low: int, high: int, is_good) -> int | None:
    """Return the largest good number in low..high, assuming that all below a good one are good; None if none is."""
    if high < low or not is_good(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_good(middle) else (low, middle - 1)
    return low


def _can_shrink(connection: Connection, name: str) -> bool:
    """Return whether the layer's first axis can be cut in this connection."""
    is_end = name in (connection.source, connection.target)
    if not is_end or not isinstance(connection, Conv2d):
        return True
    return connection.groups == 1 and connection.source_shape is None


def _keep_rows(weight: np.ndarray, n_inputs: int, n: int) -> np.ndarray:
    """Return the weights into the first `n` neurons, or channels, of each input, one input after the other."""
    shape = weight.shape[1:]
    return weight.reshape(n_inputs, -1, *shape)[:, :n].reshape(n_inputs * n, *shape)


def shrink(network: Network, name: str, n: int) -> Network:
    """Return a network with the first `n` channels, or neurons, of a layer; only its structure is meaningful."""
    node = network.node(name)
    nodes = {**network.nodes, name: Node(name, (n, *node.shape[1:]), node.neuron)}
    kept = n * int(np.prod(node.shape[1:]))
    edges = []
    for c in network.connections:
        weight = c.weight
        into, out_of = c.target == name, c.source == name
        changes: dict[str, Any] = {"bias": None}
        if isinstance(c, Sparse):
            of_input, post = np.divmod(np.asarray(c.post), node.n_neurons) if into else (0, np.asarray(c.post))
            is_kept = ((post < kept) | (not into)) & ((np.asarray(c.pre) < kept) | (not out_of))
            ends = {"pre": np.asarray(c.pre), "post": of_input * kept + post, "weight": np.asarray(weight)}
            changes |= {f: values[is_kept] for f, values in ends.items()}
        elif into or out_of:
            rows, columns = (kept, kept) if isinstance(c, Dense) else (n, n)
            weight = _keep_rows(weight, node.n_inputs, rows) if into else weight
            changes["weight"] = weight[:, :columns] if out_of else weight
        edges.append(c.replace(**changes))
    return Network(network.inputs, nodes, tuple(edges))
