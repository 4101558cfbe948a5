"""Pool: the rules of a chip with one pool of hidden neurons and a separate row of outputs (`core.max_outputs`).

Hidden neurons feed each other and the outputs, input lines feed only hidden neurons, and outputs feed nothing.
"""

from collections.abc import Iterator

import numpy as np

from nwcompile.cost.traffic.wiring import fed_neurons
from nwcompile.errors import Violation
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network

HOPELESS = 2  # Factor above a limit from which the synapses of a network are not counted.


def is_apart(network: Network, chip: Chip, layer: str) -> bool:
    """Return whether a layer's neurons are separate outputs of this chip, as those of the output layers are."""
    return chip.core.max_outputs is not None and layer in network.outputs


def spike_cap(network: Network, chip: Chip, layer: str) -> int | None:
    """Return the most spikes that the chip's neurons of this layer fire in a step, None if unknown."""
    return chip.neuron.output_max_spikes if is_apart(network, chip, layer) else chip.neuron.max_spikes


def weight_group(network: Network, chip: Chip, connection: Connection) -> str:
    """Return `input` for a connection from an input, `output` for one to a separate output, else `hidden`."""
    if connection.source in network.inputs:
        return "input"
    return "output" if is_apart(network, chip, connection.target) else "hidden"


def pool_violations(network: Network, chip: Chip) -> Iterator[Violation]:
    """Yield exceeded totals of such a chip, and connections that it has no wires for; nothing on other chips."""
    if chip.core.max_outputs is None:
        return
    where = f"network -> {chip.name}"
    outputs = [name for name in network.layers if is_apart(network, chip, name)]
    hidden = [name for name in network.layers if name not in outputs]
    n_outputs = sum(network.node(name).n_neurons for name in outputs)
    n_hidden = sum(network.node(name).n_neurons for name in hidden)
    n_inputs = sum(node.n_neurons for node in network.inputs.values())
    room = int(chip.max_neurons.sum()) - chip.core.max_outputs
    is_hopeless = False
    for what, used, limit, key in (
        ("input lines", n_inputs, chip.core.max_inputs, "core.max_inputs"),
        ("hidden neurons", n_hidden, room, "core.max_neurons"),
        ("output neurons", n_outputs, chip.core.max_outputs, "core.max_outputs"),
    ):
        if limit is not None and used > limit:
            is_hopeless |= used > HOPELESS * limit
            yield Violation(what, where, used, limit, f"use fewer {what} or raise {key}")
    yield from _wiring_violations(network, outputs)
    if not is_hopeless:  # otherwise listing all synapses may take minutes
        yield from _fan_excess(network, chip, hidden, outputs, room)
    if chip.weights.one_exponent and network.is_fixed:
        for group in ("input", "hidden", "output"):
            exponents = sorted({c.exponent for c in network.connections if weight_group(network, chip, c) == group})
            if len(exponents) > 1:
                shown, advice = ", ".join(map(str, exponents)), "quantize the network for this chip"
                yield Violation(f"exponents of {group} weights", where, shown, "one", advice)


def _wiring_violations(network: Network, outputs: list[str]) -> Iterator[Violation]:
    for c in network.connections:
        ends = f"{c.source} -> {c.target}"
        if c.source in outputs:
            advice = f"put a layer behind {c.source}: outputs of this chip feed nothing, hidden neurons do"
            yield Violation("wiring", ends, "from an output", "from another layer", advice)
        elif c.target in outputs and c.source in network.inputs:
            advice = f"put a hidden layer before {c.target}: this chip's outputs are fed by hidden neurons only"
            yield Violation("wiring", ends, "from an input", "from hidden neurons", advice)


def _fan_excess(network: Network, chip: Chip, hidden: list[str], outputs: list[str], room: int) -> Iterator[Violation]:
    """Yield exceeded limits on the fan-out of neurons, and on hidden neurons that inputs feed or that feed outputs."""
    core = chip.core
    synapses = {name: fed_neurons(network, name) for name in (*network.inputs, *hidden)}
    for name in hidden:
        fan_out = sum(count for _, count in synapses[name].values())
        widest = int(np.max(fan_out, initial=0))
        if core.max_fan_out is not None and widest > core.max_fan_out:
            advice = f"prune the weights out of {name} to {core.max_fan_out} a neuron, or feed smaller layers"
            yield Violation("fan-out of a neuron", name, widest, core.max_fan_out, advice)
    where = f"network -> {chip.name}"
    total = sum(int(count.sum()) for name in hidden for _, count in synapses[name].values())
    if core.mean_fan_out is not None and total > (n_held := core.mean_fan_out * room):
        advice = "prune weights between hidden neurons and to outputs"
        yield Violation("synapses of hidden neurons", where, total, n_held, advice)
    fed: dict[str, np.ndarray] = {name: np.zeros(network.node(name).n_neurons, bool) for name in hidden}
    for name in network.inputs:
        for target, (is_fed, _) in synapses[name].items():
            if target in fed:
                fed[target] |= is_fed
    feeding = [
        sum((count for t, (_, count) in synapses[name].items() if t in outputs), np.zeros(len(fed[name]), np.int64))
        for name in hidden
    ]
    n_hidden = sum(len(is_fed) for is_fed in fed.values())
    n_fed, n_feeding = sum(int(f.sum()) for f in fed.values()), sum(int(np.count_nonzero(f)) for f in feeding)
    for what, used, limit, advice in (
        ("hidden neurons fed by inputs", n_fed, core.max_input_targets, "make the first layer smaller"),
        ("hidden neurons that feed outputs", n_feeding, core.max_output_sources, "make the last hidden layer smaller"),
    ):
        if limit is not None and used > limit:
            yield Violation(what, where, used, limit, advice)
    first, last = core.max_input_targets or n_hidden, core.max_output_sources or n_hidden
    n_both = sum(int(np.count_nonzero(fed[name] & (f > 0))) for name, f in zip(hidden, feeding, strict=True))
    # Neurons that inputs can reach and outputs can read.
    n_shared = max(0, min(first, n_hidden) + min(last, n_hidden) - n_hidden)
    if n_both > n_shared and n_fed <= first and n_feeding <= last:
        advice = f"inputs reach the first {first} hidden neurons, and outputs read the last {last}: use fewer hidden "
        advice += "neurons, or another layer before the outputs"
        yield Violation("hidden neurons that inputs feed and outputs read", where, n_both, n_shared, advice)
