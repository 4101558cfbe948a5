"""The zoo's networks: alive, and imported with every spike that their frameworks compute."""

import pytest
import torch

from nwcompile.frontend.torch.kinds import find_kind
from tests.zoo.cell import NETWORKS, imported
from tests.zoo.net import Net

QUICK = {"regression", "speech_commands"}  # Networks without images: reading those takes seconds.
# Layers that may spike less: trained weights keep two below 2 % on events that are drawn, and what the integrator at
# the end of the regression sends is disregarded by its authors, who read its membrane.
SILENT = {"speech_commands": {"6", "8"}, "regression": {"li_out"}}


def spike_rates(net: Net) -> dict[str, float]:
    """Spikes a neuron and step of every neuron module, in one pass."""
    counts: dict[str, list[float]] = {}
    hooks = []
    for path, part in net.module.named_modules():
        if find_kind(part) is not None:
            counts[path] = []

            def count(_module, _given, result, counted=counts[path]):
                counted.append(float((result[0] if isinstance(result, tuple) else result).mean()))

            hooks.append(part.register_forward_hook(count))
    with torch.no_grad():
        net.run(net.x)
    for hook in hooks:
        hook.remove()
    return {path: sum(counted) / len(counted) for path, counted in counts.items()}


# The residual network adds thousands of numbers a neuron: one in some thousand spikes is a matter of float32 rounding.
@pytest.mark.filterwarnings("ignore:layer 'layer.*' spikes differently from the module")
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n not in QUICK)) for n in NETWORKS])
def test_zoo_network_is_at_work_in_every_layer_and_imports_without_a_warning(name, reference):
    net, network = imported(name)  # a spike that differs between module and network is a warning, and so an error
    rates = spike_rates(net)
    firing = {layer for layer in network.layers if network.node(layer).neuron.fires}
    assert len(firing & rates.keys()) >= 1
    for layer in firing & rates.keys() - SILENT.get(name, set()):
        assert 0.02 < rates[layer] < 0.3, f"{layer} spikes in {100 * rates[layer]:.1f} % of its steps"
