"""Convert a fixed-point network to floats, for NIR readers that compute with them.

A float layer counts in units of 2**shift_bits, so its weights are the whole numbers of the fixed-point layer. The
spikes are equal until a decay is rounded or a state leaves its range. Most readers know neither delays nor constant
drives of neurons: a bias moves to the connection before the neurons, and delays that all paths share are left out.
"""

from dataclasses import replace

import numpy as np

from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.connection import Connection, Conv2d, Dense, Scale, Sparse, pair
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec

LARGEST_WEIGHT = 1 << 40  # No effective weight is as large as this, so none is clipped.
HALF = 0.5  # A threshold between two whole numbers: readers that fire at >= and at > do the same.


def to_floats(network: Network) -> tuple[Network, dict[str, int]]:
    """Return the float network of a fixed-point one, and by how many steps each layer is ahead; programs are kept."""
    nodes, drives = dict(network.nodes), {}
    for name in network.built_in:
        node = network.node(name)
        neuron = to_float_neuron(node.neuron)
        drive = neuron.array("bias_u", node.shape)
        if neuron.alpha is None:
            drive = drive + neuron.array("bias", node.shape)
        into = network.into(name)
        if into and drive.any() and _can_hold(into[0], drive):
            drives[into[0]] = drive
            neuron = neuron.replace(bias_u=0, bias=0.0 if neuron.alpha is None else neuron.bias)
        elif neuron.alpha is None:
            neuron = neuron.replace(bias_u=0, bias=drive)
        nodes[name] = replace(node, neuron=neuron)
    edges = []
    for c in network.connections:
        parts = [drives.get(c), c.bias_per_neuron(network.node(c.target).input_shape)]
        biases = [part for part in parts if part is not None]
        edges.append(_to_float_connection(c, network, np.sum(biases, 0) if biases else None))
    floats = Network(network.inputs, nodes, tuple(edges))
    return _leave_out_delays(floats) if _is_at_rest(network) else (floats, dict.fromkeys(network.layers, 0))


def to_float_neuron(spec: NeuronSpec) -> NeuronSpec:
    """Return float neurons with the equations of fixed-point ones, in units of 2**shift_bits.

    Float neurons do not use `bias_u`; it is kept for connections, and to be reported.
    """
    form = spec.number_format
    unit = 2.0**form.shift_bits
    keep_u, keep_v = 1 - form.lost(spec.decay_u), 1 - form.lost(spec.decay_v)
    threshold, strict = np.asarray(spec.threshold, np.float64), spec.strict
    if spec.spikes == "binary" and spec.reset != "subtract":
        threshold, strict = threshold + (HALF if strict else -HALF), True
    return NeuronSpec(
        threshold=threshold / unit,
        strict=strict,
        spikes=spec.spikes,
        fires=spec.fires,
        reset=spec.reset,
        reset_value=np.asarray(spec.reset_value) / unit,
        reset_timing=spec.reset_timing,
        refractory=spec.refractory,
        v_min=None if spec.v_min is None else np.asarray(spec.v_min) / unit,
        clamp=spec.clamp,
        bias=np.asarray(spec.bias) / unit,
        beta=keep_v,
        alpha=keep_u if form.shifts or np.any(keep_u) else None,
        current_order="add_then_decay" if form.shifts else "decay_then_add",
        bias_u=spec.bias_u,
        max_spikes=spec.max_spikes,
    )


def describe_integers(spec: NeuronSpec) -> list[str]:
    """Describe what floats do not compute: rounded decays, and states of limited width."""
    form = spec.number_format
    lost = np.concatenate([np.ravel(form.lost(spec.decay_u)), np.ravel(form.lost(spec.decay_v))])
    rounds = ["rounded decays"] if ((lost > 0) & (lost < 1)).any() else []
    ends = ["wraps" if form.wraps(state) else "saturates" for state in "uv"]
    return [*rounds, f"{form.state_bits}-bit states (u {ends[0]}, v {ends[1]})"]


def _can_hold(c: Connection, drive: np.ndarray) -> bool:
    """Return whether the NIR node of a connection holds this bias: a convolution has one number per channel."""
    if isinstance(c, Dense | Sparse):
        return True
    rows = drive.reshape(drive.shape[0], -1)
    return bool((rows == rows[:, :1]).all())


def _to_float_connection(connection: Connection, network: Network, bias) -> Connection:
    """Return a connection with effective float weights.

    A convolution that views its source otherwise becomes a Scale, or one over the channels of a source [C, H, W].
    """
    weight = effective_weight(connection.weight, connection.exponent, LARGEST_WEIGHT).astype(np.float32)
    edge = connection.replace(weight=weight, exponent=0, bias=None if bias is None else np.asarray(bias, np.float32))
    if not isinstance(edge, Conv2d) or edge.source_shape is None:
        return edge
    shape = network.node(edge.source).shape
    stride, padding, span = pair(edge.stride), pair(edge.padding), pair(edge.dilation)[0] * (weight.shape[2] - 1) + 1
    is_scale = weight.size == 1 and (stride, padding) == ((1, 1), (0, 0))
    has_tall_view = len(shape) == 3 and edge.source_shape == (1, shape[0] * shape[1], shape[2]) and len(weight) == 1
    is_by_channel = has_tall_view and shape[1] % stride[0] == 0 and span <= stride[0] and padding[0] == 0
    if is_by_channel or (is_scale and len(shape) == 3 and network.node(edge.target).shape == shape):
        return edge.replace(weight=np.repeat(weight, shape[0], 0), groups=shape[0], source_shape=None)
    return Scale(edge.source, edge.target, weight.item(), delay=edge.delay) if is_scale and bias is None else edge


def _is_at_rest(network: Network) -> bool:
    """Return whether no neuron changes before its first input: then a delay of all its inputs only delays it."""
    specs = [network.node(name).neuron for name in network.built_in]
    drives = [c.bias for c in network.connections] + [node.constant for node in network.inputs.values()]
    drives += [drive for spec in specs for drive in (spec.bias, spec.bias_u)]
    quiet = all(np.min(spec.threshold) > 0 and (spec.v_min is None or np.max(spec.v_min) <= 0) for spec in specs)
    return quiet and not network.programs and not any(np.any(drive) for drive in drives if drive is not None)


def _leave_out_delays(network: Network) -> tuple[Network, dict[str, int]]:
    """Leave out the delay of the fastest path from the inputs to each layer, and return it by layer.

    The delay around a cycle stays the same, since what one connection of it loses another one has more (retiming:
    Leiserson and Saxe 1991, doi:10.1007/BF01759032).
    """
    ahead = dict.fromkeys(network.inputs, 0)
    changed = True
    while changed:
        changed = False
        for c in network.connections:
            steps = ahead.get(c.source, -1) + c.aligned_delay
            if c.source in ahead and steps < ahead.get(c.target, steps + 1):
                ahead[c.target], changed = steps, True
    at = {name: ahead.get(name, 0) for name in (*network.inputs, *network.nodes)}
    edges = [c.replace(delay=max(0, at[c.source] + c.aligned_delay - at[c.target])) for c in network.connections]
    return replace(network, connections=tuple(edges)), at
