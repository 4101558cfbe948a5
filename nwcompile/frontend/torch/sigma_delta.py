"""Sigma-delta neurons in the place of ReLUs: an artificial network that sends changes of its activations.

A layer counts activations in levels of its own, as an integer network does. Its neurons add up the changes that they
hear (sigma), and send how many levels the activation has changed since they last told it (delta), where that is the
threshold or more. The bias is where a sum begins. lava's neurons (lava.proc.sdn) keep what was too small to be sent as
a residue, which comes to the same; theirs send fractions, these round to the nearest level.
"""

import numpy as np

from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable
from nwcompile.passes.prepare.normalize import normalize


def sigma_delta(levels: int, threshold: int, bias) -> NeuronProgram:
    """Neurons of a ReLU that has `levels` above 0; `threshold` in levels, `bias` likewise."""
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
    """A readout: a bias, and the sum of the changes that it hears."""
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
    """A network of neurons, those of the layers `worth` in place of ReLUs, as one of sigma-delta neurons.

    `worth`: what a level of the layer is worth in the units of the network; `unit`: what a 1 of its input is.
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
