"""Drop signs: gated neurons on a chip whose messages carry no sign keep to positive spikes."""

from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network, Node


def drop_signs(network: Network, chip: Chip, on_multi_spike: str) -> tuple[Network, list[str]]:
    """The same network with gated neurons as the chip can send for them, and a warning that names those that changed.

    `on_multi_spike` (`Options`): "graded" messages carry a sign on any chip.
    """
    gated = [name for name in network.built_in if network.node(name).neuron.spikes == "gated"]
    if not gated or on_multi_spike == "graded" or "bipolar" in chip.neuron.spikes:
        return network, []
    nodes = dict(network.nodes)
    for name in gated:
        nodes[name] = Node(name, nodes[name].shape, nodes[name].neuron.replace(spikes="binary"))
    names = ", ".join(map(repr, gated))
    warning = (
        f"{chip.name} sends no negative spikes, so the gated neurons of {names} send none: spikes sent too early are "
        "not taken back, which costs accuracy where there are few steps; give it more steps, compile with "
        "on_multi_spike='graded', or take a chip whose neuron.spikes has 'bipolar'"
    )
    return Network(network.inputs, nodes, network.connections), [warning]
