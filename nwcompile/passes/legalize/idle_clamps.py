"""Idle clamps: use the chip's clamp, or none, for a neuron's clamp that no reachable membrane touches.

Membranes are bounded by interval arithmetic (`analyze/state_range.py`): no spikes can drive one below the bound. A
clamp below that bound never acts, so a chip without clamps may drop it. If the bound is 0, a chip that clamps every
membrane at 0 changes nothing.
"""

from math import inf

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Direct
from nwcompile.ir.host import Injected
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import layer_dynamics
from nwcompile.passes.analyze.state_range import lowest_membrane, multiply_bounds
from nwcompile.passes.prepare.fold import linear_map, row_sums
from nwcompile.sim.values import largest_payload


def idle_clamps(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Use the clamps that the chip has, wherever that changes no spike.

    This is proven for fixed-point networks. For a float network it predicts which clamps are idle after quantization.
    """
    nodes, changes = dict(network.nodes), []
    for name in network.built_in:
        node = network.node(name)
        wanted, was, has = _chip_clamp(node.neuron, chip)
        if not has:
            continue
        if not network.is_fixed:
            lowest = _lowest_float(network, name, chip, input_payloads(chip, options))
        elif any(isinstance(c, Injected) for c in network.into(name)):  # values that the host writes have no bound
            lowest = np.full(1, -inf)
        else:
            lowest = lowest_membrane(network, name, input_payloads(chip, options))
        floors = [] if node.neuron.v_min is None else [np.max(node.neuron.v_min)]
        floors += [0.0] if chip.neuron.v_min == "zero" else []
        if all(lowest.min() >= floor for floor in floors):  # neither clamp ever acts
            nodes[name] = Node(name, node.shape, node.neuron.replace(v_min=wanted, clamp="maximum"))
            how = f"no membrane can be below {0 - int(-lowest.min())}"
            changes.append(Change(name, was, has, how, EXACT))
    return (Network(network.inputs, nodes, network.connections), changes) if changes else (network, [])


def input_payloads(chip: Chip, options: Options) -> tuple[float, float]:
    """Return the largest positive and the largest negative value of an input line on the chip."""
    if options.on_multi_spike == "repeat":
        return inf, float("bipolar" in chip.neuron.spikes)
    if options.on_multi_spike == "graded" or "multi" in chip.neuron.spikes:
        return float(largest_payload(chip, False)), float(largest_payload(chip, True))
    return 1.0, float("bipolar" in chip.neuron.spikes)


def _chip_clamp(spec: NeuronSpec, chip: Chip) -> tuple[int | None, str, str]:
    """Return the chip's clamp, and texts of the neuron's and the chip's; the last is "" if supported."""
    was = "no clamp" if spec.v_min is None else "a clamp below 0" if np.any(spec.v_min) else "a clamp at 0"
    if chip.neuron.has_floor(spec):
        return None, was, ""
    return (0, was, "a clamp at 0") if chip.neuron.v_min == "zero" else (None, was, "no clamp")


def _lowest_float(network: Network, name: str, chip: Chip, of_input: tuple[float, float]) -> np.ndarray:
    """Return the bound of `lowest_membrane`, float64[n], for a float layer; -inf if unknown."""
    node, edges = network.node(name), network.into(name)
    if not all(isinstance(c, Direct) and not isinstance(c, Injected) for c in edges):
        return np.full(1, -inf)
    d = layer_dynamics(network, name, chip)
    fall = np.zeros(node.n_neurons)
    for c in edges:
        source = network.node(c.source)
        high, low = of_input if source.neuron is None else (1.0, float(source.neuron.message == "bipolar"))
        weight = np.asarray(c.weight, np.float64)
        for largest, part in ((high, -weight), (low, weight)):
            if largest > 0:
                positive = linear_map(c.replace(weight=np.maximum(part, 0)), source.shape, node.shape)
                fall += multiply_bounds(largest, row_sums(positive))
    per_neuron = (np.broadcast_to(x, node.shape).reshape(-1) for x in (d.factor, d.constant_u, d.constant_v))
    factor, constant_u, constant_v = per_neuron
    late = 0 if node.neuron.reset_timing == "now" else np.max(node.neuron.threshold) * (node.neuron.reset == "subtract")
    u_down = _bound_leaky(multiply_bounds(fall, factor) + np.maximum(-constant_u, 0), d.keep_u)
    return -_bound_leaky(u_down + np.maximum(-constant_v, 0) + late, d.keep_v)


def _bound_leaky(gain: np.ndarray, keep: np.ndarray) -> np.ndarray:
    lost = 1 - np.max(keep)
    return np.where(gain > 0, gain / lost if lost > 0 else inf, 0.0)
