"""Several spikes per step: as one message with a count or as so many messages, the arithmetic is the same."""

import numpy as np
import pytest

from nwcompile import flow
from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import BackendError, FitError, ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.crosscheck import crosscheck
from tests.made.chips import small_chip

IAF = NeuronSpec(threshold=1.0, strict=False, spikes="multi", reset="subtract", v_min=-1.0)
MULTI = NeuronSpec(threshold=64, strict=False, spikes="multi", reset="subtract", fixed=FixedPoint())
ONE = np.array([[1]], np.int8)


def iaf_net() -> Network:
    """A convolution and a dense layer of integrate-and-fire neurons as sinabs computes them, weights in sixteenths."""
    rng = np.random.default_rng(0)
    conv, dense = ((rng.integers(-8, 12, shape) / 16).astype(np.float32) for shape in ((2, 1, 3, 3), (5, 18)))
    edges = [Conv2d("in", "conv", conv, stride=2, padding=1), Dense("conv", "out", dense)]
    return Network.from_arrays({"conv": IAF, "out": IAF}, edges, {"in": (1, 6, 6)})


def frames() -> np.ndarray:
    rng = np.random.default_rng(1)
    return (rng.random((2, 9, 1, 6, 6)) < 0.4) * rng.integers(1, 4, (2, 9, 1, 6, 6))


def pair_of_cores(on_multi_spike: str, bias: int = 0, spec: NeuronSpec = MULTI, **chip) -> Program:
    """One line -> `a` on core 0 -> `b`, two routers away on core 1; `a` counts what the line or its bias gives it."""
    layers = {"a": spec.replace(bias=64 * bias), "b": MULTI.replace(fires=False)}
    network = Network.from_arrays(layers, [Dense("in", "a", ONE), Dense("a", "b", ONE)], {"in": 1})
    mapping = Mapping.from_arrays({"a": [0], "b": [1]}, [[0, 0, 0], [2, 0, 0]])
    return emit(network, schedule(network), mapping, small_chip(**chip), None, {}, on_multi_spike)


@pytest.mark.parametrize("mode", ["refuse", "graded", "repeat"])
def test_multi_spike_conv_net_of_iaf_neurons_is_exact_on_a_chip_with_shared_weights(mode):
    network, x = iaf_net(), frames()
    wanted = simulate(network, x).spikes
    assert max(s.max() for s in wanted.values()) > 3
    program = flow.compile(network, "tiny", x, Options(on_multi_spike=mode))
    assert program.chip.weights.sharing
    for backend in BACKENDS:
        spikes = simulate(program, x, backend).spikes
        assert all(np.array_equal(spikes[name], wanted[name]) for name in network.layers), backend
    for window in ("aligned", "hardware"):
        assert crosscheck(program, x, window=window).agree


def test_multi_spike_repeat_agrees_in_all_backends():
    result = crosscheck(pair_of_cores("repeat"), np.array([[[3], [0], [2], [1]]], np.int32))
    assert result.agree, str(result)


@pytest.mark.parametrize("backend", BACKENDS)
def test_multi_spike_repeat_multiplies_messages_reads_and_energy(backend):
    x = np.array([[[3], [0], [2], [1]]], np.int32)
    once, each = (simulate(pair_of_cores(mode), x, backend) for mode in ("graded", "repeat"))
    assert each.spikes["a"].ravel().tolist() == [3, 0, 2, 1] == once.spikes["a"].ravel().tolist()
    assert np.array_equal(once.output, each.output)
    for name in ("spikes_out", "messages_out", "messages_in", "deliveries", "synops", "weight_reads"):
        n = 2 if name in ("messages_in", "deliveries", "synops", "weight_reads") else 1  # those of the line as well
        assert (once.counters[name].sum(), each.counters[name].sum()) == (n * 3, n * 6), name
    assert (once.counters["hops"].sum(), each.counters["hops"].sum()) == (2 * 3, 2 * 6)
    assert once.counters["neuron_updates"].sum() == each.counters["neuron_updates"].sum()
    spent = [run.energy_pj["total"] - (run.counters["neuron_visits"].sum() * 51.2) for run in (once, each)]
    updates = once.counters["neuron_updates"].sum() * 21.6
    assert spent[1] - updates == pytest.approx(2 * (spent[0] - updates))


def test_multi_spike_repeat_takes_the_time_of_each_spike_and_message():
    def step(n: int) -> int:
        run = simulate(pair_of_cores("repeat", n), None, "cycle", steps=3)
        assert run.spikes["a"].ravel().tolist() == [n, n, n] and run.link_flits[1].sum() == 4 * n
        return int(run.step_cycles[1])

    assert [step(n + 1) - step(n) for n in (1, 2, 7)] == [35, 35, 35]  # 30 a spike and 5 a message out


