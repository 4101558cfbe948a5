"""Sigma-delta networks of lava-dl: the numbers that lava's processes stored, in every backend."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.frontend.lava import from_lava
from nwcompile.frontend.lava.neurons import delta_encoder, sigma_delta, sigma_readout
from nwcompile.sim.sequence.run import trace_layers
from tests.made.lava_files import dense, write


@pytest.fixture(scope="module")
def tiny(reference) -> dict:
    """lava's arrays are [x, y, channel, step]; ours [step, channel, y, x]."""
    stored = np.load(reference / "lava_gts" / "tinynet_sdnn" / "traces.npz")
    return {name: stored[name] for name in stored}


def by_step(array: np.ndarray) -> np.ndarray:
    return array.transpose(3, 2, 1, 0)


def alone(neuron, connection, shape, source_shape) -> nw.Network:
    return nw.Network.from_arrays({"layer": (neuron, shape)}, [connection], {"in": source_shape})


def both(network: nw.Network, x: np.ndarray) -> dict[str, np.ndarray]:
    """Messages and states of the one layer, the same in reference and sequence."""
    run = nw.simulate(network, x[None], record="all")
    spikes, states = trace_layers(network, x[None])
    assert np.array_equal(run.spikes["layer"], spikes["layer"])
    for name, values in run.states["layer"].items():
        assert np.array_equal(values, states["layer"][name]), name
    return {"sent": run.spikes["layer"][0], **{name: values[0] for name, values in run.states["layer"].items()}}


def test_delta_block_gives_its_stored_messages(tiny):
    x = np.repeat(tiny["input_bias"][..., None], 15, 3) * np.sin(2 * np.pi * np.arange(15) / 15)
    one = nw.Conv2d("in", "layer", np.ones((1, 1, 1, 1), np.int8), source_shape=(1, 1, 768))
    sent = both(alone(delta_encoder(20), one, (3, 16, 16), (3, 16, 16)), by_step(x.astype(int)))["sent"]
    expected = by_step(tiny["input"])
    assert expected.min() < -1000 and np.array_equal(sent, expected)


def test_sigma_delta_convolution_gives_its_stored_messages(tiny):
    """lava ran one step of it, and stored 16 (netx's tests/test_blocks.py)."""
    kernel = tiny["layer1_kernel"][:, ::-1, ::-1].transpose(0, 3, 2, 1).copy()
    conv = nw.Conv2d("in", "layer", kernel, stride=2)
    network = alone(sigma_delta(20, tiny["layer1_bias"]), conv, (24, 6, 6), (3, 16, 16))
    sent = both(network, by_step(tiny["input"])[:1])["sent"]
    expected = by_step(tiny["layer1"])
    assert expected[0].any() and not expected[1:].any() and np.array_equal(sent, expected[:1])


def test_sigma_dense_gives_its_stored_sums(tiny):
    """Without bits for messages, lava's synapses take any message as 1 (netx's tests/test_blocks.py)."""
    x = (tiny["layer1"].reshape(-1, 16).T != 0).astype(np.int8)
    dense = nw.Dense("in", "layer", tiny["layer2_weight"], delay=1)
    assert np.array_equal(both(alone(sigma_readout(), dense, (100,), (864,)), x)["sigma"], tiny["layer2"].T)


@pytest.fixture(scope="module")
def pilotnet(reference):
    """The network, what lava stored, and its input: one frame in every step."""
    folder = reference / "lava_gts" / "pilotnet_sdnn"
    stored = np.load(folder / "traces.npz")
    x = np.repeat(by_step(stored["input"])[None], 20, 1)
    return from_lava(folder / "network.net"), {name: stored[name] for name in stored}, x


def assert_stored(spikes: dict, states: dict, stored: dict) -> None:
    assert np.array_equal(spikes["layer0"][0], by_step(stored["act0"]))
    for layer, name in (("layer1", "sigma1"), ("layer2", "sigma2")):
        assert np.array_equal(states[layer]["sigma"][0], by_step(stored[name])), name
    assert np.array_equal(states["layer9"]["sigma"][0, :9, 0], stored["output"][0])


def test_pilotnet_gives_every_stored_number(pilotnet):
    network, stored, x = pilotnet
    run = nw.simulate(network, x, record="all")
    assert_stored(run.spikes, run.states, stored)
    assert_stored(*trace_layers(network, x), stored)


@pytest.mark.long
def test_compiled_pilotnet_gives_every_stored_number_in_the_cycle_backend(pilotnet):
    network, stored, x = pilotnet
    program = nw.compile(network, "loihi2", x, nw.Options(optimize="cores"))
    assert program.mapping.n_cores <= 61  # as many as Intel's compiler took (lava-dl, pilotnet_sdnn/benchmark)
    assert nw.crosscheck(program, x).agree
    run = nw.simulate(program, x, "cycle", record="all")
    assert_stored(run.spikes, run.states, stored)


SDNN = {"type": b"SDNN", "activation": b"relu", "vThMant": 0}


