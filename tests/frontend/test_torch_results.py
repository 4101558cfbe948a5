"""What of a module's result the network lacks is a warning that names it, and stays with network and program."""

import warnings

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import NwWarning
from nwcompile.sim.answers import answer_rule

LIF = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 1e-3}


class Net(torch.nn.Module):
    """A layer of 8 neurons; `ending(spikes, membrane, module)` makes the result, of all steps or of each in a loop."""

    def __init__(self, ending, in_steps=False):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.lif, self.out = torch.nn.Linear(6, 8), nn.LIFLayer(8, **LIF), torch.nn.Linear(8, 3)
        self.fc.weight.data.uniform_(-0.2, 0.6)
        self.more = nn.LIFLayer(8, **LIF)
        self.ending, self.in_steps = ending, in_steps

    def forward(self, x):
        self.given = x
        if not self.in_steps:
            return self.ending(*self.lif(self.fc(x)), self)
        steps = [self.lif(self.fc(x_t)) for x_t in x.unbind(1)]
        return self.ending([s for s, _ in steps], [m for _, m in steps], self)


def example():
    return (torch.rand(4, 5, 6, generator=torch.Generator().manual_seed(1)) < 0.5).float()


def filled(spikes):
    result = torch.zeros(4, 5, 8)
    for t, s in enumerate(spikes):
        result[:, t] = s
    return result


def added_up(spikes, do=lambda s: s):
    total = 0
    for s in spikes:
        total = total + do(s)
    return total


WHOLE = {
    "spikes": lambda s, m, net: s,
    "counts": lambda s, m, net: s.sum(1),
    "rates": lambda s, m, net: s.mean(1),
    "scaled counts": lambda s, m, net: 2 * s.sum(1) / 5,
    "a readout": lambda s, m, net: net.out(s),
    "a readout of rates": lambda s, m, net: net.out(s.mean(1)),
    "a dict": lambda s, m, net: {"spikes": s},
    "nothing": lambda s, m, net: None,
    "a layer that ends it": lambda s, m, net: net.more(0.6 * s),
}
LOOPED = {
    "stacked": lambda s, m, net: torch.stack(s, 1),
    "stacked, time last": lambda s, m, net: torch.stack(s, -1),
    "a list": lambda s, m, net: s,
    "and where to go on from": lambda s, m, net: (torch.stack(s, 1), m[-1]),
    "counted": lambda s, m, net: added_up(s),
    "readouts added up": lambda s, m, net: added_up(s, net.out) / 5,
    "filled by items": lambda s, m, net: filled(s),
    "the mean of readouts": lambda s, m, net: torch.stack([net.out(x) for x in s]).mean(0),
}