def test_multi_spike_graded_messages_are_longer_by_the_payload():
    run = simulate(pair_of_cores("graded", 5, noc__payload_flits=2), None, "cycle", steps=3)
    assert run.link_flits[1].sum() == 4 * 3 and run.counters["messages_out"][1].sum() == 1
    plain = simulate(pair_of_cores("graded", 5), None, "cycle", steps=3)
    assert plain.link_flits[1].sum() == 4
    assert (run.step_cycles >= plain.step_cycles).all() and run.step_cycles.sum() > plain.step_cycles.sum()
    program = pair_of_cores("graded", 5, noc__payload_flits=2)
    assert np.array_equal(link_flits(program, run.activity), run.link_flits)
    assert (floorline(program, run.counters, run.link_flits, 1).bound_cycles <= run.step_cycles).all()


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_multi_spike_count_beyond_is_named_before_a_later_sample_takes_too_long(monkeypatch, n_threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(n_threads)))
    edges = [Dense("in", "a", ONE), Dense("a", "b", ONE)]
    network = Network.from_arrays({"a": (MULTI.replace(threshold=1), 1), "b": (MULTI, 1)}, edges, {"in": 1})
    chip = small_chip(noc__max_step_cycles=2000, neuron__spikes=["binary", "multi"])
    mapping = Mapping.from_arrays({"a": [0], "b": [1]}, [[0, 0, 0], [0, 0, 1]])
    program = emit(network, schedule(network), mapping, chip, None, {}, "repeat")
    x = np.array([[0, 70, 0], [0, 1, 0]])[:, :, None]
    with pytest.raises(ModelError, match=r"layer 'a' fires 4480 spikes at once \(sample 0, step 1, neuron 0\)"):
        simulate(program, x, "cycle")
    with pytest.raises(BackendError, match="step 2 of sample 0 on small: not done after 2000 cycles"):
        simulate(program, x[1:], "cycle")


@pytest.mark.parametrize("backend", BACKENDS)
def test_multi_spike_counts_beyond_are_named_by_sample_step_layer_and_neuron(backend):
    """Whatever core comes first, and whatever layer goes beyond in another sample."""
    spec = MULTI.replace(threshold=1)
    edges = [Dense("in", "a", [[1, 0, 0], [2, 0, 0]]), Dense("in", "b", [[0, 1, 1]])]
    network = Network.from_arrays({"a": (spec, 2), "b": (spec, 1)}, edges, {"in": 3})
    mapping = Mapping.from_arrays(
        {"a": [1, 0], "b": [1]}, [[0, 0, 0], [0, 0, 1]], {"a": [1, 1], "b": [0]}
    )  # core 1 visits b first
    chip = small_chip(neuron__spikes=["binary", "multi"])
    program = emit(network, schedule(network), mapping, chip, None, {}, "repeat")
    x = np.zeros((2, 2, 3), np.int32)
    x[0, 1, 1] = x[1, 0] = 100
    for samples, text in (
        (x, r"'b' .*\(sample 0, step 1, neuron 0\)"),
        (x[1:], r"'a' .*\(sample 0, step 0, neuron 0\)"),
    ):
        with pytest.raises(ModelError, match=text):
            simulate(program, samples, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "mode, bias, text",
    [
        ("graded", 8, "layer 'a' fires 8 spikes at once (sample 0, step 0, neuron 0), but a message of small carries "
         "at most 7 (noc.payload_bits = 3); train it to fire less, raise noc.payload_bits, "
         "or compile with on_multi_spike='repeat'"),
        ("repeat", 4096, "layer 'a' fires 4096 spikes at once (sample 0, step 0, neuron 0), but at most 4095 per step "
         "are sent one by one; train it to fire less, or compile with on_multi_spike='graded'"),
    ],
)  # fmt: skip
def test_multi_spike_count_beyond_a_message_is_refused(backend, mode, bias, text):
    with pytest.raises(ModelError) as error:
        simulate(pair_of_cores(mode, bias, noc__payload_bits=3), None, backend, steps=2)
    assert str(error.value) == text
    run = simulate(pair_of_cores(mode, bias - 1, noc__payload_bits=3), None, backend, steps=2)
    assert run.spikes["a"].max() == bias - 1


@pytest.mark.parametrize(
    "mode, low, high, text",
    [
        ("graded", 0, 8, "has values 0..8, but a message of small carries 0..7 (noc.payload_bits = 3); "
         "scale it down or raise noc.payload_bits"),
        ("graded", -4, 1, "has values -4..1, but a message of small carries -3..3 (noc.payload_bits = 3); "
         "scale it down or raise noc.payload_bits"),
        ("repeat", -1, 2, "has values -1..2, and a negative value cannot be sent as single spikes; compile with "
         "on_multi_spike='graded', or encode it into two lines, one for each sign"),
        ("repeat", 0, 4096, "has values 0..4096, but at most 4095 spikes per step are sent one by one; scale it down, "
         "or compile with on_multi_spike='graded'"),
    ],
)  # fmt: skip
def test_multi_spike_input_beyond_a_message_is_refused(mode, low, high, text):
    with pytest.raises(ModelError) as error:
        simulate(pair_of_cores(mode, noc__payload_bits=3), np.array([[[low], [high]]]), "sequence")
    assert str(error.value) == f"input 'in' {text}"


