"""lava-dl `.net` files: trained ones against the spikes stored with them, and the ways in which one can be wrong."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

import nwcompile as nw
from nwcompile.frontend.lava import from_lava
from nwcompile.ir.network import Network
from nwcompile.sim import simulate
from tests.frontend.lava_files import NEURON, dense, write


def raster(events: np.ndarray, n_steps: int, n: int) -> np.ndarray:
    """Spikes [T, n] of event rows (x, p, t): times rounded to the nearest step, duplicates merged."""
    spikes = np.zeros((n_steps, n), np.int8)
    spikes[np.round(events[:, 2]).astype(int), events[:, 0].astype(int)] = 1
    return spikes


def test_lava_oxford_gives_all_spikes_of_its_ground_truth(reference):
    folder = reference / "models" / "lava_oxford"
    network = from_lava(folder / "network.net")
    x = raster(np.load(folder / "input.npy"), 2000, 200)
    expected = raster(np.load(folder / "ground_truth.npy"), 2000, 200)
    got = simulate(network, x[None]).output[0]
    assert expected.sum() == 10_178 and expected.size == 400_000
    assert np.count_nonzero(got != expected) == 0


def test_lava_weights_are_the_integers_of_the_file(reference):
    for path in sorted((reference / "models").glob("lava_*/*.net")):
        network = from_lava(path)
        with h5py.File(path) as file:
            for connection in network.connections:
                stored = file[f"layer/{connection.target.removeprefix('layer')}/weight"][()]
                assert connection.is_integer and np.array_equal(np.ravel(connection.weight), np.ravel(stored)), path


def test_lava_tinynet_gives_its_stored_layers(reference):
    folder = reference / "models" / "lava_tinynet"
    network = from_lava(folder / "tiny.net")
    given = np.load(folder / "input_bias.npy").transpose(2, 1, 0)  # 36*x + 34, of [b, a, c]
    connection, layer = network.connections[0], network.nodes["layer0"]
    assert (connection.weight.item(), layer.neuron.bias) == (36, 64 * 34)
    first = {"layer0": replace(layer, neuron=layer.neuron.replace(bias=0))}
    fed = Network(
        network.inputs, network.nodes | first,
        (connection.replace(weight=np.ones((1, 1, 1, 1), np.int64)), *network.connections[1:]),
    )  # fmt: skip
    stored = [np.load(folder / f"{name}.npy")[0] for name in ("input", "layer1", "output")]
    n_steps = stored[0].shape[-1] - 1  # column 0 is idle
    run = simulate(fed, np.repeat(given[None, None], n_steps, 1))
    for name, expected in zip(("layer0", "layer1", "layer2"), stored, strict=True):
        assert expected.any() and np.array_equal(run.spikes[name][0], np.moveaxis(expected, -1, 0)[1:]), name


def test_lava_net_compiles_and_its_backends_agree(tmp_path):
    rng = np.random.default_rng(0)
    loihi = {**NEURON, "type": b"LOIHI", "vDecay": 400, "wgtExp": 1}
    path = write(tmp_path / "a.net", [
        {"type": [b"input"], "shape": [2, 5, 4], "weight": [4.0], "bias": [1.0], "neuron": loihi},
        {"type": [b"conv"], "shape": [3, 2, 2], "weight": 2.0 * rng.integers(-3, 8, (3, 2, 3, 3, 1)), "stride": [2, 1],
         "padding": [0, 0], "dilation": [1, 1], "groups": 1, "bias": [1.0, -2.0, 3.0], "neuron": loihi},
        {"type": [b"flatten"], "shape": [12]},
        dense(2.0 * rng.integers(-3, 8, (4, 12)), neuron=loihi),
    ])  # fmt: skip
    network = nw.from_lava(path)
    x = rng.integers(0, 2, (2, 20, 2, 5, 4))
    program = nw.compile(network, nw.Chip.load("loihi1"), calibration=x)
    assert nw.crosscheck(program, x).agree
    run = simulate(network, x)
    assert run.output.any() and np.array_equal(run.output, simulate(program, x).output)


def test_lava_delay_bias_and_exponent_act_as_documented(tmp_path):
    path = write(tmp_path / "a.net", [
        dense([[1]], delay=[2.0]),
        dense([[2]], bias=[-2.0], wgtExp=1, neuron={**NEURON, "vDecay": 4096}),
    ])  # fmt: skip
    network = from_lava(path)
    assert [c.aligned_delay for c in network.connections] == [1, 3]
    run = simulate(network, [[[1], [0], [0], [0], [0], [0]]], record="all")
    assert run.spikes["layer0"][0, :, 0].tolist() == [0, 1, 0, 0, 0, 0]
    assert run.states["layer1"]["v"][0, :, 0].tolist() == [-128, -128, -128, -128, 0, -128]  # 256 - 128 fires: 0
    assert run.spikes["layer1"][0, :, 0].tolist() == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("kind, fires", [(b"CUBA", True), (b"LOIHI", False)])
def test_lava_neuron_type_decides_the_comparison_at_the_threshold(tmp_path, kind, fires):
    path = write(tmp_path / "a.net", [dense([[1]], neuron={**NEURON, "type": kind})])
    assert simulate(from_lava(path), [[[1], [0]]]).output.any() == fires


def test_lava_neuron_overrides_fields_of_all_layers(tmp_path):
    path = write(tmp_path / "a.net", [dense([[1]]), dense([[1]])])
    network = from_lava(path, neuron={"strict": True, "reset": "subtract"})
    assert [(n.neuron.strict, n.neuron.reset) for n in network.nodes.values()] == [(True, "subtract")] * 2


@pytest.mark.parametrize(
    "layers, text",
    [
        ([dense([[1]], weight=None)], "lava-dl layer 0 (dense): weight is missing; export the model again"),
        (
            [dense([[1]]), {"type": [b"pool"], "shape": [1]}],
            "lava-dl layer 1: type 'pool' is not supported; supported: input, dense, conv, flatten",
        ),
        (
            [dense([[1, 0.5]])],
            "lava-dl layer 0 (dense): weight has 1 values that are not whole numbers within +-2147483647, the first "
            "0.5; export the model quantised",
        ),
        (
            [dense([[1, np.nan]])],
            "lava-dl layer 0 (dense): weight has 1 values that are not whole numbers within +-2147483647, the first "
            "nan; export the model quantised",
        ),
        ([dense([[1]], weight="x")], "lava-dl layer 0 (dense): weight must be real numbers"),
        (
            [dense([[1]]), dense([[1, 2, 3]])],
            "lava-dl layer 1 (dense): weight (1, 3) does not join 1 inputs to 1 neurons",
        ),
        (
            [dense([[1]], neuron={**NEURON, "type": b"RF"})],
            "lava-dl layer 0 (dense): neuron type 'RF' is not supported; supported: CUBA, LOIHI",
        ),
        (
            [dense([[1]], neuron=None)],
            "lava-dl layer 0 (dense): it has no neuron; export the model with a CUBA or LOIHI neuron in every layer",
        ),
        (
            [dense([[1]], neuron={**NEURON, "vThMant": None})],
            "lava-dl layer 0 (dense): neuron/vThMant is missing; export the model again",
        ),
        (
            [dense([[1]], neuron={**NEURON, "gradedSpike": True})],
            "lava-dl layer 0 (dense): gradedSpike neurons are not supported; train and export it with binary spikes",
        ),
        (
            [dense([[1], [1]], delay=[1.0, 2.0])],
            "lava-dl layer 0 (dense): delay differs within the layer; one value is supported",
        ),
        (
            [dense([[1]], delay=[2.0])],
            "lava-dl layer 0 (dense): a delay of 2 steps on the spikes of the last layer is not supported; "
            "export it as 0",
        ),
        (
            [dense([[1], [1]], bias=[1.0, 2.0, 3.0])],
            "lava-dl layer 0 (dense): bias has 3 values; shape (2,) takes 1, 2 or 2",
        ),
        (
            [dense([[1]], type=[b"conv"])],
            "lava-dl layer 0 (conv): the first layer must be of type input or dense, because nothing else tells the "
            "input's shape",
        ),
        (
            [{"type": [b"input"], "shape": [1, 2, 2]}, dense([[1]], type=[b"conv"])],
            "lava-dl layer 1 (conv): weight (1, 1) must be [C_out, C_in/groups, rows, columns, 1]",
        ),
    ],
)
def test_lava_unusable_model_is_one_sentence(tmp_path, layers, text):
    with pytest.raises(nw.ModelError) as error:
        from_lava(write(tmp_path / "a.net", layers))
    assert str(error.value) == text


def test_lava_unusable_file_or_call_is_one_sentence(tmp_path):
    path, empty = tmp_path / "a.net", tmp_path / "b.net"
    path.write_text("not HDF5")
    h5py.File(empty, "w").close()
    for call, text in (
        (
            lambda: from_lava(path),
            f"lava-dl file {path}: this is not an HDF5 file; give a file that its framework exported",
        ),
        (
            lambda: from_lava(empty),
            f"lava-dl file {empty}: the HDF5 file has no group 'layer' with layers; export the model again",
        ),
        (lambda: from_lava(3), "from_lava takes the path of a lava-dl .net file, not int"),
        (lambda: from_lava(path, neuron=3), "neuron=3 must be a dict of NeuronSpec fields"),
    ):
        with pytest.raises(nw.ModelError) as error:
            call()
        assert str(error.value) == text
    with pytest.raises(nw.ModelError, match="unknown neuron field 'decay_w'; choose one of: decay_"):
        from_lava(path, neuron={"decay_w": 1})
