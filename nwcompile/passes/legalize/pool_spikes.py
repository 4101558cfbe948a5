"""Pool spikes: approximate a maximum of currents before a spiking layer by a maximum of spikes behind it."""

from collections.abc import Sequence

import numpy as np

from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Direct, MaxPool2d, Pool2d, Scale, Sparse, pair, synapse_list
from nwcompile.ir.manifest import APPROXIMATE, EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.nonlinear import channel_scales, find_maxima, pooled_layer, sends_spikes
from nwcompile.passes.legalize.resets import RELAY, is_stateless, relay_neuron
from nwcompile.passes.prepare.normalize import normalize

FULL = "{}/full"  # Name of the unpooled neurons of a layer that becomes their pooled spikes.


def pool_spikes(
    network: Network, chip: Chip, options: Options, compared: Sequence[str] = ()
) -> tuple[Network, list[Change]]:
    """Replace every possible MaxPool2d of a normalized network by a layer of relay neurons behind spiking ones.

    For binary spikes this is exact. For currents it is an approximation, used for "pool" in `options.approximate`: a
    neuron at every position of the map gets its own current, and a relay neuron of the layer's name spikes if any
    neuron of its window does. If a negative scale behind the pooling turns the maximum into a minimum, all neurons have
    to spike. Layers of `compared` are rewritten in the same way without the option and without a row:
    `compare_currents` makes their maximum exact after quantization. `estimate` refuses maxima that remain.
    """
    before = network
    relay = relay_neuron(chip) or RELAY  # `estimate` refuses RELAY if the chip lacks it, and says why
    relays = [name for name in network.built_in if is_stateless(network.node(name).neuron)]
    changes = [_describe_import(network, name) for name in relays if pooled_spikes(network, name, chip) is not None]
    for pool in find_maxima(network):
        if sends_spikes(network, pool.source):
            network = _relay_maximum(network, pool, relay)
            n = int(np.prod(pool.output_shape(network.node(pool.source).shape)))
            changes.append(_describe_relays(pool.source, _describe_window(pool), n))
            continue
        layer = pooled_layer(network, pool)
        if layer is not None and (layer in compared or "pool" in options.approximate):
            network = _pool_behind_layer(network, pool, layer, relay)
            if layer not in compared:
                full, n_relays = (network.node(name).n_neurons for name in (FULL.format(layer), layer))
                how = f"spikes pooled instead: {full} neurons at full resolution, {n_relays} relay neurons"
                was = f"maximum of currents over {_describe_window(pool)}"
                changes.append(Change(layer, was, "sums of currents", how, APPROXIMATE))
    return (normalize(network) if find_maxima(before) else network), changes


def _relay_maximum(network: Network, pool: MaxPool2d, relay: NeuronSpec) -> Network:
    """Compute the maximum of spikes by relay neurons in front of its targets."""
    target = network.node(pool.target)
    if target.neuron is None and network.into(pool.target) == (pool,):
        return _put_layers(network, {target.name: (relay, target.shape)}, (), {pool: _pool_edge(network, pool, target)})
    name = network.free_name(f"{pool.source}/max/{pool.target}")
    inner = _pool_edge(network, pool, Node(name, target.shape))
    return _put_layers(network, {name: (relay, target.shape)}, (), {pool: inner}, [Scale(name, pool.target)])


def _pool_behind_layer(network: Network, pool: MaxPool2d, layer: str, relay: NeuronSpec) -> Network:
    node, shape = network.node(layer), network.node(pool.source).shape
    full = FULL.format(layer)
    threshold: np.ndarray | float = relay.threshold
    drive = Scale(pool.source, full)
    gone: tuple[str, ...] = ()
    replaced: dict[Connection, Connection | None] = {pool: _pool_edge(network, pool, node, full)}
    if pool.target != layer:
        (last,) = network.into(layer)
        scales = channel_scales(network, last)
        assert scales is not None, "nonlinear.py looked for them"
        factor, shift = scales
        drive, gone = Scale(pool.source, full, factor, shift), (pool.target,)
        _, window = pool.window_taps(shape)
        n_taps = np.bincount(window).reshape(pool.output_shape(shape)).astype(np.float32)
        inverted = (factor < 0).reshape(-1, *[1] * (len(shape) - 1))
        if inverted.any():
            threshold = np.where(inverted, n_taps - 0.5, threshold).astype(np.float32).reshape(node.shape)
        replaced[last] = None
    layers = {full: (node.neuron, shape), layer: (relay.replace(threshold=threshold), node.shape)}
    return _put_layers(network, layers, gone, replaced, [drive])


