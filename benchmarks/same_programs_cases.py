"""The networks and the cases of `same_programs.py`: chips, partitioners, placers, objectives and options, covered.

Only public names of `nwcompile` are used, and no code of this repository beside it, so that every version can run them.
"""

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import nwcompile as nw

N_STEPS = 8  # of calibration and of the simulated input
HYPERGRAPH = "mtkahypar"  # the module that partitioner `hypergraph` needs


def spikes_for(
    network: nw.Network, n_samples: int, seed: int, values: tuple[float, ...] = (1,)
) -> dict[str, np.ndarray]:
    """Input spikes int8[B, T, *shape] of every input that is given; float32 where `values` are real."""
    rng, x = np.random.default_rng(seed), {}
    for name, node in network.given_inputs.items():
        shape = (n_samples, N_STEPS, *node.shape)
        kind = np.int8 if all(float(value).is_integer() for value in values) else np.float32
        x[name] = ((rng.random(shape) < rng.uniform(0.1, 0.35)) * rng.choice(values, shape)).astype(kind)
    return x


def floats(seed: int, *shape: int) -> np.ndarray:
    """Float32 weights [n_out, n_in, ...], their sums of unit variance."""
    fan_in = int(np.prod(shape[1:]))
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def offsets(seed: int, n: int) -> np.ndarray:
    """Small float32 biases."""
    return (0.1 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def integers(seed: int, *shape: int, low: int = -5, high: int = 5) -> np.ndarray:
    """int8 weights from `low` to `high`."""
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.int8)


def kept(seed: int, weight: np.ndarray, share: float) -> np.ndarray:
    """The weights with only a share of them left, the others 0."""
    return np.where(np.random.default_rng(seed).random(weight.shape) < share, weight, 0).astype(weight.dtype)


def lif(chip: nw.Chip, **more) -> nw.NeuronSpec:
    """A float neuron that resets as the chip's neurons do, leaky where they can be."""
    reset = "zero" if "zero" in chip.neuron.reset else "subtract"
    beta = 1.0 if chip.neuron.leak is False else 0.875
    return nw.NeuronSpec(**{"threshold": 0.5, "beta": beta, "reset": reset} | more)


def fixed(chip: nw.Chip, threshold: int, **more) -> nw.NeuronSpec:
    """An integer neuron of the chip's number format, its threshold in units of a weight of 1."""
    form = chip.fixed_point
    return nw.NeuronSpec(**{"threshold": threshold << form.shift_bits, "fixed": form} | more)


def dense(chip: nw.Chip) -> nw.Network:
    """Three float layers with biases."""
    sizes, names = (40, 96, 64, 10), ("in", "a", "b", "c")
    edges = [
        nw.Dense(names[i], names[i + 1], floats(i, sizes[i + 1], sizes[i]), offsets(9 + i, sizes[i + 1]))
        for i in range(3)
    ]
    return nw.Network.from_arrays(dict.fromkeys(names[1:], lif(chip)), edges, {"in": 40})


def conv_pool(chip: nw.Chip) -> nw.Network:
    """Convolution, mean pooling, a batch norm as a scale, another convolution, a sum pool, a dense layer."""
    rng = np.random.default_rng(5)
    edges = [
        nw.Conv2d("in", "conv1", floats(0, 6, 2, 3, 3), padding=1),
        nw.Pool2d("conv1", "pool1", 2, kind="avg"),
        nw.Scale("pool1", "norm", 2 + rng.random(6, np.float32), 0.1 * rng.random(6, np.float32)),
        nw.Conv2d("norm", "conv2", floats(1, 8, 3, 3, 3), stride=(1, 2), groups=2),
        nw.Pool2d("conv2", "pool2", (2, 1), (2, 1)),
        nw.Dense("pool2", "out", floats(2, 7, 32)),
    ]
    layers = {"conv1": lif(chip), "pool1": None, "norm": (None, (6, 6, 6)), "conv2": lif(chip), "pool2": None,
              "out": lif(chip)}  # fmt: skip
    return nw.Network.from_arrays(layers, edges, {"in": (2, 12, 12)})


