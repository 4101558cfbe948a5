"""Residual, recurrent and delayed networks on a pipelined chip spike exactly like the network itself."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError, ModelError
from nwcompile.sim import BACKENDS
from nwcompile.sim.reference.run import ProgramMachine
from nwcompile.sim.sequence import tables
from tests.made.nets import integers

LIF = nw.NeuronSpec(threshold=1.0, reset="zero", beta=0.75)
FIXED = nw.NeuronSpec(threshold=640, fixed=nw.FixedPoint(), decay_v=1024)
WAYS = (nw.Options(placer="row-major"), nw.Options(placer="row-major", execution="phased"))


def dense(source: str, target: str, seed: int, n: int = 8, fixed: bool = False, **more) -> nw.Dense:
    weight = integers((n, n), seed, -6, 9)
    return nw.Dense(source, target, weight if fixed else weight.astype(np.float32) / 8, **more)


def spikes_in(shape=(8,), n_steps: int = 20) -> np.ndarray:
    return (np.random.default_rng(7).random((3, n_steps, *shape)) < 0.4).astype(np.int8)


def assert_exact(network: nw.Network, x: np.ndarray, chip="tiny", options: nw.Options = WAYS[0]) -> nw.Program:
    """Assert that a program's aligned spikes equal those of its quantized network, in every layer and backend."""
    stages = {}
    program = nw.compile(network, chip, x, options, on_stage=lambda name, value, _: stages.update({name: value}))
    fixed = stages["quantize"].network
    wanted = nw.simulate(fixed, x).spikes
    assert all(s.any() for s in wanted.values())
    for backend in BACKENDS:
        spikes = nw.simulate(program, x, backend).spikes
        for name in network.layers:
            assert np.array_equal(spikes[name], wanted[name]), (backend, name)
    assert nw.crosscheck(program, x, window="hardware").agree
    return program


@pytest.mark.parametrize("options", WAYS, ids=lambda o: o.execution)
@pytest.mark.parametrize("n_skipped", [1, 2, 3])
@pytest.mark.parametrize("fixed", [False, True])
def test_skip_around_layers_arrives_with_the_path_it_skips(n_skipped, options, fixed):
    names = [f"l{i}" for i in range(n_skipped + 2)]
    edges = [dense(a, b, i, fixed=fixed) for i, (a, b) in enumerate(zip(["in", *names], names, strict=False))]
    edges.append(dense(names[0], names[-1], 9, fixed=fixed))
    spec = FIXED if fixed else LIF
    network = nw.Network.from_arrays(dict.fromkeys(names, (spec, 8)), edges, {"in": 8})
    program = assert_exact(network, spikes_in(), options=options)
    if options.execution == "pipelined":
        assert program.schedule.delay[-1] == n_skipped + 1


def test_residual_blocks_that_add_spikes_in_a_junction_are_exact():
    """Two blocks have two convolutions each; the sum of a block's input and output feeds the next block."""

    def conv(source: str, target: str, seed: int, n_in: int = 2) -> nw.Conv2d:
        return nw.Conv2d(source, target, integers((2, n_in, 3, 3), seed, -3, 5).astype(np.float32) / 8, padding=1)

    def same(source: str, target: str) -> nw.Scale:
        return nw.Scale(source, target)

    shape = (2, 4, 3)
    layers = dict.fromkeys(("stem", "a1", "a2", "b1", "b2"), (LIF, shape))
    layers |= {"add_a": (None, shape), "add_b": (None, shape), "out": (LIF, 3)}
    edges = [
        conv("in", "stem", 1, 1), conv("stem", "a1", 2), conv("a1", "a2", 3), same("a2", "add_a"),
        same("stem", "add_a"), conv("add_a", "b1", 4), conv("b1", "b2", 5), same("b2", "add_b"), same("add_a", "add_b"),
        nw.Dense("add_b", "out", integers((3, 24), 6, -4, 6).astype(np.float32) / 8),
    ]  # fmt: skip
    network = nw.Network.from_arrays(layers, edges, {"in": (1, 4, 3)})
    chip = nw.Chip.load("tiny").replace({"core.synapse_bits": 1 << 20, "core.max_in_axons": 1024,
                                         "core.max_out_axons": 1024})  # fmt: skip
    for options in WAYS:
        program = assert_exact(network, spikes_in((1, 4, 3)), chip, options)
    assert program.schedule.period == 7


