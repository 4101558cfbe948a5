"""Host: the part of a program that the CPU computes before the chip, in float.

There are four modes for real-valued input (`options.INPUT_LAYERS`). `exact`: signed integers are split into two lines,
one per sign. `bias`: the host computes the linear map before the first layer and writes the result into the bias
registers of that layer's neurons. `graded`: the values, rounded to integers, are the payload of messages. `host`: the
layers up to the first spiking one run on the host, and their spikes are the chip's input.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from nwcompile.errors import ArtifactError
from nwcompile.ir.connection import Conv1d, Conv2d, Dense, Sparse
from nwcompile.ir.network import Network, Node
from nwcompile.ir.options import INPUT_LAYERS

ERROR_CODE = "NW7001"


@dataclass(frozen=True, eq=False)
class Injected(Sparse):
    """The bias registers of a layer, modeled as an input: one number per neuron, added to its synaptic sum.

    This defines what backends add. The chip has no synapse, axon or message for it.
    """


@dataclass(frozen=True, eq=False)
class Encoding:
    """Encoding of layer `layer` of the host network as one input of the chip.

    Without a `scale` the input is the layer's spikes. With one it is the membrane x as an integer, `scale * x + offset`
    (both broadcast to the layer), rounded to the nearest integer and clipped to `low..high`. If `register` names a
    layer, the value is added to the synaptic sums of that layer's neurons. Their registers hold it, shifted left by
    `shift_bits`, as a signed mantissa of `mantissa_bits` with an exponent 0..`exponent_max`. `neurons`, int64[n],
    selects neurons of `layer`; None: all.
    """

    layer: str
    scale: np.ndarray | float | None = None
    offset: np.ndarray | float = 0.0
    low: int = 0
    high: int = 0
    register: str | None = None
    mantissa_bits: int | None = None
    exponent_max: int = 0
    shift_bits: int = 0
    neurons: np.ndarray | None = None

    def verify(self, name: str, network: Network, on_chip: Network) -> None:
        """Raise ArtifactError unless `layer` of the host's `network` can be input `name` of the network on the chip."""
        node = network.nodes.get(self.layer)
        counts = (self.low, self.high, 1 if self.mantissa_bits is None else self.mantissa_bits)
        good = node is not None and node.neuron is not None and node.neuron.fires is (self.scale is None)
        good = good and all(type(n) is int for n in counts)
        good = good and all(type(n) is int and 0 <= n < 32 for n in (self.exponent_max, self.shift_bits))
        if node is not None and good and self.scale is not None:
            numbers = [np.asarray(x) for x in (self.scale, self.offset)]
            good = all(x.dtype.kind in "iuf" and x.shape in ((), node.shape) for x in numbers) and self.low <= self.high
            good = good and all(np.isfinite(x).all() for x in numbers) and 0 < counts[2] <= 32
        n_given = node.n_neurons if node is not None and good else 0
        if good and self.neurons is not None:
            good = getattr(self.neurons, "dtype", None) == np.int64 and self.neurons.ndim == 1
            good = good and bool(((self.neurons >= 0) & (self.neurons < n_given)).all())
            n_given = len(self.neurons) if good else 0
        taken = on_chip.inputs.get(name) if self.register is None else on_chip.nodes.get(self.register)
        if not good or taken is None or taken.n_neurons != n_given:
            raise ArtifactError(f"host: input {name!r} is not made of a layer of the host network; compile it again")


