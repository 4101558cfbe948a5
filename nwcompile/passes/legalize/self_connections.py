"""Self-connections: replace subtraction by a synapse of weight -threshold to itself, on chips without resets.

If the synaptic current decays within a step, a neuron's own spike has the effect of a late subtraction (`next`) one
step later, right after the leak: dec(v) + input - threshold. An immediate subtraction is equivalent if the membrane
does not leak (`reset_timing.py`). Only integers can show that the threshold is a weight of the chip, so only networks
that are given in integers are rewritten.
"""

import numpy as np

from nwcompile.ir.arithmetic import mantissa_range, mantissa_step
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.state_range import state_range


def self_connections(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Replace subtractions of a fixed-point network by self-connections, on a chip whose only reset is `none`."""
    nodes, edges, changes = dict(network.nodes), [], []
    for name in network.built_in if network.is_fixed and chip.neuron.reset == ["none"] else ():
        node = nodes[name]
        synapses = _self_edges(node, chip) if _subtracts_late(node.neuron) and _has_room(network, node, chip) else None
        if synapses is None:
            continue
        nodes[name] = Node(name, node.shape, node.neuron.replace(reset="none", reset_timing="now"))
        edges.append(synapses)
        was, how = "reset subtract", "each neuron's own spike takes its threshold off in the next step"
        changes.append(Change(name, was, "no reset", how, EXACT))
    return (Network(network.inputs, nodes, (*network.connections, *edges)), changes) if edges else (network, [])


def _subtracts_late(spec: NeuronSpec) -> bool:
    """Return whether the subtraction equals one right after the leak of the next step, in every state."""
    fixed = spec.number_format
    is_late = spec.reset_timing == "next" or (spec.reset_timing == "now" and not np.any(fixed.lost(spec.decay_v)))
    forgets = np.all(np.asarray(spec.decay_u) == fixed.fastest)
    plain = spec.fires and spec.spikes == "binary" and spec.v_min is None and np.max(spec.refractory) <= 1
    return bool(spec.reset == "subtract" and is_late and forgets and plain and np.min(spec.threshold) >= 0)


def _has_room(network: Network, node: Node, chip: Chip) -> bool:
    """Return whether a neuron may have one more destination, and its current can hold its threshold in addition."""
    limit = chip.limit("max_neuron_destinations")
    feeds_others = any(c.target != node.name for c in network.out_of(node.name))
    u_bound = state_range(network, node.name, None, None).u_bound
    largest = (1 << (chip.state.bits - 1)) - 1
    holds = u_bound is not None and u_bound + int(np.max(node.neuron.threshold)) <= largest
    return holds and (limit is None or int(limit.max()) > feeds_others)


def _self_edges(node: Node, chip: Chip) -> Sparse | None:
    """Return one synapse of weight -threshold per neuron, or None if the chip has no such weights."""
    can, shift = chip.weights, node.neuron.fixed.shift_bits
    threshold = node.neuron.array("threshold", node.shape).reshape(-1)
    low, _ = mantissa_range(can.bits, can.bits, can.step, "mixed")
    step = mantissa_step(can.bits, can.bits, can.step, "mixed")
    for exponent in range(max(can.exponent_min, 0), can.exponent_max + 1):
        unit = 1 << (shift + exponent)
        mantissa = -(threshold // unit)
        is_held = low <= mantissa.min() and not np.any((mantissa - low) % step)
        if not np.any(threshold % unit) and is_held and (threshold >> shift).max() <= can.effective_limit:
            every = np.arange(node.n_neurons)
            weight = mantissa.astype(np.int32)
            return Sparse(node.name, node.name, pre=every, post=every, weight=weight, exponent=exponent, delay=1)
    return None
