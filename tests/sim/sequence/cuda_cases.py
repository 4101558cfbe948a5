"""What `device="cuda"` computes: on CPU tensors in Triton's interpreter, where `test_cuda.py` runs this file in a
process of its own, and on a GPU, where `tests/gpu` does.
"""

import os
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nwcompile.errors import BackendError
from nwcompile.flow import compile
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import MESSAGES, OVERFLOWS, RESET_TIMINGS, RESETS, FixedPoint, NeuronSpec
from nwcompile.nn.ops import gpu
from nwcompile.sim import memory, simulate
from nwcompile.sim.crosscheck import compare_runs
from nwcompile.sim.machine import Rows
from nwcompile.sim.reference.program_step import ProgramState
from nwcompile.sim.runs import record_rows
from nwcompile.sim.sequence.cuda import device, synapses
from nwcompile.sim.sequence.cuda import neurons as gpu_neurons
from nwcompile.sim.sequence.cuda.inference import Inference
from nwcompile.sim.sequence.run import SequenceMachine, layer_groups
from tests.made.gated_neurons import gated_neurons, multiplied, switched
from tests.made.nets import FIXED, conv_net, dense_net, integers, sparse_edge
from tests.made.neuron_programs import adaptive, every_operation, integrator
from tests.made.random_neurons import curved_input, curved_network, curved_neurons, float_neurons, whole_neurons
from tests.made.random_programs import inputs, programs, specs

