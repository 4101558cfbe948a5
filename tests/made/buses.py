"""A small chip with a segmented bus, and programs on it."""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import SECTIONS
from nwcompile.ir.connection import Dense, Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from tests.made.chips import small_chip
from tests.made.nets import dense_net

BUS = {"topology": "segmented_bus", "columns": 6, "rows": 1, "cores_per_router": 2, "lanes": 2, "hop_cycles_ew": 2}


def bus_chip(**overrides) -> Chip:
    """Build a bus of 6 positions, 2 cores each, 2 lanes, else as `small_chip`; `noc__lanes=4` overrides `noc.lanes`."""
    table = small_chip().to_dict()
    noc = BUS | {key.removeprefix("noc__"): value for key, value in overrides.items() if key.startswith("noc__")}
    table |= {"name": "small bus", "noc": noc, "sources": dict.fromkeys(SECTIONS, "assumed: for tests")}
    others = {key.replace("__", "."): value for key, value in overrides.items() if not key.startswith("noc__")}
    return Chip.from_dict(table).replace(others)


FREE = {f"cost__{event}_cycles": 0 for event in ("visit", "update", "spike", "message_out", "message_in", "word",
                                                 "synop_dense", "synop_sparse", "synop_conv")}  # fmt: skip


def pairs_program(chip, pairs):
    """Build neurons that all spike in step 1; each is on its own core at (x, port) and sends to one other core."""
    spec = NeuronSpec(threshold=1, strict=False, reset="zero", fixed=chip.fixed_point)
    n = len(pairs)
    one_by_one = Sparse("a", "b", np.arange(n), np.arange(n), np.ones(n, np.int8))
    edges = [Dense("in", "a", np.ones((n, 1), np.int8)), one_by_one]
    network = Network.from_arrays({"a": (spec, (n,)), "b": (spec, (n,))}, edges, {"in": (1,)})
    sites = [[x, 0, port] for x, port in [p[0] for p in pairs] + [p[1] for p in pairs]]
    mapping = Mapping.from_arrays({"a": np.arange(n), "b": np.arange(n, 2 * n)}, sites)
    return emit(network, schedule(network), mapping, chip, None, {})


def busy_program(chip):
    network, rng = dense_net(12, 20, 9, recurrent=True), np.random.default_rng(0)
    cores = {n: rng.integers(0, 5, network.node(n).n_neurons) for n in network.layers}
    mapping = Mapping.from_arrays(cores, chip.sites[[0, 7, 3, 11, 4]])
    return emit(network, schedule(network), mapping, chip, None, {})
