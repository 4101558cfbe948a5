"""Sender scale: quantize float neurons that send sums, and the weights that read their integers."""

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.passes.analyze.grids import WeightGrid
from nwcompile.passes.quantize.program_format import Whole
from nwcompile.passes.quantize.program_scale import FixedLayer, Format, build_layer, round_weights
from nwcompile.passes.quantize.program_units import Measured
from nwcompile.passes.quantize.sums.send_sums import build_sender, message_room, sends_current


def fixed_sender(network: Network, name: str, chip: Chip, fixed: Mapping[str, FixedLayer]) -> FixedLayer:
    """Quantize neurons that send their sum; its `scale` is the integers that they send per unit of the float sum.

    Sums of the integers of other senders, which are in `fixed`, are not rounded.
    """
    node, edges = network.node(name), network.into(name)
    units = [fixed[c.source].scale for c in edges if sends_current(network, c.source)]
    grids = [WeightGrid.from_weights(np.asarray(c.weight), c.weight_bits or chip.weights.bits, chip) for c in edges]
    unit = units[0] if units else _choose_unit(network, name, grids, chip)
    rounded = round_weights(edges, grids, unit)
    room = message_room(chip)
    program = build_sender(node.neuron.name, 0 if node.neuron.operations[-1].operands[1] == 0 else -room, room)
    chosen = Format(
        fraction_bits=0,
        unit=unit,
        exponents=tuple(int(r.exponent) for r in rounded),
        sign_modes=tuple(g.sign_mode for g in grids),
        bits=tuple(g.bits for g in grids),
        parameter_bits={},
        tables={},
    )
    measured = Measured.from_program(node.neuron, unit, None)
    made = build_layer(node, measured, edges, rounded, Whole(program, {}, {}, {}), chosen)
    return replace(made, scale=unit, row=made.row | {"scale": unit})


def divide_weights(network: Network, name: str, scale: float) -> Network:
    """Divide the weights that read a sender by its scale."""
    edges = (
        c.replace(weight=np.asarray(c.weight) / np.float32(scale)) if c.source == name else c
        for c in network.connections
    )
    return replace(network, connections=tuple(edges))


def _choose_unit(network: Network, name: str, grids: list[WeightGrid], chip: Chip) -> float:
    """Return the integers per float weight at which rounding these weights, and those that read the sums, costs least.

    A larger unit makes these weights finer, and those that read the larger integers coarser.
    """
    weights = np.concatenate([np.ravel(c.weight) for c in network.into(name)]).astype(np.float64)
    largest = float(np.abs(weights).max()) or 1.0
    finest = min(g.largest * 2.0**g.finest for g in grids) / largest
    size = sqrt(np.square(weights).mean()) or 1.0
    readers = {c.target for c in network.out_of(name)}
    while senders := {reader for reader in readers if sends_current(network, reader)}:
        readers = (readers - senders) | {c.target for sender in senders for c in network.out_of(sender)}
    others = [c for reader in readers for c in network.into(reader) if not sends_current(network, c.source)]
    heaviest = max((float(np.abs(c.weight).max(initial=0)) for c in others), default=0.0)
    grid = WeightGrid.from_signs("mixed", chip.weights.bits, chip)
    return min(finest, sqrt(grid.largest * 2.0**grid.coarsest / heaviest / size)) if heaviest else finest
