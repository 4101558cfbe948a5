"""Complex weights: two real connections, whose sums reach the neurons packed in one synaptic input.

A neuron has one synaptic input, so the imaginary parts are added up by neurons of their own, `layer1/imag`, which send
their sums on in units of 2**PART_BITS, in the same step. The real parts reach the layer itself where their sums are
proved to be small enough; else `layer1/real` adds them up, and saturates. That changes nothing: a state of 24 bits is
full after a sum of PART_BITS bits, whatever it was.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from nwcompile.frontend.lava.entry import Entry
from nwcompile.frontend.lava.slayer import LARGEST_PART, PART_BITS, complex_input
from nwcompile.frontend.lava.wires import Shape, build_connection
from nwcompile.ir.connection import Connection, Conv2d
from nwcompile.ir.neuron_programs.program import NeuronProgram

UNIT_WEIGHT = 64  # Weights of the connections that join neuron to neuron: any chip of 8 bits holds it.
UNIT_EXPONENT = 7  # Loihi has no larger one.
SENT_BITS = PART_BITS - UNIT_EXPONENT - (UNIT_WEIGHT.bit_length() - 1)  # Messages have what no weight is worth.


@dataclass(frozen=True)
class Parts:
    """Complex weights as parts of a network."""

    layers: dict[str, tuple[NeuronProgram, Shape]]  # neurons that add up a part
    from_source: list[Connection]  # into these, or into the layer itself
    joining: list[Connection]  # from these into the layer, without delay


def split_complex_weights(entry: Entry, source: str, shape: Shape, sends_spikes: bool) -> Parts:
    """The complex weights of an entry, fed by `source`, which has `shape` and `sends_spikes` of 1 and nothing else."""
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
    """What spikes can add up to, at any target."""
    weight = np.abs(np.asarray(connection.weight, np.int64)) << max(0, connection.exponent)
    return int(weight.sum(tuple(range(1, weight.ndim))).max())
