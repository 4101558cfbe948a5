"""Prove: report idle clamps, exact comparisons and lasting currents of integers, where v > t is v >= t + 1.

`prove` runs after quantization. `same_comparison` is a rewriting of networks that are given in integers: it shifts a
threshold by one for the chip's comparison, if the spikes stay equal.
"""

from math import inf

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Direct
from nwcompile.ir.host import Injected
from nwcompile.ir.manifest import APPROXIMATE, EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import largest_threshold, layer_dynamics
from nwcompile.passes.analyze.state_range import lowest_membrane, multiply_bounds
from nwcompile.passes.legalize.multiply_spikes import verify_pairs
from nwcompile.passes.prepare.fold import linear_map, row_sums
from nwcompile.sim.values import largest_payload

COMPARISON = {True: "v > threshold", False: "v >= threshold"}  # by `strict`


def same_comparison(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Use the chip's comparison in a fixed-point network if a neighboring threshold is equivalent."""
    nodes, changes = dict(network.nodes), []
    for name in network.built_in if network.is_fixed else ():
        spec = nodes[name].neuron
        if not spec.fires or spec.strict in chip.neuron.strict or not only_compares(spec):
            continue
        threshold = np.asarray(spec.threshold, np.int64) + (1 if spec.strict else -1)
        unit = 1 << chip.neuron.threshold_shift_bits
        if np.any(threshold % unit) or threshold.min() < 0 or threshold.max() > largest_threshold(chip):
            continue
        nodes[name] = Node(name, nodes[name].shape, spec.replace(strict=not spec.strict, threshold=threshold))
        changes.append(comparison_change(name, spec.strict))
    return (Network(network.inputs, nodes, network.connections), changes) if changes else (network, [])


def comparison_change(name: str, strict: bool) -> Change:
    how = f"the threshold one {'higher' if strict else 'lower'}: the same for whole numbers"
    return Change(name, COMPARISON[bool(strict)], COMPARISON[not strict], how, EXACT)


def only_compares(spec: NeuronSpec) -> bool:
    """Return whether the threshold is only compared: resets do not subtract it, and spikes are not counted by it."""
    return spec.reset != "subtract" and spec.spikes == "binary"


def prove(float_network: Network, fixed: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Apply rewritings to the quantized network that its integers prove exact, and return their rows."""
    verify_pairs(fixed, chip)
    proved, changes = idle_clamps(fixed, chip, options)
    return proved, [*list_comparison_changes(float_network, fixed, chip), *changes]


def list_comparison_changes(network: Network, fixed: Network, chip: Chip) -> list[Change]:
    """Return rows for layers of a float network whose quantized thresholds use the other comparison, exactly.

    If thresholds are coarser than membranes, the other comparison is a rounding of the threshold, which the
    quantization table reports (`strict_change`).
    """
    if network.is_fixed:
        return []
    neurons = ((name, network.node(name).neuron, fixed.node(name).neuron) for name in network.built_in)
    return [
        comparison_change(name, wanted.strict)
        for name, wanted, has in neurons
        if wanted.fires and wanted.strict != has.strict and only_compares(wanted) and _is_on_grid(has, chip)
    ]


def lasting_currents(network: Network, fixed: Network) -> list[Change]:
    """Return rows for layers of a float network without synaptic current whose quantized neurons have a lasting one.

    A decay by a shift of 0 after the sum would remove all of it, so these currents halve.
    """
    changes = []
    for name in () if network.is_fixed else network.built_in:
        spec = fixed.node(name).neuron
        kept = 1 - spec.fixed.lost(spec.decay_u)
        if network.node(name).neuron.alpha is None and np.any(kept):
            has = f"a current that keeps {100 * float(np.max(kept)):.3g} % of itself in a step"
            how = "a spike adds as much to the membrane in all, over several steps"
            changes.append(Change(name, "no synaptic current", has, how, APPROXIMATE))
    return changes


def _is_on_grid(spec: NeuronSpec, chip: Chip) -> bool:
    """Return whether membranes are always multiples of the unit of thresholds.

    They are if that unit is 1. Otherwise sums must be shifted by at least as much, no rounding leak may exist, and
    biases must be multiples too.
    """
    unit_bits = chip.neuron.threshold_shift_bits
    if unit_bits == 0:
        return True
    assert spec.fixed is not None
    lost_u, lost_v = (spec.fixed.lost(decay) for decay in (spec.decay_u, spec.decay_v))
    never_rounds = not np.any(lost_v) and np.isin(lost_u, (0, 1)).all()
    biases = np.asarray(spec.bias, np.int64) % (1 << unit_bits)
    return bool(never_rounds and spec.fixed.shift_bits >= unit_bits and not biases.any())


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
