"""Recorded runs of RANC's RTL (`reference/ranc` of the shared folder), and their networks."""

import os

import numpy as np
import pytest

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from tests.conftest import REFERENCE

FOLDER = REFERENCE / "ranc"
# Runs without lost packets, and without axons that two neurons send to.
PLAIN = ("one_neuron", "five_8x8_a", "five_8x8_b", "five_256x256", "grid3x3_two_layers", "two_layers_types_hardware",
         "dense_9bit_aligned")  # fmt: skip
CASES = (*PLAIN, "two_layers_types_aligned", "five_8x8_lost", "grid3x3_congested", "chain9_stalled")
RESETS = ("value", "subtract")  # reset_mode 0 and 1: a layer for each, and one for their neurons that send off the chip


def case(name: str) -> dict[str, np.ndarray]:
    """Load the arrays of a recorded run by name, integers as Python's."""
    if not FOLDER.is_dir():
        text = f"no recorded runs of RANC in {FOLDER}; set NWCOMPILE_REFERENCE"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    return {
        key: a.item() if a.ndim == 0 else a.astype(np.int64) if a.dtype.kind in "iu" else a for key, a in arrays.items()
    }


def recorded_network(rtl: dict, is_pipeline: bool = False) -> tuple[Network, dict[str, np.ndarray]]:
    """Build a run's neurons as a network of two layers of depth 1; return it with core * N + slot of each neuron.

    Every connection has the delay of its axons: step t is the RTL's tick t. Input lines are core * A + axon.
    With `is_pipeline`, spikes of a step act in the same step of the next layer, one tick later.
    """
    n, a = rtl["N"], rtl["A"]
    used = rtl["used"].reshape(-1).astype(bool)
    mode = rtl["reset_mode"].reshape(-1)
    goes_out = (rtl["dst_core"] == bus(rtl)).reshape(-1)
    numbers = {
        RESETS[m] + "_out" * out: np.flatnonzero(used & (mode == m) & (goes_out == out))
        for m in (0, 1)
        for out in (False, True)
    }
    numbers = {name: ids for name, ids in numbers.items() if len(ids)}
    flat = {key: rtl[key].reshape(-1) for key in ("th", "leak", "neg", "reset_potential", "delay")}
    layers = {
        name: (
            NeuronSpec(
                threshold=flat["th"][ids],
                strict=False,
                reset=name.removesuffix("_out"),
                reset_value=flat["reset_potential"][ids],
                v_min=flat["neg"][ids],
                clamp="reset",
                bias=flat["leak"][ids],
                fixed=FixedPoint(rtl["PW"], 12, 0, "modulo"),
            ),
            (len(ids),),
        )
        for name, ids in numbers.items()
    }
    weight = weights(rtl)
    axon_of = (rtl["dst_core"] * a + rtl["dst_axon"]).reshape(-1)
    edges = []
    for source, ids in numbers.items():
        edges += _edges(source, axon_of[ids], flat["delay"][ids] + (not is_pipeline), ~goes_out[ids], weight, numbers)
    lines = np.arange(len(used) // n * a)
    is_sent = np.isin(lines, rtl["input_packets"][:, 1] * a + rtl["input_packets"][:, 2])
    edges += _edges("in", lines, np.zeros(len(lines), int), is_sent, weight, numbers)
    return Network.from_arrays(layers, edges, {"in": lines.shape}), numbers


def weights(rtl: dict) -> np.ndarray:
    """int64[core, slot, axon]: weight of an axon for a neuron, 0 if the neuron does not read it."""
    kind = np.broadcast_to(rtl["axon_type"][:, None], rtl["conn"].shape)
    return np.take_along_axis(rtl["weights"], kind, 2) * rtl["conn"]


def heard_axons(rtl: dict) -> np.ndarray:
    """int64[T, core, axon]: axons that are read in each tick, as set by the recorded packets."""
    heard = np.zeros((rtl["T"], *rtl["axon_type"].shape), np.int64)
    for tick, source, _, core, axon, delay, *_, lost in rtl["packets"]:
        read = tick + delay + (source >= 0)
        if core != bus(rtl) and not lost and read < rtl["T"]:
            heard[read, core, axon] = 1
    return heard


def recorded_input(rtl: dict) -> dict[str, np.ndarray]:
    """Convert the host's packets to input [1, T, line] of `recorded_network`; delay d sends a packet d ticks later.

    Lines have no delay of their own, and an axon that two packets reach in one tick has one spike.
    """
    tick, core, axon, delay, _ = rtl["input_packets"].T
    x = np.zeros((1, rtl["T"], rtl["used"].shape[0] * rtl["A"]), np.int32)
    in_time = tick + delay < rtl["T"]
    x[0, (tick + delay)[in_time], (core * rtl["A"] + axon)[in_time]] = 1
    return {"in": x}


def _edges(source: str, axon_of, delays, is_read, weight, numbers) -> list[Sparse]:
    """Build Sparse connections from sources that send to axons core * A + axon, one per target layer and delay."""
    n_cores, n, a = weight.shape
    edges = []
    for target, ids in numbers.items():
        core = ids // n
        for delay in np.unique(delays[is_read]):
            some = np.flatnonzero(is_read & (delays == delay))
            into = weight.reshape(n_cores * n, a)[ids]  # [target, axon]
            reaches = core[:, None] == axon_of[some] // a
            reads = reaches & (into[:, axon_of[some] % a] != 0)
            unread = (weight[axon_of[some] // a, :, axon_of[some] % a] == 0).all(1)  # packets are sent there, too
            reads |= reaches & unread & (ids[:, None] % n == 0)
            post, pre = np.nonzero(reads)
            if len(post):
                values = into[post, axon_of[some][pre] % a].astype(np.int16)
                edges.append(Sparse(source, target, some[pre], post, values, delay=int(delay)))
    return edges


def bus(rtl: dict) -> int:
    """Bus number of the site where spikes leave."""
    return rtl["bus_x"] + rtl["X"] * rtl["bus_y"]


def recorded_chip(rtl: dict) -> Chip:
    """Load the chip file with the run's parameters."""
    return Chip.load("ranc").replace(
        {
            "noc.columns": rtl["X"],
            "noc.rows": rtl["Y"],
            "noc.buffer_flits": rtl["buffer_depth"],
            "core.max_neurons": rtl["N"],
            "core.max_in_axons": rtl["A"],
            "state.bits": rtl["PW"],
            "cost.visit_cycles": rtl["A"] + 2,
            "io.sites": [f"{rtl['bus_x']},{rtl['bus_y']},0"],
            "weights.axon_types": rtl["NW"],
        }
    )


def recorded_program(rtl: dict, is_pipeline: bool = False) -> tuple[Program, dict[str, np.ndarray]]:
    """Build the program of `recorded_network` with the run's mapping."""
    network, numbers = recorded_network(rtl, is_pipeline)
    chip = recorded_chip(rtl)
    core = {name: ids // rtl["N"] for name, ids in numbers.items()}
    used = np.unique(np.concatenate([*core.values()]))
    mapping = Mapping.from_arrays(
        {name: np.searchsorted(used, cores) for name, cores in core.items()},
        chip.sites[used],
        visit={name: ids % rtl["N"] for name, ids in numbers.items()},
    )
    return emit(network, schedule(network), mapping, chip, None, {"warnings": []}), numbers
