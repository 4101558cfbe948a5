"""Prove: report idle clamps, exact comparisons and lasting currents of integers, where v > t is v >= t + 1.

`prove` runs after quantization. `same_comparison` is a rewriting of networks that are given in integers: it shifts a
threshold by one for the chip's comparison, if the spikes stay equal.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import APPROXIMATE, EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import largest_threshold
from nwcompile.passes.legalize.idle_clamps import idle_clamps
from nwcompile.passes.legalize.multiply_spikes import verify_pairs

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