def conv1d(chip: nw.Chip) -> nw.Network:
    """Two convolutions along one axis with strides and dilation, and a dense layer."""
    edges = [
        nw.Conv1d("in", "a", floats(0, 8, 2, 5), stride=2, padding=2),
        nw.Conv1d("a", "b", floats(1, 6, 8, 3), offsets(3, 6), dilation=2),
        nw.Dense("b", "c", floats(2, 5, 96)),
    ]
    return nw.Network.from_arrays(dict.fromkeys("abc", lif(chip)), edges, {"in": (2, 40)})


def skips(chip: nw.Chip) -> nw.Network:
    """Two inputs, delays, skips, a layer onto itself, a late feedback, a list of synapses, currents that decay."""
    rng = np.random.default_rng(2)
    edges = [
        nw.Dense("in", "a", floats(0, 30, 20)),
        nw.Dense("more", "b", floats(1, 24, 8), delay=2),
        nw.Dense("a", "b", floats(2, 24, 30)),
        nw.Dense("b", "c", floats(3, 12, 24), delay=1),
        nw.Dense("a", "c", 0.5 * floats(4, 12, 30)),
        nw.Dense("b", "b", -np.eye(24, dtype=np.float32) / 4),
        nw.Dense("c", "a", 0.3 * floats(5, 30, 12), delay=4),
        nw.Sparse("in", "c", rng.integers(0, 20, 40), rng.integers(0, 12, 40), 5 * offsets(6, 40), delay=3),
    ]
    layers = {"a": lif(chip, alpha=0.75), "b": lif(chip, refractory=2), "c": lif(chip, alpha=0.5, beta=0.75)}
    return nw.Network.from_arrays(layers, edges, {"in": 20, "more": 8})


def half_zeros(chip: nw.Chip) -> nw.Network:
    """Pruned dense layers, which become lists of synapses where that is cheaper."""
    edges = [
        nw.Dense("in", "a", kept(7, 2 * floats(0, 120, 48), 0.4)),
        nw.Dense("a", "b", kept(8, 2 * floats(1, 60, 120), 0.15)),
        nw.Dense("b", "c", kept(9, floats(2, 8, 60), 0.5)),
    ]
    return nw.Network.from_arrays(dict.fromkeys("abc", lif(chip)), edges, {"in": 48})


def readout(chip: nw.Chip) -> nw.Network:
    """A layer of neurons and one that never fires: its membrane, the sum of what came, is the answer."""
    edges = [nw.Dense("in", "a", floats(0, 48, 24)), nw.Dense("a", "sum", floats(1, 6, 48), offsets(2, 6))]
    layers = {"a": lif(chip), "sum": lif(chip, fires=False, beta=1.0, reset="none")}
    return nw.Network.from_arrays(layers, edges, {"in": 24})


def random_list(chip: nw.Chip) -> nw.Network:
    """400 integer neurons driven by biases, 16 synapses each anywhere among them."""
    rng = np.random.default_rng(3)
    weight = (2 * rng.integers(-6, 8, 6400)).astype(np.int8)
    edge = nw.Sparse("n", "n", rng.integers(0, 400, 6400), np.repeat(np.arange(400), 16), weight, delay=1)
    bias = rng.integers(0, 40, 400) << chip.fixed_point.shift_bits
    return nw.Network.from_arrays({"n": (fixed(chip, 100, bias=bias), (400,))}, [edge])


def both_signs(chip: nw.Chip) -> nw.Network:
    """Odd integer weights of both signs, which Loihi keeps as two connections, and weights of one sign."""
    edges = [
        nw.Dense("in", "a", integers(0, 40, 24)),
        nw.Dense("a", "b", kept(4, integers(1, 30, 40, low=-9, high=9), 0.2)),
        nw.Dense("a", "c", integers(2, 20, 40, low=0, high=5), sign_mode="exc"),
        nw.Dense("b", "c", integers(3, 20, 30, low=-4, high=0), sign_mode="inh"),
    ]
    layers = {"a": fixed(chip, 8, decay_v=512), "b": fixed(chip, 9), "c": fixed(chip, 10, decay_v=100)}
    return nw.Network.from_arrays(layers, edges, {"in": 24})


