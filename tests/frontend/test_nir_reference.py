"""Files and spikes that frameworks wrote: every case that lies in the reference folder is imported exactly.

How a case was made is read from its `meta`: the dialect is the first word of its name, the reset what `meta` says,
or else the name. There is no case by case table: new files of the same kind are tested as they lie there.
"""

import json
import warnings

import numpy as np
import pytest

from nwcompile.errors import NwWarning
from nwcompile.frontend.nir import from_nir
from nwcompile.sim import simulate
from tests.conftest import stored

CASES = stored(
    "frameworks/*.nir",
    "norse_dense_lifbox",
    "rockpool_dense_lifneuron",
    "sinabs_conv_iaf_sumpool",
    "sinabs_dense_iaf_singlespike",
    "sinabs_dense_lif_norm",
    "snntorch_conv_avgpool",
    "snntorch_dense_leaky_default",
    "snntorch_dense_leaky_zero_nodelay",
    "snntorch_dense_synaptic_subtract",
    "snntorch_rec_rleaky_zero_nodelay",
    "spikingjelly_dense_cubalif",
    "spikingjelly_dense_if",
    "spikingjelly_dense_lif_decayinput",
)


def options(case: str, meta: dict) -> dict:
    """What a person who made the file would tell from_nir."""
    dialect = case.split("_")[0]
    reset = str(meta.get("reset", case))
    neuron = {}
    if dialect in ("snntorch", "sinabs"):
        neuron["reset"] = "subtract" if "subtract" in reset else "zero" if "zero" in reset else "none"
        if dialect == "snntorch" and neuron["reset"] == "subtract":
            neuron["reset_timing"] = "next" if meta.get("reset_delay", "nodelay" not in case) else "both"
    if dialect == "sinabs":
        neuron |= {"spikes": {"SingleSpike": "binary", "MultiSpike": "multi"}[meta["spike_fn"]]}
        neuron |= {"v_min": meta.get("min_v_mem")}
        if "norm_input" in meta:
            neuron["norm_input"] = meta["norm_input"]
    return {"dialect": dialect, "dt": meta.get("dt", meta.get("dt_convention")), "neuron": neuron}


def imported(path, **told):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        return from_nir(path, **told)


def first_difference(found: np.ndarray, expected: np.ndarray) -> str:
    where = np.argwhere(found != expected)
    if not len(where):
        return ""
    at = tuple(int(n) for n in min(where, key=lambda w: w[1]))
    return (
        f"{len(where)} of {found.size} differ, the first at [sample, step, ...] {at}: {found[at]}, not {expected[at]}"
    )


@pytest.mark.parametrize("case", CASES)
def test_framework_case_is_exact(reference, case):
    folder = reference / "frameworks"
    assert (folder / f"{case}.nir").exists(), f"{folder} holds no .nir file"
    with np.load(folder / f"{case}.npz") as data:
        told = options(case, json.loads(str(data["meta"])))
        x = data["x"].swapaxes(0, 1)
        expected = [data[name].swapaxes(0, 1) for name in sorted(n for n in data if n[0] == "s" and n[1:].isdigit())]
    network = imported(folder / f"{case}.nir", **told)
    run = simulate(network, x)
    assert len(network.layers) == len(expected)
    for layer, spikes in zip(network.layers, expected, strict=True):
        assert first_difference(run.spikes[layer], spikes) == "", layer


@pytest.mark.parametrize("framework", ["norse", "rockpool"])
def test_single_neuron_equals_its_trace(reference, framework):
    folder = reference / "nir" / "01_lif"
    network = imported(folder / f"lif_{framework}.nir", dt=1e-4, dialect=framework)
    x, v, s = np.loadtxt(folder / f"lif_{framework}.csv", delimiter=",").T
    run = simulate(network, x[None, :, None], record="all")
    (layer,) = network.layers
    assert np.array_equal(run.spikes[layer][0, :, 0], s)
    assert np.abs(run.states[layer]["v"][0, :, 0] - v).max() < 3e-8


def test_lava_dialect_equals_lava_but_for_its_step_of_delay(reference):
    folder = reference / "nir" / "01_lif"
    network = imported(folder / "lif_norse.nir", dt=1e-4, dialect="lava")
    x, v, s = np.loadtxt(folder / "lif_lava_cpu_float.csv", delimiter=",").T
    run = simulate(network, x[None, :, None], record="all")
    (layer,) = network.layers
    assert np.array_equal(run.spikes[layer][0, :-1, 0], s[1:])
    assert np.abs(run.states[layer]["v"][0, :-1, 0] - v[1:]).max() < 3e-8


def recorded_frames(folder) -> np.ndarray:
    """float32[1, 300, 2, 34, 34]: the N-MNIST recording in frames of 1 ms, several events in one place counted once."""
    events = np.fromfile(folder / "tonic_sample_nmnist.bin", np.uint8).reshape(-1, 5).astype(np.int64)
    x, y, polarity = events[:, 0], events[:, 1], events[:, 2] >> 7
    step = (((events[:, 2] & 127) << 16) | (events[:, 3] << 8) | events[:, 4]) // 1000
    frames = np.zeros((1, 300, 2, 34, 34), np.float32)
    early = step < 300
    frames[0, step[early], polarity[early], y[early], x[early]] = 1
    return frames


def test_convolutional_network_answers_as_published(reference):
    folder = reference / "nir" / "02_cnn"
    network = imported(folder / "cnn_sinabs.nir", dt=1.0, dialect="sinabs")
    counts = simulate(network, recorded_frames(folder)).output[0].sum(0)
    assert (int(counts.argmax()), int(counts[4]), int(counts.sum())) == (4, 1483, 1752)


@pytest.mark.parametrize("form", ["", "_subgraph"])
def test_recurrent_network_equals_published_spikes(reference, form):
    folder = reference / "nir" / "03_rnn"
    told = {"dt": 1e-4, "dialect": "snntorch", "neuron": {"reset": "zero"}}
    network = imported(folder / f"braille_noDelay_bias_zero{form}.nir", **told)
    x = np.load(folder / "braille_test0_input_recovered.npy")[None].astype(np.float32)
    expected = np.load(folder / "snntorch_activity_noDelay_bias_zero.npy")[None]
    run = simulate(network, x)
    assert first_difference(run.spikes[network.layers[0]], expected) == ""
    assert run.output[0].sum(0).tolist() == [10, 160, 112, 113, 103, 68, 121]