def sigma_delta_layers(x: np.ndarray, layers: list[dict]) -> list[np.ndarray]:
    """Messages [T, n] of every layer, of the last its sums, restated from lava.proc.sdn (PySigmaDeltaModelFixed)."""
    sent = []
    for index, layer in enumerate(layers):
        late = np.zeros((1, layer["shape"][0]), np.int64)
        drive = x if index == 0 else np.concatenate([late, x[:-1] @ layer["weight"].astype(int).T])
        bias, threshold = (np.asarray(v) << 12 for v in (layer.get("bias", 0), layer["neuron"]["vThMant"]))
        sums = np.cumsum(drive, 0)
        act = x << 12 if index == 0 else np.maximum(sums + bias, 0)
        x, last, residue = np.zeros(act.shape, np.int64), 0, 0
        for t, now in enumerate(act):
            delta = now - last + residue
            out = np.where(np.abs(delta) >= threshold, delta, 0)
            x[t], residue, last = out >> 6, delta - out, now
        sent.append(x if "sigma_output" not in layer["neuron"] else sums)
    return sent


def drawn(rng, sizes=(12, 20, 15, 4)) -> list[dict]:
    """Layers of a `.net` with thresholds that hold back some changes."""
    layers = [{"type": [b"input"], "shape": [sizes[0]], "neuron": {**SDNN, "vThMant": int(rng.integers(0, 12))}}]
    for n_source, n in zip(sizes[:-1], sizes[1:], strict=True):
        neuron = {**SDNN, "vThMant": int(rng.integers(0, 30))}
        layers.append(dense(2 * rng.integers(-10, 12, (n, n_source)), neuron=neuron, bias=rng.integers(-40, 60, n)))
    layers[-1]["neuron"]["sigma_output"] = True
    del layers[-1]["bias"]
    return layers


def test_drawn_nets_send_what_lavas_processes_do(tmp_path):
    rng = np.random.default_rng(5)
    n_sent = n_held = 0
    for _ in range(8):
        layers = drawn(rng)
        x = np.cumsum(rng.integers(-9, 10, (25, 12)), 0)
        network = from_lava(write(tmp_path / "a.net", layers))
        run = nw.simulate(network, x[None], record="all")
        spikes, states = trace_layers(network, x[None])
        expected = sigma_delta_layers(x, layers)
        for index, sent in enumerate(expected[:-1]):
            assert np.array_equal(run.spikes[f"layer{index}"][0], sent), index
            assert np.array_equal(spikes[f"layer{index}"][0], sent), index
            n_sent += np.count_nonzero(sent)
            n_held += sent.size - np.count_nonzero(sent)
        assert np.array_equal(run.output[0], expected[-1])
        assert np.array_equal(states["layer3"]["sigma"][0], expected[-1])
    assert n_sent > 1_500 and n_held > 1_500


def test_a_compiled_net_sends_the_same_and_counts_a_weight_once_a_message(tmp_path):
    rng = np.random.default_rng(8)
    layers = drawn(rng)
    x = np.cumsum(rng.integers(-9, 10, (2, 25, 12)), 1)
    program = nw.compile(from_lava(write(tmp_path / "a.net", layers)), "loihi2", x)
    assert nw.crosscheck(program, x).agree
    run = nw.simulate(program, x, "cycle")
    expected = [sigma_delta_layers(sample, layers) for sample in x]
    assert np.array_equal(run.output, [messages[-1] for messages in expected])
    n_sent = [sum(np.count_nonzero(messages[i]) for messages in expected) for i in range(3)]
    assert run.counters["synops_dense"].sum() == np.dot(n_sent, [20, 15, 4])


def test_states_saturate_where_lava_would_leave_24_bits():
    one = nw.Dense("in", "layer", np.ones((1, 1), np.int8))
    states = both(alone(delta_encoder(0), one, (1,), (1,)), np.array([[5000], [-5000], [1]]))
    assert states["last_act"].ravel().tolist() == [(1 << 23) - 1, 1 - (1 << 23), 4096]
    states = both(alone(sigma_delta(0), one, (1,), (1,)), np.array([[1 << 22], [1 << 22], [1 << 22], [-5]]))
    assert states["sigma"].ravel().tolist() == [1 << 22, (1 << 23) - 1, (1 << 23) - 1, (1 << 23) - 6]


def test_a_chip_of_narrow_messages_names_the_first_that_is_too_large(tmp_path):
    x = np.full((1, 4, 12), 100)
    chip = nw.Chip.load("loihi2").replace({"noc.payload_bits": 12})
    network = from_lava(write(tmp_path / "a.net", drawn(np.random.default_rng(8))))
    with pytest.raises(nw.ModelError) as error:
        nw.compile(network, chip, x)
    assert (
        "layer 'layer0' fires 6400 spikes at once (sample 0, step 0, neuron 0), but a message of loihi2 carries at "
        in (str(error.value))
    )


@pytest.mark.parametrize(
    "neuron, message",
    [
        ({"activation": b"sigmoid"}, "activation 'sigmoid' is not supported: lava's sigma-delta neurons have a relu"),
        ({"vThMant": -1}, "neuron/vThMant -1 is negative; export the model again"),
        ({"vThMant": None}, "neuron/vThMant is missing; export the model again"),
    ],
)
def test_what_the_processes_do_not_have_is_refused(tmp_path, neuron, message):
    path = write(tmp_path / "a.net", [dense([[2]], neuron={**SDNN, **neuron})])
    with pytest.raises(nw.ModelError) as error:
        from_lava(path)
    assert str(error.value) == f"lava-dl layer 0 (dense): {message}"


def test_fields_of_built_in_neurons_are_no_programs(tmp_path):
    path = write(tmp_path / "a.net", [dense([[2]], neuron=SDNN)])
    with pytest.raises(nw.ModelError, match="unknown neuron layer 'layer0'"):
        from_lava(path, neuron={"layer0": {"strict": False}})
