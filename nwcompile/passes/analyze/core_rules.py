"""Core rules: limits on the layers of a core, on their program and state memory, and on destination cores.

A core of Speck runs one layer and sends to at most two cores; a neuron of TrueNorth has one axon. Destinations are
limited per core or per neuron.
"""

from collections.abc import Iterator

import numpy as np

from nwcompile.cost.neuron_program import program_length, state_words
from nwcompile.cost.traffic.axons import build_axons
from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.errors import Violation, first_places
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import cores_of_sources, count_lines, layer_numbers
from nwcompile.ir.network import Network

OF_LAYERS = {"layers of a core": "max_layers", "program memory": "max_instructions", "state memory": "max_state_words"}
OF_DESTINATIONS = {"destination cores": "max_destinations", "destination cores of a neuron": "max_neuron_destinations"}
KEYS = {**OF_LAYERS, **OF_DESTINATIONS}


def has_rules(chip: Chip) -> bool:
    """Return whether the chip has any rule of this file."""
    return any(chip.limit(key) is not None for key in KEYS.values())


def needs_slices(chip: Chip) -> bool:
    """Return whether only slices of single layers are sure to keep the chip's rules; others are tried, then checked."""
    max_layers = chip.limit("max_layers")
    return max_layers is not None and int(max_layers.min()) == 1 or _limits_destinations(chip)


def _limits_destinations(chip: Chip) -> bool:
    return any(chip.limit(key) is not None for key in OF_DESTINATIONS.values())


def core_rule_violations(
    network: Network, chip: Chip, core_of: np.ndarray, site_index: np.ndarray
) -> Iterator[Violation]:
    """Yield cores with more layers or destinations than their site allows, the worst five of a layer.

    `core_of` int32[neuron] in layer order, `site_index` int64[core]: the physical core of each. A core that sends to
    itself is one of its destinations. A core is named after the layer of its neuron with most destinations.
    """
    if not has_rules(chip) or _keeps_layers(network, chip, core_of, site_index):
        return
    counts, layer_at = _count_by_rule(network, chip, core_of, len(site_index))
    for what, used in counts.items():
        limit = chip.limit(KEYS[what])
        if limit is not None:
            yield from _rule_violations(network, chip, what, used, limit[site_index], layer_at)


def n_over(network: Network, chip: Chip, core_of: np.ndarray) -> int:
    """Count the cores over the limit of every core of the chip, summed over rules; `core_of` int32[neuron]."""
    if not has_rules(chip) or _keeps_layers(network, chip, core_of, None):
        return 0
    counts, _ = _count_by_rule(network, chip, core_of, int(core_of.max()) + 1)
    limits = {what: chip.limit(key) for what, key in KEYS.items()}
    return sum(int((counts[what] > limit.max()).sum()) for what, limit in limits.items() if limit is not None)


def _count_by_rule(network: Network, chip: Chip, core_of: np.ndarray, n_cores: int) -> tuple[dict, np.ndarray]:
    """Return what each of `KEYS` limits, int64[core] by name, and each core's widest sender's layer, int64[core]."""
    layer_of = layer_numbers(network)
    n_lines = count_lines(network)
    core_of_all = cores_of_sources(network, core_of)
    axons = build_axons(network, core_of_all, n_cores, chip)
    _, pairs = core_pairs(axons, core_of_all, n_cores)
    fan_out = np.diff(axons.offset)[n_lines:]
    if chip.family.outputs_need_destinations:
        fan_out = fan_out + np.isin(layer_of, [network.layers.index(name) for name in network.outputs])
    order = np.lexsort((-fan_out, core_of))
    cores, first = np.unique(core_of[order], return_index=True)
    widest, layer_at = np.zeros(n_cores, np.int64), np.zeros(n_cores, np.int64)
    widest[cores], layer_at[cores] = fan_out[order[first]], layer_of[order[first]]
    sent = np.bincount(pairs[:, 0], minlength=n_cores), widest
    by_layers = _count_layers(network, chip, core_of, n_cores)
    return {**by_layers, **dict(zip(OF_DESTINATIONS, sent, strict=True))}, layer_at