@pytest.mark.parametrize("delay", [1, 2, 5])
def test_recurrence_of_a_layer_onto_itself_is_exact_in_the_pipeline(delay):
    edges = [dense("in", "a", 1), dense("a", "a", 2, delay=delay), dense("a", "b", 3), dense("b", "b", 4)]
    network = nw.Network.from_arrays({"a": (LIF, 8), "b": (LIF, 8)}, edges, {"in": 8})
    for options in WAYS:
        assert_exact(network, spikes_in(), options=options)


def test_recurrence_through_a_junction_is_exact_and_still_an_output():
    edges = [dense("in", "a", 1), dense("a", "sum", 2), dense("sum", "a", 3, delay=1), dense("in", "b", 4)]
    network = nw.Network.from_arrays({"a": (LIF, 8), "sum": (None, 8), "b": (LIF, 8)}, edges, {"in": 8})
    program = assert_exact(network, spikes_in())
    assert network.outputs == program.network.outputs == ("a", "b")


@pytest.mark.parametrize("forward, late", [(3, 0), (0, 4), (7, 2)])
def test_delays_of_connections_are_kept_beside_those_of_the_pipeline(forward, late):
    edges = [dense("in", "a", 1, delay=late), dense("a", "b", 2, delay=forward), dense("b", "c", 3), dense("a", "c", 4)]
    network = nw.Network.from_arrays(dict.fromkeys("abc", (LIF, 8)), edges, {"in": 8})
    for options in WAYS:
        assert_exact(network, spikes_in(), options=options)


def feedback(delay: int, fixed: bool = False) -> nw.Network:
    """A network a -> b -> c with a connection back from c to a."""
    edges = [dense("in", "a", 1, fixed=fixed), dense("a", "b", 2, fixed=fixed), dense("b", "c", 3, fixed=fixed),
             dense("c", "a", 4, fixed=fixed, delay=delay)]  # fmt: skip
    return nw.Network.from_arrays(dict.fromkeys("abc", (FIXED if fixed else LIF, 8)), edges, {"in": 8})


@pytest.mark.parametrize("fixed", [False, True])
def test_feedback_over_layers_is_refused_by_the_pipeline_and_exact_in_phases(fixed):
    with pytest.raises(ModelError) as error:
        nw.compile(feedback(1, fixed), "tiny", spikes_in())
    assert str(error.value) == (
        "cycle 'a' -> 'b' -> 'c' -> 'a': its delays sum to 1 of the 3 steps that its 3 connections take in a pipeline; "
        "give one of them 2 more steps of delay, or compile with execution='phased'"
    )
    assert_exact(feedback(1, fixed), spikes_in(), options=WAYS[1])
    assert_exact(feedback(3, fixed), spikes_in())


def test_skip_longer_than_the_chips_delays_takes_relay_neurons_or_phases():
    names = [f"l{i}" for i in range(5)]
    edges = [dense(a, b, i) for i, (a, b) in enumerate(zip(["in", *names], names, strict=False))]
    network = nw.Network.from_arrays(dict.fromkeys(names, (LIF, 8)), [*edges, dense("l0", "l4", 9)], {"in": 8})
    chip = nw.Chip.load("tiny").replace({"neuron.delay_max_steps": 2})
    relayed = assert_exact(network, spikes_in(), chip)
    assert relayed.network.layers == ("l0", "l0/relay1", "l1", "l2", "l3", "l4")
    for program in (
        assert_exact(network, spikes_in(), chip, WAYS[1]),
        assert_exact(network, spikes_in(), chip.replace({"neuron.delay_max_steps": 3})),
    ):
        assert program.network.layers == network.layers


