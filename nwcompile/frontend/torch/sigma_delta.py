"""Replace ReLUs by sigma-delta neurons: an artificial network that sends changes of its activations.

A layer counts its activations in levels, as an integer network does. Its neurons add up the received changes (sigma)
and send the change of their level since the last message (delta) if it is at least the threshold. The bias is the
initial sum. lava's neurons (lava.proc.sdn) store unsent changes in a residue, which is equivalent; they send fractions,
the neurons here round to the nearest level.
"""

import numpy as np

from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable
from nwcompile.passes.prepare.normalize import normalize


def sigma_delta(levels: int, threshold: int, bias) -> NeuronProgram:
    """Return neurons for a ReLU with `levels` above 0; `threshold` and `bias` are in levels."""
    steps = [
        ("total", "add", "sigma", "x"),
        ("positive", "max", "total", 0),
        ("clipped", "min", "positive", "levels"),
        ("nearest", "add", "clipped", 0.5),
        ("level", "floor", "nearest"),
        ("change", "sub", "level", "told"),
        ("size", "abs", "change"),
        ("is_sent", "le", "threshold", "size"),
        ("message", "select", "is_sent", "change", 0),
        ("told_next", "add", "told", "message"),
    ]
    return NeuronProgram(
        name="sigma_delta_relu",
        states=(StateVariable("sigma", "total", bias), StateVariable("told", "told_next")),
        operations=_build_operations(steps),
        output="message",
        sends="graded",
        parameters={"levels": levels, "threshold": threshold},
    )


def sigma_readout(bias) -> NeuronProgram:
    """Return a readout: a bias plus the sum of the received changes."""
    return NeuronProgram(
        name="sigma_readout",
        states=(StateVariable("sigma", "total", bias),),
        operations=_build_operations([("total", "add", "sigma", "x")]),
        output="sigma",
        sends="none",
    )


def convert_to_sigma_delta(
    network: Network, worth: dict[str, float], levels: dict[str, int], threshold: dict[str, int], unit: float
) -> Network:
    """Convert a network to sigma-delta neurons: layers in `worth` replace ReLUs, others become readouts.

    `worth`: the value of a level of the layer, in units of the network. `unit`: the value of an input of 1.
    """
    network = normalize(network)
    value = dict.fromkeys(network.inputs, unit) | worth
    nodes: dict[str, Node] = {}
    connections = []
    for name, node in network.nodes.items():
        edges = network.into(name)
        biases = (c.bias_per_neuron(node.shape) for c in edges)
        bias = sum((b.astype(np.float64) for b in biases if b is not None), 0.0)
        level = worth.get(name, 1.0)
        start = np.asarray(bias / level, np.float32)
        program = sigma_delta(levels[name], threshold[name], start) if name in worth else sigma_readout(start)
        nodes[name] = Node(name, node.shape, program)
        for c in edges:
            weight = np.asarray(c.weight, np.float64) * (value[c.source] / level)
            connections.append(c.replace(weight=weight.astype(np.float32), bias=None))
    made = Network(network.inputs, nodes, tuple(connections))
    made.verify()
    return made


def _build_operations(steps: list[tuple]) -> tuple[Operation, ...]:
    return tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps)