def whole_numbers(chip: nw.Chip) -> nw.Network:
    """A convolution, dense layers and lists in integers, kept as they are: exponents, clamps, resets, refractory."""
    rng = np.random.default_rng(6)
    form = chip.fixed_point.shift_bits
    edges = [
        nw.Conv2d("in", "conv", integers(0, 4, 2, 3, 3), padding=1, exponent=1, delay=1),
        nw.Dense("conv", "fc", integers(1, 30, 100)),
        nw.Dense("fc", "fc", -np.eye(30, dtype=np.int8)),
        nw.Sparse("in", "fc", rng.integers(0, 50, 60), rng.integers(0, 30, 60), integers(2, 60), delay=3),
        nw.Dense("fc", "out", integers(3, 6, 30, low=-20, high=20), rng.integers(-3, 4, 6), exponent=-1),
    ]
    layers = {
        "conv": fixed(chip, 9, decay_v=512, refractory=2, v_min=-(50 << form)),
        "fc": fixed(chip, 12, reset="subtract", strict=False, bias=3 << form, decay_u=2048),
        "out": fixed(chip, 10, reset="value", reset_value=-64, decay_v=1000),
    }
    return nw.Network.from_arrays(layers, edges, {"in": (2, 5, 5)})


def counts(chip: nw.Chip) -> nw.Network:
    """Integer layers that send several spikes a step, fed with counts."""
    edges = [nw.Dense("in", "a", integers(0, 50, 20, low=-2, high=4) * 2), nw.Dense("a", "b", integers(1, 30, 50) * 2),
             nw.Dense("b", "c", integers(2, 8, 30) * 2)]  # fmt: skip
    several = fixed(chip, 8, spikes="multi", reset="zero" if "zero" in chip.neuron.reset else "subtract")
    return nw.Network.from_arrays({"a": several, "b": several, "c": fixed(chip, 6)}, edges, {"in": 20})


def bipolar(chip: nw.Chip) -> nw.Network:
    """Float layers whose spikes are +1 and -1."""
    edges = [nw.Dense("in", "a", floats(0, 64, 24)), nw.Dense("a", "b", floats(1, 48, 64)),
             nw.Dense("b", "c", floats(2, 6, 48))]  # fmt: skip
    return nw.Network.from_arrays(dict.fromkeys("abc", lif(chip, spikes="bipolar")), edges, {"in": 24})


def own_thresholds(chip: nw.Chip) -> nw.Network:
    """Float layers with a threshold, leak and scale of weights for each neuron."""
    rng = np.random.default_rng(4)
    spread = np.exp(rng.normal(0, 1, (60, 1))).astype(np.float32)
    edges = [nw.Dense("in", "a", floats(0, 60, 32) * spread), nw.Dense("a", "b", floats(1, 20, 60)),
             nw.Dense("a", "a", 0.2 * floats(2, 60, 60) * spread)]  # fmt: skip
    a = lif(chip, threshold=0.5 * spread[:, 0], beta=rng.uniform(0.5, 0.95, 60).astype(np.float32))
    return nw.Network.from_arrays({"a": a, "b": lif(chip, reset="subtract")}, edges, {"in": 32})


def crossbar(chip: nw.Chip) -> nw.Network:
    """Inputs of two kinds, each of one weight wherever it is joined: what axons of few types can hold."""

    def joined(seed: int, n_out: int, n_in: int) -> np.ndarray:
        weight = np.where(np.random.default_rng(seed).random(n_in) < 0.3, -1.0, 1.0) * np.ones((n_out, 1))
        return kept(seed, weight.astype(np.float32), 0.4)

    edges = [nw.Dense("in", "a", joined(0, 180, 60)), nw.Dense("a", "b", joined(1, 90, 180))]
    clamp = {} if chip.neuron.v_min == "reset" else {"v_min": -8.0}
    spec = lif(chip, threshold=6.0, strict=False, **clamp)
    return nw.Network.from_arrays({"a": spec, "b": spec}, edges, {"in": 60})


