"""The routers of the cycle backend against BookSim 2 (reference/booksim, preset `spec`): latencies and bursts."""

import csv
import gzip

import numpy as np
import pytest

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate

FREE = {f"{event}_cycles": 0 for event in ("visit", "update", "spike", "message_out", "message_in", "word",
                                           "synop_dense", "synop_sparse", "synop_conv")}  # fmt: skip


def mesh(k: int, flits: int, n_channels: int, buffer: int) -> Chip:
    """A k x k mesh of BookSim's `spec` routers (3 cycles a router, 5 cycles of credit) whose cores take no time."""
    noc = {"columns": k, "rows": k, "virtual_channels": n_channels, "buffer_flits": buffer, "flits_per_message": flits}
    table = {
        "name": "mesh", "noc": noc, "core": {"max_neurons": 1 << 20}, "neuron": {"reset": ["zero"]},
        "cost": {**FREE, "barrier_cycles": {"1": 0}},
        "sources": dict.fromkeys(("noc", "core", "neuron", "cost"), "test"),
    }  # fmt: skip
    return Chip.from_dict(table)


def makespan(k: int, packets: list[tuple[int, int]], flits: int = 1, n_channels: int = 1, buffer: int = 8) -> int:
    """Cycles until all packets (source, destination), all sent at time 0 in this order, have arrived."""
    chip = mesh(k, flits, n_channels, buffer)
    n, spec = len(packets), NeuronSpec(threshold=0, bias=1, fixed=FixedPoint())
    each = np.arange(n)
    network = Network.from_arrays(
        {"send": (spec, (n,)), "take": (spec.replace(bias=0), (n,))}, [Sparse("send", "take", each, each, each * 0)], {}
    )
    source, target = np.array(packets).T
    mapping = Mapping.from_arrays({"send": source, "take": target}, chip.sites)
    program = emit(network, schedule(network, "pipelined"), mapping, chip, None, {})
    return int(simulate(program, None, "cycle", steps=1).step_cycles[0])


def rows_of(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as stream:
        yield from csv.DictReader(stream)


def test_zero_load_latency_is_exact(reference):
    rows = [r for r in rows_of(reference / "booksim" / "zero_load.csv") if r["preset"] == "spec"]
    assert rows
    for row in rows:
        got = makespan(int(row["k"]), [(int(row["src"]), int(row["dst"]))], int(row["size"]))
        assert got == int(row["latency"]), row


@pytest.mark.parametrize(("n_channels", "buffer"), [(1, 8), (4, 8), (1, 4)])
def test_bursts_take_as_long_as_in_booksim(reference, n_channels, buffer):
    traces = sorted((reference / "booksim" / "traces").glob("*burst*.csv.gz"))
    assert traces
    for path in traces:
        rows = list(rows_of(path))
        assert {r["time"] for r in rows} == {"0"} and len({r["size"] for r in rows}) == 1
        packets = [(int(r["src"]), int(r["dst"])) for r in rows]
        k = int(np.sqrt(max(max(p) for p in packets))) + 1
        expected = max(int(r[f"spec_v{n_channels}_b{buffer}_arrive"]) for r in rows)
        got = makespan(k, packets, int(rows[0]["size"]), n_channels, buffer)
        assert got == expected, path.name


def test_a_hot_node_takes_one_flit_a_cycle():
    packets = [(source, 5) for source in range(16) for _ in range(30)]
    assert 480 <= makespan(4, packets) <= 490
