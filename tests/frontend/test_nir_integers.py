"""to_nir of fixed-point networks: from_nir reads the very integers, and other readers run floats with equal spikes."""

import warnings
from dataclasses import replace

import nir
import numpy as np
import pytest
from hypothesis import given, settings

from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.lava import from_lava
from nwcompile.frontend.nir import from_nir
from nwcompile.frontend.nir.integers import to_floats
from nwcompile.frontend.nir.write import to_nir
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable
from nwcompile.sim import simulate
from tests.frontend.frameworks import framework
from tests.long import n_drawn
from tests.made.lava_files import LOIHI, dense, pool, write
from tests.made.nets import dense_net
from tests.made.neuron_programs import cuba
from tests.made.random_neurons import whole_neurons
from tests.made.random_programs import OF_PROGRAMS, networks
from tests.made.recordings import raster


def written(network: Network, path) -> list[str]:
    """Write the network, and return what to_nir said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        to_nir(network, path)
    return [str(w.message) for w in caught]


def others_read(path, neuron: dict | None = None) -> Network:
    """What a reader of the standard nodes alone runs: NIR's own rules, without the notes."""
    graph = nir.read(path)
    graph.metadata = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        return from_nir(graph, dt=1e-4, dialect="nir", neuron=neuron)


def survives(network: Network, path) -> None:
    written(network, path)
    assert from_nir(nir.read(path)).hash == network.hash


MANY = settings(OF_PROGRAMS, max_examples=n_drawn(20))


@MANY
@given(networks())
def test_any_fixed_network_survives(tmp_path_factory, network):
    survives(network, tmp_path_factory.getbasetemp() / "fixed.nir")


@MANY
@given(networks(neurons=lambda _: whole_neurons()))
def test_any_network_of_neuron_programs_survives(tmp_path_factory, network):
    survives(network, tmp_path_factory.getbasetemp() / "programs.nir")


@pytest.mark.parametrize(
    "file, silent",
    [
        ("models/lava_oxford", ()),
        ("models/lava_tinynet", ()),
        ("lava_gts/pilotnet_lif", ("layer10",)),
        ("lava_gts/pilotnet_sdnn", ("layer9",)),
    ],
)
def test_lava_file_runs_the_same_through_nir(reference, tmp_path, file, silent):
    """What lava-dl's issue 217 asks for: `.net` -> `.nir` -> spikes and states of all layers. Outputs may be silent."""
    (source,) = (reference / file).glob("*.net")
    network, path = from_lava(source), tmp_path / "a.nir"
    written(network, path)
    again = from_nir(path)
    shape = network.inputs["input"].shape
    x = np.random.default_rng(0).integers(0, 40, (1, 14, *shape))
    if len(shape) == 1:
        x = raster(np.load(source.parent / "input.npy"), 2000, 200)[None]
    one, two = (simulate(net, x, record="all") for net in (network, again))
    assert again.layers == network.layers
    for layer in network.layers:
        assert layer in silent or one.spikes[layer].any(), layer
        assert np.array_equal(one.spikes[layer], two.spikes[layer])
        for state, values in one.states[layer].items():
            assert np.array_equal(values, two.states[layer][state]), (layer, state)


def test_other_frameworks_run_the_oxford_file_up_to_rounding(reference, tmp_path):
    """snnTorch reads the floats with no help: 2 steps ahead, 9,530 of 9,632 spikes, as NIR's own rules give."""
    folder = reference / "models" / "lava_oxford"
    network, path = from_lava(folder / "network.net"), tmp_path / "a.nir"
    assert written(network, path) == [
        f"{path}: other readers do not see rounded decays, 24-bit states (u wraps, v saturates), 1 step of delay of "
        "'layer0'; rounded decays, 24-bit states (u wraps, v saturates), 2 steps of delay of 'layer1'; from_nir reads "
        "it from the metadata"
    ]
    x = raster(np.load(folder / "input.npy"), 2000, 200)[None]
    assert simulate(network, x).output.sum() == 9632
    found = simulate(others_read(path), x).output[0]
    assert found.sum() == 9530
    torch, module = framework("torch"), framework("snntorch.import_nir").import_from_nir(nir.read(path))
    state, spikes = None, []
    for step in torch.tensor(x[0, :, None], dtype=torch.float32):
        out, state = module(step, state)
        spikes.append((out[0] if isinstance(out, tuple) else out)[0].detach().numpy())
    assert np.array_equal(found, np.stack(spikes))


def unrounded(threshold=192, **fields) -> NeuronSpec:
    """Neurons whose decays keep a state or clear it, so that floats compute the same."""
    return NeuronSpec(threshold=threshold, fixed=FixedPoint(), **fields)