def shared_windows(chip: nw.Chip) -> nw.Network:
    """Maxima of spikes of windows, whose neurons can share axons, and a dense layer of two kinds of input."""
    weight = np.where(np.random.default_rng(2).random((1, 16)) < 0.4, -1.0, 2.0) * np.ones((9, 1))
    edges = [nw.Scale("in", "a"), nw.MaxPool2d("a", "b", 2), nw.Dense("b", "c", weight.astype(np.float32))]
    spec = lif(chip, threshold=1.0, strict=False, beta=1.0)
    layers = {"a": (spec, (1, 8, 8)), "b": (spec, (1, 4, 4)), "c": (spec, (9,))}
    return nw.Network.from_arrays(layers, edges, {"in": (1, 8, 8)})


def largest_current(chip: nw.Chip) -> nw.Network:
    """A maximum of the currents of windows: what the chip compares before a neuron."""
    edges = [
        nw.Conv2d("in", "a", floats(3, 2, 2, 3, 3), padding=1),
        nw.Conv2d("a", "sum", floats(0, 4, 2, 3, 3), padding=1),
        nw.MaxPool2d("sum", "b", 2),
        nw.Dense("b", "c", floats(1, 6, 64)),
    ]
    layers = {"a": (lif(chip), (2, 8, 8)), "sum": (None, (4, 8, 8)), "b": (lif(chip), (4, 4, 4)), "c": lif(chip)}
    return nw.Network.from_arrays(layers, edges, {"in": (2, 8, 8)})


def spiking_hidden(chip: nw.Chip) -> nw.Network:
    """A hidden layer that sends several spikes, onto itself and to a layer that sends one, as nets for Xylo are."""
    many = lif(chip, alpha=0.75, spikes="multi", max_spikes=31, strict=False)
    edges = [nw.Dense("in", "hidden", floats(0, 40, 12)), nw.Dense("hidden", "out", floats(2, 6, 40)),
             nw.Dense("hidden", "hidden", 0.3 * floats(1, 40, 40), delay=1)]  # fmt: skip
    one = lif(chip, alpha=0.75, strict=False)
    return nw.Network.from_arrays({"hidden": many, "out": one}, edges, {"in": 12})


def adaptive(chip: nw.Chip) -> nw.Network:
    """A neuron of one's own, whose threshold grows with its spikes through a curve, between leaky ones."""

    @nw.neuron
    def adaptive(state, x, beta=0.9, rho=0.97, jump=0.3):
        v = beta * state.v + x
        threshold = (state.a / 4).exp()
        spike = nw.nn.spike(v, threshold)
        return {"v": v - spike * threshold, "a": rho * state.a + jump * spike}, spike

    edges = [nw.Dense(s, t, floats(i, m, n)) for i, (s, t, n, m) in enumerate((("in", "a", 24, 60), ("a", "b", 60, 30),
                                                                              ("b", "c", 30, 5)))]  # fmt: skip
    return nw.Network.from_arrays({"a": lif(chip), "b": (adaptive.program(), (30,)), "c": lif(chip)}, edges, {"in": 24})


def one_layer_a_core(chip: nw.Chip) -> nw.Network:
    """Convolutions without leak and a dense layer, as nets for Speck are."""
    spec = nw.NeuronSpec(threshold=1.0, reset="subtract", strict=False, v_min=-1.0)
    edges = [
        nw.Conv2d("in", "conv1", floats(0, 8, 2, 3, 3), stride=2, padding=1),
        nw.Conv2d("conv1", "conv2", 2 * floats(1, 8, 8, 3, 3), padding=1),
        nw.Pool2d("conv2", "pool", 2, kind="sum"),
        nw.Dense("pool", "out", floats(2, 10, 128)),
    ]
    return nw.Network.from_arrays({"conv1": spec, "conv2": spec, "pool": None, "out": spec}, edges, {"in": (2, 16, 16)})


