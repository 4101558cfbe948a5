"""The shipped chip models: their figures, and that a small network compiles for each and agrees on all backends."""

import re
from dataclasses import fields

import numpy as np
import pytest

import nwcompile as nw
from nwcompile import cli
from nwcompile.cost.summary import summarize
from nwcompile.cost.time.work import RECEIVE, SEND
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import KEYS, Cost, Energy
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from tests.made.violations import first_lines

LOIHI1, DAVIES, LOIHI2 = (Chip.load(name) for name in ("loihi1", "loihi1_davies2018", "loihi2"))


def float_net(chip: Chip, n_weights: int = 4) -> Network:
    """Input `in` of 6 lines, `hid` of 12, `out` of 4, with neurons that the chip has; one weight a source, or none."""
    can = chip.neuron
    clamp = None if can.v_min in ("none", "reset") else 0.0
    spec = out = NeuronSpec(threshold=1.0, reset=can.reset[0], strict=can.strict[0], v_min=clamp)
    if can.max_spikes is not None:  # and currents, which then decay by shift
        out = out.replace(alpha=0.5, beta=0.75, current_order="add_then_decay")
        spec = out.replace(spikes="multi", max_spikes=can.max_spikes)
    values = np.array([0.75, -0.375, 0.5, 0.875, 0.625, -0.125], np.float32)[:n_weights]
    rng = np.random.default_rng(3)
    edges = [
        Dense(source, target, values[np.arange(m) % n_weights] * rng.integers(0, 2, (n, m)).astype(np.float32))
        for source, target, n, m in (("in", "hid", 12, 6), ("hid", "out", 4, 12))
    ]
    return Network.from_arrays({"hid": (spec, (12,)), "out": (out, (4,))}, edges, {"in": (6,)})


@pytest.mark.parametrize("name", Chip.names())
def test_chip_model_runs_a_small_network_that_agrees_on_all_backends(name):
    chip = Chip.load(name)
    x = (np.random.default_rng(1).random((2, 12, 6)) < 0.5).astype(np.int8)
    program = nw.compile(float_net(chip), chip, x)
    result = nw.crosscheck(program, x)
    assert result.agree and result.backends == ("reference", "cycle", "sequence")
    run = nw.simulate(program, x, backend="cycle")
    assert run.spikes["out"].any() and (run.seconds is not None) == chip.gives_times


@pytest.mark.parametrize("name", Chip.names())
def test_chip_model_has_a_source_for_every_cost_and_energy(name):
    chip = Chip.load(name)
    keys = [f"{section}.{f.name}" for section, kind in (("cost", Cost), ("energy", Energy)) for f in fields(kind)]
    given = [key for key in keys[1:] if chip.value(key) is not None]
    assert [key for key in given if chip.source_of(key) is None] == []


@pytest.mark.parametrize("name", Chip.names())
def test_chips_show_prints_every_figure_with_its_source(name, capsys):
    chip = Chip.load(name)
    assert cli.main(["chips", "show", name]) == 0
    lines = re.sub(r"\n +", " ", capsys.readouterr().out).splitlines()  # Long sources are wrapped.
    for key in (key for key in KEYS if chip.value(key) is not None and chip.has_key(key)):
        source = chip.source_of(key) or "default"
        assert any(line.startswith(f"{key} ") and line.endswith(f" {source}") for line in lines), key


def test_chip_loihi1_davies2018_differs_from_loihi1_in_costs_and_energies_alone():
    for section in ("noc", "core", "weights", "state", "neuron"):
        assert getattr(DAVIES, section) == getattr(LOIHI1, section)
    for key in (key for key in KEYS if not key.startswith(("cost.", "energy.")) and LOIHI1.value(key) is not None):
        assert DAVIES.source_of(key) == LOIHI1.source_of(key)
    assert (DAVIES.cost.visit_cycles, DAVIES.cost.visit_cycles + DAVIES.cost.update_cycles) == (53, 84)
    assert (DAVIES.energy.visit_pj, DAVIES.energy.visit_pj + DAVIES.energy.update_pj) == (52.0, 81.0)
    assert DAVIES.barrier_cycles(1) == DAVIES.barrier_cycles(31) == 1130 and DAVIES.barrier_cycles(32) == 4650
    for key in (key for key in KEYS if key.startswith(("cost.", "energy.")) and DAVIES.value(key) is not None):
        assert "SANA-FE" not in DAVIES.source_of(key)
    assert DAVIES.has_times and DAVIES.has_energies


