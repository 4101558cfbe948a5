"""Small mapped programs (round figures, crowded, spread over a mesh), their runs, and chips without some costs."""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate
from tests.made.chips import small_chip
from tests.made.nets import FIXED, dense_net, feed_forward

SITES = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]


def chip_without(*keys: str) -> Chip:
    """Remove keys such as `cost.word_cycles` from small_chip()."""
    table = small_chip().to_dict()
    for key in keys:
        section, name = key.split(".")
        del table[section][name]
    return Chip.from_dict(table)


def three_cores(chip: Chip | None = None, hidden: str = "fc1", calibrated: bool = False, **manifest) -> Program:
    """Build 4 lines -> `hidden`, 6 neurons on cores 0, 1 -> `out`, 2 neurons on core 2; any spike makes all spike."""
    spec = NeuronSpec(threshold=0, fixed=FixedPoint())
    edges = [Dense("in", hidden, np.full((6, 4), 1)), Dense(hidden, "out", np.full((2, 6), 1))]
    network = Network.from_arrays({hidden: (spec, (6,)), "out": (spec, (2,))}, edges, {"in": (4,)})
    mapping = Mapping.from_arrays({hidden: [0, 0, 0, 1, 1, 1], "out": [2, 2]}, SITES)
    program = emit(network, schedule(network), mapping, chip or small_chip(), None, manifest)
    if not calibrated:
        return program
    activity = simulate(program, spikes_in(), backend="reference").activity
    return emit(network, schedule(network), mapping, chip or small_chip(), activity, manifest)


def spikes_in(n_steps: int = 2) -> np.ndarray:
    """Two samples: one line spikes in every step of the first, all four lines in every step of the second."""
    x = np.zeros((2, n_steps, 4), np.int64)
    x[0, :, 0] = 1
    x[1] = 1
    return x


def run_of(program: Program, backend: str = "cycle", **more) -> Run:
    return simulate(program, spikes_in(), backend=backend, **more)


def spread(**keys):
    """Build one neuron at a corner that spikes in every step, and one on each other core of 3 x 2 routers."""
    chip = small_chip(noc__cores_per_router=1, noc__columns=3, noc__rows=2, **keys)
    spec = NeuronSpec(threshold=0, bias=1, fixed=chip.fixed_point)
    fed = NeuronSpec(threshold=1 << 20, fixed=chip.fixed_point)
    network = Network.from_arrays({"a": (spec, (1,)), "b": (fed, (5,))}, [Dense("a", "b", np.ones((5, 1), np.int8))])
    mapping = Mapping.from_arrays(
        {"a": [0], "b": [1, 2, 3, 4, 5]}, [[0, 0, 0], *((i % 3, i // 3, 0) for i in range(1, 6))]
    )
    return emit(network, schedule(network, "pipelined"), mapping, chip, None, {}, "refuse")


def crowded(**chip):
    """Build 8 lines -> 40 -> 30 neurons on three cores with buffers of 2 flits, and an input with many spikes."""
    network = dense_net(8, 40, 30)
    mapping = Mapping.from_arrays({"fc1": [0] * 20 + [1] * 20, "fc2": [2] * 30}, SITES)
    figures = {"noc__buffer_flits": 2, "core__max_in_axons": None, "core__max_out_axons": None, **chip}
    program = emit(network, schedule(network), mapping, small_chip(**figures), None, {})
    return program, (np.random.default_rng(0).random((3, 12, 8)) < 0.6).astype(np.int64)


def four_cores(**noc) -> Program:
    """Build a 6-8-8-4 network with every layer on all four cores of `tiny`, with these NoC keys changed."""
    network = dense_net(6, 8, 8, 4, recurrent=True)
    chip = Chip.load("tiny").replace({f"noc.{key}": value for key, value in noc.items()})
    of = {name: np.arange(network.node(name).n_neurons) % 4 for name in network.layers}
    mapping = Mapping.from_arrays(of, [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    return emit(network, feed_forward(network), mapping, chip, Activity.uniform(network), {"warnings": []})


SMALLEST_BUFFERS = {"noc__buffer_flits": 1, "core__max_in_axons": None, "core__max_out_axons": None}


def all_to_one(n_senders=40, n_sites=11, **chip) -> Program:
    """Build layer `a` on eleven cores, connected to the one neuron of `b` on the twelfth core, and back."""
    edges = [Dense("in", "a", np.full((n_senders, 3), 2, np.int8)), Dense("a", "b", np.ones((5, n_senders), np.int8)),
             Dense("b", "a", np.ones((n_senders, 5), np.int8), delay=2)]  # fmt: skip
    network = Network.from_arrays({"a": (FIXED, n_senders), "b": (FIXED, 5)}, edges, {"in": 3})
    built = small_chip(**SMALLEST_BUFFERS, **chip)
    mapping = Mapping.from_arrays({"a": np.arange(n_senders) % n_sites, "b": [n_sites] * 5}, built.sites[: n_sites + 1])
    return emit(network, schedule(network), mapping, built, None, {})


def with_keys(program: Program, **keys) -> Program:
    """Return the same program on its chip with other keys."""
    chip = program.chip.replace({key.replace("__", "."): value for key, value in keys.items()})
    return emit(program.network, program.schedule, program.mapping, chip, None, {}, program.on_multi_spike)
