"""The random net of reference/sanafe as a Program on loihi1, mapped as SANA-FE maps it."""

import csv

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.emit.emit import emit


def random_net(reference) -> tuple[Program, Activity, dict[str, np.ndarray]]:
    """Program, spikes, and columns of SANA-FE's `simple` timing model, one row a step; every neuron is updated."""
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
