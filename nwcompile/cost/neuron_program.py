"""Neuron programs: the instructions of an update beyond those of the built-in neuron.

An instruction is one elementary operation of `nwcompile.sim.reference.neuron_step` on a neuron's numbers: a sum, a
product, a quotient, a comparison, or a choice between two numbers. The built-in neuron is the CUBA-LIF common to the
chips: binary spikes, reset to zero in the step of the spike, no clamp. It includes leaks, bias, refractory time and
either comparison with the threshold, so only what follows the comparison counts. The count is our own model; it is not
based on a chip's instruction set.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

# Operations that derive the number of spikes from a membrane.
TO_COUNT = {
    "binary": 1,  # compare
    "multi": 2,  # compare, divide
    "bipolar": 2,  # compare, compare
    "gated": 4,  # compare, compare, whether a spike was sent before, count the sum of spikes
}
# Operations of a reset, once the count of spikes is known.
TO_RESET = {
    "none": 0,
    "zero": 1,  # choose
    "value": 1,  # choose
    "subtract": 2,  # multiply (of binary spikes choose), subtract
}
# Two decays (product and shift), input with its bias shifted and added, current and bias added, compare, choose.
BUILT_IN_OPERATIONS = 11
BUILT_IN = TO_COUNT["binary"] + TO_RESET["zero"]


def extra_instructions(spec: NeuronSpec | NeuronProgram) -> int:
    """Return the instructions of an update beyond the built-in neuron's; 0 if it covers these neurons.

    For a NeuronProgram this is the number of operations minus that of the built-in neuron written as a program. A reset
    one step late (`next`) derives the spikes of the old membrane once more. `both` resets twice, the second time by a
    difference.
    """
    if isinstance(spec, NeuronProgram):
        return max(spec.n_operations - BUILT_IN_OPERATIONS, 0)
    reset = "zero" if spec.reset == "value" and not np.any(spec.reset_value) else spec.reset
    n = 0 if spec.v_min is None else 2 if spec.clamp == "reset" else 1  # compare and choose; the larger of two
    if spec.fires:
        n += TO_COUNT[spec.spikes] + TO_RESET[reset]
        if reset != "none" and spec.reset_timing != "now":
            n += TO_COUNT[spec.spikes]
        if spec.reset_timing == "both":
            n += TO_RESET[reset] + 1
        n -= BUILT_IN
    return max(n, 0)


def program_length(spec: NeuronSpec | NeuronProgram) -> int:
    """Return the length of these neurons' program in instructions, with those of the built-in neuron.

    A table entry takes as much program memory as an instruction.
    """
    if isinstance(spec, NeuronProgram):
        return spec.n_operations + spec.n_entries
    return BUILT_IN_OPERATIONS + extra_instructions(spec)


def state_words(spec: NeuronSpec | NeuronProgram, chip: Chip) -> int:
    """Return the state words of such a neuron; for a NeuronSpec u, v and, if refractory, the steps since its spike.

    Each input of a program after the first one takes a sum for every step of delay.
    """
    if isinstance(spec, NeuronProgram):
        return len(spec.states) + (len(spec.inputs) - 1) * (1 + chip.neuron.delay_max_steps)
    return 2 + int(np.any(np.asarray(spec.refractory) > 1))


def chip_instructions(chip: Chip, spec: NeuronSpec | NeuronProgram) -> int:
    """Return `extra_instructions` on a chip with programmable neurons, and 0 on others, whose neurons are built in."""
    return extra_instructions(spec) if chip.neuron.programmable else 0
