"""NeuroBench figures: equal to those that the package neurobench 2.3.0 gave (neurobench.json), and hand counts."""

import json
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.neurobench import fan_out, neurobench
from nwcompile.errors import ModelError
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation
from nwcompile.sim import simulate
from tests.cost.neurobench_nets import CASES
from tests.made.chips import small_chip
from tests.made.programs import run_of, three_cores

FIGURES = json.loads(Path(__file__).with_name("neurobench.json").read_text())["figures"]


@pytest.mark.parametrize("name", CASES)
def test_neurobench_equals_the_package(name):
    net, x = CASES[name].make(), CASES[name].x
    network = nw.from_torch(net, x[:1])
    found = neurobench(network, simulate(network, x, record="all"), graded=network.inputs if x.max() > 1 else ())
    theirs = FIGURES[name]
    assert found.synapse_bytes == theirs["Footprint"] - theirs["buffer_bytes"] == 4 * theirs["ParameterCount"]
    assert round(found.connection_sparsity, 4) == theirs["ConnectionSparsity"]
    assert found.activation_sparsity == pytest.approx(theirs["ActivationSparsity"], rel=1e-12)
    synops = {"Dense": found.dense_synops, "Effective_MACs": found.effective_macs,
              "Effective_ACs": found.effective_acs}  # fmt: skip
    assert synops == theirs["SynapticOperations"]
    if name != "own_layers":  # the package sees membranes of snnTorch alone
        assert found.membrane_updates == theirs["MembraneUpdates"]


