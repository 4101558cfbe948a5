"""Relay neurons hold spikes that are delayed longer than a chip can: they are put in after quantization."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.frontend.lava.neurons import sigma_delta, sigma_readout
from nwcompile.passes.fit.relay_delays import count_relays, relay_delays, relay_sizes
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.stages import run as stages

SPEC = nw.NeuronSpec(threshold=1.0, beta=0.5, reset="zero", strict=True)
SPIKES = (np.random.default_rng(1).random((3, 60, 6)) < 0.4).astype(np.float32)


def late(delay: int) -> nw.Network:
    rng = np.random.default_rng(0)
    into_a, into_b = (rng.normal(0.3, 1.0, shape).astype(np.float32) for shape in ((4, 6), (3, 4)))
    edges = [nw.Dense("in", "a", into_a), nw.Dense("a", "b", into_b, delay=delay)]
    return nw.Network.from_arrays({"a": SPEC, "b": SPEC}, edges, {"in": 6})


@pytest.mark.parametrize("options", [{}, {"bits": 4}, {"layer_bits": {"b": 3}}])
def test_spikes_arrive_over_relay_neurons_of_any_widths(options):
    short = {"neuron.delay_max_steps": 3}
    program = nw.compile(late(10), nw.Chip.load("loihi1").replace(short), SPIKES, nw.Options(**options))
    direct = nw.compile(late(10), "loihi1", SPIKES, nw.Options(**options))
    run = nw.simulate(program, SPIKES)
    assert np.array_equal(run.spikes["b"], nw.simulate(direct, SPIKES).spikes["b"]) and run.spikes["b"].any()
    rows = {row["layer"]: row for row in program.manifest["quantization"]}
    assert tuple(rows) == program.network.layers == ("a", "a/relay1", "a/relay2", "b")
    assert rows["a/relay1"]["bits"] == options.get("bits", 8) and rows["a/relay1"]["scale"] == 1.0


def test_delays_without_room_for_relay_neurons_are_refused_before_quantization(monkeypatch):
    monkeypatch.setattr(stages, "quantize_once", None)
    with pytest.raises(nw.FitError) as error:
        nw.compile(late(1_000_000), nw.Chip.load("loihi1").replace({"noc.columns": 1}), SPIKES)
    assert [v.where for v in error.value.violations] == ["network with relay neurons -> loihi1"]


def test_delays_of_a_source_share_their_relay_neurons():
    chip = nw.Chip.load("loihi1").replace({"neuron.delay_max_steps": 3})
    rng = np.random.default_rng(0)
    edges = [nw.Dense("in", "a", rng.normal(0.3, 1.0, (4, 6)).astype(np.float32))]
    edges += [nw.Dense("a", "b", rng.normal(0.3, 1.0, (3, 4)).astype(np.float32), delay=d) for d in (2, 5, 9, 10, 11)]
    network = nw.Network.from_arrays({"a": SPEC, "b": SPEC}, edges, {"in": 6})
    program = nw.compile(network, chip, SPIKES)
    assert program.network.layers == ("a", "a/relay1", "a/relay2", "b")
    (row,) = program.manifest["legalization"]
    assert (row["was"], row["how"]) == ("delays of up to 9 steps", "8 relay neurons, 2 for each of a")
    direct = nw.compile(network, "loihi1", SPIKES)
    for backend in ("reference", "sequence", "cycle"):
        run = nw.simulate(program, SPIKES, backend=backend)
        assert np.array_equal(run.spikes["b"], nw.simulate(direct, SPIKES).spikes["b"]) and run.spikes["b"].any()


def test_relay_neurons_do_not_take_the_name_of_a_layer():
    rng = np.random.default_rng(0)
    sizes = {"a": 4, "a/relay1": 4, "b": 3}
    pairs = (("in", "a", 0), ("a", "a/relay1", 0), ("a/relay1", "b", 0), ("a", "b", 10))
    widths = {**sizes, "in": 6}
    edges = [
        nw.Dense(source, target, rng.normal(0.3, 1.0, (widths[target], widths[source])).astype(np.float32), delay=delay)
        for source, target, delay in pairs
    ]
    network = nw.Network.from_arrays(dict.fromkeys(sizes, SPEC), edges, {"in": 6})
    program = nw.compile(network, nw.Chip.load("loihi1").replace({"neuron.delay_max_steps": 3}), SPIKES)
    assert program.network.layers == ("a", "a/relay1/2", "a/relay2", "a/relay1", "b")
    run, direct = (nw.simulate(p, SPIKES).spikes for p in (program, nw.compile(network, "loihi1", SPIKES)))
    assert all(np.array_equal(run[name], direct[name]) and run[name].any() for name in sizes)


@pytest.mark.parametrize("offset", [0, 3])
def test_relay_sizes_are_those_of_the_relay_layers(offset):
    chip = nw.Chip.load("loihi1").replace({"neuron.delay_max_steps": 3})
    rng = np.random.default_rng(0)
    edges = [nw.Dense("in", "a", rng.normal(0.3, 1.0, (4, 6)).astype(np.float32))]
    edges += [nw.Dense("a", "b", np.ones((4, 4), np.float32), delay=d) for d in (0, 5, 14)]
    edges += [nw.Dense("b", "c", np.ones((4, 4), np.float32), delay=d) for d in (1, 9)]
    edges += [nw.Dense("a", "c", np.ones((4, 4), np.float32), delay=offset)]
    network = normalize(nw.Network.from_arrays(dict.fromkeys("abc", (SPEC, 4)), edges, {"in": 6}))
    timing, options = schedule(network), nw.Options()
    sizes = relay_sizes(network, count_relays(network, timing, chip, options), chip)
    relayed = relay_delays(network, timing, chip, options).network
    n_relays = [sum(name.startswith(f"{source}/") for name in relayed.layers) for source in "ab"]
    assert sorted(sizes) == sorted((4, n) for n in n_relays)


@pytest.mark.parametrize("chip", ["loihi2", "spinnaker2"])
def test_numbers_are_relayed_by_programs(chip):
    rng = np.random.default_rng(0)
    network = nw.Network.from_arrays(
        {"a": (sigma_delta(1), 4), "b": (sigma_readout(), 3)},
        [
            nw.Dense("in", "a", 2 * rng.integers(-50, 51, (4, 6))),
            nw.Dense("a", "b", 2 * rng.integers(-5, 6, (3, 4)), delay=10),
        ],
        {"in": 6},
    )
    x = rng.integers(-40, 41, (2, 30, 6))
    wanted = nw.simulate(network, x)
    short, options = nw.Chip.load(chip).replace({"neuron.delay_max_steps": 3}), nw.Options(on_multi_spike="graded")
    program = nw.compile(network, short, options=options)
    assert program.network.layers == ("a", "a/relay1", "a/relay2", "b")
    for backend in ("reference", "sequence", "cycle"):
        run = nw.simulate(program, x, backend=backend)
        assert run.output.any() and np.array_equal(run.output, wanted.output), backend
        assert np.array_equal(run.spikes["a"], wanted.spikes["a"]), backend


def test_approximate_delay_clamps_delays_at_the_chip_and_measures_the_price():
    chip = nw.Chip.load("loihi1").replace({"neuron.delay_max_steps": 3})
    x = (np.random.default_rng(2).random((20, 60, 6)) < 0.4).astype(np.float32)
    program = nw.compile(late(10), chip, x, nw.Options(approximate="delay"))
    assert program.network.layers == ("a", "b"), "no relay neurons"
    (row,) = program.manifest["legalization"]
    assert (row["layer"], row["was"], row["has"]) == ("b", "a delay of 10 steps from a", "3 steps")
    assert (row["how"], row["label"]) == ("features only", "approximate")
    exact, short = (nw.compile(late(delay), "loihi1", x) for delay in (10, 3))
    runs = [nw.simulate(p, x).spikes["b"] for p in (program, short, exact)]
    assert np.array_equal(runs[0], runs[1])
    held = slice(4, None, 5)
    changed, either = (runs[0] != runs[2])[held], (runs[0] | runs[2])[held] != 0
    assert row["price"]["spikes_changed_percent"] == pytest.approx(100 * changed.sum() / either.sum()) and changed.any()
    assert nw.crosscheck(program, x[:2]).agree


@pytest.mark.parametrize(("longest", "delay"), [(3, 4), (0, 1)])
def test_approximate_delay_keeps_a_delay_that_goes_back_and_fits(longest, delay):
    rng = np.random.default_rng(0)
    edges = [
        nw.Dense("in", "a", rng.normal(0.3, 1.0, (4, 6)).astype(np.float32)),
        nw.Dense("a", "a", rng.normal(0.0, 0.5, (4, 4)).astype(np.float32), delay=delay),
        nw.Dense("a", "b", rng.normal(0.3, 1.0, (3, 4)).astype(np.float32)),
    ]
    network = nw.Network.from_arrays({"a": SPEC, "b": SPEC}, edges, {"in": 6})
    chip = nw.Chip.load("loihi1").replace({"neuron.delay_max_steps": longest})
    programs = [nw.compile(network, chip, SPIKES, nw.Options(approximate=asked)) for asked in ((), "delay")]
    runs = [nw.simulate(p, SPIKES).spikes["b"] for p in programs]
    assert np.array_equal(*runs) and runs[0].any() and "legalization" not in programs[1].manifest


@pytest.mark.parametrize("asked", [(), "all"])
def test_delays_are_exact_unless_delay_is_asked_for(asked):
    chip = nw.Chip.load("loihi1").replace({"neuron.delay_max_steps": 3})
    program = nw.compile(late(10), chip, SPIKES, nw.Options(approximate=asked))
    assert [row["label"] for row in program.manifest["legalization"]] == ["exact"]
    assert program.network.layers == ("a", "a/relay1", "a/relay2", "b")


def test_approximate_delay_takes_networks_without_room_for_relay_neurons():
    chip = nw.Chip.load("loihi1").replace({"noc.columns": 1})
    with pytest.raises(nw.FitError, match=r"approximate='delay' clamps them at 62 steps, at a measured price"):
        nw.compile(late(1_000_000), chip, SPIKES)
    program = nw.compile(late(1_000_000), chip, SPIKES, nw.Options(approximate="delay"))
    assert [c.aligned_delay for c in program.network.connections] == [0, 62]
