"""Files that others trained, from import to three backends: compiled for a chip that holds them, all agree bit for bit.

As in `test_nir_reference`, nothing is said case by case: a new file of the same kind is compiled and compared as it
lies there. The chip is the first of CHIPS that holds the network.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from tests.conftest import REFERENCE, stored
from tests.made.acceptance import ROOMY, agreement
from tests.made.nir_files import CASES, imported, options
from tests.made.recordings import raster, recorded_frames

NETS = sorted(
    {"lava_mnist", "lava_oxford", "lava_tinynet", *(path.parent.name for path in REFERENCE.glob("models/lava_*/*.net"))}
)
BRAILLE = stored("nir/03_rnn/*.nir", "braille_noDelay_bias_zero", "braille_noDelay_bias_zero_subgraph")

QUICK = nw.Options(partitioner="sequential", placer="row-major")  # many cases; the default search maps the others
BINARY = nw.Chip.load("loihi1").replace({"neuron.reset": ["zero", "subtract"], "neuron.v_min": "any"})


@pytest.mark.parametrize("case", CASES)
def test_framework_case_runs_alike_on_all_backends(reference, case):
    folder = reference / "frameworks"
    with np.load(folder / f"{case}.npz") as data:
        told, x = options(case, json.loads(str(data["meta"]))), data["x"].swapaxes(0, 1)
    agreement(imported(folder / f"{case}.nir", **told), x, QUICK)


@pytest.mark.parametrize("way", ["graded", "repeat"])
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(("sinabs", "rockpool"))])
def test_framework_case_of_several_spikes_a_step_runs_on_a_chip_of_binary_ones(reference, case, way):
    folder = reference / "frameworks"
    with np.load(folder / f"{case}.npz") as data:
        told, x = options(case, json.loads(str(data["meta"]))), data["x"].swapaxes(0, 1)
    network = imported(folder / f"{case}.nir", **told)
    program = nw.compile(network, BINARY, calibration=x, options=replace(QUICK, on_multi_spike=way))
    assert program.chip.neuron.spikes == ["binary"]
    result = nw.crosscheck(program, x, ("float", "reference", "cycle", "sequence"), network=network)
    assert result.agree, str(result)


@pytest.mark.parametrize("framework", ["norse", "rockpool"])
def test_single_neuron_spikes_on_a_chip_as_in_its_trace(reference, framework):
    folder = reference / "nir" / "01_lif"
    x, _, s = np.loadtxt(folder / f"lif_{framework}.csv", delimiter=",").T
    program, _ = agreement(imported(folder / f"lif_{framework}.nir", dt=1e-4, dialect=framework), x[None, :, None])
    assert np.array_equal(nw.simulate(program, x[None, :, None]).output[0, :, 0], s)


@pytest.mark.parametrize("file", BRAILLE)
def test_recurrent_network_runs_alike_on_all_backends(reference, file):
    folder = reference / "nir" / "03_rnn"
    network = imported(folder / f"{file}.nir", dt=1e-4, dialect="snntorch", neuron={"reset": "zero"})
    agreement(network, np.load(folder / "braille_test0_input_recovered.npy")[None])


@pytest.mark.parametrize("net", [pytest.param(n, marks=pytest.mark.long) if n == "lava_tinynet" else n for n in NETS])
def test_lava_net_runs_alike_on_all_backends(reference, net):
    (path,) = (reference / "models" / net).glob("*.net")
    network = nw.from_lava(path)
    x = (np.random.default_rng(0).random((1, 30, *network.inputs["input"].shape)) < 0.05).astype(np.int8)
    agreement(network, x)


def test_lava_oxford_on_a_chip_gives_the_spikes_of_slayer_since_v0_3(reference):
    """9,632 are what live SLAYER 0.6 gave: tests/frontend/test_lava_slayer.py."""
    folder = reference / "models" / "lava_oxford"
    x = raster(np.load(folder / "input.npy"), 2000, 200)[None]
    network = nw.from_lava(folder / "network.net")
    program = nw.compile(network, nw.Chip.load("loihi1"), options=nw.Options(partitioner="sequential"))
    assert nw.simulate(program, x, "cycle").output.sum() == 9_632


def test_lava_oxford_on_a_chip_gives_all_spikes_of_its_ground_truth(reference):
    folder = reference / "models" / "lava_oxford"
    x = raster(np.load(folder / "input.npy"), 2000, 200)[None]
    program, _ = agreement(nw.from_lava(folder / "network.net", neuron={"strict": False}), x, QUICK)
    expected = raster(np.load(folder / "ground_truth.npy"), 2000, 200)
    assert np.count_nonzero(nw.simulate(program, x, "cycle").output[0] != expected) == 0


@pytest.mark.parametrize("n_steps", [40, pytest.param(300, marks=pytest.mark.long)])
def test_convolutional_network_runs_alike_on_all_backends(reference, n_steps):
    folder = reference / "nir" / "02_cnn"
    network = imported(folder / "cnn_sinabs.nir", dt=1.0, dialect="sinabs")
    frames = recorded_frames(folder)[:, :n_steps]
    chip = nw.Chip.load("tiny").replace({**ROOMY, "noc.columns": 16, "noc.rows": 16, "core.max_out_axons": 1024})
    program = nw.compile(network, chip, calibration=frames, options=nw.Options(partitioner="sequential"))
    result = nw.crosscheck(program, frames, ("float", "reference", "cycle", "sequence"), network=network)
    assert result.agree, str(result)
    if n_steps == 300:
        assert result.float_difference.answers_float == result.float_difference.answers_fixed == (4,)
