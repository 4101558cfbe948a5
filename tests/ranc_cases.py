"""Recorded runs of RANC's RTL (`reference/ranc` of the shared folder), and the networks that they are runs of."""

import os
from pathlib import Path

import numpy as np
import pytest

from nwcompile.ir.connection import Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec

FOLDER = Path(os.environ.get("NWCOMPILE_REFERENCE", "../shared/reference")) / "ranc"
RESETS = ("value", "subtract")  # reset_mode 0 and 1: a layer for each of them


def case(name: str) -> dict[str, np.ndarray]:
    """The arrays of a recorded run by name, whole numbers as Python's."""
    path = FOLDER / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    return {
        key: a.item() if a.ndim == 0 else a.astype(np.int64) if a.dtype.kind in "iu" else a for key, a in arrays.items()
    }


def recorded_network(rtl: dict) -> tuple[Network, dict[str, np.ndarray]]:
    """A run's neurons as a network of two layers, all of depth 1, and the number core * N + slot of each neuron.

    Every connection has the delay of its axons: aligned step t is the RTL's tick t. Input line core * A + axon.
    """
    n, a = rtl["N"], rtl["A"]
    used = rtl["used"].reshape(-1).astype(bool)
    mode = rtl["reset_mode"].reshape(-1)
    numbers = {f"{RESETS[m]}": np.flatnonzero(used & (mode == m)) for m in (0, 1)}
    numbers = {name: ids for name, ids in numbers.items() if len(ids)}
    flat = {key: rtl[key].reshape(-1) for key in ("th", "leak", "neg", "reset_potential", "delay")}
    layers = {
        name: (
            NeuronSpec(
                threshold=flat["th"][ids],
                strict=False,
                reset=name,
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
    weight = np.take_along_axis(rtl["weights"], np.broadcast_to(rtl["axon_type"][:, None], (len(used) // n, n, a)), 2)
    weight = weight * rtl["conn"]  # [core, slot, axon]
    axon_of = (rtl["dst_core"] * a + rtl["dst_axon"]).reshape(-1)
    goes_out = (rtl["dst_core"] == rtl["bus_x"] + rtl["X"] * rtl["bus_y"]).reshape(-1)
    edges = []
    for source, ids in numbers.items():
        edges += _edges(source, axon_of[ids], flat["delay"][ids] + 1, ~goes_out[ids], weight, numbers)
    lines = np.arange(len(used) // n * a)
    edges += _edges("in", lines, np.zeros(len(lines), int), np.ones(len(lines), bool), weight, numbers)
    return Network.from_arrays(layers, edges, {"in": lines.shape}), numbers


def recorded_input(rtl: dict) -> dict[str, np.ndarray]:
    """The host's packets as input [1, T, line] of `recorded_network`: a packet of delay d is sent d ticks later.

    The design has no delay of a line by itself, and an axon that two packets reach for one tick has one spike.
    """
    tick, core, axon, delay, _ = rtl["input_packets"].T
    x = np.zeros((1, rtl["T"], rtl["used"].shape[0] * rtl["A"]), np.int32)
    in_time = tick + delay < rtl["T"]
    x[0, (tick + delay)[in_time], (core * rtl["A"] + axon)[in_time]] = 1
    return {"in": x}


def _edges(source: str, axon_of, delays, is_read, weight, numbers) -> list[Sparse]:
    """Sparse connections from sources that send to axons core * A + axon, one for each target layer and delay."""
    n_cores, n, a = weight.shape
    edges = []
    for target, ids in numbers.items():
        core = ids // n
        for delay in np.unique(delays[is_read]):
            some = np.flatnonzero(is_read & (delays == delay))
            into = weight.reshape(n_cores * n, a)[ids]  # [target, axon]
            reads = (core[:, None] == axon_of[some] // a) & (into[:, axon_of[some] % a] != 0)
            post, pre = np.nonzero(reads)
            if len(post):
                values = into[post, axon_of[some][pre] % a].astype(np.int16)
                edges.append(Sparse(source, target, some[pre], post, values, delay=int(delay)))
    return edges
