"""Neurons with several synaptic inputs: every backend computes a sum for each, and every core counts all synapses."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile.cost.neuron_program import state_words
from nwcompile.cost.traffic.axons import build_axons
from nwcompile.ir import resources
from nwcompile.ir.flat import cores_of_sources
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable
from nwcompile.kernels.mapping import core_usage as kernels
from nwcompile.passes.analyze import capacity
from nwcompile.sim import BACKENDS
from nwcompile.sim.reference.program_step import ProgramState
from tests.made.chips import small_chip
from tests.made.gated_neurons import gated_neurons, multiplied, switched
from tests.made.nets import FIXED, integers
from tests.made.random_programs import OF_PROGRAMS, SIXTY, buses, chips_of_neighbors, inputs, programs

FEW = settings(OF_PROGRAMS, max_examples=20)
SPINNAKER2 = nw.Chip.load("spinnaker2")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_membrane_is_kept_while_its_gate_is_open(backend):
    """One neuron, worked by hand: line 0 adds 3 to the membrane, line 1 opens the gate, and it fires above 5."""
    weight = np.array([[3, 0], [0, 1]], np.int8)  # input 0 of the neuron, then input 1
    network = nw.Network.from_arrays({"a": (switched(), 1)}, [nw.Dense("in", "a", weight)], {"in": 2})
    program = nw.compile(network, SPINNAKER2)
    x = np.array([[[1, 0], [1, 0], [1, 1], [0, 1], [0, 0], [1, 1], [1, 1]]], np.int8)
    run = nw.simulate(program, x, backend, record="all")
    assert run.states["a"]["v"].reshape(-1).tolist() == [3, 3, 0, 0, 0, 3, 0]
    assert run.spikes["a"].reshape(-1).tolist() == [0, 0, 1, 0, 0, 0, 1]


def test_each_input_has_its_own_bias():
    """Biases join the inputs when a program is emitted; a shift of the inputs leaves them alone."""
    bias, x = np.arange(1, 7), integers((4, 6), 0, -9, 10)
    changed, plain = (
        ProgramState.from_program(neuron, (4, 2))
        for neuron in (multiplied().add_input_bias(bias).shift_input(2), multiplied())
    )
    for _ in range(3):
        np.testing.assert_array_equal(changed.step(x), plain.step((x.astype(np.int64) << 2) + bias))
        np.testing.assert_array_equal(changed.named["v"], plain.named["v"])


def agree(data, program) -> None:
    result = nw.crosscheck(program, data.draw(inputs(program)), window=data.draw(st.sampled_from(nw.sim.WINDOWS)))
    assert result.agree, str(result)


@SIXTY
@given(data=st.data())
def test_backends_agree_on_drawn_networks(data):
    agree(data, data.draw(programs(neurons=gated_neurons)))


@pytest.mark.parametrize("on", [buses, chips_of_neighbors])
@FEW
@given(data=st.data())
def test_backends_agree_on_chips_of_other_families(on, data):
    executions = ["pipelined"] if on is chips_of_neighbors else nw.ir.options.EXECUTIONS
    agree(data, data.draw(programs(on, gated_neurons, executions)))


@pytest.mark.parametrize("keys", [{"core.max_neurons": 7}, {"core.max_neurons": 30, "weights.sharing": True}])
def test_layers_are_split_over_cores_by_the_compiler(keys):
    edges = [
        nw.Conv2d("in", "map", integers((9, 2, 3, 3), 0, -4, 5), padding=1),
        nw.Dense("map", "hidden", integers((40, 108), 1, -4, 5)),
        nw.Dense("hidden", "hidden", integers((40, 20), 2, -4, 5), delay=2),
        nw.Dense("hidden", "out", integers((6, 20), 3, -4, 5)),
        nw.Dense("out", "map", integers((324, 3), 4, -2, 3), delay=4),
    ]
    layers = {"map": (multiplied(), (3, 6, 6)), "hidden": (switched(), 20), "out": (switched(), 3)}
    x = integers((3, 12, 2, 6, 6), 5, 0, 2)
    program = nw.compile(nw.Network.from_arrays(layers, edges, {"in": (2, 6, 6)}), SPINNAKER2.replace(keys), x)
    assert program.mapping.n_cores >= 131 // keys["core.max_neurons"]
    result = nw.crosscheck(program, x)
    assert result.agree and all(row.fired["cycle"] for row in result.layers), str(result)


EDGES = {
    "dense": nw.Dense("in", "a", integers((24, 18), 0, -4, 5)),
    "convolution": nw.Conv2d("in", "a", integers((6, 1, 2, 2), 1, -4, 5), groups=2),
    "list": nw.Sparse("in", "a", *np.random.default_rng(2).integers(0, (18, 24), (50, 2)).T, integers(50, 3, 1, 5)),
}


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("kind", EDGES)
def test_cores_hold_the_synapses_of_all_inputs(kind, sharing):
    """8 neurons with 3 inputs take the synapses of 24 neurons, each three on one core."""
    chip, edge = small_chip(weights__sharing=sharing), EDGES[kind]
    gated = nw.Network.from_arrays({"a": (multiplied(), (2, 2, 2))}, [edge], {"in": (2, 3, 3)})
    apart = nw.Network.from_arrays({"a": (FIXED, (6, 2, 2))}, [edge], {"in": (2, 3, 3)})
    core_of = np.array([0, 1, 2, 1, 0, 1, 1, 2], np.int32)
    axons = build_axons(gated, cores_of_sources(gated, core_of), 3, chip)
    wanted = build_axons(apart, cores_of_sources(apart, np.tile(core_of, 3)), 3, chip)
    assert axons.offset[:19].tolist() == wanted.offset[:19].tolist()  # of the input lines
    for name in ("core", "synops", "words", "row_bits", "kernel_bits"):
        np.testing.assert_array_equal(getattr(axons, name), getattr(wanted, name), name)
    bits = wanted.kernel_bits.copy()
    np.add.at(bits, wanted.core, wanted.row_bits)
    assert capacity.used_by_core(gated, chip, core_of, 3)[:, resources.SYNAPSE_BITS].tolist() == bits.tolist()
    table, core, limit = (
        capacity.fan_in(gated, chip),
        capacity.empty_core(capacity.fan_in(gated, chip)),
        np.full(5, 1 << 40),
    )
    for c in range(3):  # as partitioners count, one neuron after the other
        neurons = np.flatnonzero(core_of == c)
        assert kernels.fill(table, core, np.zeros((8, 2), np.int64), neurons, limit) == len(neurons)
        assert core.used[resources.SYNAPSE_BITS] == bits[c]
        assert core.used[resources.IN_AXONS] == np.count_nonzero(wanted.core == c)
        kernels.clear(table, core, np.zeros((8, 2), np.int64), neurons)


def test_inputs_larger_than_states_are_not_clipped():
    """The sums reach 250, the membrane 2.5."""
    steps = [("open", "lt", 0.5, "gate"), ("kept", "select", "open", "v", 0.0), ("small", "mul", "x", 0.01),
             ("total", "add", "kept", "small"), ("fired", "lt", 2.0, "total"), ("v2", "select", "fired", 0.0, "total"),
             ("y", "number", "fired")]  # fmt: skip
    operations = tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps)
    neuron = NeuronProgram("small", (StateVariable("v", "v2"),), operations, "y", "binary", inputs=("x", "gate"))
    edge = nw.Dense("in", "a", np.array([[100, 25, 0], [64, 50, 0], [0, 0, 1], [0, 0, 1]], np.float32))
    network = nw.Network.from_arrays({"a": (neuron, 2)}, [edge], {"in": 3})
    x = (np.random.default_rng(0).random((2, 30, 3)) < 0.7).astype(np.float32)
    run = nw.simulate(nw.compile(network, SPINNAKER2, x), x)
    wanted = nw.simulate(network, x).spikes["a"]
    assert wanted.any() and (run.spikes["a"] != wanted).mean() < 0.05


@pytest.mark.parametrize("keys", [{"core.max_neuron_destinations": 4}, {"neuron.max_synapse_types": 1}])
def test_chips_that_take_one_sum_of_a_neuron_refuse_several(keys):
    edge = nw.Dense("in", "a", np.ones((8, 2), np.int8))
    network = nw.Network.from_arrays({"a": (switched(), 4)}, [edge], {"in": 2})
    with pytest.raises(nw.FitError, match="inputs of a neuron  a  2 of 1  a neuron has one synaptic sum for each"):
        nw.compile(network, SPINNAKER2.replace(keys))


def test_state_memory_counts_a_sum_of_each_further_input_and_step_of_delay():
    chip = SPINNAKER2.replace({"neuron.delay_max_steps": 3})
    assert [state_words(neuron, chip) for neuron in (switched(), multiplied())] == [1 + 4, 1 + 2 * 4]


class Cell(torch.nn.Module):
    """A gated spiking unit: a sigmoid of one sum of weights decides how much of the membrane the other replaces."""

    def __init__(self, n_in: int, n: int):
        super().__init__()
        self.n, self.input, self.own = n, torch.nn.Linear(n_in, 2 * n), torch.nn.Linear(n, 2 * n, bias=False)

    def forward(self, x):
        v = spikes = torch.zeros(len(x), self.n)
        sent = []
        for t in range(x.shape[1]):
            gate, current = (4 * (self.input(x[:, t]) + self.own(spikes))).chunk(2, 1)
            gate = torch.sigmoid(gate)
            v = gate * v + (1 - gate) * current
            spikes = (v > 0.5).float()
            sent.append(spikes)
        return torch.stack(sent, 1)


class LongMemory(torch.nn.Module):
    """A spiking LSTM: four gates of the input and of its own spikes, and the hyperbolic tangent of a state."""

    def __init__(self, n_in: int, n: int):
        super().__init__()
        self.n, self.input, self.own = n, torch.nn.Linear(n_in, 4 * n), torch.nn.Linear(n, 4 * n)

    def forward(self, x):
        cell = spikes = torch.zeros(len(x), self.n)
        sent = []
        for t in range(x.shape[1]):
            enters, stays, candidate, leaves = (2 * (self.input(x[:, t]) + self.own(spikes))).chunk(4, 1)
            cell = torch.sigmoid(stays) * cell + torch.sigmoid(enters) * torch.tanh(candidate)
            spikes = (torch.sigmoid(leaves) * torch.tanh(cell) > 0.15).float()
            sent.append(spikes)
        return torch.stack(sent, 1)


class GatedRecurrent(torch.nn.Module):
    """A spiking GRU: two gates from one sigmoid, one of which multiplies what the neurons' own spikes add."""

    def __init__(self, n_in: int, n: int):
        super().__init__()
        self.n, self.input, self.own = n, torch.nn.Linear(n_in, 2 * n), torch.nn.Linear(n, 2 * n)
        self.candidate, self.own_candidate = torch.nn.Linear(n_in, n), torch.nn.Linear(n, n)

    def forward(self, x):
        v = spikes = torch.zeros(len(x), self.n)
        sent = []
        for t in range(x.shape[1]):
            stays, counts = torch.sigmoid(self.input(x[:, t]) + self.own(spikes)).chunk(2, 1)
            candidate = torch.tanh(3 * self.candidate(x[:, t]) + counts * self.own_candidate(spikes))
            v = stays * v + (1 - stays) * candidate
            spikes = (v > 0.1).float()
            sent.append(spikes)
        return torch.stack(sent, 1)


