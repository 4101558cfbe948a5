"""Conversion: integrate-and-fire networks that compute what ReLU networks do, in float and on a chip."""

import numpy as np
import pytest
import torch
from torch import nn

import nwcompile as nw
from nwcompile.nn import QuantizedReLU
from tests.made.relu_nets import Residual, X, conv_net

ROOM = {"core.max_neurons": 256, "core.synapse_bits": 1 << 18, "core.max_in_axons": 1024, "core.max_out_axons": 1024}


def repeated(x: torch.Tensor, n_steps: int) -> np.ndarray:
    return np.broadcast_to(x.numpy()[:, None], (len(x), n_steps, *x.shape[1:]))


def rates(net: nn.Module, network: nw.Network, n_steps: int, x: torch.Tensor = X) -> tuple[np.ndarray, np.ndarray]:
    """Mean output over the steps, and the artificial network's."""
    with torch.no_grad():
        return nw.simulate(network, repeated(x, n_steps)).output.mean(1), net(x).numpy()


def values_of(net: nn.Sequential, index: int) -> np.ndarray:
    with torch.no_grad():
        return net[: index + 1](X).numpy()


@pytest.mark.parametrize("n_steps", [8, 37])
def test_convert_gives_activations_as_rates_to_half_a_spike(n_steps):
    net = conv_net()
    network = nw.convert(net, X, n_steps, "max")
    wanted = values_of(net, 2)
    threshold = float(network.node("2").neuron.threshold)
    assert threshold == wanted.max()
    found = nw.simulate(network, repeated(X, n_steps)).spikes["2"].sum(1) * threshold / n_steps
    assert np.abs(found - wanted).max() <= threshold / (2 * n_steps) * (1 + 1e-3)
    assert network.layers == ("2", "8", "9")


def test_convert_leaves_the_weights_and_the_module_as_they_are():
    net = conv_net()
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    network = nw.convert(net, X, 16)
    assert net.training and isinstance(net[2], nn.ReLU) and not net[2]._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    weights = [c.weight for c in network.connections if c.has_weight]
    for weight, index in zip(weights, (0, 6, 9), strict=True):
        np.testing.assert_array_equal(weight, net[index].weight.detach().numpy())
    hidden = network.node("8").neuron
    assert (hidden.spikes, hidden.reset, hidden.strict) == ("binary", "subtract", False)
    assert float(hidden.bias) == pytest.approx(float(hidden.threshold) / 32)


def test_convert_percentile_is_taken_of_what_is_above_zero():
    net, above = conv_net(), values_of(conv_net(), 2)
    above = above[above > 0]
    for percentile in (50, 99.9, 100):
        network = nw.convert(net, X, 4, percentile=percentile)
        assert float(network.node("2").neuron.threshold) == pytest.approx(np.percentile(above, percentile), rel=1e-6)


@pytest.mark.parametrize("method", ["max", "percentile"])
def test_convert_residual_network_with_shared_and_functional_relus(method):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), Residual(), Residual(), nn.Linear(5, 2)).eval()
    x = torch.randn(20, 4)
    network = nw.convert(net, x, 400, method, percentile=100)
    assert network.layers == ("1", "2.relu", "2.relu_1", "2.relu_2", "3.relu", "3.relu_1", "3.relu_2", "4")
    found, wanted = rates(net, network, 400, x)
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


class Aliased(nn.Module):
    """What an in-place ReLU leaves in its input is used again."""

    def __init__(self, relu):
        super().__init__()
        self.first, self.second, self.relu = nn.Linear(4, 4), nn.Linear(4, 4), relu

    def forward(self, x):
        x = self.first(x)
        return self.second(self.relu(x)) + x


class Shifted(nn.ReLU):
    def forward(self, x):
        return super().forward(x - 0.1)


IN_PLACE = [nn.ReLU(True), torch.relu_, lambda x: x.relu_(), lambda x: nn.functional.relu(x, True)]
NEW = [nn.ReLU(), Shifted(), torch.relu, lambda x: x.relu(), lambda x: nn.functional.relu(x, False)]


