"""The nets of benchmarks/mapping.py, each mapped in any way on its chip, with the activity that mappings are made for.

dvs: the DVS-gesture net of reference/models, 1000 hardware steps on Loihi 1 with 10-bit weights. cnn: the sinabs CNN
of reference/nir on frames of its recordings' size. mnist: the demo's net. random: 20,000 neurons that fire by biases
and send at random. potjans: the cortical microcircuit of Potjans and Diesmann (Cereb. Cortex 24(3), 2014, table 5) at
10 % of its cells, driven by biases at its rates; potjans2: the same on Loihi 2. vgg9: a spiking VGG-9 on 32 x 32 x 3
(Lee et al., Front. Neurosci. 14, 2020: 64-64-P-128-128-P-256-256-256-P-1024-10) with random weights, its pools spiking
too: 275,466 neurons; vgg9-8 and vgg9-16 are the same layers on smaller images. million: the same layers on
64 x 64 x 3, 1,098,762 neurons, on 16 chips. sheet: 100,000 neurons on a plane, 500 synapses each with neurons near it,
one in ten anywhere: 50 M synapses.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import nwcompile as nw
from benchmarks.microcircuit_net import CHANCES
from benchmarks.nets import random_net
from nwcompile.ir.activity import Activity
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.prepare.schedule import schedule
from tests.sim.cycle.test_sanafe import dvs_program

NO_AXON_LIMITS = {"core.max_in_axons": None, "core.max_out_axons": None, "core.synapse_bits": None}
POPULATIONS = {  # cells, spikes a second
    "l23e": (20683, 0.86), "l23i": (5834, 2.80), "l4e": (21915, 4.45), "l4i": (5479, 5.93),
    "l5e": (4850, 7.59), "l5i": (1065, 8.63), "l6e": (14395, 1.13), "l6i": (2948, 7.88),
}  # fmt: skip


class Net(NamedTuple):
    """A network to map, the activity that mappings are made for, and how it is run to measure one."""

    network: nw.Network
    chip: nw.Chip
    activity: Activity
    x: np.ndarray | None
    steps: int
    window: str = "aligned"
    runs: bool = True  # False: only the activity is known, and mappings are not run

    def emitted(self, mapping: nw.Mapping) -> nw.Program:
        """The program of a mapping."""
        return emit(self.network, schedule(self.network), mapping, self.chip, self.activity, {})

    @property
    def n_neurons(self) -> int:
        """Of all layers."""
        return sum(self.network.node(name).n_neurons for name in self.network.layers)


def dvs(reference: Path) -> Net:
    """Layers as they come from SANA-FE; the activity is that of all 1000 steps."""
    base, limits = dvs_program(reference), {"core.max_in_axons": 4096, "core.max_out_axons": 4096}
    run = nw.simulate(base, None, "sequence", steps=1000, window="hardware")
    chip = base.chip.replace({**limits, "noc.buffer_flits": 16})
    return Net(base.network, chip, run.activity, None, 1000, "hardware")


def cnn(reference: Path) -> Net:
    """Random frames, as the recordings' own are not at hand here; 20 steps."""
    network = nw.from_nir(reference / "nir" / "02_cnn" / "cnn_sinabs.nir", dt=1.0, dialect="sinabs")
    (node,) = network.inputs.values()
    x = (np.random.default_rng(0).random((1, 20, *node.shape)) < 0.05).astype(np.int8)
    keys = {"neuron.reset": ["zero", "subtract", "none"], "neuron.v_min": "any", "neuron.strict": [True, False],
            "neuron.spikes": ["binary", "multi"], **NO_AXON_LIMITS}  # fmt: skip
    chip = nw.Chip.load("loihi1").replace(keys)
    return _of(nw.compile(network, chip, x, nw.Options(partitioner="sequential", placer="row-major")), x, 20)


def mnist(reference: Path) -> Net:
    """The demo's net, trained, on its first test images."""
    from examples import mnist_snn

    data = mnist_snn.digits()
    module, x = mnist_snn.train(data), mnist_snn.encode(data.test_images[:8])
    network = nw.from_torch(module, x[:2])
    calibration = mnist_snn.encode(data.train_images[:100])
    return _of(nw.compile(network, "loihi1", calibration, nw.Options(partitioner="sequential")), x, x.shape[1])


def random(reference: Path) -> Net:
    """20,000 neurons with 64 synapses each; 4 % of them fire in a step."""
    net = random_net(20_000, 64, 64, 0.04)
    chip = nw.Chip.load("loihi1").replace(NO_AXON_LIMITS)
    spec = nw.NeuronSpec(threshold=1000 << 6, fixed=chip.fixed_point, bias=net["bias"] << 6)
    edge = nw.Sparse("n", "n", net["src"], net["dst"], net["w"].astype(np.int8), delay=1)
    return drive(nw.Network.from_arrays({"n": (spec, (20_000,))}, [edge]), chip, 100)