@dataclass(frozen=True, eq=False)
class Host:
    """The float `network` that the CPU runs once per sample, and `gives`: the Encoding of each input of the chip.

    The inputs of `network` are the user's inputs that the chip cannot take unchanged. `way` is one of INPUT_LAYERS. If
    `is_static`, registers cannot be written in every step, so a sample must be the same in all steps.
    """

    way: str
    network: Network
    gives: dict[str, Encoding]
    is_static: bool = False

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers that spike on the host."""
        return tuple(name for name in self.network.layers if self.network.node(name).neuron.fires)

    @property
    def n_neurons(self) -> int:
        """Number of neurons that spike on the host."""
        return sum(self.network.node(name).n_neurons for name in self.layers)

    @property
    def registers(self) -> dict[str, str]:
        """Layer that owns the registers of an input, by input; inputs without registers are left out."""
        return {name: e.register for name, e in self.gives.items() if e.register is not None}

    @cached_property
    def macs(self) -> int:
        """Multiplications with weights per step and sample."""
        return sum(_count_macs(self.network, c) for c in self.network.connections)

    @property
    def summary(self) -> str:
        """One line that says how input reaches the chip."""
        names = ", ".join(dict.fromkeys(e.register or e.layer for e in self.gives.values()))
        if self.way == "exact":
            return "signed input comes on two lines, one for each sign, exactly"
        if self.way == "graded":
            bits = max((e.high - e.low).bit_length() for e in self.gives.values())
            return f"the host rounds input to integers of {bits} bits, which graded messages carry"
        if self.way == "host":
            work = f"{self.macs} multiplications per step"
            return f"{', '.join(self.layers)} on the host ({work}); the chip gets the spikes of {names}"
        n_neurons = sum(self.network.node(e.layer).n_neurons for e in self.gives.values() if e.neurons is None)
        when = "for a sample" if self.is_static else "for a sample that stays, else in every step"
        return (
            f"the host computes the linear map into {names} ({self.macs} multiplications) and writes it into the "
            f"biases of {n_neurons} neurons, once {when}"
        )

    @property
    def has_delays(self) -> bool:
        """Whether a step depends on earlier steps."""
        return bool(self.layers) or any(c.aligned_delay for c in self.network.connections)

    def verify(self, on_chip: Network) -> None:
        """Raise ModelError or ArtifactError unless the parts fit each other and the network `on_chip`."""
        self.network.verify()
        if self.way not in INPUT_LAYERS or self.network.is_fixed or not self.gives:
            raise ArtifactError(f"host: way {self.way!r} with a network that gives {len(self.gives)} inputs is none")
        for name, encoding in self.gives.items():
            encoding.verify(name, self.network, on_chip)


def _count_macs(network: Network, connection) -> int:
    if isinstance(connection, Conv1d | Conv2d):
        target = connection.output_shape(network.node(connection.source).shape)
        return int(np.size(connection.weight)) * prod(target[1:])
    return int(np.size(connection.weight)) if isinstance(connection, Dense | Sparse) else 0


def connect_registers(name: str, layer: str, n_neurons: int, dtype=np.float32) -> Injected:
    """Build the connection that models the registers of a layer."""
    neurons = np.arange(n_neurons)
    return Injected(name, layer, pre=neurons, post=neurons, weight=np.ones(n_neurons, dtype), delay=0)


def drop_registers(network: Network) -> Network:
    """Return the network without inputs that are written into registers, which take no cores or axons."""
    written = {c.source for c in network.connections if isinstance(c, Injected)}
    if not written:
        return network
    inputs = {name: node for name, node in network.inputs.items() if name not in written}
    return replace(network, inputs=inputs, connections=tuple(c for c in network.connections if c.source not in written))


def add_registers(network: Network, registers: dict[str, str] | None = None) -> Network:
    """Append registers, {input: layer}, to the inputs of a fixed-point network; by default those of its host."""
    if registers is None:
        registers = {} if network.host is None else network.host.registers
    registers = {name: layer for name, layer in registers.items() if name not in network.inputs}
    if not registers:
        return network
    lines = {name: Node(name, network.node(layer).shape) for name, layer in registers.items()}
    edges = (connect_registers(name, layer, lines[name].n_neurons, np.int8) for name, layer in registers.items())
    return replace(network, inputs={**network.inputs, **lines}, connections=(*network.connections, *edges))


def copy_registers(registers: dict[str, Encoding], copy_of: dict[str, tuple[str, np.ndarray]]) -> dict[str, Encoding]:
    """Add registers for copies of neurons, `copy_of` {copied layer: (layer, its neurons)}."""
    by_layer = {encoding.register: encoding for encoding in registers.values()}
    copies = {
        f"{name}/bias": replace(by_layer[layer], register=name, neurons=neurons)
        for name, (layer, neurons) in copy_of.items()
        if layer in by_layer
    }
    return {**registers, **copies}


def find_scaled_registers(host: Host | None) -> dict[str, Encoding]:
    """Encodings of a host that write registers and have a scale, by input; empty without a host."""
    gives = {} if host is None else host.gives
    return {name: e for name, e in gives.items() if e.register is not None and e.scale is not None}
