"""Quantization-aware training: the module computes the integers of the program that is compiled from it."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile import nn
from nwcompile.ir.connection import Sparse
from nwcompile.ir.neuron import NeuronSpec
from tests.frontend.frameworks import framework
from tests.made.chips import small_chip
from tests.made.float_networks import networks
from tests.made.quantized import BACKENDS, assert_equal_bits, spikes

LIF = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 2e-3}
ABLE = {
    "neuron.reset": ["zero", "value", "subtract", "none"], "neuron.reset_timing": ["now", "next", "both"],
    "neuron.spikes": ["binary", "multi", "bipolar"], "neuron.v_min": "any", "neuron.threshold_per": "neuron",
    "neuron.delay_max_steps": 60, "core.max_neurons": 512, "core.synapse_bits": 1 << 22,
}  # fmt: skip
FINE = {
    "weights.bits": 16, "weights.step": 1, "weights.effective_limit": 1 << 20, "state.bits": 32, "state.decay_bits": 16,
    "state.decay_offset": 0, "neuron.reset": ["zero", "subtract", "none"], "neuron.threshold_bits": 31,
    "neuron.threshold_shift_bits": 0, "neuron.bias_bits": 31, "neuron.strict": [True, False],
    "core.synapse_bits": 1 << 24,
}  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore::nwcompile.errors.NwWarning")


def dense(seed: int = 0, **lif) -> nn.Sequential:
    torch.manual_seed(seed)
    lif = LIF | lif
    return nn.Sequential(torch.nn.Linear(12, 9), nn.LIFLayer(9, **lif), torch.nn.Linear(9, 4), nn.LIFLayer(4, **lif))


def convolutional() -> nn.Sequential:
    """Two convolutions, an average pooling between, and a readout: 8 x 8 images."""
    torch.manual_seed(0)
    lif = LIF | {"thresholds": 0.3}
    return nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), nn.LIFLayer(144, **lif), torch.nn.AvgPool2d(2), torch.nn.Conv2d(4, 3, 2),
        nn.LIFLayer(12, **lif), torch.nn.Flatten(), torch.nn.Linear(12, 5),
    )  # fmt: skip


def shake(module, size: float = 0.1) -> None:
    """Change what is trained, as an optimizer does."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            if p.requires_grad:
                p.add_(size * torch.randn(p.shape, generator=generator))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 16])