CURVES_COST = 25  # Each example makes tables and compiles kernels of its own, so there are so many times fewer.

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def on_cpu_tensors():
    """Kernels that are interpreted take CPU tensors."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("TRITON_INTERPRET") == "1":
            patch.setattr(device, "find_gpu", lambda: torch.device("cpu"))
        yield


def rows_of(network: Network, given: dict, n_steps: int, device: str) -> Rows:
    return record_rows(SequenceMachine(network, True, "aligned", n_steps, device), given, n_steps)


def agrees(network: Network, x: np.ndarray) -> None:
    """The spikes, states and updates of a network's aligned steps equal those of the reference and the CPU's scan."""
    given = {"in": x.astype(np.int32)}
    spikes, states, updates = rows_of(network, given, x.shape[1], "cuda")
    wanted = simulate(network, x, record="all")
    counted = rows_of(network, given, x.shape[1], "cpu").counts
    assert any(s.any() for s in spikes.values())
    for name in network.layers:
        assert np.array_equal(spikes[name], wanted.spikes[name]), name
        for state, values in wanted.states[name].items():
            assert np.array_equal(states[name][state], values), (name, state)
        assert np.array_equal(updates[name], counted[name]), name


@pytest.mark.parametrize("neurons", [specs, whole_neurons, gated_neurons])
@settings(
    max_examples=int(os.environ.get("CUDA_EXAMPLES", "3")),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_cuda_agrees_on_random_programs(neurons, data):
    program = data.draw(programs(neurons=neurons))
    x, window = data.draw(inputs(program)), data.draw(st.sampled_from(["aligned", "hardware"]))
    runs = {"reference": simulate(program, x, window=window, record="all"),
            "cuda": simulate(program, x, "sequence", "cuda", window, "all")}  # fmt: skip
    result = compare_runs(program, runs)
    assert result.agree, str(result)
    assert runs["cuda"].device == "cuda" and runs["cuda"].energy_pj == runs["reference"].energy_pj


def spikes_in(*shape: int, low: int = 0, high: int = 1) -> np.ndarray:
    return np.random.default_rng(3).integers(low, high + 1, shape)


def test_cuda_every_reset_and_kind_of_spike():
    """A layer each, of four neurons that differ in everything that a number says."""
    layers, edges = {}, []
    timings = [(reset, t) for reset in RESETS for t in RESET_TIMINGS if t != "both" or reset == "subtract"]
    for k, (spikes, (reset, timing)) in enumerate(product(MESSAGES, timings)):
        spec = NeuronSpec(
            threshold=np.array([12, 8, 4, 8]), spikes=spikes, strict=k % 2 == 0, fires=k % 7 != 3, reset=reset,
            reset_timing=timing, reset_value=np.array([-5, 0, 20, 80]), refractory=np.array([0, 1, 2, 4]),
            v_min=np.array([-9, -60, -9, 0]), bias=np.array([0, 0, 5, 0]), bias_u=np.array([0, 2, 0, 0]),
            decay_u=np.array([4096, 4096, 1500, 1000]), decay_v=np.array([4096, 4096, 128, 0]),
            fixed=FixedPoint(7, 12, 1, OVERFLOWS[k // 2 % 2]),
        )  # fmt: skip
        layers[f"a{k}"] = (spec, 4)
        edges.append(Dense("in", f"a{k}", integers((4, 3), k, -9, 9)))
    x = spikes_in(3, 8, 3, low=-1, high=2) * (np.arange(8) % 5 < 2)[:, None]
    agrees(Network.from_arrays(layers, edges, {"in": 3}), x)


@pytest.mark.parametrize("is_loop", [False, True])
def test_cuda_gated_neurons_take_back_what_they_sent(is_loop):
    spec = FIXED.replace(spikes="gated", reset="subtract", threshold=np.array([64, 200, 640]), strict=False)
    edges = [Dense("in", "a", np.array([[1], [2], [3]]))]
    edges += [Dense("a", "a", np.array([[0, -1, 0], [1, 0, 0], [0, 2, 0]]), delay=1)] if is_loop else []
    agrees(Network.from_arrays({"a": spec}, edges, {"in": 1}), spikes_in(2, 30, 1, low=-4, high=4))


@pytest.mark.parametrize("is_loop", [False, True])
@pytest.mark.parametrize(
    "decay, reset, timing",
    [("shift", "subtract", "now"), ("shift", "subtract", "next"), ("shift", "zero", "next"),
     ("fraction", "subtract", "now")],
)  # fmt: skip
def test_cuda_decays_by_shift_and_states_that_are_clipped(decay, reset, timing, is_loop):
    """Xylo's neurons: every addition is clipped, at -2**15 too, and up to 31 spikes leave at once."""
    spec = NeuronSpec(
        threshold=np.array([1, 40, 300, 2000, 32767, 5]), strict=False, reset=reset, reset_timing=timing,
        spikes="multi", max_spikes=31,
        decay_u=np.array([0, 1, 2, 3, 7, 15]), decay_v=np.array([15, 1, 0, 3, 4, 0]),
        bias=np.array([0, -7, 9, 0, 32767, -32768]), fixed=FixedPoint(16, 4, 0, "clip", decay),
    )  # fmt: skip
    edges = [Dense("in", "a", integers((6, 3), 2, -128, 127) << np.arange(6)[:, None])]
    edges += [Dense("a", "a", integers((6, 6), 3, -20, 20), delay=1)] if is_loop else []
    x = spikes_in(3, 24, 3, high=15) * (np.arange(24) % 12 < 7)[:, None]
    agrees(Network.from_arrays({"a": (spec, 6)}, edges, {"in": 3}), x)


@pytest.mark.parametrize("n_steps", [1, 8, 17])
def test_cuda_reads_ahead_over_any_number_of_steps(n_steps):
    """20 neurons of 2 samples take two programs of the kernel."""
    agrees(dense_net(9, 20), np.ones((2, n_steps, 9), np.int32))


