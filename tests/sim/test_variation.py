"""Devices: each is a program that all backends run alike, and differs from the ideal one as it was defined."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile.errors import OptionError
from nwcompile.ir.chip_sections import Variation
from nwcompile.ir.network import Network, Node
from nwcompile.sim.crosscheck import crosscheck
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.variation import KINDS, Devices, extra_bits, varied_decay
from tests.long import n_drawn
from tests.made.nets import conv_net, dense_net
from tests.made.neuron_programs import cuba
from tests.made.random_programs import OF_PROGRAMS, inputs, programs
from tests.made.spikes import spikes
from tests.made.xylo import draw

SHARES = st.sampled_from([None, 0.0, 0.1, 0.5])
LEVELS = st.sampled_from([None, 2, 5, 129])
VARIATIONS = st.builds(Variation, *[st.sampled_from([None, 0.0, 0.1, 0.5])] * 3, SHARES, SHARES, LEVELS)
EXAMPLES = settings(OF_PROGRAMS, max_examples=n_drawn(30))
SPEC = nw.NeuronSpec(threshold=640, reset="subtract", decay_v=500, decay_u=2000, bias=40, bias_u=2,
                     fixed=nw.FixedPoint())  # fmt: skip
X = spikes(3, 12, 6, seed=1, rate=0.4)


def program(network=None, **chip):
    network = dense_net(6, 40, 30, spec=SPEC) if network is None else network
    return nw.compile(network, nw.Chip.load("tiny").replace(chip))


def device(index=0, of=None, seed=0, **variation):
    return Devices(of or program(), Variation(**variation), seed).device(index)


def has_shifts(of):
    """Whether decays of any layer are shifts, which do not vary."""
    return any(of.network.node(name).neuron.fixed.shifts for name in of.network.layers)


def states(of, x):
    run = nw.simulate(of, x, "reference", record="all")
    return run.spikes, {name: run.states[name] for name in of.network.layers}


@EXAMPLES
@given(data=st.data())
def test_device_gives_equal_bits_in_all_backends(data):
    drawn = data.draw(programs())
    variation = data.draw(VARIATIONS)
    variation = replace(variation, leak=None) if has_shifts(drawn) else variation
    of = Devices(drawn, variation, data.draw(st.integers(0, 9)))
    found = of.device(data.draw(st.integers(0, 5)))
    found.verify()
    result = crosscheck(found, data.draw(inputs(found)))
    assert result.agree, str(result)


@EXAMPLES
@given(data=st.data())
def test_device_without_deviation_computes_what_the_program_does(data):
    """Convolutions unrolled, shifts moved into the weights and decays in 16 bits change no state and no counter."""
    ideal = data.draw(programs())
    layers = [ideal.network.node(name) for name in ideal.network.layers]
    leak = None if has_shifts(ideal) else 1e-12
    tiny = Variation(weight=1e-12 if all(n.neuron.fixed.shift_bits == 6 for n in layers) else None, leak=leak)
    x = data.draw(inputs(ideal))
    wanted, run = (nw.simulate(of, x, "reference", record="all") for of in (ideal, Devices(ideal, tiny).device(0)))
    for name in ideal.network.layers:
        assert np.array_equal(run.spikes[name], wanted.spikes[name]), name
        assert all(np.array_equal(run.states[name][s], wanted.states[name][s]) for s in "uv"), name
    assert all(np.array_equal(run.counters[name], wanted.counters[name]) for name in wanted.counters)


def test_device_state_grows_where_the_shift_gives_weights_no_resolution():
    spec = SPEC.replace(threshold=7, decay_v=0, decay_u=4096, bias=1, bias_u=0, fixed=nw.FixedPoint(16, 12, 0))
    spec = spec.replace(reset="value", reset_value=3, v_min=-2)
    chip = {"state.bits": 16, "state.shift_bits": 0, "neuron.v_min": "any"}
    ideal = program(dense_net(6, 40, 30, spec=spec), **chip)
    found = device(of=ideal, weight=1e-12)
    assert found.network.node("fc1").neuron.fixed == nw.FixedPoint(22, 16 - 4, 0)
    (a, u), (b, v) = states(ideal, X), states(found, X)
    assert a["fc2"].any()
    for name in ("fc1", "fc2"):
        assert np.array_equal(a[name], b[name])
        assert np.array_equal(u[name]["v"] << 6, v[name]["v"])


def test_device_weights_and_state_stay_within_what_backends_hold():
    wide = np.full((2, 3), 1 << 15, np.int32)
    fixed = nw.FixedPoint(31, 12, 4)
    network = nw.Network.from_arrays({"a": (nw.NeuronSpec(1, fixed=fixed), 2)}, [nw.Dense("in", "a", wide)], {"in": 3})
    assert extra_bits(network, "a") == (5, 1)
    wider = nw.Network.from_arrays(
        {"a": (nw.NeuronSpec(1, fixed=fixed), 2)}, [nw.Dense("in", "a", wide << 9)], {"in": 3}
    )
    assert extra_bits(wider, "a") == (2, 0)


def test_device_weights_deviate_by_their_part_even_where_they_are_1():
    network = dense_net(300, 200)
    (c,) = network.connections
    ones = Network(network.inputs, network.nodes, (c.replace(weight=np.where(c.weight < 0, -1, 1).astype(np.int8)),))
    ideal = program(ones, **{"core.max_in_axons": 300, "core.synapse_bits": 1 << 22, "core.max_neurons": 200})
    (varied,) = device(of=ideal, weight=0.1).network.connections
    factor = varied.weight / (64 * ideal.network.connections[0].weight.astype(float))
    assert factor.mean() == pytest.approx(1, abs=2e-3)
    assert factor.std() == pytest.approx(0.1, rel=0.02)


def test_device_kernel_of_a_chip_that_shares_has_one_weight_for_all_places_of_a_core():
    network = conv_net((1, 8, 8), 2, padding=1)
    cores = np.zeros((2, 8, 8), np.int64)
    cores[:, 4:] = 1
    mapping = nw.Mapping.from_arrays({"conv": cores.reshape(-1), "out": [1] * 3}, [[0, 0, 0], [1, 0, 0]])
    shared, own = (
        nw.compile(
            network, nw.Chip.load("tiny").replace({"weights.sharing": sharing, "core.max_neurons": 67}), mapping=mapping
        )
        for sharing in (True, False)
    )
    kernel = np.asarray(shared.network.connections[0].weight)
    assert kernel[1, 0, 1, 1] != 0
    of_second_channel = []
    for ideal in (shared, own):
        c = device(of=ideal, weight=0.3).network.connections[0]
        of_second_channel.append(c.weight[(c.pre == c.post - 64) & (c.post >= 64)].reshape(8, 8))  # the kernel's center
    first, second = of_second_channel[0][:4], of_second_channel[0][4:]
    assert len(np.unique(first)) == len(np.unique(second)) == 1 and first[0, 0] != second[0, 0]
    assert len(np.unique(of_second_channel[1])) > 32


@pytest.mark.parametrize(
    "varies, is_kernel", [({"threshold": 0.1, "leak": 0.1}, True), ({"weight": 0.1}, False), ({"dead": 0.5}, False)]
)
def test_device_keeps_convolutions_whose_weights_do_not_differ(varies, is_kernel):
    c = device(of=program(conv_net((1, 8, 8), 2, padding=1)), **varies).network.connections[0]
    assert isinstance(c, nw.Conv2d if is_kernel else nw.Sparse)


def test_device_that_does_not_fit_in_memory_is_refused_before(monkeypatch):
    monkeypatch.setattr("nwcompile.sim.variation.memory_bytes", lambda: 1 << 12)
    of = program(dense_net(6, 40, spec=SPEC))
    device(of=of, threshold=0.1)
    with pytest.raises(nw.OptionError) as error:
        device(of=of, weight=0.1)
    assert str(error.value) == (
        "devices whose weights differ are lists of their 240 synapses, which take about 0.0 GiB, and this machine has "
        "0.0: vary threshold and leak alone (convolutions stay kernels then), or a smaller network"
    )


def test_device_thresholds_and_leaks_deviate_for_each_neuron():
    ideal = program(dense_net(6, 20_000, spec=SPEC), **{"core.max_neurons": 20_000, "core.synapse_bits": 1 << 24})
    spec = device(of=ideal, threshold=0.1, leak=0.2).network.node("fc1").neuron
    assert spec.threshold.std() / 640 == pytest.approx(0.1, rel=0.02)
    assert spec.threshold.mean() / 640 == pytest.approx(1, abs=3e-3)
    for name, designed in (("decay_v", 500), ("decay_u", 2000)):
        rate = np.log(1 - getattr(spec, name) / (1 << 16)) / np.log(1 - designed / (1 << 12))
        assert rate.std() == pytest.approx(0.2, rel=0.02)
        assert rate.mean() == pytest.approx(1, abs=6e-3)
    assert abs(np.corrcoef(spec.decay_v, spec.decay_u)[0, 1]) < 0.03


def test_device_leak_keeps_all_or_nothing_where_the_program_does():
    factor = np.array([0.0, 0.7, 1.0, 1.9])
    assert varied_decay(np.full(4, 4096), 12, factor).tolist() == [1 << 16] * 4
    assert varied_decay(np.zeros(4, np.int64), 12, factor).tolist() == [0] * 4
    assert varied_decay(np.full(4, 1024), 12, factor).tolist() == [0, 11954, 16384, 27596]


def test_device_threshold_above_0_stays_above_0():
    spec = (
        device(of=program(dense_net(6, 40, spec=SPEC.replace(threshold=1))), threshold=1.0).network.node("fc1").neuron
    )
    assert spec.threshold.min() == 1 and spec.threshold.max() > 1


def test_device_weights_lie_on_the_levels_of_their_cells():
    ideal = program()
    for before, after in zip(ideal.network.connections, device(of=ideal, levels=4).network.connections, strict=True):
        unit = np.abs(np.asarray(before.weight, np.int64)).max() / 3
        assert {*np.unique(np.rint(after.weight / 64 / unit))} == {-3, -2, -1, 0, 1, 2, 3}
        assert np.abs(after.weight / 64 - unit * np.rint(before.weight / unit)).max() <= 1 / 128


def test_device_of_enough_levels_computes_what_the_program_does():
    ideal = program(conv_net())
    largest = max(int(np.abs(np.asarray(c.weight, np.int64)).max()) for c in ideal.network.connections)
    x = spikes(3, 12, 2, 6, 5, seed=1, rate=0.4)
    wanted, few, enough = (states(of, x) for of in (ideal, *(device(of=ideal, levels=n) for n in (3, largest + 1))))
    for name in ideal.network.layers:
        assert np.array_equal(enough[0][name], wanted[0][name]) and wanted[0][name].any()
        assert all(np.array_equal(enough[1][name][s], wanted[1][name][s]) for s in "uv")
    assert any((few[0][name] != wanted[0][name]).any() for name in ideal.network.layers)
    assert crosscheck(device(of=ideal, levels=3, weight=0.2), x).agree


def test_device_cells_drift_by_the_power_law_of_the_chip():
    chip = {"core.max_in_axons": 300, "core.synapse_bits": 1 << 22, "core.max_neurons": 200,
            "crossbar.drift_exponent": 0.05, "crossbar.drift_spread": 0.01, "crossbar.drift_start_s": 20}  # fmt: skip
    network = dense_net(300, 200)
    ideal, wide = (program(network, **chip | {"crossbar.drift_spread": spread}) for spread in (0.01, 1.0))
    before = ideal.network.connections[0].weight.astype(float)
    has = np.abs(before) == 5  # the largest, which rounding moves least
    for seconds in (2e3, 2e7):
        after = device(of=ideal, drift=seconds).network.connections[0].weight / 64
        nu = -np.log(after[has] / before[has]) / np.log(seconds / 20)
        assert nu.mean() == pytest.approx(0.05, abs=3e-4) and nu.std() == pytest.approx(0.01, rel=0.03)
    for seconds in (5.0, 20.0):
        assert np.array_equal(device(of=ideal, drift=seconds).network.connections[0].weight, before * 64)
    assert np.abs(device(of=wide, drift=2e3).network.connections[0].weight).max() == 5 * 64  # no nu is below 0


def test_drift_needs_a_chip_that_says_how_its_cells_drift():
    for make in (lambda: device(drift=60.0), lambda: nw.robustness(program(), X, np.arange(3), drift=60)):
        with pytest.raises(OptionError) as error:
            make()
        assert str(error.value) == (
            "drift=60: tiny: the chip does not say how its memory cells drift; set crossbar.drift_exponent, "
            "crossbar.drift_spread and crossbar.drift_start_s (on the command line --set)"
        )


def test_device_stuck_synapses_are_0_and_still_read():
    ideal = program()
    found = device(of=ideal, stuck=0.25)
    before, after = (np.concatenate([np.ravel(c.weight) for c in p.network.connections]) for p in (ideal, found))
    was = before != 0
    assert np.mean(after[was] == 0) == pytest.approx(0.25, abs=0.04)
    assert np.array_equal(after[was & (after != 0)], before[was & (after != 0)])
    first = spikes(3, 1, 6, seed=1, rate=0.4)
    runs = [nw.simulate(p, first, "cycle") for p in (ideal, found)]
    assert runs[0].counters["synops"][0].sum() == runs[1].counters["synops"][0].sum() > 0


def test_device_dead_neurons_never_fire_and_dead_readouts_stay_at_0():
    network = dense_net(6, 40, 30, spec=SPEC.replace(threshold=0, bias=6000))
    readout = network.nodes["fc2"].neuron.replace(fires=False)
    nodes = {**network.nodes, "fc2": Node("fc2", (30,), readout)}
    ideal = program(Network(network.inputs, nodes, network.connections))
    run = nw.simulate(device(of=ideal, dead=0.3), X, "reference", record="all")
    silent = ~run.spikes["fc1"].any((0, 1))
    assert 5 <= silent.sum() <= 20
    assert run.spikes["fc1"][:, :, ~silent].all()  # by their bias, in every step
    still = ~run.states["fc2"]["v"].any((0, 1))
    assert 3 <= still.sum() <= 16
    assert not nw.simulate(device(of=ideal, dead=1.0), X).output.any()


def test_device_follows_from_seed_and_index_alone_and_each_kind_has_its_own_numbers():
    def weights(found):
        return np.concatenate([np.ravel(c.weight) for c in found.network.connections])

    first = weights(device(3, weight=0.1))
    assert np.array_equal(first, weights(device(3, weight=0.1, threshold=0.2, leak=0.3)))
    for other in (device(4, weight=0.1), device(3, seed=1, weight=0.1)):
        assert np.mean(weights(other) == first) < 0.5
    dead = [
        device(2, dead=0.3, **more).network.node("fc1").neuron.threshold > 1 << 22 for more in ({}, {"weight": 0.1})
    ]
    assert dead[0].any() and np.array_equal(*dead)
    stuck = [weights(device(2, stuck=0.3, **more)) == 0 for more in ({}, {"weight": 0.01})]
    assert np.array_equal(*stuck)


def test_device_draws_every_layer_and_every_quantity_apart():
    found = device(of=program(dense_net(40, 40, 40, spec=SPEC)), weight=0.2, threshold=0.2, leak=0.2, stuck=0.5)
    first, second = (c.weight != 0 for c in found.network.connections)
    specs = [found.network.node(name).neuron for name in ("fc1", "fc2")]
    drawn = [specs[0].threshold, specs[1].threshold, specs[0].decay_v, specs[1].decay_v, specs[0].decay_u]
    correlation = np.corrcoef(drawn) - np.eye(5)
    assert np.abs(correlation).max() < 0.6  # 1 if drawn from one stream; chance leaves 0.16
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.2


def test_device_is_a_program_that_can_be_saved(tmp_path):
    found = device(weight=0.2, threshold=0.1, leak=0.1, stuck=0.1, dead=0.1)
    found.save(tmp_path / "device.nwc")
    again = nw.Program.load(tmp_path / "device.nwc")
    assert again.network.hash == found.network.hash
    assert np.array_equal(nw.simulate(again, X).output, nw.simulate(found, X).output)


def test_decays_by_shift_do_not_vary():
    ideal = draw(np.random.default_rng(0), 1, 20).program
    with pytest.raises(OptionError) as error:
        device(of=ideal, leak=0.1)
    assert str(error.value) == (
        "leak=0.1: neurons of xylo_audio2 decay by whole shifts, which are alike on all devices; vary weight, "
        "threshold, stuck or dead"
    )


def test_device_before_the_first_is_refused():
    with pytest.raises(OptionError, match="^index=-1 of a device must be 0 or more$"):
        device(-1, weight=0.1)


def test_device_jitter_moves_each_spike_by_its_own_whole_steps():
    network = dense_net(600, 4)
    of = Devices(program(network, **{"core.max_in_axons": 600, "core.synapse_bits": 1 << 22}), Variation(jitter=2.0))
    x = np.zeros((2, 41, 600), np.int32)
    x[:, 20] = 1
    inputs = prepare_inputs(of.program.network, x, None)[0]
    moved, other = (next(iter(of.jitter_spikes(inputs, i).values())) for i in (0, 1))
    assert (moved.sum(1) == 1).all() and (moved != other).any() and (inputs["in"] == x).all()
    steps = moved.argmax(1) - 20
    assert abs(steps.mean()) < 0.2 and steps.std() == pytest.approx(2.02, abs=0.15)
    x[:, 21] = 1
    late = of.jitter_spikes(prepare_inputs(of.program.network, x, None)[0], 0)["in"]
    assert late.max() == 1 and 1 < late.sum(1).mean() < 2  # two that meet are one


def test_device_jitter_moves_lines_that_repeat_others_with_them():
    of = program(dense_net(6, 40, 30, spec=SPEC), **{"weights.source_sign": True})
    of = Devices(of, Variation(jitter=1.0))
    found = of.jitter_spikes(prepare_inputs(of.program.network, X, None)[0], 0)
    lines = of.program.network.inputs["in/copy2"].repeats[1]
    assert (found["in/copy2"] == found["in"][..., lines]).all() and (found["in"] != X).any()
    y = np.arange(len(X))
    accuracies = {nw.robustness(of.program, X, y, 2, jitter=1.0, backend=b).accuracies for b in ("reference", "cycle")}
    assert len(accuracies) == 1


def test_device_jitter_alone_leaves_the_program_and_takes_neuron_programs():
    of = program(dense_net(6, 40, 30, spec=SPEC))
    assert Devices(of, Variation(jitter=1.0)).device(0) is of
    edge = nw.Dense("in", "a", np.random.default_rng(0).integers(-90, 128, (8, 6)).astype(np.int8))
    of = nw.compile(nw.Network.from_arrays({"a": (cuba(640, 500, 300), (8,))}, [edge], {"in": (6,)}), "loihi2", X)
    found = nw.robustness(of, X, np.arange(len(X)), 2, jitter=1.0)
    assert len(found.accuracies) == 2


def test_device_draws_of_a_kind_stay_as_they_were():
    """A kind that is added must not change the devices of a seed that are published."""
    assert KINDS[:6] == ("weight", "stuck", "threshold", "leak", "dead", "jitter")
