"""The integer path against traces of brian2-loihi (l*) and lava-nc (v*), bit for bit (reference/loihi_neuron)."""

import json

import numpy as np

from nwcompile import sim
from nwcompile.ir.arithmetic import mantissa_step
from nwcompile.ir.connection import Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec

LOIHI = FixedPoint(state_bits=24, decay_bits=12, shift_bits=6, overflow="wrap")


def truncate_mantissa(raw, bits: int, chip_bits: int, chip_step: int, sign_mode: str):
    """Raw weights truncated toward zero to the mantissa grid of `bits` (how Loihi stores a weight)."""
    step = mantissa_step(bits, chip_bits, chip_step, sign_mode)
    raw = np.asarray(raw, np.int64)
    return np.sign(raw) * (np.abs(raw) // step * step)


def brian_case(meta: dict, data):
    """Network, input [1, T, n_in] and expected {layer: {u, v, s}} of an l* trace."""
    layers = {
        name: (
            NeuronSpec(
                threshold=64 * p["vth_mant"], fixed=LOIHI, decay_u=p["decay_u"], decay_v=p["decay_v"],
                refractory=p["refractory"],
            ),
            (p["n"],),
        )
        for name, p in meta["pops"].items()
    }  # fmt: skip
    connections = []
    for j, syn in enumerate(meta["syn"]):
        mantissa = truncate_mantissa(data[f"w_{j}"], syn["bits"], 8, 2, syn["sign"])
        delay = syn["delay"] + (0 if syn["src"] == "in" else 1)
        if j % 2:
            pre, post = np.nonzero(mantissa)
            connections.append(
                Sparse(syn["src"], syn["dst"], pre, post, mantissa[pre, post], delay, exponent=syn["w_exp"],
                       sign_mode=syn["sign"])
            )  # fmt: skip
        else:
            connections.append(Dense(syn["src"], syn["dst"], mantissa.T, delay=delay, exponent=syn["w_exp"],
                                     sign_mode=syn["sign"], weight_bits=syn["bits"]))  # fmt: skip
    x = np.zeros((1, meta["T"], meta["n_in"]), np.int64)
    np.add.at(x, (0, data["in_t"], data["in_i"]), 1)
    expected = {p: {"u": data[f"u_{p}"], "v": data[f"v_{p}"], "s": data[f"spk_{p}"]} for p in meta["pops"]}
    return Network.from_arrays(layers, connections, {"in": meta["n_in"]}), x, expected


def lava_case(meta: dict, data):
    """The same for a v* trace: one step of delay per Dense, decay + 1 on u only."""
    layers, connections, source = {}, [], "in"
    for j, layer in enumerate(meta["layers"]):
        bias = np.asarray(data[f"bias_mant_{j}"], np.int64) << np.asarray(data[f"bias_exp_{j}"], np.int64)
        spec = NeuronSpec(
            threshold=64 * np.asarray(layer["vth_used"], np.int64), fixed=LOIHI, decay_u=np.asarray(layer["du"]) + 1,
            decay_v=np.asarray(layer["dv_used"]), bias=bias,
        )  # fmt: skip
        layers[f"layer{j}"] = (spec, (layer["n"],))
        if f"w_{j}" in data:
            connections.append(Dense(source, f"layer{j}", np.asarray(data[f"w_{j}"]).astype(np.int64), delay=1))
        source = f"layer{j}"
    x = np.asarray(data["in_spk"]).astype(np.int64)[None]
    expected = {
        f"layer{j}": {"u": data[f"u_{j}"], "v": data[f"v_{j}"], "s": data[f"spk_{j}"]}
        for j in range(len(meta["layers"]))
    }
    return Network.from_arrays(layers, connections, {"in": x.shape[2]}), x, expected


def load_case(path):
    meta = json.loads(path.read_text())
    with np.load(path.with_suffix(".npz")) as archive:
        data = {key: archive[key] for key in archive.files}
    return (brian_case if "pops" in meta else lava_case)(meta, data)


def test_loihi_traces_are_reproduced(reference):
    paths = sorted((reference / "loihi_neuron").glob("*.json"))
    assert paths
    for path in paths:
        network, x, expected = load_case(path)
        run = sim.simulate(network, x, record="all")
        for layer, arrays in expected.items():
            got = {"u": run.states[layer]["u"], "v": run.states[layer]["v"], "s": run.spikes[layer]}
            for name, array in arrays.items():
                array = np.asarray(array).reshape(got[name][0].shape).astype(np.int64)
                first = np.argwhere(array != got[name][0])[:1]
                assert np.array_equal(array, got[name][0]), (path.name, layer, name, first)