RNG = np.random.default_rng(5)
W, V = RNG.integers(-3, 6, (6, 8)), RNG.integers(-3, 6, (5, 6))


def chain(*specs: NeuronSpec, delay: int = 0, exponent: int = 0, **more) -> Network:
    edges = [Dense("x", "a", W, delay=delay, exponent=exponent, **more), Dense("a", "b", V, delay=delay)]
    return Network.from_arrays({"a": (specs[0], (6,)), "b": (specs[-1], (5,))}, edges, {"x": 8})


@pytest.mark.parametrize(
    "network, ahead",
    [
        (chain(unrounded()), (0, 0)),
        (chain(unrounded(), delay=3), (3, 6)),
        (chain(unrounded(strict=False), delay=1), (1, 2)),
        (chain(unrounded(bias=np.arange(6) * 7 - 20), unrounded(bias_u=1), delay=2), (0, 0)),
        (chain(unrounded(decay_u=0, decay_v=4096, bias_u=2, bias=-640), unrounded(decay_v=4096)), (0, 0)),
        (chain(unrounded(1000, decay_u=0), unrounded(reset="value", reset_value=-70)), (0, 0)),
        (chain(unrounded(reset="subtract"), exponent=1), (0, 0)),
        (chain(unrounded(60), exponent=-1), (0, 0)),
        (chain(unrounded(), bias=np.arange(6)), (0, 0)),
        (chain(NeuronSpec(threshold=9, strict=False, fixed=FixedPoint(shift_bits=0))), (0, 0)),
    ],
    ids=["if", "delay", "not strict", "bias", "current", "value", "subtract", "rounded weight",
         "connection", "no shift"],
)  # fmt: skip
def test_floats_give_equal_spikes_where_nothing_is_rounded(network, ahead, tmp_path):
    """Each layer is ahead by the delays that were left out."""
    written(network, tmp_path / "a.nir")
    x = (np.random.default_rng(1).random((3, 40, 8)) < 0.4).astype(np.int8)
    expected = simulate(network, x)
    reset = network.node("a").neuron.reset
    found = simulate(others_read(tmp_path / "a.nir", {"reset": reset} if reset == "subtract" else None), x)
    for layer, steps in zip(("a", "b"), ahead, strict=True):
        assert expected.spikes[layer].any()
        assert np.array_equal(found.spikes[layer][:, : 40 - steps], expected.spikes[layer][:, steps:]), layer
    given = to_floats(network)[0]
    assert all(node.neuron.reset == "subtract" or node.neuron.strict for node in given.nodes.values())


def test_threshold_lies_between_two_whole_numbers_so_that_every_comparison_agrees(tmp_path):
    for strict, threshold in ((True, 192.5 / 64), (False, 191.5 / 64)):
        written(chain(unrounded(strict=strict)), tmp_path / "a.nir")
        assert nir.read(tmp_path / "a.nir").nodes["a"].v_threshold.tolist() == [threshold] * 6


def test_delay_around_a_cycle_and_a_bias_keep_their_time(tmp_path):
    back = Dense("b", "a", V.T, delay=2)
    slow = chain(unrounded(), delay=2)
    network = Network(slow.inputs, slow.nodes, (*slow.connections, back))
    floats, ahead = to_floats(network)
    assert ahead == {"x": 0, "a": 2, "b": 4}
    assert [c.delay for c in floats.connections] == [0, 0, 4]
    x = (np.random.default_rng(1).random((3, 40, 8)) < 0.4).astype(np.int8)
    written(network, tmp_path / "a.nir")
    expected, found = simulate(network, x), simulate(others_read(tmp_path / "a.nir"), x)
    assert np.array_equal(found.spikes["b"][:, :36], expected.spikes["b"][:, 4:]) and expected.spikes["b"].any()