def _pool_edge(network: Network, pool: MaxPool2d, target: Node, source: str | None = None) -> Connection:
    """Connect every spike of a window to its relay neuron, with weight 1."""
    shape = network.node(pool.source).shape
    if len(shape) == 3 and pool.output_shape(shape) == target.shape:
        return Pool2d(source or pool.source, target.name, pool.kernel, pool.stride, pool.padding, delay=pool.delay)
    pre, post = pool.window_taps(shape)
    weight = np.ones(len(pre), np.float32)
    return Sparse(source or pool.source, target.name, pre=pre, post=post, weight=weight, delay=pool.delay)


def _put_layers(network: Network, layers: dict, gone: tuple[str, ...], replaced: dict, more=()) -> Network:
    """Add `layers` {name: (spec, shape)}, remove nodes `gone`, and replace connections (`replaced`, None: removed)."""
    nodes: dict[str, Node] = {}
    made = {name: Node(name, shape, spec) for name, (spec, shape) in layers.items()}
    last = next((name for name in reversed(made) if name in network.nodes), None)
    for name, node in network.nodes.items():
        nodes |= made if name == last else {} if name in gone or name in made else {name: node}
    connections = [replaced.get(c, c) for c in network.connections]
    kept = tuple(c for c in (*connections, *more) if c is not None)
    rewritten = Network(network.inputs, nodes if last else {**made, **nodes}, kept)
    rewritten.verify()
    return rewritten


def _describe_window(pool: MaxPool2d) -> str:
    rows, columns = pair(pool.kernel)
    return f"{rows} x {columns}"


def _describe_relays(source: str, window: str, n: int) -> Change:
    how = f"{n} relay neurons, one per window"
    return Change(source, f"maximum of spikes over {window}", "sums of spikes", how, EXACT)


def _describe_import(network: Network, name: str) -> Change:
    """Return the row of a layer of relay neurons that the front end made from a maximum of spikes."""
    (edge,), n = network.into(name), network.node(name).n_neurons
    window = f"{n} windows"
    if isinstance(edge, Conv2d):
        rows, columns = np.shape(edge.weight)[2:]
        window = f"{rows} x {columns}"
    return _describe_relays(edge.source, window, n)


def find_relays(network: Network, chip: Chip) -> dict[str, str]:
    """Map layers that feed only relay neurons of windows to those relays: the spike pooling of a model."""
    relays = {}
    for name in network.built_in:
        if is_stateless(network.node(name).neuron) and pooled_spikes(network, name, chip) is not None:
            (edge,) = network.into(name)
            if not edge.aligned_delay and [c.target for c in network.out_of(edge.source)] == [name]:
                relays[edge.source] = name
    return relays


def pooled_spikes(network: Network, name: str, chip: Chip) -> tuple[np.ndarray, np.ndarray] | None:
    """Return neurons and windows, one of each per synapse, of a layer that spikes if any neuron of a window did.

    Returns None for other layers, and if no window has two neurons.
    """
    spec, into = network.node(name).neuron, network.into(name)
    forgets = is_stateless(spec) or _resets_all(spec)
    if len(into) != 1 or not isinstance(into[0], Direct) or not forgets or spec.spikes != "binary":
        return None
    (edge,) = into
    source = network.node(edge.source)
    weight = np.unique(np.asarray(edge.weight))
    is_fed_spikes = sends_spikes(network, edge.source)
    has_bias = any(np.any(bias) for bias in (spec.bias, spec.bias_u, edge.bias) if bias is not None)
    if not is_fed_spikes or has_bias or np.max(spec.refractory) > 1 or len(weight) != 1 or weight[0] <= 0:
        return None
    pre, post, _ = synapse_list(edge, source.shape)
    n_most = int(np.bincount(post).max())
    return (np.asarray(pre), np.asarray(post)) if n_most > 1 and _fires_at_one(spec, edge, n_most, chip) else None


def _resets_all(spec: NeuronSpec) -> bool:
    """Return whether a membrane that any spike brings to its threshold is reset to 0 at once, so no state remains."""
    lasts = spec.alpha is not None if spec.fixed is None else np.any(np.asarray(spec.decay_u) != spec.fixed.fastest)
    resets = spec.fires and spec.reset == "zero" and spec.reset_timing == "now" and spec.membrane == "linear"
    return bool(resets and not lasts and (spec.v_min is None or np.max(spec.v_min) <= 0))


def _fires_at_one(spec: NeuronSpec, edge: Connection, n_most: int, chip: Chip) -> bool:
    """Return whether a stateless neuron fires for one to `n_most` spikes of equal weights, and never without any."""
    if spec.fixed is None:
        if np.any(np.asarray(spec.gain) != 1) or np.any(spec.leak):
            return False
        one = np.ravel(edge.weight)[0]
    else:
        (one,) = effective_weight(np.ravel(edge.weight)[:1], edge.exponent, chip.weights.effective_limit)
        one = int(one) << spec.fixed.shift_bits
        if n_most * one >= 1 << (spec.fixed.state_bits - 1):
            return False
    threshold = np.asarray(spec.threshold)
    return bool((threshold < one if spec.strict else threshold <= one).all() and (threshold > 0).all())
