"""Networks of the frameworks on chips whose decays are shifts: the nearest that these have, and what is said of it."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.passes.fit.relay_delays import relay_neuron
from nwcompile.passes.quantize.approximate.nearest import AT_MEMBRANE, nearest_network
from tests.frontend.frameworks import framework

snntorch = framework("snntorch")
sinabs = framework("sinabs.layers")
activation = framework("sinabs.activation")

X = np.random.default_rng(0).poisson(0.3, (20, 30, 6)).astype(np.float32)
LASTS = {
    "was": "no synaptic current",
    "has": "a current that keeps 50 % of itself in a step",
    "how": "a spike adds as much to the membrane in all, over several steps",
    "label": "approximate",
    "price": None,
}


class Synaptic(torch.nn.Module):
    """6-20-4 neurons of snnTorch with decays that no shift gives, and the defaults: a late subtraction."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = torch.nn.Linear(6, 20), torch.nn.Linear(20, 4)
        self.lif1, self.lif2 = (snntorch.Synaptic(alpha=0.83, beta=0.91) for _ in range(2))
        with torch.no_grad():
            self.fc1.weight.mul_(2)
            self.fc2.weight.mul_(2)

    def forward(self, x):
        first, second, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for t in range(x.shape[1]):
            hidden, *first = self.lif1(self.fc1(x[:, t]), *first)
            spikes, *second = self.lif2(self.fc2(hidden), *second)
            out.append(spikes)
        return torch.stack(out, 1)


def of_sinabs(neuron, **options) -> torch.nn.Sequential:
    """6-20-4 neurons that send counts, and outputs one spike."""
    torch.manual_seed(0)
    hidden, out = (torch.nn.Linear(n, m, bias=False) for n, m in ((6, 20), (20, 4)))
    single = neuron(spike_fn=activation.SingleSpike, **options)
    return torch.nn.Sequential(hidden, neuron(**options), out, single)


def rows(program: nw.Program, name: str) -> list[dict]:
    return [{key: row[key] for key in LASTS} for row in program.legalization if row["layer"] == name]


def test_xylo_takes_the_nearest_shifts_of_an_snntorch_net(recwarn):
    network = nw.from_torch(Synaptic().eval(), X[:1])
    with pytest.raises(FitError) as error:
        nw.compile(network, "xylo_imu", X)
    assert "it fits with approximate='timing,multi-spike,bias'" in str(error.value)
    program = nw.compile(network, "xylo_imu", X, nw.Options(approximate=("timing", "multi-spike", "bias")))
    table = {row["layer"]: row for row in program.manifest["quantization"]}
    for row in table.values():  # 1 - 1/8 is the nearest to 0.83: 7.49 steps instead of 5.37
        assert row["tau_u"] == pytest.approx(-1 / np.log(0.83), rel=1e-5)
        assert row["tau_u_chip"] == pytest.approx(-1 / np.log(1 - 1 / 8))
        assert row["tau_error_percent"] == pytest.approx(100 * (row["tau_u_chip"] / row["tau_u"] - 1), abs=0.1)
    assert program.network.node("lif1").neuron.max_spikes == 31
    (row,) = rows(program, "lif1")
    assert row["was"] == "one step late, one spike per step, a bias of the current"
    assert row["price"]["rate_ideal"] > 0.1
    assert nw.crosscheck(program, X[:2]).agree


def test_xylo_gives_neurons_without_a_current_one_and_says_so(recwarn):
    network = nw.from_torch(of_sinabs(sinabs.LIF, tau_mem=12.0, norm_input=False), X[:1])
    program = nw.compile(network, "xylo_imu", X, nw.Options(approximate="multi-spike"))
    assert LASTS in rows(program, "1") and rows(program, "3") == [LASTS]
    assert program.network.node("1").neuron.decay_u == 1
    assert not [w for w in recwarn if "leak is finer" in str(w.message)]
    with_current = nw.from_torch(of_sinabs(sinabs.LIF, tau_mem=12.0, tau_syn=3.0, norm_input=False), X[:1])
    program = nw.compile(with_current, "xylo_imu", X, nw.Options(approximate="multi-spike"))
    assert LASTS not in rows(program, "1")


def test_relay_neurons_are_not_made_where_a_current_outlasts_its_step():
    assert relay_neuron(Chip.load("xylo_imu")) is None and relay_neuron(Chip.load("loihi1")) is not None


@pytest.mark.parametrize("alpha, moves", [(1.0, False), (np.array([0.5, 1.0]), False), (0.5, True)])
def test_a_bias_of_a_current_that_never_decays_stays_there(alpha, moves):
    """Such a current grows without an end, so no bias of the membrane is as large as it is then."""
    spec = nw.NeuronSpec(alpha=alpha, strict=False, reset="subtract", spikes="multi")
    weight, bias = np.ones((2, 3), np.float32), np.array([0.1, 0.2])
    network = nw.Network.from_arrays({"a": spec}, [nw.Dense("in", "a", weight, bias)], {"in": (3,)})
    with np.errstate(divide="raise"):
        nearest, features = nearest_network(network, Chip.load("xylo_imu"), nw.Options(approximate="all"))
    has = [feature.has for feature in features.get("a", [])]
    assert (AT_MEMBRANE in has) == moves
    assert (nearest.connections[0].bias is None) == moves
