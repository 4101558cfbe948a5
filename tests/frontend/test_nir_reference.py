"""Files and spikes that frameworks wrote: every case that lies in the reference folder is imported exactly.

How a case was made is read from its `meta`: the dialect is the first word of its name, the reset what `meta` says,
or else the name. There is no case by case table: new files of the same kind are tested as they lie there.
"""

import json

import numpy as np
import pytest

from nwcompile.sim import simulate
from tests.made.nir_files import CASES, first_difference, imported, options
from tests.made.recordings import recorded_frames


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
