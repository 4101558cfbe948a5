"""Recognize: replace a neuron program that equals a built-in neuron by its NeuronSpec, with the same numbers.

Each value of a step is written as one expression in canonical form: operands of commutative operations are sorted, and
a spike's truth value equals its number. The expressions are then compared with the forms of a linear membrane. Programs
that match none stay programs.
"""

from typing import Any

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram

COMMUTATIVE = ("add", "mul", "and", "or", "eq", "ne")
TRUTHS = ("lt", "le", "eq", "ne", "and", "or", "not")  # operations whose result is a truth value

Expression = Any  # A name, a number, or a tuple (kind, operands...).


def recognize_programs(network: Network, chip: Chip) -> tuple[Network, list[Change]]:
    """Replace float programs by NeuronSpecs where they are equal, for a chip without programmable neurons."""
    nodes, changes = dict(network.nodes), []
    for name in () if chip.neuron.programmable else network.programs:
        node = network.node(name)
        spec = recognize_program(node.neuron)
        if spec is not None:
            nodes[name] = Node(name, node.shape, spec)
            was = f"program {node.neuron.name}"
            changes.append(Change(name, was, "built-in neurons", "the program is one of them, written down", EXACT))
    return (Network(network.inputs, nodes, network.connections), changes) if changes else (network, [])


def recognize_program(program: NeuronProgram) -> NeuronSpec | None:
    """Return the float NeuronSpec that equals a program in every step, or None."""
    if program.is_fixed or program.sends not in ("binary", "none") or any(np.any(s.initial) for s in program.states):
        return None
    values = _write_expressions(program)
    after = {state.name: _expression_of(state.next, values) for state in program.states}
    for v in after:
        others = [name for name in after if name != v]
        output = program.output if program.sends == "none" else _expression_of(program.output, values)
        spec = _match_spec(program, v, others, after, output) if len(others) <= 1 else None
        if spec is not None:
            return spec
    return None


def _match_spec(
    program: NeuronProgram, v: str, others: list[str], after: dict[str, Expression], output: Expression
) -> NeuronSpec | None:
    """Return the NeuronSpec of the program if `v` is its membrane and the other state its current, or None."""
    fields: dict[str, Any] = {}
    drive: Expression = INPUT
    if others:
        (current,) = others
        drive, terms = after[current], _match_terms(after[current], current, INPUT, program)
        if terms is None:
            return None
        fields["alpha"], fields["w_in"] = terms
    fires = program.sends != "none"
    if fires and (not isinstance(output, tuple) or output[0] not in ("lt", "le")):
        return None
    kind, threshold, membrane = output if fires else ("lt", 1.0, after[v])
    terms, number = _match_terms(membrane, v, drive, program), _number_of(threshold, program)
    if terms is None or number is None:
        return None
    fields["beta"], fields["gain"] = terms
    if not fires:
        return NeuronSpec(fires=False, reset="none", **fields) if output == v else None
    reset = _match_reset(after[v], output, membrane, threshold, program)
    return None if reset is None else NeuronSpec(threshold=number, strict=kind == "lt", **reset, **fields)


def _match_reset(
    after: Expression, fire: Expression, membrane: Expression, threshold: Expression, program: NeuronProgram
) -> dict[str, Any] | None:
    """Return the fields that describe the reset, from the membrane after the step."""
    if after == membrane:
        return {"reset": "none"}
    if after in (
        ("sub", membrane, _canonical_form("mul", fire, threshold)),
        ("select", fire, ("sub", membrane, threshold), membrane),
    ):
        return {"reset": "subtract"}
    number = _number_of(threshold, program)
    if number is not None and np.all(np.asarray(number) == 1) and after == ("sub", membrane, fire):
        return {"reset": "subtract"}
    if after == _canonical_form("mul", membrane, ("sub", 1, fire)):
        return {"reset": "zero"}
    if isinstance(after, tuple) and after[0] == "select" and (after[1], after[3]) == (fire, membrane):
        value = _number_of(after[2], program)
        if value is not None:
            return {"reset": "value", "reset_value": value} if np.any(value) else {"reset": "zero"}
    return None


def _match_terms(value: Expression, state: str, drive: Expression, program: NeuronProgram) -> tuple[Any, Any] | None:
    """Return the numbers k and g if `value` is `k * state + g * drive`, else None."""
    addends = value[1:] if isinstance(value, tuple) and value[0] == "add" else (value,)
    of_state = [factor for part in addends if (factor := _match_factor(part, state, program)) is not None]
    of_drive = [factor for part in addends if (factor := _match_factor(part, drive, program)) is not None]
    if len(of_drive) != 1 or len(of_state) != len(addends) - 1:
        return None
    return (of_state[0] if of_state else 0.0), of_drive[0]


def _match_factor(value: Expression, of: Expression, program: NeuronProgram) -> Any:
    """Return the number g if `value` is `g * of`, else None."""
    if value == of:
        return 1.0
    if not isinstance(value, tuple) or value[0] != "mul" or of not in value[1:]:
        return None
    return _number_of(next(part for part in value[1:] if part != of), program) if value[1] != value[2] else None


def _number_of(value: Expression, program: NeuronProgram) -> Any:
    """Return a number, or the numbers of a parameter; None for a computed value."""
    if isinstance(value, int | float):
        return value
    return program.parameters.get(value) if isinstance(value, str) else None


def _write_expressions(program: NeuronProgram) -> dict[str, Expression]:
    """Return the expression of every value of a step."""
    values: dict[str, Expression] = {}
    for operation in program.operations:
        operands = [_expression_of(operand, values) for operand in operation.operands]
        values[operation.result] = _canonical_form(operation.kind, *operands)
    return values


def _expression_of(operand: Expression, values: dict[str, Expression]) -> Expression:
    return values.get(operand, operand) if isinstance(operand, str) else operand


def _canonical_form(kind: str, *operands: Expression) -> Expression:
    """Return an operation in canonical form: operands sorted if commutative, no factor 1, spikes as truth values."""
    if kind == "number":
        return operands[0]
    if kind == "mul" and 1 in operands:
        return next((operand for operand in operands if operand != 1), 1)
    if kind == "lt" and operands[0] == 0 and isinstance(operands[1], tuple) and operands[1][0] in TRUTHS:
        return operands[1]
    return (kind, *(sorted(operands, key=repr) if kind in COMMUTATIVE else operands))