@pytest.mark.parametrize("relu", [*IN_PLACE, *NEW])
def test_convert_follows_what_relus_change_in_place(relu):
    torch.manual_seed(5)
    net, x = nn.Sequential(Aliased(relu), nn.ReLU(), nn.Linear(4, 3)).eval(), torch.randn(9, 4)
    found, wanted = rates(net, nw.convert(net, x, 300, "max"), 300, x)
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize("unit", [1.0, 1 / 15])
@pytest.mark.parametrize("kind", ["current", "bernoulli"])
def test_convert_takes_encoded_input(kind, unit):
    if kind == "bernoulli" and unit != 1:
        with pytest.raises(nw.ModelError, match="samples go up to"):
            nw.encode(X, 4, kind, unit)
        return
    net, n_steps = conv_net(), 300
    network = nw.convert(net, X, n_steps, "max", unit=unit)
    x = nw.encode(X, n_steps, kind, unit)
    with torch.no_grad():
        wanted = net(X).numpy()
    error = np.abs(nw.simulate(network, x).output.mean(1) - wanted).max()
    assert error < (0.01 if kind == "current" else 0.1) * np.abs(wanted).max()


@pytest.mark.parametrize("n_steps", [8, 20])
def test_convert_quantized_counts_the_levels_that_were_trained(n_steps):
    net = conv_net(lambda: QuantizedReLU(8))
    network = nw.convert(net, X, n_steps, "quantized")
    run = nw.simulate(network, repeated(X, n_steps))
    net_counts = run.spikes["2"].astype(int).cumsum(1)
    levels = np.rint(values_of(net, 2) / float(net[2].step.detach()))
    inside = levels < 8
    np.testing.assert_array_equal(net_counts[:, -1][inside], levels[inside])
    assert network.node("8").neuron.spikes == "gated" and net_counts.min() >= 0


def test_convert_takes_back_what_was_sent_too_early():
    """Half the input excites at first, the other half inhibits later: only negative spikes can undo that."""
    net = nn.Sequential(nn.Linear(2, 2, bias=False), QuantizedReLU(16, 1 / 16),
                        nn.Linear(2, 1, bias=False), QuantizedReLU(16, 1 / 16))  # fmt: skip
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        net[2].weight.copy_(torch.tensor([[1.0, -1.0]]))
    network = nw.convert(net, torch.tensor([[1.0, 0.5]]), 16, "quantized")
    x = np.zeros((1, 16, 2), np.float32)
    x[0, :8, 0], x[0, 8:, 1] = 1, 1
    spikes = nw.simulate(network, x).spikes["3"].ravel()
    assert (spikes[:8] >= 0).all() and spikes.sum() == 0 and spikes.min() == -1
    chip = nw.Chip.load("tiny").replace({"neuron.spikes": ["binary", "multi"]})
    with pytest.raises(nw.FitError) as error:
        nw.compile(network, chip, x.astype(int))
    assert (
        str(error.value)
        .splitlines()[1]
        .startswith("  spikes  1  must be binary or multi, is bipolar  compile with on_multi_sp")
    )
    assert "approximate='multi-spike'" in str(error.value)
    program = nw.compile(network, chip, x.astype(int), nw.Options(approximate="multi-spike"))
    assert nw.simulate(program, x).spikes["3"].min() == 0
    rows = [row for row in program.legalization if row["label"] == "approximate"]
    assert [(row["layer"], row["was"], row["has"]) for row in rows] == [
        (name, "gated spikes", "one spike per step (on_multi_spike='graded' sends the sign)") for name in ("1", "3")
    ]