@pytest.mark.parametrize(
    "kind, mode, chip, text",
    [
        ("multi", "graded", {"noc__payload_bits": 0}, "payload bits  a  must be 1 or more, is 0  compile with "
         "on_multi_spike='repeat' or raise noc.payload_bits: messages of small cannot tell the spikes of a"),
        ("bipolar", "graded", {"noc__payload_bits": 1}, "payload bits  a  must be 2 or more, is 1  raise noc"
         ".payload_bits: messages of small cannot tell the spikes of a"),
        ("bipolar", "repeat", {}, "spikes  a  must be binary, is bipolar  compile with on_multi_spike='graded' (a "
         "message "
         "carries the sign; a negative spike cannot be repeated), use binary spikes in a, or take a chip whose "
         "neuron.spikes has 'bipolar'"),
    ],
)  # fmt: skip
def test_multi_spike_that_the_chip_cannot_send_does_not_fit(kind, mode, chip, text):
    spec = IAF.replace(spikes=kind, v_min=None, strict=True)
    network = Network.from_arrays({"a": (spec, 1)}, [Dense("in", "a", np.ones((1, 1), np.float32))], {"in": 1})
    with pytest.raises(FitError) as error:
        flow.compile(network, small_chip(**chip), None, Options(on_multi_spike=mode))
    assert str(error.value).splitlines()[1] == f"  {text}"


def test_multi_spike_compile_refuses_a_count_that_its_calibration_already_overflows():
    chip = small_chip(neuron__v_min="any", neuron__strict=[True, False], noc__payload_bits=2)
    with pytest.raises(
        ModelError, match=r"layer 'conv' fires \d+ spikes at once .* \(noc.payload_bits = 2\); train it"
    ):
        flow.compile(iaf_net(), chip, frames(), Options(on_multi_spike="graded"))


def test_multi_spike_float_bipolar_layer_is_carried_as_a_sign():
    spec = IAF.replace(spikes="bipolar", v_min=None, strict=True)
    edges = [Dense("in", "a", np.array([[1.5], [-1.5]], np.float32)), Dense("a", "b", np.eye(2, dtype=np.float32))]
    network = Network.from_arrays({"a": (spec, 2), "b": (spec, 2)}, edges, {"in": 1})
    x = np.ones((1, 6, 1), np.int8)
    program = flow.compile(network, small_chip(noc__payload_flits=1), x, Options(on_multi_spike="graded"))
    run = simulate(program, x, "cycle")
    assert run.spikes["a"].min() == -1
    assert np.array_equal(run.spikes["b"], simulate(network, x).spikes["b"]) and crosscheck(program, x).agree


def test_multi_spike_program_file_keeps_how_spikes_are_sent(tmp_path):
    x = frames()
    program = flow.compile(iaf_net(), "tiny", x, Options(on_multi_spike="repeat"))
    program.save(tmp_path / "net.nwc")
    loaded = Program.load(tmp_path / "net.nwc")
    assert loaded.on_multi_spike == "repeat" and loaded.manifest["options"]["on_multi_spike"] == "repeat"
    assert loaded.data == program.data
    for name, multi in program.activity.multi.items():
        assert loaded.activity.multi[name].largest == multi.largest
        assert np.array_equal(loaded.activity.multi[name].by_source, multi.by_source)
    assert np.array_equal(simulate(loaded, x, "cycle").step_cycles, simulate(program, x, "cycle").step_cycles)


def test_multi_spike_activity_is_the_messages_that_are_sent():
    x = np.array([[[3], [0], [2], [1]], [[1], [0], [-5], [0]]], np.int32)
    run = simulate(pair_of_cores("graded"), x, "sequence")
    assert run.activity.counts["in"].ravel().tolist() == [2, 0, 2, 1]
    assert (
        run.activity.multi["in"].by_source.ravel().tolist() == [5, 12, 3, 1] and run.activity.multi["in"].largest == 5
    )
    run = simulate(pair_of_cores("repeat"), x[:1], "sequence")
    assert run.activity.counts["in"].ravel().tolist() == [3, 0, 2, 1]


def test_multi_spike_float_chip_of_another_comparison_says_what_a_spike_subtracts():
    chip = small_chip(neuron__v_min="any")
    program = flow.compile(iaf_net(), chip, frames(), Options(on_multi_spike="graded"))
    assert Chip.load("tiny").neuron.strict == [True, False] and chip.neuron.strict == [True]
    change = program.manifest["quantization"][0]["strict_change"]
    assert change.endswith(", which is also what a spike counts and subtracts")
