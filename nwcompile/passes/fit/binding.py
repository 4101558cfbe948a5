"""Binding: the resource that fills each core most, in words, for every mapping wherever it was made."""

from dataclasses import replace

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.passes.fit import capacity

WORDS = {"neurons": "neurons", "in_axons": "fan-in axons", "out_axons": "fan-out axons",
         "synapse_bits": "synapse memory"}  # fmt: skip


def notes(used: np.ndarray, limits: np.ndarray) -> dict[int, str]:
    """By core: what fills it most and how far, like `fan-in axons 86 %`.

    `used`, `limits`: int64[core, resource], in the order of `capacity.LIMITS`.
    """
    words, fill = list(WORDS.values()), used / limits
    return {c: f"{words[int(row.argmax())]} {round(100 * row.max())} %" for c, row in enumerate(fill)}


def noted(mapping: Mapping, network: Network, chip: Chip) -> Mapping:
    """The mapping with `notes` of its cores at their sites, which it must fit."""
    core_of = np.concatenate([mapping.core_of[name] for name in network.layers])
    used = capacity.used_by_core(network, chip, core_of, mapping.n_cores)
    limits = capacity.site_limits(chip)[chip.site_index(mapping.site_of), : used.shape[1]]
    return replace(mapping, note=notes(used, limits))
