"""Program scale: quantize layers of float neuron programs, weights on their grids and states with bits after the point.

Weights are as large as their width allows; narrow ones get the size with the smallest rounding error. For a program
that has a scale (`program_units`), a weight unit is a power of two of its states' units. Any other program multiplies
each synaptic sum by the value of a weight unit. `fixed_sender` quantizes float neurons that send sums.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Direct
from nwcompile.ir.host import Injected
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.passes.analyze.grids import Rounded, WeightGrid
from nwcompile.passes.quantize.gate_currents import build_gate, build_mark, choose_lift, is_gate, is_mark, sends_numbers
from nwcompile.passes.quantize.program_curves import argument_state, use_inverses
from nwcompile.passes.quantize.program_format import Whole, to_whole_numbers, verify_divisors
from nwcompile.passes.quantize.program_tables import ProgramTables, restore_table
from nwcompile.passes.quantize.program_units import Measured, find_counts, input_sums
from nwcompile.passes.quantize.scaled_layer import set_mantissas
from nwcompile.passes.quantize.send_sums import build_sender, message_room, sends_current
from nwcompile.sim.sequence.run import trace_layers

HEADROOM_BITS = 2  # States may become four times as large as in the calibration samples before they saturate.
ASSUMED_LARGEST = 16.0  # Without samples: the largest magnitude of a state, in units of the float program.
NARROW_BITS = 5  # Weights up to this width are clipped if that costs less than rounding the others.
CLIPS = tuple(1 - k / 20 for k in range(18))  # Of the largest weight; finer steps change the error by less than 1 %.
MOST_STATE_BITS = 24  # Then a squared state, times a coefficient, fits into 64 bits; float32 is no finer.
MOST_FRACTION_BITS = 20  # Nothing is gained beyond the resolution of float32 near 8.


@dataclass(frozen=True)
class Format:
    """The number format of a layer of programs, fixed during training.

    It has the bits after the point of its values and parameters, the integers per float weight (`unit`), and each
    connection's exponent, sign mode and bits. `tables`: the fields of each `CurveTable`, by the result of its curve.
    """

    fraction_bits: int
    unit: float
    exponents: tuple[int, ...]
    sign_modes: tuple[str, ...]
    bits: tuple[int, ...]
    parameter_bits: dict[str, int]
    tables: dict[str, dict]

    @classmethod
    def from_weights(cls, grids: Sequence[WeightGrid], rounded: Sequence[Rounded], **fields) -> "Format":
        """Return the format of weights that are `rounded` to their `grids`, with the other `fields`."""
        return cls(
            exponents=tuple(int(r.exponent) for r in rounded),
            sign_modes=tuple(g.sign_mode for g in grids),
            bits=tuple(g.bits for g in grids),
            **fields,
        )


@dataclass(frozen=True, eq=False)
class FixedLayer:
    """A layer of programs on the chip: its `node`, and its `connections` with mantissas, in the float network's order.

    `scale`: units of its readout, or else of its states, per unit of the float program. `row`: its table row as far as
    known without a run. `whole`: its program in whole numbers, `measured`: in which units. `effective`: its weights.
    """

    node: Node
    connections: tuple[Connection, ...]
    scale: float
    row: dict
    format: Format
    whole: Whole
    measured: Measured
    effective: tuple[np.ndarray, ...]

    def run_spikes(self, network: Network, sent: dict[str, np.ndarray]) -> np.ndarray:
        """Return its spikes `[B, T, *shape]` for the spikes `sent` of its sources."""
        sources = sorted({c.source for c in self.connections})
        real = next((name for name in sources if (sent[name] != np.trunc(sent[name])).any()), None)
        if real is not None:  # of a layer in a loop, which is quantized later
            raise ModelError(
                f"layer {real!r} sends numbers that are not whole; messages of chips carry whole numbers: send spikes"
            )
        inputs = {f"in {name}": Node(f"in {name}", network.node(name).shape) for name in sources}
        edges = tuple(c.replace(source=f"in {c.source}") for c in self.connections)
        alone = Network(inputs, {self.node.name: self.node}, edges)
        return trace_layers(alone, {f"in {name}": sent[name] for name in sources}, keep_states=False)[0][self.node.name]


def fixed_layer(
    network: Network, name: str, chip: Chip, states: dict[str, np.ndarray] | None, learned: Collection[str] = ()
) -> FixedLayer:
    """Quantize layer `name` of a normalized float network; `states`: of its float run with `record_arguments`.

    `learned`: parameters of programs that are trained, so they may change later. Raises ModelError.
    """
    node, edges = network.node(name), network.into(name)
    assert isinstance(node.neuron, NeuronProgram)
    verify_divisors(node.neuron)
    program = use_inverses(node.neuron, learned)  # with the names of the float run: a bias renames x
    biases = [b for c in edges if (b := c.bias_per_neuron(node.input_shape)) is not None]
    if biases and chip.neuron.programmable:
        program = program.add_input_bias(np.sum(biases, axis=0, dtype=np.float64))
    assert all(isinstance(c, Direct) and not isinstance(c, Injected) for c in network.into(name))
    grids = [WeightGrid.from_weights(np.asarray(c.weight), c.weight_bits or chip.weights.bits, chip) for c in edges]
    largest = max((float(np.abs(c.weight).max(initial=0)) for c in edges), default=0.0)
    unit = min((g.largest * 2.0**g.finest for g in grids), default=1.0) / (largest or 1.0)  # integers per float weight
    if grids and max(g.bits for g in grids) <= NARROW_BITS:  # clipping some narrow weights may round the others better
        errors = {clip: _weight_error(edges, round_weights(edges, grids, unit / clip), unit / clip) for clip in CLIPS}
        unit = unit / min(CLIPS, key=lambda clip: errors[clip])
    sums = set(input_sums(program).values())
    if sums:
        room = 2.0 ** (_state_bits(chip) - 1 - HEADROOM_BITS)
        unit = min(unit, room / _largest_state(program, states, sums))
    rounded = round_weights(edges, grids, unit)
    measured = Measured.from_program(program, unit, states, learned)
    fraction_bits = _fraction_bits(measured.program, chip, measured.states, learned)
    tables = ProgramTables.from_measured(name, measured, fraction_bits, chip, _state_bits(chip))
    whole = to_whole_numbers(
        measured.program, fraction_bits, _state_bits(chip), measured.gain, learned, table_of=tables.make_table
    )
    chosen = Format.from_weights(
        grids,
        rounded,
        fraction_bits=fraction_bits,
        unit=unit,
        parameter_bits=whole.parameter_bits,
        tables=tables.pinned,
    )
    made = build_layer(node, measured, edges, rounded, whole, chosen)
    made = replace(made, row=made.row | {"tables": tables.rows})
    if chip.neuron.programmable:
        return made
    connections = list(made.connections)  # A built-in neuron will have the biases, in weight units.
    for i, edge in enumerate(edges):
        if getattr(edge, "bias", None) is not None:
            bias = np.rint(np.asarray(edge.bias, np.float64) * unit).astype(np.int64)
            connections[i] = connections[i].replace(bias=bias)
    return replace(made, connections=tuple(connections))


def round_weights(edges: Sequence[Connection], grids: Sequence[WeightGrid], unit: float) -> list[Rounded]:
    """Round the weights to their grids, at the finest exponents."""
    return [
        g.round_within(np.asarray(c.weight, np.float64) * unit, g.largest * 2.0**g.finest)
        for c, g in zip(edges, grids, strict=True)
    ]


def quantize_at_format(
    node: Node, edges: Sequence[Connection], chip: Chip, chosen: Format, learned: Collection[str]
) -> FixedLayer:
    """Quantize a layer with a Format chosen before (used while training); biases are in the program."""
    grids = (WeightGrid.from_signs(*at, chip) for at in zip(chosen.sign_modes, chosen.bits, strict=True))
    rounded = [
        grid.round_at(np.asarray(c.weight, np.float64) * chosen.unit, exponent)
        for c, grid, exponent in zip(edges, grids, chosen.exponents, strict=True)
    ]
    program, bits = node.neuron, chosen.parameter_bits
    assert isinstance(program, NeuronProgram)
    verify_divisors(program)
    measured = Measured.from_program(program, chosen.unit, None, learned)
    whole = to_whole_numbers(
        program=measured.program,
        fraction_bits=chosen.fraction_bits,
        state_bits=_state_bits(chip),
        gain=measured.gain,
        learned=learned,
        parameter_bits=bits,
        table_of=lambda curve, _: restore_table(chosen.tables[curve.result]),
    )
    return build_layer(node, measured, edges, rounded, whole, chosen)


def build_layer(
    node: Node, measured: Measured, edges: Sequence[Connection], rounded: list[Rounded], whole: Whole, chosen: Format
) -> FixedLayer:
    """Build the layer from its integers. Raises ModelError if an operation exceeds its proven range."""
    whole.program.verify(node.name, node.shape)
    program, formats = measured.program, measured.state_formats(chosen.fraction_bits)
    of_state = {row["state"]: row["scale"] for row in formats}
    scale = measured.factor * 2.0**chosen.fraction_bits if program.fires else of_state[program.readout]
    row = {
        "layer": node.name,
        "bits": max(chosen.bits, default=None),
        "scale": scale,
        "exponents": [r.exponent for r in rounded],
        "n_weights": sum(r.effective.size for r in rounded),
        "clipped_weights": sum(r.n_clipped for r in rounded),
        "clipped_percent": 0.0,
        "weight_error_rms": _weight_error(edges, rounded, chosen.unit),
        "states": formats,
        "parameters": [{"parameter": name, "unit": measured.describe_unit(name)} for name in measured.given.parameters],
    }
    return FixedLayer(
        node=Node(node.name, node.shape, whole.program),
        connections=tuple(map(set_mantissas, edges, rounded, chosen.sign_modes, chosen.bits)),
        scale=scale,
        row=row,
        format=chosen,
        whole=whole,
        measured=measured,
        effective=tuple(r.effective for r in rounded),
    )


def _state_bits(chip: Chip) -> int:
    """Return the width of a state; on chips without programs, that of the ideal reference chip."""
    return min(chip.state.bits, MOST_STATE_BITS) if chip.neuron.programmable else MOST_STATE_BITS


def _fraction_bits(
    program: NeuronProgram, chip: Chip, states: dict[str, np.ndarray] | None, learned: Collection[str]
) -> int:
    """Return the bits after the point that leave room before it for the states and inputs of the samples.

    An input that states only add up has no bits after the point.
    """
    sums = set(input_sums(program).values())
    fine = set(program.state_names) - (find_counts(program, learned) - sums)
    inputs = {argument_state(name) for name in program.inputs} if states is not None and not sums else set()
    seen, given = (_largest_state(program, states, names) for names in (fine, inputs))
    before = int(np.ceil(np.log2(seen))) + (HEADROOM_BITS if states is not None else 0)
    before = max(before, int(np.ceil(np.log2(given))))
    bits = _state_bits(chip) - 1 - before
    if bits < 1:
        raise ModelError(
            f"program {program.name!r}: its states or inputs reach {max(seen, given):g}, and a state of {chip.name} "
            f"has {_state_bits(chip)} bits; scale the program down"
        )
    return min(bits, MOST_FRACTION_BITS)


def _largest_state(program: NeuronProgram, states: dict[str, np.ndarray] | None, names: set[str]) -> float:
    """Return the largest magnitude of these states in the samples and initially, at least 1."""
    initial = [float(np.abs(s.initial).max()) for s in program.states if s.name in names]
    seen = [ASSUMED_LARGEST] if states is None else [float(np.abs(states[n]).max(initial=0)) for n in names]
    largest = float(np.max([1.0, *initial, *seen]))
    if not np.isfinite(largest):
        raise ModelError(
            f"program {program.name!r}: its states grow without bound on the calibration samples; give it a reset or a "
            "leak that holds them"
        )
    return largest


def _weight_error(edges, rounded: list[Rounded], unit: float) -> float:
    """Return the rounding error of the weights over their root mean square."""
    pairs = [(np.asarray(c.weight, np.float64) * unit, r.effective) for c, r in zip(edges, rounded, strict=True)]
    size = sum(float(np.square(wanted).sum()) for wanted, _ in pairs)
    lost = sum(float(np.square(has - wanted).sum()) for wanted, has in pairs)
    return float(np.sqrt(lost / size)) if size else 0.0


def fixed_sender(network: Network, name: str, chip: Chip, fixed: Mapping[str, FixedLayer]) -> FixedLayer:
    """Quantize neurons that send or gate their sum; `scale` is the integers that they send per unit of the float sum.

    Sums of the integers of other senders, which are in `fixed`, are not rounded.
    """
    node, edges = network.node(name), network.into(name)
    units = [fixed[c.source].scale for c in edges if sends_current(network, c.source)]
    grids = [WeightGrid.from_weights(np.asarray(c.weight), c.weight_bits or chip.weights.bits, chip) for c in edges]
    unit = units[0] if units else _choose_unit(network, name, grids, chip)
    room = message_room(chip)
    if is_mark(node.neuron) or is_gate(node.neuron):  # their weights are 1
        rounded = [g.round_at(np.ones(np.shape(c.weight)), g.finest) for c, g in zip(edges, grids, strict=True)]
        program = (build_mark if is_mark(node.neuron) else build_gate)(choose_lift(chip))
    else:
        rounded = round_weights(edges, grids, unit)
        program = build_sender(node.neuron.name, 0 if node.neuron.operations[-1].operands[1] == 0 else -room, room)
    chosen = Format.from_weights(grids, rounded, fraction_bits=0, unit=unit, parameter_bits={}, tables={})
    measured = Measured.from_program(node.neuron, unit, None)
    made = build_layer(node, measured, edges, rounded, Whole(program, {}, {}, {}), chosen)
    return replace(made, scale=unit, row=made.row | {"scale": unit})


def _choose_unit(network: Network, name: str, grids: list[WeightGrid], chip: Chip) -> float:
    """Return the integers per float weight at which rounding these weights, and those that read the sums, costs least.

    A larger unit makes these weights finer, and those that read the larger integers coarser.
    """
    weights = np.concatenate([np.ravel(c.weight) for c in network.into(name)]).astype(np.float64)
    largest = float(np.abs(weights).max()) or 1.0
    finest = min(g.largest * 2.0**g.finest for g in grids) / largest
    size = sqrt(np.square(weights).mean()) or 1.0
    readers = {c.target for c in network.out_of(name)}
    while senders := {reader for reader in readers if sends_numbers(network, reader)}:
        readers = (readers - senders) | {c.target for sender in senders for c in network.out_of(sender)}
    others = [c for reader in readers for c in network.into(reader) if not sends_numbers(network, c.source)]
    heaviest = max((float(np.abs(c.weight).max(initial=0)) for c in others), default=0.0)
    grid = WeightGrid.from_signs("mixed", chip.weights.bits, chip)
    return min(finest, sqrt(grid.largest * 2.0**grid.coarsest / heaviest / size)) if heaviest else finest