@pytest.mark.parametrize(
    ("ending", "in_steps"), [*((end, False) for end in WHOLE), *((end, True) for end in LOOPED)]
)  # fmt: skip
def test_from_torch_says_nothing_of_a_result_that_the_network_gives(ending, in_steps):
    network = nw.from_torch(Net((LOOPED if in_steps else WHOLE)[ending], in_steps), example())
    assert network.left_out == "" and network.readout is None


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4])
@pytest.mark.parametrize("gather", [tuple, list])
@pytest.mark.parametrize("ending", ["whole", "looped"])
def test_several_results_are_not_taken_for_as_many_steps(ending, gather, n_steps):
    """Nor in a shorter sample, on which the import is tried."""
    endings = {
        "whole": lambda s, m, net: gather([net.more(0.6 * s)[0], s]),
        "looped": lambda s, m, net: gather([[net.more(0.6 * x)[0] for x in s], s]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", NwWarning)
        network = nw.from_torch(Net(endings[ending], ending == "looped"), example()[:, :n_steps])
    assert network.layers == ("lif", "more") and network.readout is None


def test_value_that_python_reads_must_not_change_the_result():
    """The operators of the example do not show another branch, or another number."""
    endings = {
        "branch": lambda s, m, net: s.sum(1) if s.sum() > 12 else -s.sum(1),
        "number": lambda s, m, net: (s.sum(1) * s.sum().item()).tanh(),
        "factor": lambda s, m, net: s.sum(1) / max(s.sum().item(), 1),
    }
    for ending in endings.values():
        with pytest.warns(NwWarning, match="differs from the|depends on the other samples"):
            network = nw.from_torch(Net(ending), example()[:1])
        assert network.left_out and network.readout is None


TOLD = {
    "both": (lambda s, m, net: (s, m), "the membrane of layer 'lif'"),
    "a list of numbers": (lambda s, m, net: s.sum(1).argmax(-1).tolist(), "a result of type list, which holds no tens"),
    "the input": (
        lambda s, m, net: s.sum(1)[:, :3] + net.given[:, :, :3].sum(1),
        "torch's sum (test_torch_results.py:",
    ),
}


@pytest.mark.parametrize("ending", TOLD)
def test_from_torch_names_what_it_leaves_out_of_the_result(ending):
    make, text = TOLD[ending]
    with pytest.warns(NwWarning) as told:
        network = nw.from_torch(Net(make), example())
    assert len(told) == 1 and str(told[0].message) == f"Net: {network.left_out}"
    assert network.left_out.startswith(f"the import left out {text}")


def test_a_layer_of_the_users_own_that_comes_last_is_a_layer():
    class Own(torch.nn.Module):
        v = 0

        def forward(self, x):
            self.v = 0.5 * self.v + x
            return (self.v > 0.3).float()

    module = torch.nn.Sequential(*list(Net(None).children())[:3], Own())
    assert nw.from_torch(module, example()).layers == ("1", "3")


def test_from_torch_names_the_membrane_that_each_step_gives():
    class Steps(Net):
        def forward(self, x):
            spikes, mem = self.lif(self.fc(x))
            return spikes, mem

    with pytest.warns(NwWarning, match="left out the membrane of layer 'lif'"):
        nw.from_torch(Steps(None), example())


def test_from_torch_takes_a_module_whose_result_grows_with_every_step():
    class Growing(Net):
        def forward(self, x):
            self.kept = [*getattr(self, "kept", []), self.lif(self.fc(x))[0]]
            return torch.stack(self.kept).softmax(-1)

    network = nw.from_torch(Growing(None), example())
    assert network.readout.text == "largest of softmax of 'lif', as in the module, summed over all steps"


def of_input():
    """A network whose module adds its input to the answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        return nw.from_torch(Net(TOLD["the input"][0]), example())


def test_programs_keep_what_the_import_left_out(tmp_path):
    network = of_input()
    program = nw.compile(network, "loihi2", example().numpy())
    program.save(tmp_path / "net.nwc")
    loaded = nw.Program.load(tmp_path / "net.nwc")
    assert loaded.network.left_out == program.network.left_out == network.left_out != ""
    assert loaded.warnings[0] == network.left_out and loaded.hash == program.hash
    assert network.hash == nw.from_torch(Net(WHOLE["spikes"]), example()).hash


@pytest.mark.parametrize("largest", [1.0, 0.5])
def test_points_of_accuracy_are_told_to_be_those_of_the_output_neurons(largest):
    """Also where the host computes the input layer, of real values."""
    options = nw.Options(approximate="all", max_loss="100pt")
    with pytest.warns(NwWarning, match="max_loss='100pt' follows the rule 'class = output neuron with most spikes"):
        nw.compile(strict(of_input()), "loihi1", largest * example().numpy(), options, labels=np.zeros(4, int))


def strict(network):
    """The network with neurons that only the nearest of loihi1 can be."""
    layers = {"lif": (network.node("lif").neuron.replace(reset="subtract"), (8,))}
    made = nw.Network.from_arrays(layers, network.connections, {"input": (6,)})
    object.__setattr__(made, "left_out", network.left_out)
    return made


def test_the_rule_of_answers_is_that_of_the_output():
    assert answer_rule(of_input()).startswith("class = output neuron with most spikes")
    readout = nw.from_torch(Net(WHOLE["a readout"]), example())
    assert answer_rule(readout).startswith("class = output neuron with the largest sum of its membrane")