def test_neurobench_of_a_program_equals_a_hand_count():
    program = three_cores()  # any spike makes all spike
    found = neurobench(program, run_of(program, "sequence", record="all"))
    assert found.dense_synops == 2 * (4 * 6 + 6 * 2)
    assert (found.effective_acs, found.effective_macs) == ((2 + 8) / 2 * 6 + 2 * 6 * 2, 0)
    assert (found.connection_sparsity, found.activation_sparsity) == (0, 0)
    assert found.membrane_updates == 8  # all neurons in the first step; all spike and are reset in both
    chip = program.chip
    assert found.synapse_bytes == (4 * 6 + 6 * 2) * chip.weights.bits // 8
    numbers = 2 * (chip.neuron.threshold_bits + chip.state.decay_bits)  # scalars: a threshold and decay_u of each layer
    assert found.neuron_bytes == -(-numbers // 8)
    assert found.footprint_bytes == found.synapse_bytes + found.neuron_bytes
    assert found.state_bytes == 8 * 2 * chip.state.bits // 8


def test_neurobench_without_states_has_no_membrane_updates():
    program = three_cores()
    assert neurobench(program, run_of(program, "sequence")).membrane_updates is None


def test_neurobench_of_a_program_without_states_has_no_membrane_updates_of_it():
    fires = Operation("fires", "lt", (0, "x")), Operation("s", "number", ("fires",))
    stateless = NeuronProgram("plain", (), fires, "s", "binary", is_fixed=True)
    network = Network.from_arrays({"a": (stateless, (2,))}, [Dense("in", "a", np.eye(2, dtype=np.int8))], {"in": 2})
    run = simulate(network, np.ones((1, 4, 2), int), record="all")
    assert neurobench(network, run).membrane_updates == 0 and run.spikes["a"].all()


def test_neurobench_counts_zero_weights_as_sparse_and_ineffective_however_they_are_stored():
    weight = np.array([[1, 0, 2], [0, 0, 3]])
    post, pre = np.nonzero(weight)
    figures = []
    for edge in (Dense("in", "out", weight), Sparse("in", "out", pre, post, weight[post, pre])):
        network = fixed([edge], {"out": (spec(), (2,))}, 3)
        figures.append(neurobench(network, simulate(network, np.ones((1, 4, 3), int), record="all")))
    dense, sparse = figures
    assert dense.connection_sparsity == sparse.connection_sparsity == 0.5
    assert dense.effective_acs == sparse.effective_acs == 4 * 3
    assert dense.dense_synops == sparse.dense_synops == 4 * 6


def test_neurobench_counts_two_halves_by_sign_as_one_connection():
    """Odd weights of both signs, which Loihi 1 stores as an excitatory and an inhibitory connection."""
    network = fixed([Dense("in", "out", np.array([[1, 0, -3], [0, 2, 3]]))], {"out": (spec(), (2,))}, 3)
    program = nw.compile(network, "loihi1", None, nw.Options(n_cores=1))
    assert len(program.network.connections) == 2
    x = np.ones((1, 4, 3), int)
    one, two = (neurobench(model, simulate(model, x)) for model in (network, program))
    assert (one.connection_sparsity, one.dense_synops, one.effective_acs) == (2 / 6, 24, 16)
    assert (two.connection_sparsity, two.dense_synops, two.effective_acs) == (2 / 6, 24, 16)


def test_neurobench_leaves_out_spikes_that_no_step_takes():
    """With delay 2 a spike of steps 0 and 1 of 4 arrives; that is what a layer called in every step gets."""
    network = fixed([Dense("in", "out", np.ones((1, 1), int), delay=2)], {"out": (spec(), (1,))}, 1)
    found = neurobench(network, simulate(network, np.ones((1, 4, 1), int)))
    assert (found.effective_acs, found.dense_synops) == (2, 4)


def test_neurobench_counts_macs_where_a_source_sends_more_than_one_and_acs_where_it_does_so_one_by_one():
    x = np.array([[[2], [1], [0]]])
    for payload, macs, acs in (("graded", 2, 0), ("repeat", 0, 3)):
        network = fixed([Dense("in", "out", np.ones((1, 1), int))], {"out": (spec(), (1,))}, 1)
        program = nw.compile(network, small_chip(), None, nw.Options(on_multi_spike=payload))
        found = neurobench(program, simulate(program, x, "sequence"))
        assert (found.effective_macs, found.effective_acs) == (macs, acs)


def test_neurobench_counts_a_neuron_that_spikes_several_times_a_step_as_active_once():
    several = spec().replace(spikes="multi", threshold=64, reset="subtract")
    network = fixed([Dense("in", "out", np.array([[3]]))], {"out": (several, (1,))}, 1)
    program = nw.compile(network, small_chip(), None, nw.Options(on_multi_spike="repeat"))
    run = simulate(program, np.array([[[1], [0], [0], [1]]]), "sequence")
    assert run.spikes["out"].reshape(-1).tolist() == [3, 0, 0, 3]
    assert neurobench(program, run).activation_sparsity == 0.5


def test_neurobench_takes_minus_one_for_an_accumulation():
    network = fixed([Dense("in", "out", np.ones((1, 1), int))], {"out": (spec(), (1,))}, 1)
    found = neurobench(network, simulate(network, np.array([[[-1], [1], [0]]])))
    assert (found.effective_macs, found.effective_acs) == (0, 2)


def test_neurobench_leaves_layers_that_never_fire_out_of_the_activations():
    network = fixed(
        [Dense("in", "a", np.ones((1, 1), int)), Dense("a", "b", np.ones((3, 1), int))],
        {"a": (spec(), (1,)), "b": (spec().replace(fires=False), (3,))}, 1,
    )  # fmt: skip
    found = neurobench(network, simulate(network, np.array([[[1], [0], [1], [1]]]), record="all"))
    assert found.activation_sparsity == 0.25
    assert found.membrane_updates == (1 + 0 + 0 + 0) + (3 + 0 + 3 + 3)  # a is reset; b adds up


@pytest.mark.parametrize("window", ["aligned", "hardware"])
def test_neurobench_is_the_same_for_every_backend(window):
    program = three_cores()
    runs = [run_of(program, backend, window=window, record="all") for backend in ("reference", "cycle", "sequence")]
    one, two, three = (neurobench(program, run) for run in runs)
    assert one == two == three


def test_neurobench_refuses_the_run_of_another_network():
    program = three_cores()
    with pytest.raises(ModelError) as e:
        neurobench(three_cores(hidden="other"), run_of(program))
    assert str(e.value) == "the run is not one of this network; simulate the network and take that run"


@pytest.mark.parametrize("stride, padding, dilation, groups", [(1, 0, 1, 1), (2, 1, 1, 2), ((1, 3), (2, 0), (2, 1), 1)])
def test_fan_out_of_a_convolution_equals_single_spikes(stride, padding, dilation, groups):
    weight = np.random.default_rng(0).integers(-1, 2, (4, 4 // groups, 3, 2))
    edge = Conv2d("in", "out", weight, None, stride, padding, dilation, groups)
    network = Network.from_arrays({"out": spec()}, [edge], {"in": (4, 6, 7)})
    ones = Network.from_arrays(
        {"out": spec().replace(fires=False)}, [edge.replace(weight=abs(weight))], {"in": (4, 6, 7)}
    )
    x = np.eye(4 * 6 * 7, dtype=int).reshape(-1, 1, 4, 6, 7)
    v = simulate(ones, x).output.reshape(len(x), -1)
    np.testing.assert_array_equal(fan_out(network, edge), v.sum(1) >> 6)


def spec() -> NeuronSpec:
    """Fires on anything above 0, is reset, and keeps no current."""
    return NeuronSpec(threshold=0, fixed=FixedPoint())


def fixed(edges: list, layers: dict, n_lines: int) -> Network:
    return Network.from_arrays(layers, edges, {"in": (n_lines,)})