def gestures(chip: nw.Chip) -> nw.Network:
    """As large as the DVS-gesture net: pixels that fire by their biases, four convolutions, 11 classes."""
    pixels = kept(9, np.random.default_rng(8).integers(0, 60, (1, 32, 32)), 0.2)
    names, channels = ("pixels", "conv1", "conv2", "conv3", "conv4", "out"), (1, 16, 16, 16, 8)
    kernels = [2 * integers(i, channels[i + 1], channels[i], 3, 3) for i in range(4)]
    edges = [nw.Conv2d(names[i], names[i + 1], kernels[i], stride=1 + (i == 0), delay=1) for i in range(4)]
    edges.append(nw.Dense("conv4", "out", 2 * integers(4, 11, 648), delay=1))
    layers = {"pixels": (fixed(chip, 64, bias=pixels << 6), (1, 32, 32))} | dict.fromkeys(names[1:], fixed(chip, 12))
    return nw.Network.from_arrays(layers, edges)


def drawn(module, seed: int, gain: float = 1.5):
    """The torch module with parameters and statistics that torch's own random numbers have no part in."""
    import torch

    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            if name.endswith(("weight", "w_rec")) and value.ndim > 1:
                scale = gain / np.sqrt(np.prod(value.shape[1:]))
                value.copy_(torch.from_numpy(scale * rng.standard_normal(tuple(value.shape))))
            elif name.endswith(("running_mean", "bias")):
                value.copy_(torch.from_numpy(0.1 * rng.standard_normal(tuple(value.shape))))
            elif name.endswith(("running_var", "weight")) and value.ndim == 1:
                value.copy_(torch.from_numpy(rng.uniform(0.5, 2, tuple(value.shape))))
    return module.eval()


def torch_recurrent(chip: nw.Chip) -> nw.Network:
    """A torch module of nwcompile.nn layers, one of them onto itself."""
    import torch

    leaky = {"reset_mechanism": "zero" if "zero" in chip.neuron.reset else "subtraction", "thresholds": 0.5}
    module = nw.nn.Sequential(
        torch.nn.Linear(32, 80),
        nw.nn.LIFLayer(80, **leaky),
        torch.nn.Dropout(0.2),
        nw.nn.LIFSynapse(80, 48),
        nw.nn.LIFLayer(48, taus=5e-3, layer_topology="RC", **leaky),
        torch.nn.Linear(48, 8),
        nw.nn.LIFLayer(8, **leaky),
    )
    return nw.from_torch(drawn(module, 0), torch.ones(2, 4, 32))


def torch_conv(chip: nw.Chip) -> nw.Network:
    """A torch module of convolutions with batch norm, pooling of spikes, flattening."""
    import torch

    leaky = {"reset_mechanism": "zero" if "zero" in chip.neuron.reset else "subtraction", "thresholds": 0.5}
    module = nw.nn.Sequential(
        torch.nn.Conv2d(2, 6, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(6),
        nw.nn.LIFLayer(6 * 64, **leaky),
        torch.nn.AvgPool2d(2),
        torch.nn.Conv2d(6, 8, 3),
        nw.nn.LIFLayer(32, **leaky),
        torch.nn.Flatten(-3),
        torch.nn.Linear(32, 5),
        nw.nn.LIFLayer(5, **leaky),
    )
    return nw.from_torch(drawn(module, 1), torch.ones(2, 3, 2, 8, 8))


def h1v1(chip: nw.Chip) -> nw.Network:
    """The front end, synapses and layers of nwcompile.nn for H1v1, one layer onto itself."""
    parts = [nw.nn.H1v1Frontend(), nw.nn.H1v1Layer(16), nw.nn.H1v1Synapse(16, 60),
             nw.nn.H1v1Layer(60, layer_topology="RC"), nw.nn.H1v1Synapse(60, 20), nw.nn.H1v1Layer(20)]  # fmt: skip
    module = drawn(nw.nn.Sequential(*parts), 2, 8.0)
    module[0].weight.data.abs_()  # else half of the front end's neurons never fire
    return nw.from_torch(module, np.ones((2, 4, 16), np.float32))


def h1v2(chip: nw.Chip) -> nw.Network:
    """Synapses and layers of nwcompile.nn for H1v2, of several time constants."""
    parts = [nw.nn.H1v2Synapse(24, 90, quantization_bits=5), nw.nn.H1v2Layer(90, taus=12e-3),
             nw.nn.H1v2Synapse(90, 70), nw.nn.H1v2Layer(70, taus=40e-3), nw.nn.H1v2Synapse(70, 10),
             nw.nn.H1v2Layer(10)]  # fmt: skip
    return nw.from_torch(drawn(nw.nn.Sequential(*parts), 3, 4.0), np.ones((2, 4, 24), np.float32))


def relus(relu: Callable):
    """A torch network of two ReLUs, convolution and linear maps."""
    import torch

    parts = [torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), relu(), torch.nn.AvgPool2d(2),
             torch.nn.Flatten(), torch.nn.Linear(64, 30), relu(), torch.nn.Linear(30, 4)]  # fmt: skip
    return drawn(torch.nn.Sequential(*parts), 4)


