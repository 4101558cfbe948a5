"""Fan-in beyond a core's, split: the spikes of the same integers on a chip without that limit, on every backend."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.passes.fit import split_fan_in as stage
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize.quantize import quantize
from nwcompile.sim import BACKENDS
from tests.long import EXAMPLES

LIF = nw.NeuronSpec(threshold=1.0, beta=0.75)
QUICK = nw.Options(partitioner="sequential", placer="row-major")
ROOT = Path(nw.__file__).parents[1]


@nw.neuron
def adaptive(state, x, beta=0.9, rho=0.95):
    v, a = beta * state.v + x, rho * state.a
    fired = v > 1.0 + a
    return {"v": v - fired * 1.0, "a": a + 0.2 * fired}, fired


def weights(*shape: int, seed: int = 0, size: float = 0.4) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, size, shape).astype(np.float32)


def wide(spec=LIF) -> nw.Network:
    """in 30 -> a 20 -> b 8 (biased) -> out 4, which a feeds too: fan-ins of 30, 20 and 28."""
    edges = [
        nw.Dense("in", "a", weights(20, 30)),
        nw.Dense("a", "b", weights(8, 20, seed=1), bias=weights(8, seed=2)),
        nw.Dense("b", "out", weights(4, 8, seed=3, size=0.7)),
        nw.Dense("a", "out", weights(4, 20, seed=4)),
    ]
    return nw.Network.from_arrays({"a": (LIF, (20,)), "b": (spec, (8,)), "out": (LIF, (4,))}, edges, {"in": (30,)})


def spikes_in(*shape: int, rate: float = 0.3) -> np.ndarray:
    return (np.random.default_rng(7).random((3, 12, *shape)) < rate).astype(np.int8)


def limited(chip: str, n_axons: int | None = 12, **more) -> Chip:
    return Chip.load(chip).replace({"core.max_in_axons": n_axons, **more})


def verify_equal(network: nw.Network, small: Chip, ideal: Chip, x, backends=BACKENDS, options=QUICK) -> nw.Program:
    """The program on the small chip, whose spikes are those of the same integers on the ideal one."""
    wanted = nw.simulate(nw.compile(network, ideal, x, options), x, backend="sequence").spikes
    program = nw.compile(network, small, x, options)
    for backend in backends:
        got = nw.simulate(program, x, backend=backend).spikes
        for name in network.layers:
            assert np.array_equal(got[name], wanted[name]), (backend, name)
    assert wanted[network.layers[0]].any()
    return program


@pytest.mark.parametrize("chip, spec", [("loihi2", LIF), ("spinnaker2", adaptive.program())])
def test_split_fan_in_gives_the_spikes_of_the_same_integers(chip, spec):
    program = verify_equal(wide(spec), limited(chip), Chip.load(chip), spikes_in(30))
    assert [name for name in program.network.layers if "/" not in name] == ["a", "b", "out"]
    offset = program.schedule.offset
    assert (offset["a"], offset["b"], offset["out"]) == (2, 4, 6)
    assert nw.crosscheck(program, spikes_in(30)).agree


def test_split_fan_in_has_a_row_that_says_exact_and_needs_no_flag():
    program = nw.compile(wide(), limited("loihi2"), spikes_in(30), QUICK)
    assert [list(row.values()) for row in program.manifest["legalization"]] == [
        ["a", "fan-in of 30 axons", "at most 12 per core", "60 neurons send sums, 3 for each of a, a step before it, "
         "for up to 78581 spikes of a source at once", "exact", None],
        ["b", "fan-in of 20 axons", "at most 12 per core", "16 neurons send sums, 2 for each of b, a step before it",
         "exact", None],
        ["out", "fan-in of 28 axons", "at most 12 per core",
         "12 neurons send sums, 3 for each of out, a step before it", "exact", None],
    ]  # fmt: skip
    assert [row["layer"] for row in program.manifest["quantization"]] == list(program.network.layers)
    free = nw.compile(wide(), "loihi2", spikes_in(30), QUICK)
    assert free.network.layers == ("a", "b", "out") and "legalization" not in free.manifest


def test_split_fan_in_of_convolutions_and_beside_loops():
    """A convolution of many channels into a layer that feeds itself; its loop stays as it is."""
    edges = [
        nw.Conv2d("in", "a", weights(3, 6, 3, 3, size=0.2), padding=1),
        nw.Dense("a", "a", weights(48, 48, seed=1, size=0.05) * (np.eye(48, dtype=np.float32)[::-1] + 0)),
        nw.Dense("a", "out", weights(2, 48, seed=2)),
    ]
    network = nw.Network.from_arrays({"a": (LIF, (3, 4, 4)), "out": (LIF, (2,))}, edges, {"in": (6, 4, 4)})
    small = limited("loihi2", 40, **{"core.synapse_bits": 6000, "core.max_neurons": 40})
    program = verify_equal(network, small, Chip.load("loihi2"), spikes_in(6, 4, 4), ("sequence",))
    assert [row["was"] for row in program.manifest["legalization"]] == ["fan-in of 55 axons", "fan-in of 48 axons"]
    loops = [c for c in program.network.connections if c.source == c.target]
    assert [c.source for c in loops] == ["a"]


def test_large_layers_are_split_without_a_list_of_their_synapses(monkeypatch):
    """Dense and convolution connections, biased, beside a skip: every part is one convolution in groups."""
    monkeypatch.setattr(stage, "LARGEST", 0)
    monkeypatch.setattr(stage, "synapse_list", None)
    program = verify_equal(wide(), limited("loihi2"), Chip.load("loihi2"), spikes_in(30), ("sequence", "cycle"))
    parts = {c.target: c for c in program.network.connections if "/part" in c.target}
    assert {name: (c.groups, c.weight.shape) for name, c in parts.items()} == {
        "a/part1": (3, (60, 1, 1, 10)), "b/part1": (2, (16, 1, 1, 10)), "out/part1": (1, (4, 1, 1, 8)),
        "out/part2": (2, (8, 1, 1, 10)),
    }  # fmt: skip
    how = [row["how"] for row in program.manifest["legalization"]]
    assert how[1:] == ["16 neurons send sums to b, a step before it", "12 neurons send sums to out, a step before it"]
    edges = [nw.Conv2d("in", "a", weights(3, 6, 3, 3), bias=weights(3, seed=1), padding=1, stride=2)]
    network = nw.Network.from_arrays({"a": (LIF, (3, 2, 2))}, edges, {"in": (6, 4, 4)})
    small = limited("loihi2", 20)
    program = verify_equal(network, small, Chip.load("loihi2"), spikes_in(6, 4, 4), ("sequence", "reference"))
    assert [(c.groups, c.source) for c in program.network.into("a/part1")] == [(3, "in")]


def test_sources_that_are_read_alike_are_added_up_before_a_large_layer_reads_them(monkeypatch):
    """A mean over 3 x 3 pixels and a dense layer, which normalize makes one dense connection."""
    monkeypatch.setattr(stage, "LARGEST", 0)
    edges = [
        nw.Conv2d("in", "a", weights(4, 2, 3, 3, size=0.6), padding=1),
        nw.Pool2d("a", "mean", 3, kind="avg"),
        nw.Dense("mean", "out", weights(20, 4, seed=1, size=4)),
    ]
    layers = {"a": (LIF, (4, 3, 3)), "mean": (None, (4, 1, 1)), "out": (LIF, (20,))}
    network = nw.Network.from_arrays(layers, edges, {"in": (2, 3, 3)})
    x, small = spikes_in(2, 3, 3), limited("loihi2", 18)
    program = nw.compile(network, small, x, QUICK)
    wanted = nw.simulate(nw.compile(network, Chip.load("loihi2"), x, QUICK), x, backend="sequence").spikes
    got = nw.simulate(program, x, backend="sequence").spikes
    assert np.array_equal(got["out"], wanted["out"]) and wanted["out"].any()
    assert program.network.node("out/part1").shape == (4,)
    (reads,) = program.network.into("out")
    assert reads.weight.shape == (20, 4) and nw.crosscheck(program, x).agree


@pytest.mark.long
def test_split_fan_in_where_synapses_of_a_neuron_fill_more_than_a_core():
    memory = limited("loihi2", None, **{"core.synapse_bits": 2000})
    rows = verify_equal(wide(), memory, Chip.load("loihi2"), spikes_in(30), ("sequence",)).manifest["legalization"]
    assert (rows[0]["was"], rows[0]["has"]) == ("fan-in of 3840 bits of synapses", "at most 2000 per core")


def drawn(seed: int) -> tuple[nw.Network, Chip, np.ndarray]:
    """A random network of dense, sparse and convolution layers with skips, delays and loops, and a chip too small."""
    rng = np.random.default_rng(seed)
    shapes = {"in": (2, 4, 4), "a": (2, 4, 4), "b": (int(rng.integers(5, 20)),), "c": (int(rng.integers(3, 9)),)}
    size = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    bias = weights(size["b"], seed=seed, size=0.2) if rng.random() < 0.5 else None
    n = 4 * size["b"]
    pre, post = (rng.integers(0, size[name], n) for name in ("in", "b"))
    edges = [
        nw.Conv2d("in", "a", weights(2, 2, 3, 3, seed=seed), padding=1),
        nw.Dense("a", "b", weights(size["b"], size["a"], seed=seed + 1), bias=bias),
        nw.Sparse("in", "b", pre=pre, post=post, weight=weights(n, seed=seed + 2), delay=int(rng.integers(0, 3))),
        nw.Dense("b", "c", weights(size["c"], size["b"], seed=seed + 3)),
        nw.Dense("a", "c", weights(size["c"], size["a"], seed=seed + 4), delay=int(rng.integers(0, 2))),
    ]
    if rng.random() < 0.5:
        edges.append(nw.Sparse("c", "c", pre=np.arange(3), post=np.arange(3)[::-1].copy(), weight=weights(3)))
    spec = LIF if rng.random() < 0.6 else adaptive.program()
    layers = {"a": (LIF, shapes["a"]), "b": (spec, shapes["b"]), "c": (LIF, shapes["c"])}
    chip = limited(str(rng.choice(["loihi2", "spinnaker2"])), int(rng.integers(9, 30)))
    x = (rng.random((2, 10, 2, 4, 4)) < 0.4).astype(np.int8)
    return nw.Network.from_arrays(layers, edges, {"in": shapes["in"]}), chip, x


def verify_drawn(seed: int, backends) -> bool:
    """Whether the last layer spiked, in a drawn network whose spikes are those of the same integers."""
    network, chip, x = drawn(seed)
    program = verify_equal(network, chip, Chip.load(chip.name), x, backends)
    assert len(program.network.layers) > 3
    return bool(nw.simulate(program, x, backend="sequence").spikes["c"].any())


@pytest.mark.long
def test_split_fan_in_of_many_drawn_networks():
    n = max(20, EXAMPLES // 5)
    fired = [verify_drawn(seed, BACKENDS) for seed in range(100, 100 + n)]
    assert sum(fired) > 0.8 * n


@pytest.mark.parametrize("mutation", ["a synapse lost", "a weight of 2"])
def test_a_mutation_of_split_fan_in_shows_in_the_spikes(mutation, monkeypatch):
    of_part, adds = stage._build_part, stage.connect_sums
    if mutation == "a synapse lost":

        def lossy(*nouns):
            first, *rest = (part := of_part(*nouns)).into
            fewer = first.replace(pre=first.pre[5:], post=first.post[5:], weight=first.weight[5:])
            return part._replace(into=[fewer, *rest])

        monkeypatch.setattr(stage, "_build_part", lossy)
    else:

        def wrong(*nouns):
            return (edge := adds(*nouns)).replace(exponent=edge.exponent + 1)

        monkeypatch.setattr(stage, "connect_sums", wrong)
    with pytest.raises(AssertionError, match="sequence"):
        verify_equal(wide(), limited("loihi2"), Chip.load("loihi2"), spikes_in(30), ("sequence",))


@pytest.mark.long
def test_split_fan_in_in_phases_and_of_integers_and_onto_its_own_mapping():
    options = replace(QUICK, execution="phased")
    verify_equal(wide(), limited("loihi2"), Chip.load("loihi2"), spikes_in(30), ("sequence",), options)
    integers = quantize(normalize(wide()), Chip.load("loihi2"), spikes_in(30), QUICK).network
    program = verify_equal(integers, limited("loihi2"), Chip.load("loihi2"), spikes_in(30), ("sequence",))
    again = nw.compile(integers, limited("loihi2"), spikes_in(30), QUICK, mapping=program.mapping)
    assert again.network.layers == program.network.layers


@pytest.mark.long
def test_split_fan_in_after_training_in_integers():
    """Trained as if a core held it, the network is split when it is compiled, and spikes the same."""
    chip, x = limited("loihi2"), spikes_in(30)
    trained = nw.nn.quantize_aware(wide(), chip, x)
    program = nw.compile(trained.network(), chip, x, QUICK)
    spikes, recorded = nw.simulate(program, x).spikes, trained.record(x)
    assert "a/part3" in program.network.layers
    assert all(np.array_equal(spikes[name], recorded[name]["spikes"]) for name in ("a", "b", "out"))


def test_skips_that_are_too_long_once_sums_are_sent_are_relayed():
    """Without the split every delay is one that the chip has; a split layer adds a step to what goes around it.

    Sums are not relayed: a split skip waits as spikes, before its partial sums.
    """
    x = spikes_in(30)
    small = limited("loihi2", **{"neuron.delay_max_steps": 1})
    program = verify_equal(wide(), small, Chip.load("loihi2"), x, ("sequence", "cycle"))
    rows = {row["layer"]: row for row in program.manifest["legalization"]}
    assert rows["a -> out/part1, out/part2, out/part3"]["how"] == "20 relay neurons, 1 for each of a"
    assert {program.schedule.offset[f"out/part{i}"] for i in (1, 2, 3)} == {program.schedule.offset["out"] - 1}
    edges = [
        nw.Dense("in", "a", weights(5, 12)),
        nw.Dense("a", "b", weights(20, 5, seed=1, size=0.9)),
        nw.Dense("b", "c", weights(6, 20, seed=2)),
        nw.Dense("c", "out", weights(4, 6, seed=3, size=0.9)),
        nw.Dense("a", "out", weights(4, 5, seed=4, size=0.9)),
    ]
    layers = {name: (LIF, (n,)) for name, n in {"a": 5, "b": 20, "c": 6, "out": 4}.items()}
    network, x = nw.Network.from_arrays(layers, edges, {"in": (12,)}), spikes_in(12)
    small = limited("loihi2", **{"neuron.delay_max_steps": 2})
    program = verify_equal(network, small, Chip.load("loihi2"), x, ("sequence", "cycle"))
    rows = {row["layer"]: row for row in program.manifest["legalization"]}
    assert rows["c"]["how"] == "12 neurons send sums, 2 for each of c, a step before it"
    assert (rows["a -> out"]["was"], rows["a -> out"]["has"]) == ("a delay of 3 steps", "at most 2")
    assert "a/relay1" in program.network.layers
    assert [row["layer"] for row in program.manifest["quantization"]] == list(program.network.layers)


@pytest.mark.parametrize(
    "chip, options",
    [
        (limited("loihi2", **{"neuron.programmable": False, "neuron.strict": [True, False]}), QUICK),
        (limited("loihi2", **{"noc.payload_bits": 1}), QUICK),
        (limited("loihi2"), replace(QUICK, on_multi_spike="repeat")),
    ],
)
def test_fan_in_is_refused_where_no_partial_sum_can_be_sent(chip, options):
    with pytest.raises(FitError, match=r"fan-in axons  in -> a  30 of 12  one neuron of a alone takes 30: give it"):
        nw.compile(wide(), chip, spikes_in(30), options)


def test_fan_in_of_a_loop_is_refused():
    edges = [nw.Dense("in", "a", weights(20, 8)), nw.Dense("a", "a", weights(20, 20))]
    network = nw.Network.from_arrays({"a": (LIF, (20,))}, edges, {"in": (8,)})
    with pytest.raises(FitError, match=r"fan-in axons  a -> a  20 of 12  one neuron of a alone takes 20"):
        nw.compile(network, limited("loihi2"), spikes_in(8), QUICK)


def test_partial_sums_wider_than_messages_are_refused_with_what_would_fit(tmp_path):
    text = (ROOT / "hwmodels" / "loihi2.toml").read_text()
    text = text.replace('name = "loihi2"', 'name = "narrow"').replace("payload_bits = 32", "payload_bits = 10")
    text = text.replace("[core]\n", "[core]\nmax_in_axons = 12\n").replace("proposed = true", "proposed = false")
    (tmp_path / "narrow.toml").write_text(text + '"core.max_in_axons" = "assumed: a test"\n')
    with pytest.raises(FitError) as error:
        nw.compile(wide(), str(tmp_path / "narrow.toml"), spikes_in(30), QUICK)
    lines = str(error.value).splitlines()
    bits = error.value.violations[0].used
    assert lines[0].endswith("limits exceeded on narrow")
    assert (
        f"  payload bits  a (a partial sum)  {bits} of 10  raise noc.payload_bits, use fewer weight bits, or give"
        in (lines[1])
    )
    most = max(v.used for v in error.value.violations)
    assert f"it fits with messages of {most} bits (noc.payload_bits={most})" in lines
    assert lines[-1].startswith("it fits unchanged on loihi1 (")
    small = Chip.load(str(tmp_path / "narrow.toml")).replace({"noc.payload_bits": most})
    network = nw.compile(wide(), small, spikes_in(30), QUICK).network
    largest = 0
    for part in (name for name in network.layers if "/part" in name):
        size = (np.abs(np.asarray(c.weight, np.float64)) * 2.0**c.exponent for c in network.into(part))
        sums = [np.bincount(c.post, w, 20) for c, w in zip(network.into(part), size, strict=True)]
        largest = max(largest, int(np.sum(sums, axis=0).max()))
    assert 2 ** (most - 2) <= largest < 2 ** (most - 1)
