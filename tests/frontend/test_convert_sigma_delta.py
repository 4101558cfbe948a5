"""Conversion to sigma-delta neurons: the network with rounded activations, in float and in whole numbers."""

import numpy as np
import pytest
import torch
from torch import nn

import nwcompile as nw
from nwcompile.cost.neurobench import neurobench
from nwcompile.nn import QuantizedReLU
from tests.made.relu_nets import Residual, X, conv_net

UNIT = 1 / 64


def levels_of(values: np.ndarray, unit: float, levels: int) -> np.ndarray:
    return np.clip(np.floor(values / unit + 0.5), 0, levels)


def dyadic(net: nn.Module) -> nn.Module:
    """Weights and steps as whole multiples of 2**-6 and powers of two, of which float32 sums are exact."""
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, nn.Linear | nn.Conv2d):
                part.weight.copy_(torch.round(part.weight * 64) / 64)
                part.bias.copy_(torch.round(part.bias * 64) / 64)
            if isinstance(part, QuantizedReLU):
                part.step.copy_(2.0 ** torch.round(torch.log2(part.step)))
    return net


def plain_conv(levels: int) -> nn.Sequential:
    torch.manual_seed(2)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), QuantizedReLU(levels), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 12),
        QuantizedReLU(levels), nn.Linear(12, 3),
    )  # fmt: skip
    net(X)
    return dyadic(net).eval()


@pytest.mark.parametrize("levels", [4, 31])
def test_without_threshold_it_is_the_quantized_network_bit_for_bit(levels):
    net = plain_conv(levels)
    network = nw.convert(net, X, method="quantized", unit=UNIT, neuron="sigma-delta")
    frames = np.random.default_rng(1).random((3, 5, 2, 6, 6)) * np.linspace(0.3, 1, 5)[:, None, None, None]
    x = nw.encode(frames, None, "delta", UNIT)
    run = nw.simulate(network, x)
    seen = torch.from_numpy(x.cumsum(1).astype(np.float32) * UNIT).flatten(0, 1)
    with torch.no_grad():
        first = net[:2](seen).numpy().reshape(3, 5, 4, 6, 6)
        logits = net(seen).numpy().reshape(3, 5, 3)
    step = float(net[1].step.detach())
    assert np.array_equal(run.spikes["1"].cumsum(1) * step, first) and (run.spikes["1"] < 0).any()
    assert np.array_equal(run.output, logits)


def test_a_plain_network_is_rounded_to_levels_of_its_largest_activation():
    net = conv_net()
    network = nw.convert(net, X, method="max", unit=UNIT, neuron="sigma-delta", levels=50)
    x = nw.encode(X.numpy(), 1, "delta", UNIT)
    seen = torch.from_numpy(x[:, 0].astype(np.float32) * UNIT)
    with torch.no_grad():
        wanted, logits = net[:3](seen).numpy(), net(seen).numpy()
        unit = net[:3](X).numpy().max() / 50
    run = nw.simulate(network, x)
    assert np.array_equal(run.spikes["2"][:, 0], levels_of(wanted, unit, 50)) and run.spikes["2"].max() == 50
    assert 0 < np.abs(run.output[:, 0] - logits).max() < 0.1 * np.abs(logits).max()


def integer_forward(program: nw.Program, x: np.ndarray) -> tuple[dict, np.ndarray]:
    """Levels of every layer [B, T, *shape] and what is read, frame by frame, in the integers that the program holds."""
    values = {"input": x.cumsum(1)}
    for name in program.network.layers:
        neuron, total = program.network.node(name).neuron, 0
        for c in program.network.into(name):
            weight = torch.from_numpy(np.asarray(c.weight, np.float64) * 2.0**c.exponent)
            source = torch.from_numpy(values[c.source].astype(np.float64)).flatten(0, 1)
            if isinstance(c, nw.Conv2d):
                sums = nn.functional.conv2d(source, weight, None, c.stride, c.padding)
            else:
                sums = source.flatten(1) @ weight.T
            total = total + sums.numpy().astype(np.int64).reshape(*x.shape[:2], *program.network.node(name).shape)
        total = total + neuron.array("sigma", program.network.node(name).shape)
        if not neuron.fires:
            return values, total
        gain, levels = (int(neuron.parameters[key]) for key in ("input_gain", "levels"))
        shift = next(o.operands[1] for o in neuron.operations if o.kind == "shr0")
        half = next(o.operands[1] for o in neuron.operations if o.kind == "add" and o.operands[1] != "x")
        fine = np.sign(total * gain) * (np.abs(total * gain) >> shift)
        values[name] = (np.clip(fine, 0, levels) + half) >> (int(half).bit_length())
    raise AssertionError("no readout")


@pytest.fixture(scope="module")
def compiled() -> tuple[nw.Program, np.ndarray]:
    """`conv_net` on loihi2, and the changes of some frames."""
    network = nw.convert(conv_net(), X, unit=UNIT, neuron="sigma-delta")
    x = nw.encode(np.random.default_rng(3).random((2, 4, 2, 6, 6)), None, "delta", UNIT)
    return nw.compile(network, "loihi2", x, nw.Options(placer="row-major", partitioner="sequential")), x


