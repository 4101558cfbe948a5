"""Halving: the partitioner of Lava's compiler for Loihi 2, as far as it is described in public.

    nwcompile compile demo --chip loihi2 --partitioner benchmarks.halving:halve --plan-only

The README of OzU-CAST/LoihiScalingEfficiency: every layer with its synapses is one core without limits, which is
divided until all constraints hold. Assumed: halves are contiguous neurons, and only cores that exceed a limit are
halved. Layers never share a core. It is also an example of a method of one's own (docs/mapping.md).
"""

import numpy as np

import nwcompile as nw
from nwcompile.ir.flat import layer_numbers, split_layers
from nwcompile.passes.analyze.capacity import site_limits, used_by_core


def halve(network: nw.Network, chip: nw.Chip, activity, options: nw.Options) -> dict[str, np.ndarray]:
    """Return the core of every neuron, {layer: int[n]}; `activity` and `options` are not used."""
    core_of, limits = layer_numbers(network).astype(np.int32), site_limits(chip).max(0)
    while True:
        used = used_by_core(network, chip, core_of, int(core_of.max()) + 1)
        size = np.bincount(core_of)
        is_over = (used > limits[: used.shape[1]]).any(1) & (size > 1)
        if not is_over.any():
            return split_layers(network, core_of)
        rank = np.arange(len(core_of)) - np.searchsorted(core_of, core_of)
        in_second_half = is_over[core_of] & (rank >= size[core_of] // 2)
        core_of = np.unique(2 * core_of + in_second_half, return_inverse=True)[1].astype(np.int32)