def test_chip_loihi2_takes_published_times_and_those_of_loihi1():
    ns = {key: LOIHI2.value(f"cost.{key}_cycles") * LOIHI2.core.cycle_ns for key in SEND + RECEIVE}
    assert ns["visit"] + ns["update"] == 4.0
    assert [ns[f"synop_{kind}"] for kind in ("dense", "sparse", "conv")] == [0.66] * 3
    for key, speed_up, source in (("spike", 10, "scaled"), ("message_out", 1, "assumed"), ("message_in", 1, "assumed")):
        assert ns[key] == pytest.approx(LOIHI1.value(f"cost.{key}_cycles") * LOIHI1.core.cycle_ns / speed_up)
        assert LOIHI2.source_of(f"cost.{key}_cycles").startswith(source)


def test_chip_loihi2_has_the_cited_limits_a_shortest_step_and_only_static_power():
    assert (LOIHI2.n_cores, LOIHI2.core.max_neurons, LOIHI2.core.synapse_bits) == (128, 4095, 16_000 * 64)
    assert (LOIHI2.core.max_layers, LOIHI2.weights.sharing, LOIHI2.weights.kernel_rows) == (8, True, True)
    assert LOIHI2.source_of("cost.instruction_cycles").startswith("fitted: ")
    assert LOIHI2.barrier_cycles(32) == 0 and LOIHI2.min_work_cycles(1) == LOIHI2.min_work_cycles(32) == 178_000
    kapoho = nw.Chip.load("loihi2_kapoho")
    assert kapoho.min_work_cycles(32) == 178_000 and kapoho.min_work_cycles(33) == 1_000_000  # more than one chip
    assert LOIHI2.has_times and LOIHI2.energy == Energy(static_mw=232.1)


def test_chip_speck_has_the_cited_memories():
    speck = Chip.load("speck")
    assert speck.limit("max_neurons").sum() == 327_680 and speck.limit("synapse_bits").sum() == 272 * 1024 * 8
    assert (speck.n_cores, speck.core.max_layers, speck.core.max_destinations) == (9, 1, 2)


def test_chip_spinnaker2_has_a_synaptic_energy_but_gives_no_energies():
    chip = Chip.load("spinnaker2")
    assert chip.n_cores == 152 and chip.energy.synop_dense_pj == 10 and not chip.has_energies


def test_chip_h1v1_has_four_cores_of_64():
    assert Chip.load("h1v1").limit("max_neurons").tolist() == [64] * 4


def test_chip_truenorth_has_256_axons_and_neurons_a_core():
    chip = Chip.load("truenorth")
    assert (chip.n_cores, chip.core.max_neurons, chip.core.max_in_axons) == (4096, 256, 256)
    assert (chip.weights.axon_types, chip.core.max_neuron_destinations, chip.neuron.delay_max_steps) == (4, 1, 14)


def test_chip_truenorth_refuses_six_weights_a_neuron():
    with pytest.raises(nw.FitError) as error:
        nw.compile(float_net(Chip.load("truenorth"), n_weights=6), "truenorth")
    assert first_lines(error.value) == (
        "2 limits exceeded on truenorth\n  axon types  in -> hid  5 or more of 4  give each neuron of hid at most 4 "
        "weights, and inputs of one kind the same one, or raise weights.axon_types"
    )


@pytest.mark.parametrize("name", ["spinnaker2", "speck", "truenorth"])
def test_chips_without_published_costs_per_event_have_times_marked_as_assumed_or_cited(name):
    chip = Chip.load(name)
    assert chip.has_times and chip.has_energies == (name == "truenorth")
    stated = [chip.source_of(f"cost.{f.name}") for f in fields(Cost)[1:]]
    given = [text for text in stated if text is not None]
    assert given and all("assumed" in text or "as cited by others" in text or "fitted: " in text for text in given)


@pytest.mark.parametrize(
    ("name", "least_us", "most_us"), [("spinnaker2", 999, 999.01), ("speck", 0.22, 3), ("truenorth", 1000, 1000.01)]
)
def test_verdicts_of_chips_without_published_costs_per_event_have_a_time(name, least_us, most_us):
    chip = Chip.load(name)
    x = (np.random.default_rng(1).random((2, 12, 6)) < 0.5).astype(np.int8)
    program = nw.compile(float_net(chip), chip, x)
    run = nw.simulate(program, x, backend="cycle")
    assert (run.step_cycles * chip.core.cycle_ns / 1000 / 2 >= least_us).all()
    assert least_us <= summarize(program, run).step_us.mean() <= most_us
