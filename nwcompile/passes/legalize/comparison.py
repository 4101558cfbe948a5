"""Comparison: shift a fixed-point threshold by one for the chip's comparison, if the spikes stay equal."""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import largest_threshold

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
