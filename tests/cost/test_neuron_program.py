"""The count of instructions that a neuron takes beyond the built-in one, written out for each kind."""

import pytest

from nwcompile.cost.neuron_program import chip_instructions, extra_instructions
from nwcompile.ir.chip import Chip
from nwcompile.ir.neuron import NeuronSpec


@pytest.mark.parametrize(
    "spec, n",
    [
        ({}, 0),
        ({"strict": False}, 0),
        ({"refractory": 3, "bias": 2.0}, 0),
        ({"reset": "value", "reset_value": 0.0}, 0),
        ({"reset": "value", "reset_value": -1.0}, 0),  # choose the value, where the built-in chooses 0
        ({"reset": "none"}, 0),
        ({"fires": False}, 0),
        ({"v_min": 0.0}, 1),
        ({"fires": False, "v_min": 0.0}, 1),
        ({"reset": "subtract"}, 1),
        ({"reset_timing": "next"}, 1),
        ({"reset": "subtract", "reset_timing": "next"}, 2),
        ({"reset": "subtract", "reset_timing": "both"}, 5),
        ({"spikes": "bipolar"}, 1),
        ({"spikes": "multi", "reset": "subtract"}, 2),
        ({"spikes": "multi", "reset": "subtract", "reset_timing": "next", "v_min": -1.0}, 5),
        ({"spikes": "gated", "reset": "subtract"}, 4),
    ],
)
def test_instructions_beyond_the_built_in_neuron(spec, n):
    assert extra_instructions(NeuronSpec(**spec)) == n


def test_only_programs_take_instructions():
    spec = NeuronSpec(reset="subtract")
    assert [chip_instructions(Chip.load(name), spec) for name in ("tiny", "loihi1", "loihi2")] == [0, 0, 1]


def test_programs_do_whatever_neurons_do():
    neuron = Chip.load("loihi1").replace({"neuron.programmable": True}).neuron
    assert neuron.reset == ["zero", "value", "subtract", "none"] and neuron.reset_timing == ["now", "next", "both"]
    assert (neuron.strict, neuron.v_min) == ([True, False], "any")
