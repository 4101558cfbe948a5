"""Merge inputs: neurons that only add up their synaptic inputs get one, the sum of all, as chips compute it."""

from dataclasses import replace

import numpy as np

from nwcompile.ir.connection import Connection, Scale, Sparse
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operand, Operation


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
    """Return the factor of each input in the sum that a program makes of them, 1 for the first; None if it makes none.

    From each input, a chain of sums and of products with numbers leads to a sum that all chains share.
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
