"""A method of one's own, `benchmarks/halving.py`: a core for each layer, halved until all are within the limits."""

import numpy as np

import nwcompile as nw
from benchmarks.halving import halve
from nwcompile import cli
from nwcompile.cost.energy import predict
from nwcompile.cost.summary import summarize
from tests.made.chips import small_chip
from tests.made.nets import dense_net

WIDE = {"noc__columns": 8, "noc__rows": 8, "core__max_in_axons": 1000, "core__max_out_axons": None}


def sizes(network, chip) -> list[list[int]]:
    """The neurons of each core of each layer; cores are contiguous."""
    core_of = nw.compile(network, chip, options=nw.Options(partitioner=halve)).mapping.core_of
    assert all((np.diff(core) >= 0).all() for core in core_of.values())
    return [[n for n in np.bincount(core).tolist() if n] for core in core_of.values()]


def test_layers_are_halved_until_their_neurons_fit():
    chip = small_chip(**WIDE, core__max_neurons=30, core__synapse_bits=None)
    assert sizes(dense_net(20, 100, 31, 8), chip) == [[25, 25, 25, 25], [15, 16], [8]]


def test_a_core_that_is_within_the_limits_is_not_halved_with_the_others():
    """Halves of 33 neurons are 16 and 17: only the larger one is halved again."""
    chip = small_chip(**WIDE, core__max_neurons=16, core__synapse_bits=None)
    assert sizes(dense_net(20, 33), chip) == [[16, 8, 9]]


def test_memory_halves_a_layer_too():
    chip = small_chip(**WIDE, core__max_neurons=1000, core__synapse_bits=20 * 50 * 8)
    program = nw.compile(dense_net(20, 80), chip, options=nw.Options(partitioner=halve))
    (used,) = (row.used for row in summarize(program, predict(program)).fits if row.resource == "synapse_bits")
    assert program.mapping.n_cores in (2, 4) and used <= 20 * 50 * 8 < 2 * used


def test_the_command_line_takes_a_function(capsys):
    args = "compile demo --chip loihi1 --partitioner benchmarks.halving:halve --plan-only --explain"
    assert cli.main(args.split()) == 0
    out = capsys.readouterr().out
    assert "2 cores of 128 on loihi1" in out
    assert "chosen     2 cores: as partitioner 'benchmarks.halving:halve' cuts the network" in out
