"""Cores that are crossbars of memory cells: their limits, their levels, and an ideal one as a digital core."""

import re
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.sim import BACKENDS
from tests.made.nets import FIXED, dense_net, float_net
from tests.made.spikes import spikes
from tests.made.violations import lines

DIGITAL = {"weights.sharing": False, "neuron.delay_max_steps": 0, "core.max_neurons": 16, "core.max_in_axons": 24}
ARRAY = {**DIGITAL, "core.max_neurons": 64, "core.max_in_axons": None, "crossbar.rows": 24, "crossbar.columns": 32,
         "crossbar.pairs": "columns", "crossbar.levels": 129}  # fmt: skip
SPEC = FIXED.replace(threshold=640, decay_u=4096, decay_v=500, reset="subtract")
X = spikes(3, 12, 20, seed=1, rate=0.4)
ROOT = Path(__file__).parents[2]


def tiny(changes: dict) -> nw.Chip:
    return nw.Chip.load("tiny").replace(changes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_crossbar_that_is_ideal_equals_the_digital_core_bit_for_bit(backend):
    for network in (dense_net(20, 24, 10, spec=SPEC), float_net(20, 24, 10)):
        digital, array = (nw.compile(network, tiny(keys), X) for keys in (DIGITAL, ARRAY))
        assert array.network.hash == digital.network.hash and array.mapping.n_cores == 4
        one, two = (nw.simulate(program, X, backend, record="all") for program in (digital, array))
        for name in array.network.layers:
            assert np.array_equal(one.spikes[name], two.spikes[name]) and one.spikes[name].any()
            assert all(np.array_equal(one.states[name][s], two.states[name][s]) for s in "uv")
        assert all(np.array_equal(one.counters[name], two.counters[name]) for name in one.counters)


def test_crossbar_currents_of_its_cells_are_the_synaptic_sums():
    """Conductances of each core fill an array of the chip's size, and currents of its pairs are u of the reference."""
    program = nw.compile(dense_net(20, 24, 10, spec=SPEC), tiny(ARRAY))
    run = nw.simulate(program, X, record="all")
    sent = {"in": X, **run.spikes}
    for c in program.network.connections:
        for core in np.unique(program.mapping.core_of[c.target]):
            neurons = np.flatnonzero(program.mapping.core_of[c.target] == core)
            plus, minus = np.maximum(c.weight[neurons].T, 0), np.maximum(-c.weight[neurons].T.astype(int), 0)
            cells = np.stack([plus, minus], -1).reshape(len(plus), -1)
            assert cells.shape[0] <= 24 and cells.shape[1] <= 32 and 0 <= cells.min() and cells.max() <= 128
            currents = sent[c.source].astype(np.int64) @ cells
            assert np.array_equal(
                (currents[..., 0::2] - currents[..., 1::2]) << 6, run.states[c.target]["u"][..., neurons]
            )


def test_crossbar_rows_and_columns_limit_a_core():
    chip = tiny(ARRAY)
    assert lines(dense_net(25, 3), chip) == [
        "fan-in axons  fc1 -> core 0  25 of 24  one neuron of fc1 alone takes 25: give it fewer inputs or raise "
        "crossbar.rows"
    ]
    assert lines(dense_net(2, 17), chip) == [
        "neurons  fc1 -> core 0  17 of 16  split fc1 over 2 cores or raise crossbar.columns"
    ]
    in_rows = chip.replace({"crossbar.pairs": "rows"})
    assert [limit.max() for limit in map(in_rows.limit, ("max_in_axons", "max_neurons"))] == [12, 32]
    pairs_counted = chip.replace({"crossbar.pairs": None, "core.max_neurons": 20})
    assert [limit.max() for limit in map(pairs_counted.limit, ("max_in_axons", "max_neurons"))] == [24, 20]
    assert pairs_counted.limit_key("max_neurons") == "core.max_neurons"
    assert "16 neurons, 24 fan-in axons" in repr(chip) and "crossbar.rows" in chip._repr_html_()


def test_crossbar_levels_are_those_of_the_weights():
    chip = tiny({**ARRAY, "crossbar.levels": 12, "weights.bits": 5})
    weights = [np.asarray(c.weight) for c in nw.compile(float_net(20, 24, 10), chip, X).network.connections]
    for weight in weights:
        unit = np.gcd.reduce(np.abs(weight[weight != 0]).astype(int))
        assert 8 < np.abs(weight).max() / unit <= 11
    network = dense_net(4, 3)
    wide = network.connections[0].replace(weight=np.full((3, 4), -12, np.int8))
    assert lines(nw.Network(network.inputs, network.nodes, (wide,)), chip) == [
        "weight  in -> fc1  must be -11..11, is -12  scale the weights down or quantize again"
    ]
    assert chip.mantissa_range(4, "mixed") == (-10, 10) and chip.mantissa_range(1, "mixed") == (-8, 8)
    assert chip.mantissa_range(5, "exc") == (0, 11)


def test_crossbar_has_one_synapse_from_a_source_to_a_neuron():
    network = dense_net(4, 3)
    (c,) = network.connections
    listed = nw.Sparse(
        "in", "fc1", pre=np.array([0, 1, 1]), post=np.array([2, 0, 0]), weight=np.array([3, 0, 1], np.int8)
    )
    refused = "synapses from a source to a neuron  in -> fc1  2 of 1  add up their weights in one connection"
    for edges, expected in (((c, c), [refused]), ((listed,), []), ((listed, listed), [refused])):
        found = nw.Network(network.inputs, network.nodes, edges)
        assert lines(found, tiny(ARRAY)) == expected and lines(found, tiny(DIGITAL)) == []


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"weights.sharing": True},
         "weights.sharing: True does not go with a crossbar: each synapse has cells of its own; set it to false"),
        ({"neuron.delay_max_steps": 3},
         "neuron.delay_max_steps: 3 does not go with a crossbar: a row drives all its cells at once; set it to 0"),
        ({"crossbar.columns": 1}, "crossbar.columns: 1 is less than the 2 cells of a pair"),
        ({"crossbar.levels": 64},
         "crossbar.levels: a pair of cells of 64 levels stores a weight of 7 bits; set weights.bits = 7, not 8"),
        ({"crossbar.levels": 130},
         "crossbar.levels: a pair of cells of 130 levels stores a weight of 9 bits; set weights.bits = 9, not 8"),
        ({"crossbar.pairs": "both"}, "crossbar.pairs: unknown value 'both'; choose one of: columns, rows"),
        ({"crossbar.drift_exponent": 0.05},
         "crossbar.drift_spread: missing key; a chip with crossbar.drift_exponent needs it"),
    ],
)  # fmt: skip
def test_crossbar_keys_that_contradict_each_other_are_refused(changes, expected):
    with pytest.raises(nw.ChipError) as error:
        tiny({**ARRAY, **changes})
    assert str(error.value) == f"tiny: {expected}"


def test_chip_without_a_crossbar_has_the_dict_and_thus_the_hash_of_before():
    assert "crossbar" not in nw.Chip.load("tiny").to_dict()
    assert tiny(ARRAY).to_dict()["crossbar"]["rows"] == 24


def test_crossbar_of_the_docs_is_a_chip_that_takes_networks_and_says_how_its_cells_drift():
    text = re.search(r"```toml\n(.*?)```", (ROOT / "docs" / "robustness.md").read_text(), re.S).group(1)
    chip = nw.Chip.from_toml(text, "pcm.toml")
    program = nw.compile(float_net(20, 300, 10), chip, X)
    assert program.mapping.n_cores == 2 and chip.mantissa_range(5, "mixed") == (-15, 15)
    found = nw.robustness(program, X, np.arange(3), samples=1, drift=3600)
    assert (found.variation.weight, found.variation.noise, found.variation.drift) == (0.04, 0.04, 3600)
