"""Fold filters: move linear filters of spikes from the front of weights into the neurons behind them.

A filter, such as a trace of spikes, sends real numbers, which no message carries. It may change places with weights,
because both are linear: the neurons behind the weights filter their synaptic sums instead.
"""

from dataclasses import replace

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operand
from nwcompile.ir.options import Options
from nwcompile.passes.prepare.normalize import normalize

N_VARYING = {"add": 2, "sub": 2, "neg": 1, "mul": 1, "div": 1}  # linear operations: operands that are no constants


def fold_filters(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Make every filter a part of the neurons behind it, if they are programs that it feeds alone."""
    changes: list[Change] = []
    read = set() if network.readout is None else {layer for layer, _ in network.readout.records}
    for name in () if network.is_fixed else (name for name in network.programs if name not in read):
        node, out = network.node(name), network.out_of(name)
        alone = (c.target in network.programs and c.is_linear and network.into(c.target) == (c,) for c in out)
        gated = any(network.node(c.target).n_inputs > 1 for c in out)
        if is_filter(node.neuron) and out and not gated and all(alone):
            nodes = {**network.nodes, name: Node(name, node.shape)}
            for c in out:
                reader, bias = network.node(c.target), c.bias_per_neuron(network.node(c.target).shape)
                program = reader.neuron if bias is None else reader.neuron.add_input_bias(bias)
                nodes[c.target] = Node(c.target, reader.shape, _prepend_filter(node.neuron, program))
            edges = (c.replace(bias=None) if c in out else c for c in network.connections)
            network = replace(network, nodes=nodes, connections=tuple(edges))
            how = f"behind the weights, in the neurons of {', '.join(c.target for c in out)}"
            changes.append(Change(name, "a filter that sends real numbers", "messages of spikes", how, EXACT))
    return (normalize(network) if changes else network), changes


def is_filter(program: NeuronProgram) -> bool:
    """Return whether neurons send a linear function of their input, now and earlier, with the same numbers in all."""
    fixed = {name for name, value in program.parameters.items() if np.size(value) == 1}
    for operation in program.operations:
        constants = [not isinstance(o, str) or o in fixed for o in operation.operands]
        if N_VARYING.get(operation.kind) != constants.count(False) or (operation.kind == "div" and constants[0]):
            return False
    ends = (program.output, *(state.next for state in program.states))
    begins_at_0 = not any(np.any(state.initial) for state in program.states)
    varies = all(isinstance(o, str) and o not in program.parameters for o in ends)
    return program.sends == "graded" and begins_at_0 and varies and fixed == set(program.parameters)


def _prepend_filter(first: NeuronProgram, program: NeuronProgram) -> NeuronProgram:
    """Return a program whose synaptic input goes through the filter `first`."""
    taken = {*program.parameters, *program.state_names, *(o.result for o in program.operations)}
    prefix = "filter_"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"

    def rename(operand: Operand) -> Operand:
        return f"{prefix}{operand}" if isinstance(operand, str) and operand != INPUT else operand

    def read_filter(operand: Operand) -> Operand:
        return rename(first.output) if operand == INPUT else operand

    filtering = (
        replace(o, result=f"{prefix}{o.result}", operands=tuple(map(rename, o.operands))) for o in first.operations
    )
    rest = (replace(o, operands=tuple(map(read_filter, o.operands))) for o in program.operations)
    states = (replace(s, name=f"{prefix}{s.name}", next=rename(s.next)) for s in first.states)
    return program.replace(
        operations=(*filtering, *rest),
        states=(*(replace(s, next=read_filter(s.next)) for s in program.states), *states),
        output=read_filter(program.output),
        parameters={**program.parameters, **{f"{prefix}{n}": value for n, value in first.parameters.items()}},
    )