def limit_to_states(network: Network, chip: Chip) -> Chip:
    """Return the chip with fewer neurons per core, so that the states of any layer fit into a core's state memory."""
    limit = chip.limit("max_state_words")
    words = max((state_words(network.node(name).neuron, chip) for name in network.layers), default=1)
    if limit is None or (chip.max_neurons * words <= limit).all():
        return chip
    neurons = np.minimum(np.broadcast_to(np.asarray(chip.core.max_neurons), limit.shape), np.maximum(limit // words, 1))
    alike = (neurons == neurons[0]).all()
    return chip.replace({"core.max_neurons": int(neurons[0]) if alike else neurons.tolist()})


def split_by_layers(network: Network, chip: Chip, core_of: np.ndarray) -> np.ndarray:
    """Return `core_of` int32[neuron] with each core that runs too many layers split into as few as possible."""
    limit = chip.limit("max_layers")
    if limit is None:
        return core_of
    n_layers = len(network.layers)
    run, of_neuron = np.unique(core_of.astype(np.int64) * n_layers + layer_numbers(network), return_inverse=True)
    core = run // n_layers
    nth_layer = np.arange(len(run)) - np.searchsorted(core, core)
    part = core * n_layers + nth_layer // int(limit.max())
    return np.unique(part, return_inverse=True)[1].reshape(-1)[of_neuron.reshape(-1)].astype(np.int32)


def _count_layers(network: Network, chip: Chip, core_of: np.ndarray, n_cores: int) -> dict[str, np.ndarray]:
    """Return what the layers of a core take, each int64[core], by the names of OF_LAYERS."""
    n_layers, layer_of = len(network.layers), layer_numbers(network)
    core, layer = np.divmod(np.unique(core_of.astype(np.int64) * n_layers + layer_of), n_layers)
    neurons = [network.node(name).neuron for name in network.layers]
    lengths = np.array([program_length(neuron) for neuron in neurons])
    words = np.array([state_words(neuron, chip) for neuron in neurons])
    counts = (
        np.bincount(core, minlength=n_cores),
        np.bincount(core, lengths[layer], n_cores).astype(np.int64),
        np.bincount(core_of, words[layer_of], n_cores).astype(np.int64),
    )
    return dict(zip(OF_LAYERS, counts, strict=True))


def _keeps_layers(network: Network, chip: Chip, core_of: np.ndarray, site_index: np.ndarray | None) -> bool:
    """Return whether the rules hold without looking at axons: no limit on destinations, no core over its limits."""
    if _limits_destinations(chip):
        return False
    n_cores = int(core_of.max()) + 1 if site_index is None else len(site_index)
    for what, used in _count_layers(network, chip, core_of, n_cores).items():
        limit = chip.limit(KEYS[what])
        if limit is not None and (used > (limit.max() if site_index is None else limit[site_index])).any():
            return False
    return True


def _rule_violations(
    network: Network, chip: Chip, what: str, used: np.ndarray, limit: np.ndarray, layer_at
) -> Iterator[Violation]:
    for layer in np.unique(layer_at[used > limit]):
        name = network.layers[layer]
        cores = np.flatnonzero((used > limit) & (layer_at == layer))
        cores = cores[np.argsort(limit[cores] - used[cores], kind="stable")]
        for c, place in zip(cores, first_places([f"core {c}" for c in cores], "core"), strict=False):
            advice = f"{_rule_advice(network, chip, what, name, int(limit[c]))} or raise core.{KEYS[what]}"
            yield Violation(what, f"{name} -> {place}", int(used[c]), int(limit[c]), advice)


def _rule_advice(network: Network, chip: Chip, what: str, layer: str, limit: int) -> str:
    if what == "layers of a core":
        return f"give each of the {len(network.layers)} layers cores of its own"
    if what == "program memory":
        return f"shorten the neuron of {layer} ({program_length(network.node(layer).neuron)} operations)"
    if what == "state memory":
        return f"keep fewer states in {layer} ({state_words(network.node(layer).neuron, chip)} a neuron)"
    fed = ", ".join(dict.fromkeys(c.target for c in network.out_of(layer)))
    return f"make what {layer} feeds ({fed}) so small that it takes {limit} core{'s' if limit > 1 else ''}"
