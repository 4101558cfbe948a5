"""Split complex weights into two real connections, whose sums are packed into one synaptic input of a neuron.

A neuron has one synaptic input, so extra neurons `layer1/imag` add up the imaginary parts and send their sums in units
of 2**PART_BITS, in the same step. The real parts feed the layer directly if their sums provably fit; else `layer1/real`
adds them up and saturates. The result is equal: a sum beyond PART_BITS bits saturates a 24-bit state in any case.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from nwcompile.frontend.lava.entry import Entry
from nwcompile.frontend.lava.slayer import LARGEST_PART, PART_BITS, complex_input
from nwcompile.frontend.lava.wires import Shape, build_connection
from nwcompile.ir.connection import Connection, Conv2d
from nwcompile.ir.neuron_programs.program import NeuronProgram

UNIT_WEIGHT = 64  # Weight of the joining connections; it fits into 8 bits.
UNIT_EXPONENT = 7  # Loihi has no larger exponent.
SENT_BITS = PART_BITS - UNIT_EXPONENT - (UNIT_WEIGHT.bit_length() - 1)  # The message carries the remaining bits.


@dataclass(frozen=True)
class Parts:
    """Complex weights as parts of a network."""

    layers: dict[str, tuple[NeuronProgram, Shape]]  # neurons that add up one part
    from_source: list[Connection]  # to these neurons, or to the layer itself
    joining: list[Connection]  # from these neurons to the layer, without delay


def split_complex_weights(entry: Entry, source: str, shape: Shape, sends_spikes: bool) -> Parts:
    """Split an entry's complex weights from `source` of `shape`; `sends_spikes`: its messages are spikes of value 1."""
    layers: dict[str, tuple[NeuronProgram, Shape]] = {}
    from_source: list[Connection] = []
    joining: list[Connection] = []
    for part, bits in (("imag", SENT_BITS), ("real", 0)):
        edge, after = build_connection(entry, source, shape, part)
        if part == "real" and sends_spikes and largest_sum(edge) <= LARGEST_PART:
            from_source.append(edge)
            continue
        name = f"{entry.name}/{part}"
        layers[name] = complex_input(bits), after
        from_source.append(edge.replace(target=name))
        weight, exponent = (UNIT_WEIGHT, UNIT_EXPONENT) if bits else (1, 0)
        joining.append(
            Conv2d(
                name,
                entry.name,
                np.full((1, 1, 1, 1), weight),
                exponent=exponent,
                sign_mode="exc",
                delay=0,
                source_shape=(1, 1, prod(after)),
            )
        )
    return Parts(layers, from_source, joining)


def largest_sum(connection: Connection) -> int:
    """Return the largest possible sum of spikes at any target."""
    weight = np.abs(np.asarray(connection.weight, np.int64)) << max(0, connection.exponent)
    return int(weight.sum(tuple(range(1, weight.ndim))).max())
