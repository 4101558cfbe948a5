"""Relay layers: neurons that send in a step what they receive in it, so that a spike arrives elsewhere, or later."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Sparse
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.nonlinear import can_send_sums
from nwcompile.passes.legalize.relay_neuron import relay_neuron, to_scalar_neuron
from nwcompile.passes.quantize.quantize import quantize
from nwcompile.passes.quantize.sums.send_sums import build_sender, message_room


class Relay(NamedTuple):
    """The relay neuron of a network, float or quantized like its neurons, with its input weight and its format."""

    neuron: NeuronSpec | NeuronProgram
    weight: np.ndarray
    form: dict


def build_relay(network: Network, chip: Chip, options: Options) -> Relay | None:
    """Return the relay neuron for a network, or None if the chip has no such neuron."""
    spec = relay_neuron(chip)
    if spec is None or not network.is_fixed:
        return None if spec is None else Relay(spec, np.ones(1, np.float32), {})
    one = np.zeros(1, np.int64)
    only = Sparse("x", "relay", pre=one, post=one, weight=np.ones(1, np.float32))
    alone = Network.from_arrays({"relay": (spec, 1)}, [only], {"x": 1})
    fixed = quantize(alone, chip, None, replace(options, layer_bits=None)).network
    (wired,) = fixed.connections
    form = {key: getattr(wired, key) for key in ("exponent", "sign_mode", "weight_bits")}
    return Relay(to_scalar_neuron(fixed.node("relay").neuron), np.asarray(wired.weight).astype(np.int32), form)


def build_number_relay(network: Network, chip: Chip) -> Relay:
    """Return the relay neuron for numbers, a program that sends its input."""
    room, one = message_room(chip), np.ones(1, np.int32 if network.is_fixed else np.float32)
    return Relay(build_sender("relay", -room, room, network.is_fixed), one, {"sign_mode": "exc"})


def can_relay(network: Network, chip: Chip, options: Options, source: str) -> bool:
    """Return whether neurons of the chip can repeat what an input or layer sends: spikes, or numbers by programs."""
    if sends_binary(network, chip, options, source):
        return relay_neuron(chip) is not None
    return network.node(source).axon_of is None and can_send_sums(chip, options)


def relay_layer(relay: Relay, source: Node, name: str, delay: int = 0) -> tuple[Node, Connection]:
    """Return a layer `name` that repeats what `source` sends after `delay` steps, and its connection."""
    shape = source.shape
    if len(shape) == 3:
        kernel = relay.weight.repeat(shape[0]).reshape(-1, 1, 1, 1)
        edge: Connection = Conv2d(source.name, name, kernel, groups=shape[0], delay=delay, **relay.form)
        return Node(name, shape, relay.neuron), edge
    every = np.arange(source.n_neurons)
    weight = relay.weight.repeat(len(every))
    edge = Sparse(source.name, name, pre=every, post=every, weight=weight, delay=delay, **relay.form)
    return Node(name, shape, relay.neuron), edge


def sends_binary(network: Network, chip: Chip, options: Options, source: str) -> bool:
    """Return whether an input or layer sends only 0 or 1 on the chip, over axons of its own."""
    neuron = network.node(source).neuron
    if network.node(source).axon_of is not None:
        return False
    if neuron is not None:
        return neuron.fires and neuron.message == "binary"
    return source in network.inputs and chip.neuron.spikes == ["binary"] and options.on_multi_spike == "refuse"
