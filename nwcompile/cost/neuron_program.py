"""Neuron programs: how many instructions a neuron takes in an update beyond the built-in one, as a plain count.

An instruction is one elementary operation of `nwcompile.sim.reference.neuron_step` on a neuron's numbers: a sum, a
product, a quotient, a comparison, or a choice between two numbers. The built-in neuron is the CUBA-LIF that chips have
in common: binary spikes, reset to zero in the step of the spike, no clamp. Leaks, bias, refractory time and either
comparison with the threshold are its own, so only what follows the comparison is counted. The count is a model of ours:
no chip's instruction set is behind it.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

# Operations that find how many spikes a membrane stands for.
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
    """Instructions that an update of these neurons takes beyond the built-in neuron's, 0 for those that it covers.

    Of a NeuronProgram these are its operations beyond as many as the built-in neuron is, written as a program.
    A reset one step late (`next`) finds the spikes that the membrane stood for once more; `both` resets twice, the
    second time by a difference.
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
    """Instructions that the program of such neurons is long, the built-in neuron's among them.

    An entry of a table takes as much of the program memory as an instruction.
    """
    if isinstance(spec, NeuronProgram):
        return spec.n_operations + spec.n_entries
    return BUILT_IN_OPERATIONS + extra_instructions(spec)


def state_words(spec: NeuronSpec | NeuronProgram) -> int:
    """Numbers that such a neuron keeps from step to step; of a NeuronSpec u, v, and the steps since its last spike."""
    if isinstance(spec, NeuronProgram):
        return len(spec.states)
    return 2 + int(np.any(np.asarray(spec.refractory) > 1))


def chip_instructions(chip: Chip, spec: NeuronSpec | NeuronProgram) -> int:
    """`extra_instructions` on a chip whose neurons are programs; 0 on others, where all that they do is built in."""
    return extra_instructions(spec) if chip.neuron.programmable else 0