@pytest.fixture(params=[Cell, LongMemory, GatedRecurrent], scope="module")
def gated(request) -> tuple[nw.Network, np.ndarray]:
    """Return a recurrent float network of torch with gates, and spikes for it."""
    torch.manual_seed(1)
    x = (np.random.default_rng(1).random((4, 20, 10)) < 0.4).astype(np.float32)
    return nw.from_torch(request.param(10, 16), torch.tensor(x[:1])), x


def test_gates_of_torch_run_alike_in_all_backends_and_after_loading(gated, tmp_path):
    network, x = gated
    program = nw.compile(network, SPINNAKER2, x, nw.Options(optimize="cores", stagger=2))
    (name,) = network.layers
    assert program.network.node(name).n_inputs > 1 and any(c.source == name for c in program.network.into(name))
    result = nw.crosscheck(program, x)
    assert result.agree and all(row.fired["cycle"] for row in result.layers), str(result)
    program.save(tmp_path / "gates.nwc")
    loaded = nw.Program.load(tmp_path / "gates.nwc")
    assert loaded.network.hash == program.network.hash
    assert nw.crosscheck(loaded, x).agree


def test_training_in_integers_refuses_several_inputs():
    text = "its neurons have 2 inputs, and quantization-aware training takes one; train the network in float"
    with pytest.raises(nw.ModelError, match=text):
        nw.nn.quantize_aware(Cell(10, 16), SPINNAKER2, torch.ones(1, 4, 10))


def test_gates_with_fine_weights_send_the_spikes_of_torch(gated):
    network, x = gated
    keys = {"weights.bits": 16, "weights.effective_limit": 1 << 15, "core.synapse_bits": 1 << 24}
    program = nw.compile(network, SPINNAKER2.replace(keys), x, nw.Options(optimize="cores"))
    wanted, has = (nw.simulate(runs, x).spikes[network.layers[0]] for runs in (network, program))
    assert 0.1 < wanted.mean() < 0.9
    np.testing.assert_array_equal(has, wanted)