def test_a_chip_computes_the_quantized_network_in_integers_and_all_backends_agree(compiled):
    program, x = compiled
    net = conv_net()
    assert nw.crosscheck(program, x).agree
    run = nw.simulate(program, x)
    values, total = integer_forward(program, x)
    for name in ("2", "8"):
        assert np.array_equal(run.spikes[name].cumsum(1), values[name]), name
        assert run.spikes[name].min() < -10 and run.spikes[name].max() > 10
    assert np.array_equal(run.output, total)
    with torch.no_grad():
        logits = net(torch.from_numpy(x.cumsum(1).astype(np.float32) * UNIT).flatten(0, 1)).numpy().reshape(2, 4, 3)
    assert np.abs(run.output / program.output_scale["9"] - logits).max() < 0.05 * np.abs(logits).max()


def test_a_threshold_holds_back_changes_and_never_more_than_that():
    net = conv_net()
    x = nw.encode(np.random.default_rng(4).random((2, 6, 2, 6, 6)), None, "delta", UNIT)
    exact, held = (
        nw.simulate(nw.convert(net, X, unit=UNIT, neuron="sigma-delta", threshold=t), x).spikes for t in (0, {"2": 9})
    )
    assert np.count_nonzero(held["2"]) < 0.9 * np.count_nonzero(exact["2"])
    assert np.abs(held["2"])[held["2"] != 0].min() == 9
    assert np.abs(held["2"].cumsum(1) - exact["2"].cumsum(1)).max() == 8


def test_skips_are_added():
    torch.manual_seed(3)
    net, x = Residual().eval(), torch.rand(20, 5)
    network = nw.convert(net, x, method="max", neuron="sigma-delta", levels=1000, unit=1 / 1024)
    coded = nw.encode(x.numpy(), 1, "delta", 1 / 1024)
    last = network.layers[-1]
    with torch.no_grad():
        wanted = net(x).numpy()
    found = nw.simulate(network, coded).spikes[last][:, 0] * (wanted.max() / 1000)
    assert np.abs(found - wanted).max() < 0.005 * wanted.max()
    program = nw.compile(network, "loihi2", coded, nw.Options(placer="row-major", partitioner="sequential"))
    assert nw.crosscheck(program, coded).agree
    on_chip = nw.simulate(program, coded).spikes[last][:, 0] * (wanted.max() / 1000)
    assert np.abs(on_chip - wanted).max() < 0.05 * wanted.max()


def test_what_does_not_change_sends_nothing():
    network = nw.convert(conv_net(), X, unit=UNIT, neuron="sigma-delta")
    run = nw.simulate(network, nw.encode(X.numpy(), 4, "delta", UNIT))
    assert all(not spikes[:, 1:].any() for spikes in run.spikes.values()) and run.spikes["2"][:, 0].any()
    assert (run.output == run.output[:, :1]).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"neuron": "sigma"}, "unknown neuron 'sigma'; choose one of: sigma-delta, integrate-and-fire"),
        ({"threshold": {"3": 1}}, "unknown threshold of layer '3'"),
        ({"threshold": -1}, "threshold=-1 must be a whole number from 0 to 32767"),
        ({"levels": 0}, "levels=0 must be a whole number from 1 to 32767"),
    ],
)
def test_unusable_options_are_named(options, message):
    with pytest.raises(nw.OptionError) as error:
        nw.convert(conv_net(), X, **{"neuron": "sigma-delta", **options})
    assert str(error.value).startswith(message), error.value


def test_encode_delta_sends_changes_of_rounded_units():
    frames = np.array([[[0.0, 1.0], [0.26, -1.0], [0.26, -0.74]]])
    assert nw.encode(frames, None, "delta", 0.5).tolist() == [[[0, 2], [1, -4], [0, 1]]]
    assert nw.encode(frames[:, 1], 3, "delta", 0.5).tolist() == [[[1, -2], [0, 0], [0, 0]]]
    with pytest.raises(nw.ModelError, match=r"sequences must be \[B, T, \*shape\], got shape \[1, 2\]"):
        nw.encode(frames[:, 0], None, "delta")


def test_neurobench_counts_a_graded_message_as_a_multiplication_for_every_weight_it_meets(compiled):
    program, x = compiled
    run = nw.simulate(program, x)
    sent = {"input": x, **{name: run.spikes[name] for name in ("2", "8")}}
    met = 0
    for c in program.network.connections:
        weight = torch.from_numpy((np.asarray(c.weight) != 0).astype(np.float64))
        messages = torch.from_numpy((sent[c.source] != 0).astype(np.float64)).flatten(0, 1)
        if isinstance(c, nw.Conv2d):
            met += float(nn.functional.conv2d(messages, weight, None, c.stride, c.padding).sum())
        else:
            met += float((messages.flatten(1) @ weight.T).sum())
    figures = neurobench(program, run)
    assert (figures.effective_macs, figures.effective_acs) == (met / 2, 0)
    n_sent, n_all = (sum(f(sent[name]) for name in ("2", "8")) for f in (np.count_nonzero, np.size))
    assert figures.activation_sparsity == pytest.approx(1 - n_sent / n_all, abs=1e-12) and n_sent < n_all
    kept = nw.simulate(program, x, record="all")
    sums = [states["sigma"] for states in kept.states.values()]
    n_changed = sum(np.count_nonzero(v[:, 1:] != v[:, :-1]) + v[:, 0].size for v in sums)
    assert neurobench(program, kept).membrane_updates == n_changed / 2
    read = run.counters["synops"].sum() / 2
    assert figures.effective_macs <= read <= figures.dense_synops  # zeros of rows are read, absent messages are not