def images() -> np.ndarray:
    """Samples for `nw.convert`, as bright as the input spikes are frequent."""
    return 0.4 * np.random.default_rng(1).random((12, 1, 8, 8), np.float32)


def converted(chip: nw.Chip) -> nw.Network:
    """A ReLU network as integrate-and-fire neurons, with a readout."""
    import torch

    reset = "subtract" if "subtract" in chip.neuron.reset else "zero"
    return nw.convert(relus(torch.nn.ReLU), images(), N_STEPS, reset=reset)


def gated(chip: nw.Chip) -> nw.Network:
    """A network of quantized ReLUs as neurons that take spikes back, or, where a chip cannot, as unipolar ones."""
    import torch

    module = relus(lambda: nw.nn.QuantizedReLU(N_STEPS))
    module.train()
    for _ in range(3):
        module(torch.from_numpy(images()))  # quantized ReLUs take their steps from what they are given
    return nw.convert(module.eval(), images(), N_STEPS, method="quantized")


def quantize_aware(chip: nw.Chip) -> nw.Network:
    """The integers that quantization-aware training begins with, 4 bits wide."""
    x = spikes_for(dense(chip), 2, 77)["in"]
    return nw.nn.quantize_aware(dense(chip), chip, x, bits=4).network()


def through_nir(chip: nw.Chip) -> nw.Network:
    """The net with skips and delays, written as a NIR file and read from it."""
    with tempfile.TemporaryDirectory() as folder:
        nw.to_nir(skips(chip), Path(folder) / "net.nir")
        return nw.from_nir(Path(folder) / "net.nir")


NETWORKS: dict[str, Callable[[nw.Chip], nw.Network]] = {
    "dense": dense, "conv-pool": conv_pool, "conv1d": conv1d, "skips": skips, "half-zeros": half_zeros,
    "readout": readout, "random-list": random_list, "both-signs": both_signs, "whole-numbers": whole_numbers,
    "counts": counts, "bipolar": bipolar, "own-thresholds": own_thresholds, "crossbar": crossbar,
    "shared-windows": shared_windows, "largest-current": largest_current, "spiking-hidden": spiking_hidden,
    "adaptive": adaptive, "one-layer-a-core": one_layer_a_core, "gestures": gestures,
    "torch-recurrent": torch_recurrent, "torch-conv": torch_conv, "h1v1": h1v1, "h1v2": h1v2, "converted": converted,
    "gated": gated, "quantize-aware": quantize_aware, "nir": through_nir,
}  # fmt: skip


def every_third(network, chip, activity, options) -> dict[str, np.ndarray]:
    """A partitioner of one's own: neurons dealt over three cores."""
    return {name: np.arange(network.node(name).n_neurons) % 3 for name in network.layers}


def backwards(mapping, network, chip, activity, options) -> nw.Mapping:
    """A placer of one's own: the same sites in the opposite order."""
    return nw.Mapping(mapping.core_of, mapping.site_of[::-1].copy(), mapping.note)


def by_hand(network: nw.Network) -> nw.Mapping:
    """A mapping made elsewhere: halves of every layer on cores of their own, at the last sites of `tiny`."""
    core_of = {name: np.arange(network.node(name).n_neurons) % 2 + 2 * (i % 2) for i, name in enumerate(network.layers)}
    return nw.Mapping.from_arrays(core_of, [(1, 1, 0), (0, 1, 0), (1, 0, 0), (0, 0, 0)])


