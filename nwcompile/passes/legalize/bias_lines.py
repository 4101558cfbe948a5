"""Bias lines: replace a bias by the weight of an input line that is always on, if the chip's neurons have no bias.

A synapse from such a line adds to the synaptic sum what the bias adds, in the layer's own steps. The line reaches
deeper layers through the pipeline's delays, or through relay neurons if the chip has no delays (`relay_delays`). So the
spikes equal those of a neuron whose bias is this weight.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense, Direct
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import holds_mantissas, layer_dynamics
from nwcompile.sim.reference.synaptic_sums import fold_bias

LINE = "always on"  # Name of the input, extended if the network already has it.


def bias_lines(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Replace biases by weights of one line that is always on, if the chip's neurons have no bias.

    Biases behind a current stay, and so do integers that are not weights of the chip.
    """
    if chip.neuron.bias:
        return network, []
    line = LINE
    while line in network.inputs or line in network.nodes:
        line += " too"
    nodes, edges, changes = dict(network.nodes), list(network.connections), []
    for name in network.built_in:
        parts = _fixed_line(network, name, chip) if network.is_fixed else _float_line(network, name, chip)
        if parts is None:
            continue
        spec, weight = parts
        nodes[name] = Node(name, nodes[name].shape, spec)
        edges = [
            c.replace(bias=None) if c.target == name and getattr(c, "bias", None) is not None else c for c in edges
        ]
        edges.append(Dense(line, name, weight.reshape(-1, 1)))
        changes.append(Change(name, "a bias", "no bias", "weights from an input line that is always on", EXACT))
    if not changes:
        return network, []
    inputs = {**network.inputs, line: Node(line, (1,), None, 1)}
    return Network(inputs, nodes, tuple(edges)), changes


def _float_line(network: Network, name: str, chip: Chip) -> tuple[NeuronSpec, np.ndarray] | None:
    """Return the neurons without their constants, and the weights that replace them; None if there are none."""
    if not all(isinstance(c, Direct) for c in network.into(name)):
        return None  # `estimate` refuses a maximum
    node = network.node(name)
    spec, d = node.neuron, layer_dynamics(network, name, chip)
    has_current = spec.alpha is not None
    constant = d.constant_u if has_current else d.constant_v
    if not np.any(constant) or not np.all(d.factor) or (has_current and np.any(d.constant_v)):
        return None
    weight = np.broadcast_to(constant / d.factor, node.shape).astype(np.float32)
    return spec.replace(bias=0.0, leak=0.0, v_leak=0.0), weight


def _fixed_line(network: Network, name: str, chip: Chip) -> tuple[NeuronSpec, np.ndarray] | None:
    """Return the same for integers, if every bias is a weight of the chip."""
    node = fold_bias(network, network.node(name))
    spec, fixed = node.neuron, node.neuron.fixed
    bias_u, bias_v = (spec.array(key, node.shape) for key in ("bias_u", "bias"))
    if not bias_u.any() and not bias_v.any():
        return None
    forgets = np.all(spec.array("decay_u", node.shape) == fixed.fastest)
    if bias_v.any() and (not forgets or np.any(bias_v % (1 << fixed.shift_bits))):
        return None
    weight = bias_u + (bias_v >> fixed.shift_bits)
    is_held = holds_mantissas(weight, chip, "mixed") and chip.weights.exponent_min <= 0 <= chip.weights.exponent_max
    return (spec.replace(bias=0, bias_u=0), weight.astype(np.int32)) if is_held else None