def potjans(reference: Path, chip_file: str = "loihi1") -> Net:
    """Cells and synapses of each pair of populations at a tenth of the cells; steps of 1 ms."""
    rng, edges, layers = np.random.default_rng(0), [], {}
    chip = nw.Chip.load(chip_file).replace(NO_AXON_LIMITS)
    sizes = {name: round(n / 10) for name, (n, _) in POPULATIONS.items()}
    for name, (_, hertz) in POPULATIONS.items():
        bias = rng.integers(0, max(1, round(2 * hertz)), sizes[name], endpoint=True) << 6  # 1000 a spike, 1 ms a step
        layers[name] = (nw.NeuronSpec(threshold=1000 << 6, fixed=chip.fixed_point, bias=bias), (sizes[name],))
    for i, target in enumerate(sizes):
        for j, source in enumerate(sizes):
            n = rng.binomial(sizes[source] * sizes[target], CHANCES[i, j])
            pre, post = rng.integers(0, sizes[source], n), rng.integers(0, sizes[target], n)
            sign = 1 if source.endswith("e") else -4
            if n:
                edges.append(nw.Sparse(source, target, pre, post, np.full(n, sign, np.int8), delay=1))
    return drive(nw.Network.from_arrays(layers, edges), chip, 1000)


def vgg9(reference: Path, side: int = 32, routers: tuple[int, int] = (16, 8)) -> Net:
    """On a board of chips like Loihi 2 that share the kernels of convolutions; 4 steps of random frames.

    `side` of the image; `routers`: columns and rows of the board, chips of 8 x 4 routers with 4 cores each.
    """
    rng = np.random.default_rng(0)
    keys = {"noc.columns": routers[0], "noc.rows": routers[1], "noc.chip_columns": 8, "noc.chip_rows": 4,
            "noc.chip_hop_cycles": 1000, "weights.sharing": True, "core.synapse_bits": None,
            "core.max_neurons": 2048, "core.max_layers": None}  # fmt: skip
    chip = nw.Chip.load("loihi2").replace(keys)

    def even(*shape: int) -> np.ndarray:  # the chip's grid of signed weights
        return (2 * rng.integers(-4, 5, shape)).astype(np.int8)

    layers, edges, before, channels = {}, [], "in", 3
    for i, width in enumerate((64, 64, "p", 128, 128, "p", 256, 256, 256, "p")):
        name = f"{'pool' if width == 'p' else 'conv'}{i}"
        if width == "p":
            edge = nw.Conv2d(before, name, np.full((channels, 1, 2, 2), 2, np.int8), stride=2, groups=channels)
        else:
            edge = nw.Conv2d(before, name, even(width, channels, 3, 3), padding=1)
            channels = width
        edges.append(edge)
        layers[name], before = nw.NeuronSpec(threshold=64 * 12, fixed=chip.fixed_point), name
    n = channels * (side // 8) ** 2
    for name, width in (("dense1", 1024), ("dense2", 10)):
        edges.append(nw.Dense(before, name, even(width, n)))
        layers[name], before, n = nw.NeuronSpec(threshold=64 * 12, fixed=chip.fixed_point), name, width
    network = nw.Network.from_arrays(layers, edges, {"in": (3, side, side)})
    x = (rng.random((1, 4, 3, side, side)) < 0.1).astype(np.int8)
    return drive(network, chip, 4, x)


def sheet(reference: Path, n: int = 100_000, fan_in: int = 500) -> Net:
    """Neurons on a square, synapses from a normal distribution of 12 neurons' width around each; uniform activity."""
    rng, side = np.random.default_rng(0), round(n**0.5)
    post = np.repeat(np.arange(n, dtype=np.int32), fan_in)
    pre = np.empty(len(post), np.int32)
    for at in range(0, len(post), 1 << 22):  # a piece at a time, for memory
        part = post[at : at + (1 << 22)]
        step = np.rint(rng.normal(0, 12, (2, len(part)))).astype(np.int32)
        near = (part // side + step[0]) % side * side + (part % side + step[1]) % side
        pre[at : at + len(part)] = np.where(rng.random(len(part)) < 0.9, near, rng.integers(0, n, len(part))) % n
    chip = nw.Chip.load("loihi1").replace(NO_AXON_LIMITS)
    spec = nw.NeuronSpec(threshold=1000 << 6, fixed=chip.fixed_point)
    edge = nw.Sparse("n", "n", pre, post, (2 * rng.integers(1, 50, len(post))).astype(np.int8), delay=1)
    network = nw.Network.from_arrays({"n": (spec, (n,))}, [edge])
    return Net(network, chip, Activity.uniform(network, 4), None, 4)


NETS: dict[str, Callable[[Path], Net]] = {
    "dvs": dvs, "cnn": cnn, "mnist": mnist, "random": random, "potjans": potjans, "vgg9": vgg9,
    "potjans2": lambda at: potjans(at, "loihi2"),
    "vgg9-8": lambda at: vgg9(at, 8), "vgg9-16": lambda at: vgg9(at, 16), "million": lambda at: vgg9(at, 64, (32, 16)),
    "sheet": sheet,
}  # fmt: skip


def _of(program: nw.Program, x: np.ndarray, steps: int) -> Net:
    return Net(program.network, program.chip, program.activity, x, steps)


def drive(network: nw.Network, chip: nw.Chip, steps: int, x: np.ndarray | None = None) -> Net:
    """A net with the activity of `steps` steps, of input x or by itself."""
    base = Net(network, chip, Activity.uniform(network, 1), x, steps)
    mapping = partition(network, chip, base.activity, nw.Options(partitioner="sequential")).mapping
    run = nw.simulate(base.emitted(mapping), x, "sequence", steps=None if x is not None else steps)
    return base._replace(activity=run.activity)