class Case(NamedTuple):
    """A network of `NETWORKS` for a chip (a shipped one, some keys changed), options, and samples for calibration.

    `n_calibration` 0 is compiling without. Input spikes are 1 at a tenth to a third of all places, or any number of
    `values`. `options` have today's names; `by_hand` makes the mapping. `also` names more ways to simulate it: as a
    `stream`, by `totals`, with a `checkpoint`.
    """

    name: str
    chip: str
    network: str
    options: dict = {}
    n_calibration: int = 4
    chip_keys: dict = {}
    values: tuple[float, ...] = (1,)
    by_hand: Callable | None = None
    also: tuple[str, ...] = ()


SMALL = {"core.max_neurons": 24, "core.max_in_axons": 512, "core.max_out_axons": 512, "noc.cores_per_router": 1}
ROOM = {"core.max_neurons": 256, "core.synapse_bits": 1 << 18, "core.max_in_axons": 1024, "core.max_out_axons": 1024}
TORUS = {"noc.columns": 4, "noc.rows": 3, "noc.topology": "torus", "noc.routing": "up-down",
         "noc.faults": ["1,1", "2,0-3,0"], "core.max_neurons": 64}  # fmt: skip
BOARD = {"noc.columns": 6, "noc.rows": 4, "noc.cores_per_router": 2, "noc.chip_columns": 3, "noc.chip_rows": 2,
         "noc.chip_hop_cycles": 20, "noc.chip_link_cycles_per_flit": 4, "noc.multicast": "tree", "noc.payload_flits": 0,
         "noc.routing": "yx", "core.max_neurons": 16}  # fmt: skip