@pytest.mark.parametrize(
    ("options", "most", "fixed"),
    [
        pytest.param(options, most, fixed, marks=pytest.mark.long if (i + most + fixed) % 2 else ())
        for i, options in enumerate(WAYS)
        for most in (0, 1, 2)
        for fixed in (False, True)
    ],
)  # `make test` has every pair of values
def test_delays_longer_than_the_chips_are_relayed_with_equal_spikes(options, most, fixed):
    """Skips, delayed recurrences and input delays are compared with a chip that supports these delays."""
    edges = [
        dense("in", "a", 1, fixed=fixed), dense("a", "a", 2, fixed=fixed, delay=4), dense("a", "b", 3, fixed=fixed),
        dense("b", "c", 4, fixed=fixed, delay=3), dense("c", "d", 5, fixed=fixed), dense("a", "d", 6, fixed=fixed),
        dense("a", "c", 7, fixed=fixed, delay=4), dense("in", "d", 8, fixed=fixed, delay=2),
    ]  # fmt: skip
    network = nw.Network.from_arrays(dict.fromkeys("abcd", (FIXED if fixed else LIF, 8)), edges, {"in": 8})
    chip = nw.Chip.load("tiny").replace({"core.max_out_axons": 1024, "neuron.delay_max_steps": most,
                                         "neuron.spikes": ["binary"]})  # fmt: skip
    x = spikes_in()
    program = assert_exact(network, x, chip, options)
    free = nw.compile(network, chip.replace({"neuron.delay_max_steps": 15}), x, options)
    assert free.network.layers == network.layers and len(program.network.layers) > 4
    wanted = nw.simulate(free, x).spikes
    assert all(np.array_equal(nw.simulate(program, x).spikes[name], wanted[name]) for name in "abcd")
    assert program.schedule.depth == free.schedule.depth
    rows = {row["layer"]: row for row in program.manifest["legalization"]}
    n_relays = sum(program.network.node(name).n_neurons for name in program.network.layers if "/relay" in name)
    assert sum(int(row["how"].split()[0]) for row in rows.values()) == n_relays
    assert {row["label"] for row in rows.values()} == {"exact"}


def test_delays_beyond_any_chip_are_refused_at_once():
    edges = [dense("in", "a", 1, delay=10**9), dense("a", "a", 2, delay=1)]
    network = nw.Network.from_arrays({"a": (LIF, 8)}, edges, {"in": 8})
    for execution in ("pipelined", "phased"):
        with pytest.raises(ModelError) as error:
            nw.compile(network, "loihi1", spikes_in(), nw.Options(execution=execution))
        assert str(error.value) == (
            "connection 'in' -> 'a': a delay of 1000000000 steps takes 1000000000 micro-steps of the chip, of at most "
            "1048576; shorten it, or check the time step"
        )


def test_delays_beyond_a_run_take_no_memory_and_nothing_arrives():
    late, x = 10**9, spikes_in()
    edges = [dense("in", "a", 1), dense("a", "a", 2, delay=1), dense("in", "b", 3), dense("a", "b", 4)]
    delayed = [dense("in", "a", 5, delay=late), dense("b", "b", 6, delay=late), dense("a", "b", 7, delay=late)]
    without, network = (
        nw.Network.from_arrays(dict.fromkeys("ab", (LIF, 8)), list(all_edges), {"in": 8})
        for all_edges in (edges, [*edges, *delayed])
    )
    for backend in ("reference", "sequence"):
        runs = [nw.simulate(n, x, backend=backend, record="all") for n in (without, network)]
        for name in "ab":
            assert np.array_equal(runs[0].spikes[name], runs[1].spikes[name]) and runs[0].spikes[name].any()
            assert np.array_equal(runs[0].states[name]["v"], runs[1].states[name]["v"])
    session, chunks = nw.Session(network), []
    for part in (x[0, :1], x[0, 1:4], x[0, 4:]):
        chunks.append(session.feed(part).spikes["b"])
    assert np.array_equal(np.concatenate([c.reshape(-1, 8) for c in chunks]), runs[0].spikes["b"][0])


def test_a_session_hears_a_delay_longer_than_its_chunks():
    x = spikes_in()
    edges = [dense("in", "a", 1), dense("in", "a", 5, delay=4), dense("a", "a", 2, delay=3), dense("a", "b", 3)]
    network = nw.Network.from_arrays(dict.fromkeys("ab", (LIF, 8)), edges, {"in": 8})
    wanted = nw.simulate(network, x).spikes["b"][0]
    for size in (1, 2, 3, len(x[0])):
        session = nw.Session(network)
        parts = [session.feed(x[0, at : at + size]).spikes["b"] for at in range(0, len(x[0]), size)]
        assert np.array_equal(np.concatenate([part.reshape(-1, 8) for part in parts]), wanted) and wanted.any()