@pytest.mark.parametrize("spikes", ["binary", "multi", "bipolar"])
@pytest.mark.parametrize("state_bits, overflow", [(30, "wrap"), (31, "saturate"), (32, "wrap")])
def test_cuda_wide_states_and_decays(spikes, state_bits, overflow):
    """32 bits hold no more than 30-bit states that wrap; products of decays reach the highest bit."""
    spec = NeuronSpec(threshold=(1 << (state_bits - 3)) + 1, spikes=spikes, reset="subtract", reset_timing="both",
                      decay_u=np.arange(6) * 819, decay_v=np.array([0, 1, 2, 1000, 4095, 4096]),
                      fixed=FixedPoint(state_bits, 12, 16, overflow))  # fmt: skip
    weight = np.random.default_rng(0).integers(-3000, 3000, (6, 4))
    agrees(Network.from_arrays({"a": spec}, [Dense("in", "a", weight)], {"in": 4}), spikes_in(2, 12, 4, low=-2, high=9))


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
@pytest.mark.parametrize(("decay_u", "most"), [(0, 256), (4096, 900)])
def test_cuda_edges_of_the_state(overflow, decay_u, most):
    """u = -2**7 wraps in 8 bits, 2**7 and what saturates at 2**7 - 1 do not; 3 * 2**7 is the most that wraps back.

    A u that does not leak may be beyond it, also in 32 bits.
    """
    spec = NeuronSpec(threshold=100, spikes="bipolar", decay_u=decay_u, fixed=FixedPoint(8, 12, 0, overflow))
    weight = np.array([[-128], [128], [-127], [127], [129], [-129], [most], [-most]])
    agrees(Network.from_arrays({"a": spec}, [Dense("in", "a", weight)], {"in": 1}), np.ones((1, 5, 1)))


