"""sinabs' adaptive neurons as neuron programs: the framework's numbers, in networks and on a chip."""

import pytest
import torch

import nwcompile as nw
from tests.frontend.frameworks import framework
from tests.frontend.kinds.cases import (
    LONG,
    N_IN,
    SHORT,
    Case,
    draw,
    each_in_both,
    each_once,
    number,
    verify_network,
    verify_on_chip,
    verify_same,
    weights,
)
from tests.made.spikes import next_spike_tensor

layers = framework("sinabs.layers")
activation = framework("sinabs.activation")


def run(module, x):
    module.reset_states()
    return module(x.transpose(0, 1)).transpose(0, 1)


def adaptive(kind="ALIF", **options):
    def make(n):
        given = {
            "tau_mem": draw(n, 2, 20),
            "tau_adapt": draw(n, 5, 50),
            "adapt_scale": number(0.5, 2),
            "norm_input": False,
        }
        if kind == "ALIFRecurrent":
            given["rec_connect"] = torch.nn.Linear(n, n, bias=False)
        module = getattr(layers, kind)(**{**given, **options})
        return module.to(torch.get_default_dtype())

    return make


class Twice(activation.SingleSpike):
    """A user's own: two spikes above twice the threshold."""

    @staticmethod
    def forward(ctx, v_mem, spike_threshold, surrogate_grad_fn):
        return (v_mem >= spike_threshold).float() + (v_mem >= 2 * spike_threshold).float()


def pull(spikes, state, threshold):
    """A user's own reset: half of the membrane stays."""
    return {**state, "v_mem": state["v_mem"] * (1 - 0.5 * spikes.to(state["v_mem"]))}


def leaky(**options):
    def make(n):
        module = layers.LIF(draw(n, 2, 20), norm_input=False, **options)
        return module.to(torch.get_default_dtype())

    return make


CASES = {
    "LIF MaxSpike": Case(leaky(spike_fn=activation.MaxSpike(3)), run, high=3.0),
    "LIF MembraneSubtract": Case(lambda n: leaky(reset_fn=activation.MembraneSubtract(draw(n)), tau_syn=3.0)(n), run),
    "LIF MembraneReset": Case(leaky(reset_fn=activation.MembraneReset(0.25), min_v_mem=-0.5), run),
    "LIF own functions": Case(leaky(spike_fn=Twice, reset_fn=pull), run),
    "ALIF": Case(adaptive(), run),
    "ALIF norm_input": Case(adaptive(norm_input=True), run, high=6.0),
    "ALIF tau_syn": Case(adaptive(tau_syn=4.0), run),
    "ALIF min_v_mem": Case(adaptive(min_v_mem=-0.5, train_alphas=True), run),
    "ALIF MultiSpike": Case(adaptive(spike_fn=activation.MultiSpike), run, high=3.0),
    "ALIF MaxSpike": Case(adaptive(spike_fn=activation.MaxSpike(3)), run, high=5.0),
    "ALIF MembraneReset": Case(adaptive(reset_fn=activation.MembraneReset(0.1)), run),
    "ALIFRecurrent": Case(adaptive("ALIFRecurrent"), run, double=False),
}


@each_once(CASES)
def test_sinabs_programs_give_the_frameworks_numbers(name, dtype):
    verify_same(CASES[name], dtype, *SHORT)


@each_in_both(CASES)
def test_sinabs_programs_give_the_frameworks_numbers_for_a_million_steps(name, dtype):
    verify_same(CASES[name], dtype, *LONG)


def network(name):
    gain = 30.0 if "norm" in name else 4.0
    parts = [weights(10, gain=gain), CASES[name].make(10), weights(6, 10, gain), CASES[name].make(6)]
    return torch.nn.Sequential(*parts).eval()


@pytest.mark.parametrize("name", CASES)
def test_from_torch_follows_sinabs_neurons_in_a_network(name):
    torch.manual_seed(3)
    module, x = network(name), next_spike_tensor(3, 30, N_IN, rate=0.3)
    with torch.no_grad():
        result = module(x)
    module[1].reset_states(), module[3].reset_states()
    verify_network(module, x, "BT", result)


def test_from_torch_follows_squeezed_alif():
    torch.manual_seed(3)
    squeezed = layers.alif.ALIFSqueeze(batch_size=2, tau_mem=10.0, tau_adapt=20.0, norm_input=False)
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), squeezed).eval()
    x = 3 * next_spike_tensor(2, 10, 1, 6, 6, rate=0.3)
    network = nw.from_torch(module, x)
    squeezed.reset_states()
    assert network.programs == ("1",)
    with torch.no_grad():
        result = module(x.flatten(0, 1)).reshape(2, 10, 2, 4, 4)
    assert (nw.simulate(network, x.numpy()).output == result.numpy()).all()
    assert result.any()


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name for name in CASES if ("Spike" not in name or "ALIF" in name) and "norm" not in name]
)
def test_sinabs_programs_are_the_same_in_three_backends(name):
    torch.manual_seed(3)
    verify_on_chip(network(name), next_spike_tensor(3, 30, N_IN, rate=0.3), "BT")
