"""Exact states of a float neuron program: states that only count, and states that only add up the synaptic input."""

from collections.abc import Collection

import numpy as np

from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operand

SAME = ("add", "sub", "min", "max", "neg", "abs", "select", "lt", "le", "eq", "ne")  # whole if operands are
WHOLE = ("floor", "trunc", "number", "sign")  # whole for any operand


def input_sums(program: NeuronProgram) -> dict[str, str]:
    """Return states that only add up the synaptic input, by the sum's name; none if the input has another use."""
    sums = {}
    for operation in program.operations:
        if INPUT in operation.operands:
            (state,) = (o for o in operation.operands if o != INPUT) if len(set(operation.operands)) == 2 else (None,)
            becomes = {s.name for s in program.states if s.next == operation.result}
            if operation.kind != "add" or state not in becomes:
                return {}
            sums[operation.result] = state
    return sums


def find_counts(program: NeuronProgram, learned: Collection[str] = ()) -> set[str]:
    """Return states, and parameters used only with them, that are always whole numbers, except `learned` ones."""
    whole = {s.name for s in program.states if _is_whole(s.initial)}
    while True:
        fixed = {name: value for name, value in program.parameters.items() if name not in learned}
        values = {name for name, value in fixed.items() if _is_whole(value)} | whole
        for operation in program.operations:
            numbers = operation.operands[operation.kind == "select" :]
            alike = operation.kind in (*SAME, "mul") and all(_is_whole_operand(o, values) for o in numbers)
            if operation.kind in WHOLE or alike:
                values.add(operation.result)
        kept = {s.name for s in program.states if s.name in whole and _is_whole_operand(s.next, values)}
        if kept == whole:
            break
        whole = kept
    mixed = {
        o
        for operation in program.operations
        for o in operation.operands
        if not all(_is_whole_operand(other, values) for other in operation.operands[operation.kind == "select" :])
    }
    return (whole | ({name for name in program.parameters if name in values} - mixed)) if whole else set()


def _is_whole(value) -> bool:
    return bool((np.asarray(value) == np.trunc(value)).all())


def _is_whole_operand(operand: Operand, whole: set) -> bool:
    return operand in whole if isinstance(operand, str) else operand == int(operand)