def test_programs_keep_no_more_sums_than_a_run_has_steps(monkeypatch):
    edges = [dense("in", "a", 1), dense("a", "b", 2), dense("b", "b", 3, delay=1000), dense("in", "b", 4, delay=1000)]
    network = nw.Network.from_arrays(dict.fromkeys("ab", (LIF, 8)), edges, {"in": 8})
    chip = nw.Chip.load("tiny").replace({"neuron.delay_max_steps": 2000})
    x, made = spikes_in(), []
    program = nw.compile(network, chip, x)
    assert max(program.schedule.delay) >= 1000
    drive = tables.empty_drive
    monkeypatch.setattr(tables, "empty_drive", lambda n_slots, n: made.append(n_slots) or drive(n_slots, n))
    for window in ("aligned", "hardware"):
        assert nw.crosscheck(program, x, window=window).agree
        n_steps = 20 - program.schedule.depth * (window == "aligned")
        assert ProgramMachine(program, False, window, n_steps).n_slots == 21
    longest = x.shape[1] + program.schedule.depth
    assert made and max(made) <= longest + 1


@pytest.mark.parametrize("steps, cores", [(160, 80), (1_000_000, 500_000)])
def test_relay_neurons_beyond_the_chip_are_refused_before_any_is_made(steps, cores):
    edges = [dense("in", "a", 1), dense("a", "b", 2), dense("a", "b", 3, delay=steps)]
    network = nw.Network.from_arrays(dict.fromkeys("ab", (LIF, 8)), edges, {"in": 8})
    chip = nw.Chip.load("tiny").replace({"neuron.delay_max_steps": 0, "core.max_neurons": 16})
    stages = []
    with pytest.raises(FitError) as error:
        nw.compile(network, chip, spikes_in(), on_stage=lambda name, value, seconds: stages.append(name))
    assert str(error.value).splitlines()[1] == (
        f"  cores  network with relay neurons -> tiny  {cores + 1} of 4  {8 * steps} relay neurons in {steps} layers "
        "hold spikes that are delayed: shorten the delays (approximate='delay' clamps them at 0 steps, at a measured "
        "price), or raise neuron.delay_max_steps or noc.columns"
    )
    assert "quantize" not in stages


def test_relay_neurons_that_fill_the_chip_to_its_last_neuron_are_made():
    edges = [dense("in", "a", 1), dense("a", "b", 2), dense("a", "b", 3, delay=6)]
    network = nw.Network.from_arrays(dict.fromkeys("ab", (LIF, 8)), edges, {"in": 8})
    chip = nw.Chip.load("tiny").replace({"neuron.delay_max_steps": 0, "core.max_neurons": 16})
    assert nw.compile(network, chip, spikes_in()).mapping.n_cores == chip.n_cores == 4  # (2 + 6 layers) x 8 / 16


@pytest.mark.parametrize(
    "spec, edge, text",
    [
        (LIF.replace(spikes="multi", reset="subtract"), dense("a", "b", 2, delay=4), "a -> b  4 of 1"),
        (LIF, dense("b", "b", 2, delay=4), "b -> b  3 of 1"),
    ],
)
def test_delays_that_relay_neurons_cannot_meet_are_refused(spec, edge, text):
    edges = [dense("in", "a", 1), dense("a", "b", 3), edge]
    network = nw.Network.from_arrays(dict.fromkeys("ab", (spec, 8)), edges, {"in": 8})
    chip = nw.Chip.load("tiny").replace({"neuron.delay_max_steps": 1})
    with pytest.raises(FitError) as error:
        nw.compile(network, chip, spikes_in(), nw.Options(on_multi_spike="repeat"))
    assert str(error.value).splitlines()[1:] == [
        f"  delay steps  {text}  shorten the delay or raise neuron.delay_max_steps"
    ]
