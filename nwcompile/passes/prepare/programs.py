"""Programs before quantization: inputs that are only added become one, and programs become built-in neurons.

`merge_inputs`: neurons that only add up their synaptic inputs get one, the sum of all, as chips compute it.

`recognize_programs` replaces a neuron program that equals a built-in neuron by its NeuronSpec, with the same numbers.
Each value of a step is written as one expression in canonical form: operands of commutative operations are sorted, and
a spike's truth value equals its number. The expressions are then compared with the forms of a linear membrane. Programs
that match none stay programs.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Scale, Sparse
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operand, Operation
from nwcompile.ir.neuron_programs.ranges import TRUTHS

COMMUTATIVE = ("add", "mul", "and", "or", "eq", "ne")

Expression = Any  # A name, a number, or a tuple (kind, operands...).


def merge_inputs(network: Network) -> Network:
    """Return the network with one input for each neuron whose program adds up its inputs, with any factors.

    The result is the same in real arithmetic; float sums may round differently. Other neurons keep their inputs.
    """
    for name in network.layers:
        node = network.node(name)
        factors = find_factors(node.neuron) if node.n_inputs > 1 else None
        if factors is not None:
            network = _merge_node(network, node, factors)
    return network


def _merge_node(network: Network, node: Node, factors: list[float]) -> Network:
    name, n = node.name, node.n_neurons
    weight = np.repeat(np.asarray(factors, np.float32), n)
    junction = f"{name}/inputs"
    while junction in network.inputs or junction in network.nodes:
        junction += "_"
    nodes = {**network.nodes, name: replace(node, neuron=_keep_first(node.neuron))}
    connections: list[Connection] = []
    for c in network.connections:
        port = _find_port(c, node)
        if c.target == name and port is not None:
            connections.append(Scale(c.source, name, scale=factors[port], delay=c.aligned_delay))
        else:
            connections.append(c.replace(target=junction, delay=c.aligned_delay) if c.target == name else c)
    if any(c.target == junction for c in connections):
        nodes[junction] = Node(junction, node.input_shape)
        places = np.arange(n * len(factors))
        connections.append(Sparse(junction, name, pre=places, post=places % n, weight=weight))
    return replace(network, nodes=nodes, connections=tuple(connections))


def _find_port(connection: Connection, node: Node) -> int | None:
    """Return the input of a node that a connection copies its source into, entry by entry; None for others."""
    n = node.n_neurons
    if not isinstance(connection, Sparse) or np.shape(connection.post) != (n,) or connection.bias is not None:
        return None
    port, places = int(connection.post[0]) // n, np.arange(n)
    is_copy = (connection.pre == places).all() and (connection.post == port * n + places).all()
    return port if is_copy and (np.asarray(connection.weight) == 1).all() else None


def find_factors(program: NeuronProgram) -> list[float] | None:
    """Return each input's coefficient in the weighted sum that the program computes of its inputs; None without one.

    The first coefficient is 1. Each input is followed through additions and multiplications by constants to the first
    operation that all inputs reach.
    """
    chains = [_follow_chain(program, name) for name in program.inputs]
    shared = next((name for name in chains[0] if all(name in chain for chain in chains)), None)
    return None if shared is None else [chain[shared] / chains[0][shared] for chain in chains]


def _follow_chain(program: NeuronProgram, value: str) -> dict[str, float]:
    """Return the linear operations that follow a value, as long as each is read once, with its factor in each."""
    read = [program.output, *(state.next for state in program.states)]
    factor, chain = 1.0, {value: 1.0}
    while True:
        users = [o for o in program.operations if value in o.operands]
        if len(users) != 1 or value in read or users[0].operands.count(value) != 1:
            return chain
        step = _find_factor(program, users[0], value)
        if not step:
            return chain
        factor, value = factor * step, users[0].result
        chain[value] = factor


def _find_factor(program: NeuronProgram, operation: Operation, value: str) -> float | None:
    """Return the factor of a value in the result of a linear operation; None if it is none."""
    kind, operands = operation.kind, operation.operands
    if kind in ("add", "sub", "neg"):
        return -1.0 if kind == "neg" or (kind == "sub" and operands[1] == value) else 1.0
    if kind not in ("mul", "div") or (kind == "div" and operands[1] == value):
        return None
    other = operands[1 - operands.index(value)]
    number = program.parameters.get(other, None) if isinstance(other, str) else other
    if number is None or np.ndim(number):
        return None
    return float(number) if kind == "mul" else 1 / float(number) if number else None


def _keep_first(program: NeuronProgram) -> NeuronProgram:
    """Return the program with its first input only; the others, which it adds, are 0."""
    known: dict[Operand, Operand] = dict.fromkeys(program.inputs[1:], 0.0)
    operations: list[Operation] = []
    for operation in program.operations:
        kind, operands = operation.kind, tuple(known.get(o, o) for o in operation.operands)
        is_zero = [o in known and known[o] == 0.0 for o in operation.operands]
        if not any(is_zero):
            operations.append(replace(operation, operands=operands))
        elif kind in ("mul", "div", "neg"):
            known[operation.result] = 0.0
        elif is_zero[1] or kind == "add":
            known[operation.result] = operands[is_zero.index(False)]
        else:
            operations.append(replace(operation, kind="neg", operands=operands[1:]))
    states = tuple(replace(state, next=known.get(state.next, state.next)) for state in program.states)
    output = known.get(program.output, program.output)
    return program.replace(operations=tuple(operations), states=states, output=output, inputs=program.inputs[:1])


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
    values: dict[str, Expression] = {}
    for operation in program.operations:
        operands = [_expression_of(operand, values) for operand in operation.operands]
        values[operation.result] = _canonical_form(operation.kind, *operands)
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