@pytest.mark.parametrize("kernel", [(2, 2), (1, 3)])
def test_pool_of_a_lava_file_is_a_convolution_of_its_channels(tmp_path, kernel):
    shape = [3, 4 // kernel[0], 6 // kernel[1]]
    path = write(tmp_path / "a.net", [
        {"type": [b"input"], "shape": [3, 4, 6], "weight": [40.0], "bias": [8.0], "neuron": {**LOIHI, "vDecay": 0}},
        pool(shape, kernel, neuron={**LOIHI, "vDecay": 4096, "iDecay": 4096, "vThMant": 3}),
        {"type": [b"flatten"], "shape": [int(np.prod(shape))]},
        dense(np.ones((2, int(np.prod(shape)))), neuron={**LOIHI, "vDecay": 0, "iDecay": 4096}),
    ])  # fmt: skip
    network = from_lava(path)
    survives(network, tmp_path / "a.nir")
    kinds = [type(node).__name__ for node in nir.read(tmp_path / "a.nir").nodes.values()]
    assert kinds.count("Conv2d") == 2 and kinds.count("Linear") == 1 and "Scale" not in kinds


def test_drive_that_no_node_holds_is_said(tmp_path):
    spec = unrounded(decay_u=1024, bias_u=3)
    alone = Network.from_arrays({"a": (spec, (2,))}, [], {})
    path = tmp_path / "a.nir"
    assert written(alone, path) == [
        f"{path}: other readers do not see bias_u=3, rounded decays, 24-bit states (u wraps, v saturates) of 'a'; "
        "from_nir reads it from the metadata"
    ]
    image = Conv2d("x", "a", np.ones((1, 1, 1, 1), np.int8))
    spec = spec.replace(bias_u=np.arange(4).reshape(1, 2, 2))
    net = Network.from_arrays({"a": (spec, (1, 2, 2))}, [image], {"x": (1, 2, 2)})
    assert "bias_u=per neuron" in written(net, path)[0]
    assert from_nir(path).hash == net.hash


def test_neuron_program_is_noted_and_said(tmp_path):
    net = Network.from_arrays({"fc": (cuba(320, 512, 128), (6,))}, [Dense("x", "fc", W)], {"x": 8})
    path = tmp_path / "a.nir"
    assert written(net, path) == [
        f"{path}: other readers do not see neuron program 'cuba' (a Scale by 1 is in its place) of 'fc'; from_nir "
        "reads it from the metadata"
    ]
    assert from_nir(path).hash == net.hash and type(nir.read(path).nodes["fc"]).__name__ == "Scale"


def test_float_programs_are_noted_and_those_with_several_inputs_refused(tmp_path):
    steps = (Operation("kept", "mul", ("v", 0.5)), Operation("v1", "add", ("kept", "x")))
    leaky = NeuronProgram("leaky", (StateVariable("v", "v1", 0.25),), steps, "v", "none")
    survives(Network.from_arrays({"fc": (leaky, (6,))}, [Dense("x", "fc", W / 4)], {"x": 8}), tmp_path / "a.nir")
    gated = leaky.replace(operations=(*steps[:1], Operation("v1", "add", ("x", "gate"))), inputs=("x", "gate"))
    net = Network.from_arrays({"fc": (gated, (3,))}, [Dense("x", "fc", W / 4)], {"x": 8})
    with pytest.raises(ModelError) as caught:
        to_nir(net, tmp_path / "b.nir")
    assert str(caught.value) == (
        "layer 'fc': its neurons have 2 inputs, and a node of NIR has one; save it as a .nwc file"
    )
    assert not (tmp_path / "b.nir").exists()


def test_constant_input_and_shared_axons_are_noted(tmp_path):
    net = dense_net(4, 6)
    always = {"in": replace(net.inputs["in"], constant=1)}
    shared = {"fc1": replace(net.nodes["fc1"], axon_of=np.array([0, 0, 2, 2, 4, 5]))}
    net = Network(always, shared, net.connections)
    path = tmp_path / "a.nir"
    assert "constant=1 of 'in'" in written(net, path)[0]
    again = from_nir(path)
    assert again.hash == net.hash and again.inputs["in"].constant == 1
    assert again.nodes["fc1"].axon_of.tolist() == [0, 0, 2, 2, 4, 5]


def test_stated_fields_change_integers_too(tmp_path):
    written(chain(unrounded()), tmp_path / "a.nir")
    changed = from_nir(tmp_path / "a.nir", neuron={"a": {"threshold": 64}, "strict": False})
    assert (changed.node("a").neuron.threshold, changed.node("b").neuron.strict) == (64, False)
    assert changed.node("a").neuron.fixed == FixedPoint()
    for told, text in (
        ({"beta": 0.5}, "neuron field beta is for float neurons, and those of 'a' are fixed-point"),
        ({"threshold": 0.5}, "layer 'a': threshold of a fixed-point layer must be whole numbers"),
    ):
        with pytest.raises(ModelError) as caught:
            from_nir(tmp_path / "a.nir", neuron={"a": told})
        assert str(caught.value) == text


def test_synapses_with_many_delays_survive(tmp_path):
    edges = [Sparse("x", "a", [0, 1], [1, 0], np.array([3, -2], np.int8), delay=d, exponent=2) for d in (0, 5, 62)]
    survives(Network.from_arrays({"a": (unrounded(), (2,))}, edges, {"x": 2}), tmp_path / "a.nir")
