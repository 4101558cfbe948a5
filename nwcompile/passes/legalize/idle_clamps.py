"""Idle clamps: a chip's clamp, or none, for a neuron's clamp that no reachable membrane touches.

Membranes are followed as intervals (`analyze/state_range.py`): whatever spikes arrive, none goes below the bound. A
clamp below that bound never acts, so a chip without clamps may leave it out. If the bound is 0, a chip that clamps
every membrane at 0 changes nothing.
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
from nwcompile.passes.analyze.dynamics import dynamics
from nwcompile.passes.analyze.state_range import lowest_membrane, multiply_bounds
from nwcompile.passes.prepare.fold import linear_map, row_sums
from nwcompile.sim.values import largest_payload


def idle_clamps(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """The network with the clamps that the chip has, wherever that changes no spike.

    Proved for a fixed-point network. Of a float network, these are the clamps that may turn out to be idle in integers.
    """
    nodes, changes = dict(network.nodes), []
    for name in network.built_in:
        node = network.node(name)
        wanted, was, has = _clamp(node.neuron, chip)
        if not has:
            continue
        if not network.is_fixed:
            lowest = _lowest_float(network, name, chip, payloads(chip, options))
        elif any(isinstance(c, Injected) for c in network.into(name)):  # what the host writes has no bound
            lowest = np.full(1, -inf)
        else:
            lowest = lowest_membrane(network, name, payloads(chip, options))
        if _is_idle(node.neuron, lowest, chip):
            nodes[name] = Node(name, node.shape, node.neuron.replace(v_min=wanted, clamp="maximum"))
            how = f"no membrane can be below {0 - int(-lowest.min())}"
            changes.append(Change(name, was, has, how, EXACT))
    return (Network(network.inputs, nodes, network.connections), changes) if changes else (network, [])


def payloads(chip: Chip, options: Options) -> tuple[float, float]:
    """The largest positive and the largest negative value that an input line can have on the chip."""
    if options.on_multi_spike == "repeat":
        return inf, float("bipolar" in chip.neuron.spikes)
    if options.on_multi_spike == "graded" or "multi" in chip.neuron.spikes:
        return float(largest_payload(chip, False)), float(largest_payload(chip, True))
    return 1.0, float("bipolar" in chip.neuron.spikes)


def _clamp(spec: NeuronSpec, chip: Chip) -> tuple[int | None, str, str]:
    """The clamp that the chip has instead of the neuron's, what it was, and what the chip has; "" where it has it."""
    was = "no clamp" if spec.v_min is None else "a clamp below 0" if np.any(spec.v_min) else "a clamp at 0"
    if chip.neuron.has_floor(spec):
        return None, was, ""
    return (0, was, "a clamp at 0") if chip.neuron.v_min == "zero" else (None, was, "no clamp")


def _is_idle(spec: NeuronSpec, lowest: np.ndarray, chip: Chip) -> bool:
    """Whether neither the neuron's clamp nor the chip's ever acts on membranes from `lowest` on."""
    floors = [] if spec.v_min is None else [np.max(spec.v_min)]
    floors += [0.0] if chip.neuron.v_min == "zero" else []
    return all(lowest.min() >= floor for floor in floors)


def _lowest_float(network: Network, name: str, chip: Chip, of_input: tuple[float, float]) -> np.ndarray:
    """The same bound as `lowest_membrane`, float64[n], of a layer in float; -inf where it does not know."""
    node, edges = network.node(name), network.into(name)
    if not all(isinstance(c, Direct) and not isinstance(c, Injected) for c in edges):
        return np.full(1, -inf)
    d = dynamics(network, name, chip)
    fall = np.zeros(node.n_neurons)
    for c in edges:
        source = network.node(c.source)
        high, low = of_input if source.neuron is None else (1.0, float(source.neuron.message == "bipolar"))
        weight = np.asarray(c.weight, np.float64)
        up, down = (
            row_sums(linear_map(c.replace(weight=part), source.shape, node.shape))
            for part in (np.maximum(weight, 0), np.maximum(-weight, 0))
        )
        fall += multiply_bounds(high, down) + multiply_bounds(low, up)
    per_neuron = (np.broadcast_to(x, node.shape).reshape(-1) for x in (d.factor, d.constant_u, d.constant_v))
    factor, constant_u, constant_v = per_neuron
    late = 0 if node.neuron.reset_timing == "now" else np.max(node.neuron.threshold) * (node.neuron.reset == "subtract")
    u_down = _kept(multiply_bounds(fall, factor) + np.maximum(-constant_u, 0), d.keep_u)
    return -_kept(u_down + np.maximum(-constant_v, 0) + late, d.keep_v)


def _kept(gain: np.ndarray, keep: np.ndarray) -> np.ndarray:
    lost = 1 - np.max(keep)
    return np.where(gain > 0, gain / lost if lost > 0 else inf, 0.0)
