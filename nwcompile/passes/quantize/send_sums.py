"""Send sums: neurons that send their synaptic sum as a signed number, and the range of such messages.

They need a chip with programmable neurons and signed numbers in messages (`analyze/nonlinear.py:can_send_sums`).
Integer sums lose nothing. `compare_currents` and `passes/fit/split_fan_in.py` use such neurons.
"""

from dataclasses import replace

import numpy as np

from nwcompile.errors import FitError, Violation
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron_programs.program import LARGEST_OUTPUT, NeuronProgram, Operation
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.analyze.grids import WeightGrid
from nwcompile.passes.analyze.state_range import largest_payload, largest_sums
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.passes.quantize.scaled_layer import set_mantissas

SUM = "sum"  # Name of the program of neurons that send their synaptic sum.


def build_sender(name: str, low: int, high: int, is_fixed: bool = True) -> NeuronProgram:
    """Return a stateless neuron that sends its clamped input; `count_safe_spikes` proves that nothing is clamped."""
    clamped = (Operation("below", "min", ("x", high)), Operation("sent", "max", ("below", low)))
    return NeuronProgram(name=name, states=(), operations=clamped, output="sent", sends="graded", is_fixed=is_fixed)


def message_room(chip: Chip) -> int:
    """Return the largest signed number that a message holds."""
    bits = chip.noc.payload_bits
    return LARGEST_OUTPUT if bits is None else min(LARGEST_OUTPUT, (1 << (bits - 1)) - 1)


def count_safe_spikes(network: Network, name: str, chip: Chip, advice: str, n_sums: int = 1) -> int | None:
    """Return how many spikes each source may send at once so that every sum fits a message; None if none sends more.

    A message is the synaptic sum of a neuron of layer `name`, or the difference of two (`n_sums` 2). Raises FitError,
    with `advice`, if one spike of each source is already too much.
    """
    room, into = message_room(chip), network.into(name)
    rise, fall = largest_sums(network, name, lambda source: (1.0, 1.0))
    largest = n_sums * max(int(rise.max(initial=0)), int(fall.max(initial=0)), 1)
    n_counts = room // largest
    if n_counts < 1:
        needed, bits = largest.bit_length() + 1, chip.noc.payload_bits
        has = LARGEST_OUTPUT.bit_length() + 1 if bits is None else bits
        raise FitError(chip.name, [Violation("payload bits", name, needed, has, advice)])
    counts = [max(largest_payload(network.node(c.source).neuron)) for c in into]
    return None if max(counts, default=0.0) <= n_counts else n_counts


def schedule_senders(network: Network, execution: str) -> Schedule:
    """Schedule neurons that send sums as late as possible, in a pipeline.

    Then spikes, not sums, wait for a skip, and relay neurons can hold spikes.
    """
    timing = schedule(network, execution)
    if timing.period > 1:
        return timing
    offset = dict(timing.offset)
    for name in sorted(network.programs, key=lambda name: -offset[name]):
        out_of = network.out_of(name)
        program = network.node(name).neuron
        if program.name == SUM and not program.states and program.sends == "graded" and out_of:
            offset[name] = min(offset[c.target] + c.aligned_delay - 1 for c in out_of)
    delay = tuple(c.aligned_delay + offset[c.target] - offset[c.source] for c in network.connections)
    return replace(timing, offset=offset, delay=delay)


def sends_current(network: Network, name: str) -> bool:
    """Return whether a float layer's neurons are those of `build_sender` that clamp nothing, or only negative sums."""
    program = network.node(name).neuron
    whole = (build_sender(SUM, low, LARGEST_OUTPUT, is_fixed=False).operations for low in (-LARGEST_OUTPUT, 0))
    return isinstance(program, NeuronProgram) and program.operations in whole and not program.is_fixed


def up_to(n_counts: int | None) -> str:
    """Return the number of simultaneous spikes that messages can hold, as text for a row; "" if always enough."""
    return "" if n_counts is None else f", for up to {n_counts} spikes of a source at once"


def connect_signed(
    source: str, target: str, pre: np.ndarray, post: np.ndarray, sign: np.ndarray, chip: Chip | None
) -> Sparse:
    """Return the synapses of weight 1 and -1 by which a target's neurons add up numbers of a source.

    They are in the chip's integers, or in float without a chip.
    """
    edge = Sparse(source, target, pre=pre, post=post, weight=np.asarray(sign, np.float32), delay=0)
    if chip is None:
        return edge
    grid = WeightGrid.from_signs("mixed", chip.weights.bits, chip)
    return set_mantissas(edge, grid.round_at(np.asarray(sign, np.float64), grid.finest), grid.sign_mode, grid.bits)
