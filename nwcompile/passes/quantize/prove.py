"""Prove: report idle clamps, exact comparisons and lasting currents of integers, where v > t is v >= t + 1."""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import APPROXIMATE, Change
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.legalize.comparison import comparison_change, only_compares
from nwcompile.passes.legalize.idle_clamps import idle_clamps
from nwcompile.passes.legalize.multiply_spikes import verify_pairs


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