@pytest.mark.parametrize("largest, high", [(127, 127), (128, 1), (255, 200), (32767, 1), (1 << 20, 40_000)])
def test_cuda_weights_and_payloads_of_any_width(largest, high):
    weight = np.random.default_rng(1).integers(-largest, largest + 1, (5, 11))
    edges = [Dense("in", "a", weight), sparse_edge("in", "a", 11, 5, 30, delay=1)]
    spec = FIXED.replace(threshold=min(3 * largest * high, 1 << 20))
    agrees(Network.from_arrays({"a": (spec, 5)}, edges, {"in": 11}), spikes_in(2, 6, 11, low=-high // 2, high=high))


def test_cuda_convolution_in_parts(monkeypatch):
    monkeypatch.setattr(synapses, "PATCH_BYTES", 500)
    agrees(conv_net(stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2), spikes_in(2, 5, 2, 6, 5))


def test_cuda_convolution_of_another_view_in_a_loop():
    weight = integers((3, 3, 1, 2))
    back = Conv2d("a", "a", weight, padding=(0, 1), dilation=(1, 2), delay=2, source_shape=(3, 1, 4))
    edges = [Dense("in", "a", integers((12, 5))), back]
    agrees(Network.from_arrays({"a": (FIXED, 12)}, edges, {"in": 5}), spikes_in(3, 9, 5))


@pytest.mark.parametrize("delay", [1, 3, 20])
def test_cuda_layers_that_feed_each_other(delay):
    """Blocks of `delay` steps; the connection without delay acts within a block."""
    several = FIXED.replace(spikes="multi", reset="subtract", threshold=150, refractory=1)
    edges = [
        Dense("in", "a", integers((6, 5))),
        Dense("a", "b", integers((4, 6), 1)),
        sparse_edge("b", "a", 4, 6, 15, 2, delay=delay),
        Dense("b", "b", integers((4, 4), 3), delay=delay + 1),
    ]
    agrees(Network.from_arrays({"b": (FIXED, 4), "a": (several, 6)}, edges, {"in": 5}), spikes_in(2, 13, 5, high=3))


@pytest.mark.parametrize("largest", [gpu_neurons.MAX_LOOP_NEURONS, 5])
@pytest.mark.parametrize("kind", ["binary", "multi"])
def test_cuda_layer_that_feeds_itself(kind, largest, monkeypatch):
    """In one program a sample, or, where the layer is too large for that, step by step."""
    monkeypatch.setattr(gpu_neurons, "MAX_LOOP_NEURONS", largest)
    spec = FIXED.replace(spikes=kind, reset="subtract", threshold=150, refractory=2, decay_v=300)
    edges = [
        Dense("in", "a", integers((6, 5)) * 2),
        sparse_edge("a", "a", 6, 6, 15, 2),
        Conv2d("a", "a", integers((2, 2, 1, 2), 4), padding=(0, 1), dilation=(1, 2), delay=1, source_shape=(2, 1, 3)),
    ]
    agrees(Network.from_arrays({"a": (spec, 6)}, edges, {"in": 5}), spikes_in(2, 10, 5, high=3))


def test_cuda_samples_in_chunks(monkeypatch):
    network, kept = dense_net(3, 4, recurrent=True), 4 * (1 + 2 * 8)  # of four neurons: a spike and two states
    monkeypatch.setitem(memory.CHUNK_BYTES, "cuda", (24 * 4 + kept) * 5 * 2)
    assert memory.samples_at_once(network, 5, 5, "cuda") == 2
    agrees(network, spikes_in(5, 5, 3))


def test_cuda_negative_spikes_and_stored_zeros_are_events():
    edge = sparse_edge("in", "a", 5, 40, 100)
    assert (edge.weight == 0).any()
    agrees(Network.from_arrays({"a": (FIXED, 40)}, [edge], {"in": 5}), spikes_in(3, 6, 5, low=-1, high=0))


def test_cuda_weights_of_any_layout_in_memory():
    weight = np.asfortranarray(integers((4, 6)))[::-1, ::-2]
    weight.flags.writeable = False
    agrees(Network.from_arrays({"a": (FIXED, 4)}, [Dense("in", "a", weight)], {"in": 3}), spikes_in(2, 5, 3))


def test_cuda_network_without_inputs():
    network = Network.from_arrays({"a": (FIXED.replace(bias=30), 3)}, [], {})
    spikes, _, updates = rows_of(network, {}, 6, "cuda")
    assert np.array_equal(spikes["a"], simulate(network, None, steps=6).spikes["a"]) and spikes["a"].any()
    assert (updates["a"] == 1).all()


def test_cuda_spikes_are_the_same_without_counters():
    network = conv_net()
    found = Inference(network, layer_groups(network), [0, 0], device.find_gpu())
    x = {"in": torch.from_numpy(spikes_in(2, 9, 2, 6, 5)).to(device.find_gpu(), torch.int8)}
    counted, plain = (found.infer(x, (2, 9), counts=counts) for counts in (True, False))
    assert plain.updates == {} and counted.updates["out"].any() and counted.spikes["out"].any()
    for name in network.layers:
        assert torch.equal(counted.spikes[name], plain.spikes[name])


def test_cuda_agrees_on_registers_that_the_host_writes():
    from nwcompile import Options

    rng = np.random.default_rng(7)
    spec = NeuronSpec(threshold=1.0, beta=0.75)
    edges = [Dense("in", "a", rng.normal(size=(12, 3)).astype(np.float32)), Dense("a", "b", rng.normal(size=(5, 12)))]
    network = Network.from_arrays({"a": spec, "b": spec.replace(alpha=0.5)}, edges, {"in": 3})
    x = rng.normal(size=(2, 9, 3)).astype(np.float32)
    program = compile(network, "loihi1", x, Options(input_layer="bias"))
    runs = {name: simulate(program, x, "sequence", name, record="all") for name in ("cpu", "cuda")}
    assert compare_runs(program, runs).agree and runs["cuda"].spikes["a"].any()


def test_cuda_every_operation_of_neuron_programs():
    """In 64 bits as well: the sums of the second layer are beyond 32."""
    edges = [Dense("in", "a", integers((10, 5)) * 10), Dense("in", "b", integers((10, 5)) << 28)]
    agrees(
        Network.from_arrays({"a": (every_operation(), 10), "b": (every_operation(), 10)}, edges, {"in": 5}),
        spikes_in(3, 20, 5, low=-2, high=3),
    )


@pytest.mark.parametrize("delay", [1, 3])
def test_cuda_programs_in_a_loop_with_built_in_neurons(delay):
    layers = {
        "h": (adaptive.program(base=np.arange(3000, 3600, 100)), 6),
        "m": (FIXED.replace(threshold=1000), 4),
        "out": (integrator.program(), 3),
    }
    edges = [
        Dense("in", "h", integers((6, 5)) * 20),
        Dense("h", "h", integers((6, 6), 1), delay=delay),
        Dense("h", "m", integers((4, 6), 2) * 10),
        Dense("m", "h", integers((6, 4), 3), delay=delay + 1),
        Dense("m", "out", integers((3, 4), 4)),
    ]
    agrees(Network.from_arrays(layers, edges, {"in": 5}), spikes_in(2, 5 * delay, 5, high=3))


@pytest.mark.parametrize("is_loop", [False, True])
def test_cuda_neurons_of_several_inputs(is_loop):
    """All kinds of connections into two and three inputs of 12 neurons; events at any input count once."""
    edges = [
        Conv2d("in", "a", integers((6, 2, 3, 3), 0, -4, 5), padding=1),
        sparse_edge("a", "b", 12, 24, 40, delay=2),
    ]
    if is_loop:
        edges += [Dense("a", "b", integers((24, 12), 1) * 2), Dense("b", "a", integers((36, 12), 2), delay=1)]
    network = Network.from_arrays({"a": (multiplied(), (2, 2, 3)), "b": (switched(20), 12)}, edges, {"in": (2, 2, 3)})
    agrees(network, spikes_in(2, 13, 2, 2, 3, low=-1))


@settings(
    max_examples=int(os.environ.get("CUDA_EXAMPLES", "3")),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(program=float_neurons())
def test_cuda_float_programs_give_the_references_numbers(program):
    """In two calls, the second of which goes on from the states of the first; 37 lanes are two programs of a kernel."""
    x = np.random.default_rng(0).normal(size=(1, 21, 37)).astype(np.float32) * 3
    reference = ProgramState.from_program(program, (1, 37))
    wanted = np.stack([reference.step(x[:, t]) for t in range(21)], 1)
    rows = [program.array(name, (37,)) for name in program.parameters]
    given = torch.from_numpy(np.array(rows, np.float32).reshape(-1, 37)).to(device.find_gpu())
    initial = np.array([program.array(name, (37,)) for name in program.state_names], np.float32).reshape(-1, 1, 37)
    state = torch.from_numpy(initial).to(device.find_gpu())
    with np.errstate(all="ignore"):  # the interpreter computes in NumPy
        parts = [
            gpu.run_program(program.structure, given, torch.from_numpy(part).to(device.find_gpu()), state)
            for part in (x[:, :18], x[:, 18:])
        ]
    assert np.array_equal(torch.cat(parts, 1).cpu().numpy(), wanted, equal_nan=True), program
    for values, name in zip(state.cpu().numpy(), program.state_names, strict=True):
        assert np.array_equal(values, reference.named[name], equal_nan=True), (name, program)


@settings(
    max_examples=max(int(os.environ.get("CUDA_EXAMPLES", "3")) // CURVES_COST, 2),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(neuron=curved_neurons())
def test_cuda_agrees_on_tables_of_drawn_curves(neuron):
    x = curved_input(1, 6)
    program = compile(curved_network(neuron), "loihi2", x)
    assert program.network.node("h").neuron.tables
    assume(program.manifest["quantization"][0]["rate_fixed"] > 0)
    runs = {"reference": simulate(program, x, record="all"),
            "cuda": simulate(program, x, "sequence", "cuda", record="all")}  # fmt: skip
    result = compare_runs(program, runs)
    assert result.agree, str(result)


def test_cuda_refuses_sums_that_programs_are_not_proved_for():
    network = Network.from_arrays(
        {"a": (integrator.program(), 1)}, [Dense("in", "a", np.full((1, 2), 1 << 30))], {"in": 2}
    )
    with pytest.raises(BackendError) as error:
        rows_of(network, {"in": spikes_in(1, 2, 2, low=1 << 10, high=1 << 10)}, 2, "cuda")
    assert str(error.value) == (
        "layer 'a': sums of up to 2199023255552 are beyond 1099511627776, the most that neuron programs are proved "
        "for; use device='cpu'"
    )
