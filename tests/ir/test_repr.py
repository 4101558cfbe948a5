"""What nouns show of themselves: what a person asks first, in at most ten lines, never an array."""

from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from tests.made.nets import dense_net

X = np.random.default_rng(0).integers(0, 2, (2, 6, 5))


def program() -> nw.Program:
    return nw.compile(dense_net(5, 4, 3), nw.Chip.load("tiny"), X)


@pytest.mark.parametrize("noun", ["network", "chip", "mapping", "program", "run"])
def test_repr_fits_ten_lines_of_120_columns(noun):
    sizes = [3] * 30
    large = nw.compile(dense_net(*sizes), nw.Chip.load("loihi1"), options=nw.Options(partitioner="sequential"))
    nouns = {"network": large.network, "chip": large.chip, "mapping": large.mapping, "program": large,
             "run": nw.simulate(large, np.ones((1, 3, 3), int), "reference")}  # fmt: skip
    lines = repr(nouns[noun]).splitlines()
    assert 3 <= len(lines) <= 10 and max(map(len, lines)) <= 120
    assert "array" not in repr(nouns[noun])


def test_repr_of_a_network_names_layers_and_what_feeds_them():
    assert repr(dense_net(5, 4, 3)).splitlines() == [
        "Network (fixed-point): 2 layers, 7 neurons, 2 connections",
        "  input in [5]",
        "  layer fc1 [4]: Dense from in",
        "  layer fc2 [3]: Dense from fc1",
    ]
    assert repr(dense_net(*[2] * 12)).splitlines()[-1] == "  ... and 4 more layers"


def test_repr_of_a_program_and_its_mapping_say_where_neurons_are():
    made = program()
    assert repr(made.mapping).splitlines()[0] == "Mapping: 7 neurons on 1 core at 1 router"
    assert repr(made.mapping).splitlines()[1] == "  layer fc1: 4 neurons on 1 core: 0"
    lines = repr(made).splitlines()
    assert lines[0] == "Program for tiny: 2 layers, 7 neurons on 1 of 4 cores"
    assert lines[1] == "  pipelined, depth 2" and lines[3] == "  outputs: fc2"


def test_repr_of_a_run_gives_counts_and_leaves_out_what_is_not_known():
    run = nw.simulate(program(), X, "reference")
    lines = repr(run).splitlines()
    assert lines[0] == "Run (reference, cpu): 2 samples of 6 steps"
    assert lines[1] == f"  layer fc1: {run.spikes['fc1'].sum()} spikes"
    assert not any(line.startswith("  time") for line in lines)


def test_repr_of_a_chip_gives_its_limits():
    lines = repr(nw.Chip.load("loihi1")).splitlines()
    assert lines[0] == "Chip loihi1: 128 cores, 8 x 4 routers with 4 each, mesh"
    assert lines[2] == (
        "  a core: 1 024 neurons, 4 096 fan-in axons, 4 096 fan-out axons, 1 048 576 bits of synapse memory"
    )
    assert "any number of fan-in axons" in repr(nw.Chip.load("ladderbus"))


def test_repr_shows_line_breaks_and_escapes_instead_of_obeying_them():
    chip = replace(nw.Chip.load("tiny"), description="two\nlines \x1b[31m")
    assert repr(chip).splitlines()[1] == r"  two\nlines \x1b[31m"
    noisy = replace(program(), manifest={"warnings": ["one\n" * 20] * 20})
    assert len(repr(noisy).splitlines()) == 10