@pytest.mark.parametrize("spikes", [["binary"], ["binary", "bipolar"]])
def test_convert_compiles_and_all_backends_agree(spikes):
    net = conv_net(lambda: QuantizedReLU(8))
    network = nw.convert(net, X, 8, "quantized")
    x = nw.encode(X, 8)
    chip = nw.Chip.load("tiny").replace({**ROOM, "neuron.spikes": spikes})
    asked = () if "bipolar" in spikes else "multi-spike"
    program = nw.compile(network, chip, x, nw.Options(placer="row-major", approximate=asked))
    assert nw.crosscheck(program, x[:2]).agree
    run = nw.simulate(program, x, backend="sequence")
    least = min(run.spikes[name].min() for name in ("2", "8"))
    assert least == (-1 if "bipolar" in spikes else 0)
    wanted = nw.simulate(network, x)
    assert (run.output.sum(1).argmax(1) == wanted.output.sum(1).argmax(1)).mean() >= 0.8


def test_convert_with_reset_to_zero_fits_chips_that_cannot_subtract():
    net, chip = conv_net(), nw.Chip.load("loihi1")
    with pytest.raises(nw.FitError) as error:
        nw.compile(nw.convert(net, X, 8), chip)
    assert str(error.value).splitlines()[1] == (
        "  reset  2  must be zero, is subtract  train 2 with reset 'zero' (nw.convert: reset='zero'), or take a chip "
        "whose "
        "neuron.reset has it (h1v1, h1v2, loihi2, speck, spinnaker2, truenorth)"
    )
    n_steps = 64
    network, x = nw.convert(net, X, n_steps, reset="zero"), nw.encode(X, n_steps)
    program = nw.compile(network, chip, x)
    assert nw.crosscheck(program, x[:1]).agree
    found = nw.simulate(program, x, backend="sequence").spikes["2"].mean(1) * float(network.node("2").neuron.threshold)
    wanted = values_of(net, 2)
    assert np.abs(found - wanted).mean() < 0.05 * wanted.max()


@pytest.mark.parametrize("bits", [8, 4])
def test_convert_residual_network_of_signed_input_agrees_in_all_backends(bits):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), Residual(), nn.Linear(5, 2)).eval()
    x = torch.randn(12, 4)
    network, spikes = nw.convert(net, x, 20, unit=0.5), nw.encode(x, 20, unit=0.5)
    program = nw.compile(network, "tiny", spikes, nw.Options(bits=bits))
    assert spikes.min() < 0 and nw.crosscheck(program, spikes[:4]).agree
    assert nw.simulate(program, spikes, "sequence").spikes["2.relu_2"].any()


class Ending(nn.Module):
    """Ends in what `end` makes of the input and of the last ReLU's activations."""

    def __init__(self, end):
        super().__init__()
        torch.manual_seed(2)
        self.first, self.second, self.third, self.end = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5), end

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        self.kept = self.third(hidden)  # of no use for the answer
        return self.end(self, x, hidden)


@pytest.mark.parametrize(
    "end",
    [
        lambda net, x, hidden: net.second(hidden) + net.third(x),
        lambda net, x, hidden: net.second(hidden) + hidden,
        lambda net, x, hidden: net.second(hidden) / 10,
        lambda net, x, hidden: torch.relu(net.second(hidden)) + hidden,
        lambda net, x, hidden: net.second(hidden).unflatten(1, (5, 1)),
    ],
)
def test_convert_answers_what_the_network_does_however_it_ends(end):
    net, x = Ending(end), torch.randn(20, 5)
    network = nw.convert(net, x, 300, "max")
    found, wanted = rates(net, network, 300, x)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=0.03 * np.abs(wanted).max())


@pytest.mark.parametrize("relu", [nn.ReLU, lambda: QuantizedReLU(8)])
def test_convert_network_that_ends_in_pooling(relu):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), relu(), nn.Conv2d(4, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net(X)
    network = nw.convert(net.eval(), X, 200, "quantized" if isinstance(net[1], QuantizedReLU) else "max")
    found, wanted = rates(net, network, 200)
    assert found.shape == wanted.shape and network.layers == ("1", "4")
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


def test_convert_layers_of_one_neuron():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 1, 6), nn.ReLU(), nn.Flatten(), nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.abs_()
    network = nw.convert(net, X, 200, "max")
    found, wanted = rates(net, network, 200)
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