GATES = {"noc.columns": 6, "noc.rows": 4, "noc.cores_per_router": 2, "io.sites": ["0,0,0", "5,3,1"]} | ROOM
REAL = (0.25, 0.5, 1.75)
WAYS = ("stream", "totals", "checkpoint")
CASES = (
    Case("loihi1-time", "loihi1", "dense", {"n_cores": 6}),
    Case("loihi1-uncalibrated", "loihi1", "nir", {"seed": 7}, 0, SMALL),
    Case("loihi1-energy", "loihi1", "torch-recurrent", {"optimize": "energy"}, 4, SMALL),
    Case("loihi1-traffic", "loihi1", "conv-pool", {"optimize": "traffic"}, 4, {"core.max_neurons": 64}),
    Case("loihi1-traffic-limit", "loihi1", "random-list", {"optimize": "traffic", "step_limit_us": 2.0}, 0,
         {"core.max_neurons": 64}),
    Case("loihi1-cores-limit", "loihi1", "torch-conv", {"optimize": "cores", "step_limit_us": 6.0}),
    Case("loihi1-edp", "loihi1", "skips", {"optimize": "edp"}, 4, {"noc.cores_per_router": 1}),
    Case("loihi1-phased", "loihi1", "skips", {"execution": "phased", "n_cores": 8}, 4, {"noc.cores_per_router": 1}),
    Case("loihi1-repeat", "loihi1", "counts", {"on_multi_spike": "repeat"}, 4, SMALL, (1, 2, 3)),
    Case("loihi1-graded", "loihi1", "counts", {"on_multi_spike": "graded", "placer": "force"}, 4, SMALL, (1, 2, 3)),
    Case("loihi1-both-signs", "loihi1", "both-signs", {"partitioner": "metis", "placer": "random"}, 4, SMALL),
    Case("loihi1-half-zeros", "loihi1", "half-zeros", {"partitioner": "metis", "placer": "routed"}, 4, SMALL),
    Case("loihi1-gestures", "loihi1", "gestures", {"n_cores": 40}, 0,
         {"core.synapse_bits": 1 << 22, "core.max_in_axons": 8192, "core.max_out_axons": 16384}),
    Case("davies-spectral", "loihi1_davies2018", "conv-pool",
         {"partitioner": "striped-halves", "placer": "spectral", "optimize": "energy"}, 4,
         {"core.max_neurons": 32, "noc.cores_per_router": 2}),
    Case("loihi2-bipolar", "loihi2", "bipolar", {"partitioner": "streaming", "placer": "hill-climb"}, 4, SMALL,
         (-1, 1)),
    Case("loihi2-quantize-aware", "loihi2", "quantize-aware", {"partitioner": "kernighan-lin", "placer": "routed"}, 4,
         SMALL),
    Case("loihi2-reset-zero", "loihi2", "converted", {"layer_bits": {"2": 3}, "bits": 6}, 4, {"core.max_neurons": 64}),
    Case("spinnaker2-narrow", "spinnaker2", "own-thresholds",
         {"bits": 2, "partitioner": "kernighan-lin", "placer": "pso"}, 4, SMALL),
    Case("truenorth-crossbar", "truenorth", "crossbar", {"partitioner": "sequential", "placer": "row-major"}),
    Case("speck-convolutions", "speck", "one-layer-a-core"),
    Case("h1v1-recurrent", "h1v1", "h1v1", {"partitioner": "sequential"}),
    Case("h1v2-unequal-cores", "h1v2", "h1v2", {"partitioner": "metis", "placer": "random"}),
    Case("ladderbus-time", "ladderbus", "conv-pool", {}, 4, {"core.max_neurons": 64}),
    Case("ladderbus-unipolar", "ladderbus", "gated", {"optimize": "traffic", "approximate": "multi-spike"}, 4,
         {"core.max_neurons": 64}),
    Case("mesh_spec-list", "mesh_spec", "random-list",
         {"partitioner": "streaming", "placer": "row-major", "n_cores": 12}, 0),
    Case("mesh_def-conv1d", "mesh_def", "conv1d",
         {"partitioner": "striped", "placer": "pso", "n_cores": 9, "optimize": "traffic"}),
    Case("mesh_la-readout", "mesh_la", "readout", {"partitioner": "sequential", "placer": "hilbert", "n_cores": 7}),
    Case("tiny-by-hand", "tiny", "whole-numbers", {}, 4, {"core.max_neurons": 80}, by_hand=by_hand),
    Case("tiny-gated-sites", "tiny", "gated",
         {"fixed_sites": {"2": ((3, 2, 1), (0, 3, 1))}, "layer_bits": {"6": 4}}, 4, GATES),
    Case("tiny-torus-own", "tiny", "dense", {"partitioner": every_third, "placer": backwards}, 4, TORUS),
    Case("tiny-board", "tiny", "dense", {}, 4, BOARD, also=WAYS),
    Case("ranc-crossbar", "ranc", "crossbar", also=WAYS),
    Case("ranc_dense-layers", "ranc_dense", "dense", also=("stream",)),
    Case("xylo_audio2", "xylo_audio2", "spiking-hidden"),
    Case("xylo_audio3", "xylo_audio3", "spiking-hidden", also=WAYS),
    Case("xylo_imu", "xylo_imu", "spiking-hidden"),
    Case("host-bias", "loihi1", "dense", {"input_layer": "bias"}, 4, SMALL, REAL),
    Case("host-layer", "loihi1", "dense", {"input_layer": "host"}, 4, SMALL, REAL, also=("totals", "checkpoint")),
    Case("host-graded", "loihi2", "dense", {"input_layer": "graded"}, 4, SMALL, REAL),
    Case("truenorth-merged-axons", "truenorth", "shared-windows", also=WAYS),
    Case("loihi2-largest-current", "loihi2", "largest-current", {}, 4, {"core.max_neurons": 64}),
    Case("spinnaker2-split-fan-in", "spinnaker2", "dense", {}, 4, {"core.max_in_axons": 32}),
    Case("loihi2-neighbors", "loihi2", "dense", {"n_cores": 6}, 4, {"cost.sync": "neighbors"}),
    Case("loihi1-ways", "loihi1", "skips", {}, 4, SMALL, also=WAYS),
    Case("loihi2-own-neuron", "loihi2", "adaptive", {}, 4, SMALL, also=WAYS),
)  # fmt: skip
IF_INSTALLED = (Case("tiny-hypergraph", "tiny", "half-zeros", {"partitioner": "hypergraph"}, 4, BOARD),)


def cases() -> list[Case]:
    """All cases that can be computed here."""
    return [*CASES, *(IF_INSTALLED if importlib.util.find_spec(HYPERGRAPH) else ())]