def test_quantize_aware_trains_what_the_chip_runs(bits):
    chip = nw.Chip.load("loihi1").replace({"weights.bits": 16, "weights.step": 1} if bits == 16 else {})
    x = spikes(6, 8, 12)
    module = nn.quantize_aware(dense(), chip, x, bits=bits)
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    before = module.network().hash
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(module(x).sum(1), torch.tensor([0, 1, 2, 3, 0, 1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert module.network().hash != before
    assert_equal_bits(module, x)


@pytest.mark.parametrize("bits", [2, 8])
def test_quantize_aware_convolutions_are_exact(bits):
    x = spikes(6, 4, 1, 8, 8)
    module = nn.quantize_aware(convolutional(), "loihi1", x, bits=bits, learn_thresholds=True, learn_taus=True)
    module(x).square().sum().backward()
    assert all((p.grad != 0).any() for p in module.parameters() if p.requires_grad)
    shake(module)
    assert_equal_bits(module, x, ("sequence",))


@st.composite
def chips(draw) -> nw.Chip:
    """Chips that can do all that a neuron may need, with narrow and wide numbers."""
    widths = {
        "weights.bits": draw(st.sampled_from([4, 8, 16])), "state.bits": draw(st.sampled_from([12, 16, 24])),
        "state.overflow": draw(st.sampled_from(["wrap", "saturate"])),
        "neuron.strict": draw(st.sampled_from([[True], [False], [True, False]])),
    }  # fmt: skip
    return small_chip().replace(ABLE | widths)


def decaying(network: nw.Network) -> nw.Network:
    """The network with leaks that a chip can have."""
    nodes = {}
    for name, node in network.nodes.items():
        if node.neuron is not None:
            held = {key: np.minimum(value, 1) for key in ("beta", "k", "alpha")
                    if (value := getattr(node.neuron, key)) is not None}  # fmt: skip
            node = type(node)(name, node.shape, node.neuron.replace(**held))
        nodes[name] = node
    return nw.Network(network.inputs, nodes, network.connections)


def assert_any_network_is_exact(network, chip, bits, seed, learns, is_calibrated) -> None:
    rng = np.random.default_rng(seed)
    x = {name: rng.integers(0, 2, (2, 5, *node.shape)) for name, node in network.inputs.items()} or None
    steps = None if x else 5
    options = nw.Options(execution="phased", on_multi_spike="graded")
    choices = {"bits": bits, "on_multi_spike": "graded", "learn_taus": learns, "learn_thresholds": learns}
    try:
        module = nn.quantize_aware(decaying(network), chip, x if is_calibrated else None, **choices)
        nw.compile(module.network(), chip, x, options)
    except (nw.ModelError, nw.FitError):
        return
    results = module.spikes(x, steps)
    loss = sum((y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum() for y in results.values())
    if loss.requires_grad:
        loss.backward()
    shake(module, 0.2)
    try:
        nw.compile(module.network(), chip, x, options)
    except (nw.ModelError, nw.FitError):  # it sends more spikes at once than a message holds
        return
    assert_equal_bits(module, x, BACKENDS, steps, options)


random_case = given(
    networks(), chips(), st.sampled_from([None, 1, 2, 4]), st.integers(0, 99), st.booleans(), st.booleans()
)


@random_case
@settings(max_examples=10)
def test_quantize_aware_is_exact_for_any_network_and_chip(network, chip, bits, seed, learns, is_calibrated):
    assert_any_network_is_exact(network, chip, bits, seed, learns, is_calibrated)


@pytest.mark.long
@random_case
def test_quantize_aware_is_exact_for_many_networks_and_chips(network, chip, bits, seed, learns, is_calibrated):
    assert_any_network_is_exact(network, chip, bits, seed, learns, is_calibrated)


RULES = {
    "late zero": {"reset": "zero", "reset_timing": "next"},
    "late value": {"reset": "value", "reset_value": 0.2, "reset_timing": "next", "strict": False},
    "late subtract": {"reset": "subtract", "reset_timing": "next"},
    "both": {"reset": "subtract", "reset_timing": "both"},
    "refractory": {"reset": "zero", "refractory": 3},
    "multi": {"reset": "subtract", "spikes": "multi"},
    "bipolar": {"reset": "subtract", "spikes": "bipolar"},
    "clamp": {"reset": "value", "reset_value": -0.3, "v_min": -0.1},
    "euler": {"membrane": "euler", "beta": 1.0, "k": 0.2, "r": 3.0, "v_leak": 0.1, "leak": 0.0},
}


@pytest.mark.parametrize("rule", RULES)
def test_quantize_aware_is_exact_for_every_rule(rule):
    """With delays, synapses one by one, a layer that feeds itself two steps later, and one that feeds back."""
    rng = np.random.default_rng(3)
    common = {"threshold": 0.4, "beta": 0.8, "alpha": 0.5, "leak": 0.02} | RULES[rule]

    def weight(*shape):
        return rng.normal(0.3, 0.7, shape).astype(np.float32)

    edges = [
        nw.Dense("in", "a", weight(5, 6), weight(5), delay=1),
        nw.Sparse("in", "a", rng.integers(0, 6, 9), rng.integers(0, 5, 9), weight(9), delay=2),
        nw.Dense("a", "a", weight(5, 5), delay=2),
        nw.Sparse("a", "b", rng.integers(0, 5, 9), rng.integers(0, 4, 9), weight(9)),
        nw.Dense("b", "a", weight(5, 4), delay=4),
        nw.Sparse("a", "c", np.arange(5), rng.integers(0, 3, 5), weight(5)),
    ]
    specs = {name: nw.NeuronSpec(**common) for name in "abc"}
    net = nw.Network.from_arrays({"a": specs["a"], "b": (specs["b"], 4), "c": (specs["c"], 3)}, edges, {"in": (6,)})
    x, options = spikes(4, 9, 6), nw.Options(on_multi_spike="graded")
    module = nn.quantize_aware(net, small_chip().replace(ABLE), x, on_multi_spike="graded", learn_thresholds=True,
                               learn_taus=True)  # fmt: skip
    results = module.spikes(x)
    sum((y * torch.randn(y.shape)).sum() for y in results.values()).backward()
    assert all(y.detach().any() for y in results.values())
    assert all((p.grad != 0).any() for p in module.parameters() if p.requires_grad and p.numel())
    shake(module, 0.05)
    assert_equal_bits(module, x, options=options)


def test_quantize_aware_answers_are_those_of_the_program():
    x = spikes(40, 8, 12)
    module = nn.quantize_aware(dense(), "loihi1", x[:10], bits=2).eval()
    run = nw.simulate(nw.compile(module.network(), "loihi1", x[:10]), x, backend="sequence")
    with torch.no_grad():
        answers = module(x).sum(1).argmax(1).numpy()
    np.testing.assert_array_equal(answers, run.output.sum(1).argmax(1))
    assert len(set(answers)) > 1


@pytest.mark.parametrize("topology", ["FF", "RC"])
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("reset", ["zero", "subtraction", "none"])
def test_quantize_aware_gradients_are_those_of_the_float_layers(reset, detach, topology):
    """On a chip of so many bits that spikes are the same."""
    torch.manual_seed(1)
    lif = {"taus": 10e-3, "thresholds": 0.5, "reset_mechanism": reset, "dt": 2e-3, "detach_reset": detach,
           "surrogate": "atan"}  # fmt: skip
    first = nn.LIFLayer(8, layer_topology=topology, learn_taus=True, learn_thresholds=True, **lif)
    net = nn.Sequential(torch.nn.Linear(12, 8), first, torch.nn.Linear(8, 3), nn.LIFLayer(3, **lif))
    x, chip = spikes(5, 12, 12), nw.Chip.load("loihi1").replace(FINE)
    module = nn.quantize_aware(net, chip, x, learn_thresholds=True, learn_taus=True)  # surrogate and detach are its own
    nn.prepare_net(net)
    wanted, found = net(torch.from_numpy(x))[0], module(x)
    assert torch.equal(wanted, found) and wanted.any()
    of = torch.randn(wanted.shape)
    (wanted * of).sum().backward()
    (found * of).sum().backward()
    hidden, output = module.layers
    of_beta = (first.taus.grad / (first.beta.detach() * lif["dt"] / first.taus.detach() ** 2)).sum()
    pairs = [
        (net[0].weight.grad, hidden.weights[0].grad), (net[0].bias.grad, hidden.biases[0].grad),
        (net[2].weight.grad, output.weights[0].grad), (net[2].bias.grad, output.biases[0].grad),
        (first.thresholds.grad.sum(), hidden.threshold.grad), (of_beta, hidden.beta.grad),
    ]  # fmt: skip
    if topology == "RC":
        pairs.append((first.w_rec.grad.T, hidden.weights[1].grad))
    for one, other in pairs:
        torch.testing.assert_close(other, one, rtol=5e-3, atol=5e-3 * float(one.abs().max()))


def test_quantize_aware_keeps_scales_until_it_is_told():
    x = spikes(6, 8, 12)
    module = nn.quantize_aware(dense(), "loihi1", x, bits=3, learn_taus=True)
    pinned = [layer.pinned for layer in module.layers]
    shake(module, 1.0)
    module(x)
    fixed = module.network()
    assert [layer.pinned for layer in module.layers] == pinned
    assert [c.exponent for c in fixed.connections] == [exponent for pin in pinned for exponent in pin.exponents]
    program = nw.compile(fixed, "loihi1", x)
    assert [row["scale"] for row in program.manifest["quantization"]] == [1.0, 1.0]  # nothing was searched
    module.recalibrate(x)
    assert [layer.pinned.scale for layer in module.layers] != [pin.scale for pin in pinned]
    assert_equal_bits(module, x, ("sequence",))


@pytest.mark.parametrize("thresholds", ["layer", "neuron"])
def test_quantize_aware_starts_where_post_training_quantization_ends(thresholds):
    x, chip = spikes(6, 8, 12), small_chip(neuron__threshold_per=thresholds)
    net = dense()
    module = nn.quantize_aware(net, chip, x, bits=4)
    program = nw.compile(nw.from_torch(net, x[:2]), chip, x, nw.Options(bits=4))
    own = nw.compile(module.network(), chip, x)
    assert (module.layers[0].pinned.channel_scale is not None) == (thresholds == "neuron")
    for name in own.network.layers:
        one, other = (p.network.node(name).neuron for p in (program, own))
        for key in one.FIXED_NUMBERS:
            np.testing.assert_array_equal(getattr(one, key), getattr(other, key))
    for c, other in zip(program.network.connections, own.network.connections, strict=True):
        np.testing.assert_array_equal(c.weight, other.weight)
    assert module.table == program.manifest["quantization"]


def test_quantize_aware_sees_weights_that_were_changed_behind_its_back():
    x = spikes(6, 8, 12)
    module = nn.quantize_aware(dense(), "loihi1", x, bits=4)
    before = module.record(x)["1"]["u"]
    module.layers[0].weights[0].data.neg_()  # torch counts no change of a parameter's data
    assert (module.record(x)["1"]["u"] != before).any()
    assert_equal_bits(module, x, ("sequence",))


def test_quantize_aware_counts_are_those_that_a_message_holds():
    layers = {"a": nw.NeuronSpec(threshold=0.1, spikes="multi", reset="subtract")}
    net = nw.Network.from_arrays(layers, [nw.Dense("in", "a", np.full((2, 3), 0.9, np.float32))], {"in": (3,)})
    chip = small_chip().replace(ABLE | {"noc.payload_bits": 3})
    module = nn.quantize_aware(net, chip, on_multi_spike="graded")
    with pytest.raises(nw.ModelError, match="layer 'a' fires .* but a message of small carries at most 7"):
        module(np.ones((1, 3, 3)))


def test_quantize_aware_state_dict_holds_the_integers(tmp_path):
    x = spikes(6, 8, 12)
    chip = small_chip(neuron__threshold_per="neuron")
    module = nn.quantize_aware(dense(), chip, x, bits=2, learn_thresholds=True)
    assert module.layers[0].pinned.channel_scale is not None
    shake(module)
    torch.save(module.state_dict(), tmp_path / "net.pt")
    other = nn.quantize_aware(dense(seed=5), chip, x[:1], bits=2, learn_thresholds=True)
    assert other.network().hash != module.network().hash
    other.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True))
    assert other.network().hash == module.network().hash
    assert copy.deepcopy(module).network().hash == module.network().hash


def test_quantize_aware_is_exact_whatever_torch_is_allowed():
    """Inside autocast, with bfloat16 products; and where NNPACK would take Winograd's algorithm."""
    torch.manual_seed(0)
    net = nn.Sequential(torch.nn.Conv2d(8, 16, 3), nn.LIFLayer(576, **LIF), torch.nn.Flatten(),
                        torch.nn.Linear(576, 256), nn.LIFLayer(256, **LIF))  # fmt: skip
    x, chip = spikes(16, 4, 8, 8, 8), nw.Chip.load("loihi1").replace(FINE)
    module = nn.quantize_aware(net, chip, x[:2], bits=12)
    was = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", torch.bfloat16):
            found = module.record(x)
    finally:
        torch.set_float32_matmul_precision(was)
    run = nw.simulate(nw.compile(module.network(), chip), x, backend="sequence", record="all")
    for name in found:
        np.testing.assert_array_equal(found[name]["u"], run.states[name]["u"])
    assert torch.backends.mkldnn.enabled


def test_quantize_aware_trains_no_pooling_and_no_copies():
    torch.manual_seed(0)
    net = nn.Sequential(torch.nn.Conv2d(1, 2, 3), nn.LIFLayer(72, **LIF), torch.nn.AvgPool2d(2), nn.LIFLayer(18, **LIF))
    module = nn.quantize_aware(net, "loihi1", spikes(2, 3, 1, 8, 8))
    assert [p.requires_grad for layer in module.layers for p in layer.weights] == [True, False]


@pytest.mark.parametrize("weight", [torch.ones(4, 6), torch.eye(6)[:4]])
def test_quantize_aware_trains_weights_that_begin_with_0_and_1(weight):
    net = nn.Sequential(torch.nn.Linear(6, 4), nn.LIFLayer(4, **LIF), torch.nn.Linear(4, 3), nn.LIFLayer(3, **LIF))
    with torch.no_grad():
        net[0].weight.copy_(weight)
    module = nn.quantize_aware(net, "loihi1", spikes(2, 3, 6))
    assert [p.requires_grad for layer in module.layers for p in layer.weights] == [True, True]


def test_quantize_aware_warns_of_weights_that_are_all_0():
    net = nn.Sequential(torch.nn.Linear(6, 4, bias=False), nn.LIFLayer(4, **LIF))
    with torch.no_grad():
        net[0].weight.zero_()
    assert nn.quantize_aware(net, "loihi1").warnings[0] == (
        "all weights from 'input' to '1' are 0 and stay 0, as pruned ones do; begin with other weights to train them"
    )


def test_quantize_aware_trains_no_lists_of_synapses_that_only_move_spikes():
    neuron = NeuronSpec(beta=0.5)
    moves, weighs = (Sparse("in", "a", np.arange(3), np.arange(3), weight) for weight in (np.ones(3), np.full(3, 0.5)))
    for connection, trains in ((moves, False), (weighs, True)):
        network = nw.Network.from_arrays({"a": (neuron, 3)}, [connection], {"in": 3})
        module = nn.quantize_aware(network, "loihi1", spikes(2, 3, 3))
        assert [p.requires_grad for p in module.layer("a").weights] == [trains]


def test_quantize_aware_readouts_give_membranes_in_float_units():
    x = spikes(6, 8, 12)
    net = nn.Sequential(*list(dense())[:3])
    module = nn.quantize_aware(net, nw.Chip.load("loihi1").replace(FINE), x)
    nn.prepare_net(net)
    torch.testing.assert_close(module(x), net(torch.from_numpy(x)), rtol=1e-3, atol=1e-3)


def test_quantize_aware_takes_layer_bits():
    module = nn.quantize_aware(dense(), "loihi1", spikes(2, 4, 12), bits=2, layer_bits={"3": 5})
    assert [c.weight_bits for c in module.network().connections] == [2, 5]


@pytest.mark.parametrize("family", ["H1v1", "H1v2"])
def test_quantize_aware_takes_layers_of_analog_chips(family):
    torch.manual_seed(0)
    synapse, layer = getattr(nn, f"{family}Synapse"), getattr(nn, f"{family}Layer")
    net = nn.Sequential(synapse(12, 10), layer(10), synapse(10, 5), layer(5, layer_topology="RC"))
    x = spikes(4, 6, 12)
    module = nn.quantize_aware(net, family.lower(), x)
    module(x).sum().backward()
    shake(module)
    assert_equal_bits(module, x)


def snn_net(hidden, output) -> torch.nn.Module:
    """12-9-4 neurons of snnTorch in a loop over steps, [T, B, 12]."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.hidden = torch.nn.Linear(12, 9), hidden
            self.last, self.output = torch.nn.Linear(9, 4), output

        def forward(self, x):
            states = self.hidden.init_synaptic() if hasattr(self.hidden, "alpha") else (self.hidden.init_leaky(),)
            out, counts = self.output.init_leaky(), []
            for step in x:
                spike, *states = self.hidden(self.fc(step), *states)
                spike, out = self.output(self.last(spike), out)
                counts.append(spike)
            return torch.stack(counts)

    torch.manual_seed(0)
    return Net()


def test_quantize_aware_takes_snntorch():
    snntorch = framework("snntorch")
    net = snn_net(snntorch.Synaptic(alpha=0.8, beta=0.9), snntorch.Leaky(beta=0.8, reset_mechanism="zero"))
    x = spikes(4, 8, 12)
    chip = nw.Chip.load("loihi1").replace(
        {"neuron.reset": ["zero", "subtract"], "neuron.reset_timing": ["now", "next"]}
    )
    x = x.swapaxes(0, 1)
    module = nn.quantize_aware(net, chip, x, layout="TB", learn_taus=True)
    module(x).sum().backward()
    assert (module.layer("hidden").alpha.grad != 0).any()
    shake(module)
    assert_equal_bits(module, x)


@pytest.mark.parametrize("reset", ["subtract", "zero"])
@pytest.mark.parametrize("delays", [True, False])
def test_quantize_aware_gradients_are_those_of_snntorch(reset, delays):
    """snnTorch detaches resets that come one step late, and no others."""
    snntorch = framework("snntorch")
    common = {"reset_mechanism": reset, "threshold": 0.6, "spike_grad": snntorch.surrogate.atan(2.0)}
    late = {"beta": 0.9, "reset_delay": delays, **common}
    hidden = snntorch.Synaptic(alpha=0.8, beta=0.9, **common) if delays else snntorch.Leaky(**late)
    net, x = snn_net(hidden, snntorch.Leaky(**late)), spikes(4, 9, 12)
    chip = nw.Chip.load("loihi1").replace(FINE | {"neuron.reset_timing": ["now", "next", "both"]})
    x = x.swapaxes(0, 1)
    module = nn.quantize_aware(net, chip, x, layout="TB", surrogate="atan", detach_reset=delays)
    wanted, found = net(torch.from_numpy(x)).transpose(0, 1), module(x)
    assert torch.equal(wanted, found) and wanted.any()
    of = torch.randn(wanted.shape)
    (wanted * of).sum().backward()
    (found * of).sum().backward()
    for layer, linear in zip(module.layers, (net.fc, net.last), strict=True):
        for one, other in ((linear.weight, layer.weights[0]), (linear.bias, layer.biases[0])):
            torch.testing.assert_close(other.grad, one.grad, rtol=5e-3, atol=5e-3 * float(one.grad.abs().max()))


def test_parameters_in_bfloat16_are_rounded_as_their_numbers():
    """NumPy has no bfloat16."""
    x = spikes(4, 8, 12)
    module = nn.quantize_aware(dense(thresholds=0.3), "loihi1", x).bfloat16()
    wanted = copy.deepcopy(module).float()(torch.from_numpy(x))
    assert torch.equal(module(torch.from_numpy(x)), wanted) and wanted.any()
