"""Conversion: integrate-and-fire networks that compute what ReLU networks do, in float and on a chip."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

import nwcompile as nw
from nwcompile.frontend.torch.operators.connect import scale_symbol
from nwcompile.frontend.torch.operators.record import OperatorRecorder
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


class Through(nn.Module):
    """A convolution, `middle`, and a linear map of all entries."""

    def __init__(self, middle):
        super().__init__()
        torch.manual_seed(4)
        self.conv, self.middle, self.out = nn.Conv2d(2, 4, 3), middle, nn.LazyLinear(3)
        self(X)

    def forward(self, x):
        return self.out(self.middle(self.conv(x)).flatten(1))


def set_entries(x: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros(len(x), 6, 4, 4)
    wide[:, 2:] = x
    return wide


WEIGHT = torch.randn(4, 3, generator=torch.Generator().manual_seed(6))
CLIPPED = {
    "relu6": nn.ReLU6(),
    "clamp": lambda x: x.clamp(0, 0.3),
    "clamp_min": lambda x: x.clamp(min=0),
    "hardtanh": nn.Hardtanh(),
    "threshold": nn.Threshold(0, 0),
    "maximum": lambda x: torch.maximum(torch.zeros_like(x), x),
    "fmax": lambda x: torch.fmax(x, torch.zeros(())),
    "bounds of tensors": lambda x: x.clamp(torch.tensor(0.0), torch.tensor(0.3)),
    "relu, clamp": lambda x: x.relu().clamp(max=0.3),
    "minimum, relu": lambda x: torch.minimum(torch.full_like(x, 0.3), x).relu_(),
    "three": lambda x: x.relu().clamp_(max=0.5).clamp(0.1, 0.4),
}
LINEAR = {
    "cat": lambda x: torch.cat([x, x.flip(1), -x], 1),
    "upsample": nn.Upsample(scale_factor=2),
    "bilinear": nn.Upsample(scale_factor=2, mode="bilinear"),
    "mean": lambda x: x.mean((2, 3)),
    "adaptive": nn.AdaptiveAvgPool2d(3),
    "ceil_mode": nn.AvgPool2d(3, 2, ceil_mode=True),
    "not_include_pad": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "circular": nn.CircularPad2d(1),
    "reflect": nn.ReflectionPad2d(1),
    "pad_value": nn.ConstantPad2d(1, 0.5),
    "pad_one": nn.ConstantPad2d(1, 1.0),  # also the number of an entry
    "pad_minus_two": nn.ConstantPad2d(1, -2.0),
    "division": lambda x: torch.div(x, 3.0, rounding_mode=None),
    "pixel_shuffle": nn.PixelShuffle(2),
    "channel_shuffle": nn.ChannelShuffle(2),
    "unfold": nn.Unfold(2),
    "einsum": lambda x: torch.einsum("bchw,cd->bdhw", x, WEIGHT),
    "channels_last": lambda x: x.permute(0, 2, 3, 1),
    "cumsum": lambda x: x.cumsum(1),
    "item assignment": set_entries,
    "fixed mask": lambda x: x.masked_fill(torch.arange(x.shape[-1]) % 3 == 0, 0.5),
    "fixed choice": lambda x: torch.where(torch.arange(x.shape[-1]) % 3 == 0, 2 * x, x.flip(1)),
}


def assert_exact(net: nn.Module, x: torch.Tensor, layers: int) -> nw.Network:
    """Sigma-delta neurons of 15 bits compute the network in one step, but for rounding to levels."""
    x = (x * 256).round() / 256
    network = nw.convert(net, x, method="max", unit=1 / 256, neuron="sigma-delta", levels=32767)
    run = nw.simulate(network, nw.encode(x, 1, "delta", 1 / 256), record="all")
    with torch.no_grad():
        wanted = net(x).numpy()
    np.testing.assert_allclose(nw.read_out(run).reshape(wanted.shape), wanted, atol=5e-4 * np.abs(wanted).max())
    assert len(network.layers) == layers
    return network


@pytest.mark.parametrize("name", CLIPPED)
def test_convert_clipped_relus_are_layers(name):
    net = Through(CLIPPED[name])
    assert_exact(net, X - 0.5, 2)
    network = nw.convert(net, X, 200, "max")
    found, wanted = rates(net, network, 200)
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clamp(max=0.3),
        lambda x: torch.maximum(x, x.flip(1)),
        lambda x: x.clamp(torch.zeros(4, 1, 1), torch.arange(1.0, 5)[:, None, None]),
        lambda x: x.relu() + x.relu().clamp(-2, -1) + (x.relu() + (r := x.relu()) + r.clamp(max=0.3)),
    ],
)
def test_convert_refuses_clips_that_are_no_relu(function):
    with pytest.raises(nw.ModelError, match="torch's (clamp|maximum); convert takes ReLUs"):
        nw.convert(Through(function), X, 8)


@pytest.mark.parametrize("name", LINEAR)
def test_convert_takes_linear_maps_of_any_name(name):
    assert_exact(Through(nn.Sequential(nn.ReLU(), Called(LINEAR[name]))), X, 2)


VIEWS = {  # of images whose channels became samples
    "bn": nn.BatchNorm2d(1),
    "bn tokens": nn.Sequential(nn.Flatten(1, 2), nn.BatchNorm1d(4)),
    "conv": nn.Conv2d(1, 2, 3, padding=1),
    "strided": nn.Conv2d(1, 2, 3, 2, bias=False),
    "transposed": nn.ConvTranspose2d(1, 2, 3),
    "adaptive": nn.AdaptiveAvgPool2d(2),
    "bilinear": nn.Upsample(scale_factor=2, mode="bilinear"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_convert_maps_of_channels_as_samples(name):
    view = VIEWS[name].eval()
    torch.manual_seed(7)
    for part in view.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    middle = Called(lambda x: view(x.flatten(0, 1)[:, None]).reshape(len(x), -1))
    assert_exact(Through(nn.Sequential(nn.ReLU(), middle)), X, 2)


COLUMNS = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(8))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: COLUMNS[0] @ x.reshape(-1, 4, 16),
        lambda x: COLUMNS[0] @ x.reshape(-1, 4, 16)[:, :, :1],
        lambda x: COLUMNS @ x.reshape(-1, 1, 4, 16)[:, [0, 0, 0]],
        lambda x: torch.einsum("oc,bchw->bohw", COLUMNS[0], x),
        lambda x: x.reshape(-1, 16, 4) @ COLUMNS[0].T,
        lambda x: torch.bmm(x.reshape(-1, 16, 4), COLUMNS[1].T.expand(len(x), 4, 2)),
        lambda x: nn.functional.avg_pool3d(x[:, None], 2),
    ],
)
def test_convert_products_with_constants_on_either_side(function):
    assert_exact(Through(nn.Sequential(nn.ReLU(), Called(function))), X, 2)


@pytest.mark.parametrize("size", [16, 32])
def test_convert_maps_of_many_channels_are_read_from_one(size):
    """Without padding in the mean: a rule has it for no chip, so it is read from results on chosen inputs."""
    middle = nn.Sequential(nn.ReLU(), nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.Upsample(scale_factor=2))
    net = nn.Sequential(nn.Conv2d(1, 24, 1), middle, nn.Flatten(), nn.LazyLinear(3))
    x = torch.rand(6, 1, size, size, generator=torch.Generator().manual_seed(9))
    net(x)
    assert_exact(net, x, 2)


def test_convert_names_the_shape_of_the_sample_that_does_not_go_through():
    net = nn.Sequential(nn.Conv2d(2, 4, 3), Called(lambda x: x.relu().squeeze()), nn.AvgPool2d(4), nn.Flatten(0))
    with pytest.raises(nw.ModelError, match=r"one sample \[1, 2, 6, 6\] does not go through"):
        nw.convert(nn.Sequential(net, nn.Linear(5, 2)), X, 8)


class Observed(nn.Module):
    """Two ReLUs, between which the module keeps the largest value: operators that look like clips, of which none is."""

    def __init__(self, is_observed: bool):
        super().__init__()
        torch.manual_seed(10)
        self.is_observed, self.peak = is_observed, torch.zeros(())
        self.first, self.second, self.last = nn.Linear(8, 16), nn.Linear(16, 6), nn.Linear(6, 2)

    def forward(self, x):
        x = self.first(x).relu()
        if self.is_observed:
            self.peak = torch.maximum(self.peak, x.max())
            self.clipped = x.clamp(max=x.max())
        return self.last(self.second(x).relu())


def test_convert_takes_no_threshold_from_what_a_module_observes():
    x = torch.rand(16, 8, generator=torch.Generator().manual_seed(11))
    plain, observed = (nw.convert(Observed(is_observed), x, 8, "max") for is_observed in (False, True))
    thresholds = [[node.neuron.threshold for node in net.nodes.values() if node.neuron] for net in (plain, observed)]
    assert thresholds[0] == thresholds[1] and thresholds[0][0] != thresholds[0][1]


def test_convert_refuses_a_clip_that_spreads_its_input():
    function = Called(lambda x: torch.maximum(x.flatten(1)[:, None], torch.full((3, 1), 0.1)))
    with pytest.raises(nw.ModelError, match="torch's maximum; convert takes ReLUs"):
        nw.convert(Through(function), X, 8)


def test_convert_compares_whole_batches():
    with pytest.raises(nw.ModelError, match="the output for a sample depends on the other samples of the batch"):
        nw.convert(Through(Called(lambda x: x.relu() * (2 if len(x) > 2 else 1))), X, 8)


class Squeezed(nn.Module):
    """A convolution of positive results, means over `axes`, `squeeze()`, a layer, and a linear map of all entries."""

    def __init__(self, n_channels: int, axes: tuple[int, ...], hidden: nn.Module, n_hidden: int):
        super().__init__()
        torch.manual_seed(4)
        self.conv, self.axes, self.hidden, self.out = nn.Conv2d(2, n_channels, 3), axes, hidden, nn.Linear(n_hidden, 3)
        with torch.no_grad():
            self.conv.bias += 1

    def forward(self, x):
        hidden = torch.relu(self.hidden(torch.relu(self.conv(x)).mean(self.axes, keepdim=True).squeeze()))
        return self.out(hidden.reshape(len(x), -1))


@pytest.mark.parametrize(
    ("net", "n_hidden"),
    [
        (Squeezed(4, (2, 3), nn.Linear(4, 5), 5), 5),
        (Squeezed(4, (3,), nn.Linear(4, 5), 20), 20),
        (Squeezed(1, (2, 3), nn.Identity(), 1), 1),
    ],
)
def test_convert_a_squeeze_that_also_drops_the_axis_of_one_sample(net, n_hidden):
    network = assert_exact(net, X, 3)
    assert [network.node(name).n_neurons for name in network.layers][1:] == [n_hidden, 3]


def test_convert_refuses_what_is_no_number():
    net = Through(nn.Sequential(nn.ReLU(), nn.ConstantPad2d(1, float("nan"))))
    with pytest.raises(nw.ModelError, match="has NaN or infinite values; the model is not usable"):
        nw.convert(net, X, 8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_convert_takes_a_module_of_another_precision(dtype):
    net, x = conv_net().to(dtype), X.to(dtype)
    assert nw.convert(net, x, 8, "max").layers == nw.convert(conv_net(), X, 8, "max").layers


def test_convert_refuses_a_map_that_it_reads_wrongly(monkeypatch):
    monkeypatch.setattr(
        sys.modules["nwcompile.frontend.torch.convert"],
        "scale_symbol",
        lambda symbol, factor, shift, name: scale_symbol(symbol, 2 * factor, shift, name),
    )
    with pytest.raises(nw.ModelError, match="nwcompile reads a map between the ReLUs wrongly: the output differs by "):
        nw.convert(conv_net(), X, 8)


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_recorded_memory_is_zero_before_it_is_written():
    """Circular padding fills an empty tensor part by part; torch's deterministic mode puts NaN there."""
    x = torch.ones(1, 1, 3, 3)
    recorder = OperatorRecorder(x, {})
    torch.use_deterministic_algorithms(True)
    try:
        recorder.record(nn.CircularPad2d(1), x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(op.value.isfinite().all() for op in recorder.ops)


class ChannelsLast(nn.Module):
    """Convolutions whose bias and ReLU have their channels last, as in exports of Keras."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(2, 3, 3, bias=False), nn.Conv2d(3, 4, 3)
        self.bias = nn.Parameter(torch.randn(3))

    def forward(self, x):
        x = torch.relu(self.first(x).permute(0, 2, 3, 1) + self.bias)
        return self.second(x.permute(0, 3, 1, 2)).flatten(1)


def test_convert_keeps_convolutions_between_other_orders_of_axes():
    assert_exact(ChannelsLast().eval(), X, 2)
    network = nw.convert(ChannelsLast().eval(), X, 8)
    assert sorted(type(c).__name__ for c in network.connections) == ["Conv2d", "Conv2d", "Scale", "Scale"]


def test_convert_parts_with_the_name_of_the_input():
    torch.manual_seed(0)
    net = nn.Sequential()
    for name, part in (("x", nn.Linear(5, 4)), ("input", nn.ReLU()), ("answer", nn.Linear(4, 3))):
        net.add_module(name, part)
    network = assert_exact(net.eval(), torch.randn(20, 5), 2)
    assert network.layers == ("input", "answer") and list(network.inputs) == ["network_input"]


def test_convert_network_that_ends_in_a_clipped_relu():
    assert_exact(nn.Sequential(Through(nn.ReLU()), nn.Hardtanh(-0.1, 0.1)).eval(), X, 3)


@pytest.mark.parametrize("end", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sequential(nn.Sigmoid(), nn.Flatten())])
def test_convert_reads_out_what_follows_the_last_layer(end):
    net = nn.Sequential(Through(nn.ReLU()), end).eval()
    network = assert_exact(net, X, 2)
    assert "of the last '0.out', as in the module" in network.readout.text
    network = nw.convert(net, X, 200, "max")
    x = repeated(X, 200)
    found = nw.read_out(nw.simulate(network, x, record="all"))
    with torch.no_grad():
        wanted = net(X).numpy()
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=0.01)
    program = nw.compile(nw.convert(net, X, 200, "max", unit=1 / 15), "loihi2", nw.encode(X, 200, unit=1 / 15))
    on_chip = nw.read_out(nw.simulate(program, nw.encode(X, 200, unit=1 / 15), "sequence", record="all"))
    np.testing.assert_allclose(on_chip.reshape(wanted.shape), wanted, atol=0.03)


class ViewChanged(nn.Module):
    """Changes its input through a view."""

    def forward(self, x):
        x = x * 1.5
        kept = x[:]
        nn.functional.relu(x, inplace=True)
        return nn.functional.relu(kept - 0.1) + kept


def test_convert_follows_changes_through_views():
    torch.manual_seed(1)
    assert_exact(nn.Sequential(nn.Linear(5, 5), ViewChanged(), nn.Linear(5, 3)).eval(), torch.randn(20, 5), 3)
