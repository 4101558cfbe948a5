"""Two networks of SANA-FE as programs on loihi1: its random net, and its DVS-gesture net."""

import csv

import numpy as np

import nwcompile as nw
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.emit import emit


def random_net(reference) -> tuple[Program, Activity, dict[str, np.ndarray]]:
    """Build the random net with SANA-FE's mapping: program, spikes, and columns of the `simple` timing model.

    Columns have one row per step; every neuron is updated.
    """
    data = np.load(reference / "sanafe" / "rand1024_c16.npz")
    with open(reference / "sanafe" / "rand1024_c16_simple.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}
    spec = NeuronSpec(threshold=1000 << 6, fixed=FixedPoint(), bias=data["bias"].astype(np.int64) << 6)
    edge = Sparse("n", "n", data["src"], data["dst"], data["w"], delay=1)
    network = Network.from_arrays({"n": (spec, (1024,))}, [edge])
    core = np.arange(16)
    tile = core // 4
    mapping = Mapping.from_arrays({"n": data["core"]}, np.stack([tile // 4, tile % 4, core % 4], 1))
    schedule = Schedule("pipelined", 1, {"n": 0}, (1,))
    program = emit(network, schedule, mapping, Chip.load("loihi1"), None, {})
    spikes = np.zeros((len(rows), 1024), np.int32)
    spikes[data["spk_t"], data["spk_i"]] = 1
    return program, Activity({"n": spikes}, 1), columns


def dvs_program(reference) -> nw.Program:
    """Build the DVS-gesture net on its channel-major layer slices; axon limits are raised for this mapping."""
    with np.load(reference / "models" / "sanafe_dvs" / "dvs_challenge.npz") as data:
        thresholds, pixels = data["thresholds"].astype(int), data["inputs"].reshape(1, 32, 32).astype(int)
        kernels = [data[f"conv{i}"].transpose(3, 2, 0, 1).astype(np.int16) for i in range(1, 5)]
        dense = data["dense1"].T.astype(np.int16)
    chip = nw.Chip.load("loihi1").replace({
        "weights.bits": 10, "weights.step": 1, "core.synapse_bits": 2097152, "core.max_in_axons": 8192,
        "core.max_out_axons": 16384,
    })  # fmt: skip
    names = ["input", "conv1", "conv2", "conv3", "conv4", "dense"]
    edges = [nw.Conv2d(names[i], names[i + 1], k, stride=1 + (i == 0), delay=1) for i, k in enumerate(kernels)]
    edges.append(nw.Dense("conv4", "dense", dense, delay=1))
    specs = {n: nw.NeuronSpec(threshold=64 * t, fixed=chip.fixed_point) for n, t in zip(names, thresholds, strict=True)}
    layers = {**specs, "input": (specs["input"].replace(bias=64 * pixels), (1, 32, 32))}
    network = nw.Network.from_arrays(layers, edges)
    core_of, n_cores = {}, 0
    for name, parts in zip(names, (1, 4, 16, 16, 4, 1), strict=True):
        n = network.node(name).n_neurons
        core_of[name] = n_cores + np.minimum(np.arange(n) // (n // parts), parts - 1)
        n_cores += parts
    core = np.arange(n_cores)
    in_order = {name: np.zeros(len(cores), int) for name, cores in core_of.items()}
    mapping = nw.Mapping.from_arrays(core_of, np.stack([core // 16, core // 4 % 4, core % 4], 1), in_order)
    return nw.compile(network, chip, mapping=mapping)
