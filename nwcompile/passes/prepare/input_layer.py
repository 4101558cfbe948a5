"""Input layer: choose how input reaches the chip if no message can carry it directly.

The input modes, in the order in which they are tried (see docs/inputs.md):

    mode     what runs on the host                  what it needs
    exact    nothing: whole numbers, on two lines   messages that hold the numbers of each sign
    bias     the linear map of the first layer      biases, written in every step in which the input changes
    graded   rounding                               messages that carry numbers
    host     the layers up to the first spiking one a remaining network without feedback to these layers
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import MaxPool2d, Scale
from nwcompile.ir.host import Encoding, Host, add_registers, connect_registers
from nwcompile.ir.manifest import EXACT, HOST, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.sim.host import compute_host, run_host
from nwcompile.sim.inputs import Inputs, prepare_inputs
from nwcompile.sim.values import LARGEST_SPIKE, chip_takes, is_whole, largest_payload

ERROR_CODE = "NW5007"
READOUT = NeuronSpec(beta=0.0, fires=False, reset="none")  # Its membrane equals its input of the same step.
GRADED_BITS = 8  # Width of numbers in messages, sign included; most chips' weights have as many bits.
FEWEST_LEVELS = 7  # Below 3 bits, rounding the input costs too much for what the weights gain.
PEAK = 4.0  # Quantization leaves this headroom above a current's peak in the samples (`quantize/scale_search.py`).
# Factors by which pixels were divided: multiplying by one of them gives whole numbers again.
PIXEL_UNITS = (255.0, 127.0)


@dataclass(frozen=True, eq=False)
class InputLayer:
    """A network with input that the chip can take: the chip's `network`, the `host` in front of it, and its samples.

    `samples`: `[B, T, *shape]` of every input of `network`, or None. Those of registers are float32, since their scale
    is not chosen yet.
    """

    network: Network
    host: Host | None
    samples: Inputs | None
    changes: list[Change]

    @property
    def text(self) -> str | None:
        """One line that says how input reaches the chip, or None if it is unchanged."""
        return None if self.host is None else self.host.summary


class _ClosedError(Exception):
    """Raised if an input mode cannot be used; the message says why."""


def legalize_input(network: Network, chip: Chip, calibration, options: Options) -> InputLayer:
    """Choose how input reaches the chip and rewrite the network for it.

    The mode is `options.input_layer`, or the first that the chip supports. `calibration` (in the network's layout, or
    None) shows the range of the input; numbers that the chip's messages hold stay unchanged. The returned network takes
    `[B, T, *shape]`. Raises ModelError if no mode works, with a reason for each, and OptionError for a mode that needs
    samples if there are none.
    """
    bare = replace(network, layout="BT", n_steps=None, host=None)
    if network.is_fixed:
        samples = (
            None if calibration is None else prepare_inputs(network, calibration, None, chip, options.on_multi_spike)[0]
        )
        return InputLayer(replace(add_registers(network), layout="BT", host=None), network.host, samples, [])
    samples = None if calibration is None else prepare_inputs(network, calibration)[0]
    way, used = options.input_layer, _find_feeding(network, network.layers)
    heard = {name: node for name, node in network.inputs.items() if name in used}
    if way not in (None, "exact") and not heard:
        raise OptionError(f"no input of the network feeds a layer, so input_layer={way!r} has no effect; leave it out")
    if way is None and (samples is None or _can_keep_input(network, samples, chip, options)):
        return _keep_input(bare, chip, samples, options)
    if way in ("bias", "graded") and samples is None:
        raise OptionError(
            f"input_layer={way!r} chooses its scale on calibration samples; give some of what the chip will get"
        )
    edges = tuple(c for c in bare.connections if c.source in heard or c.source in bare.nodes)
    fed = replace(bare, inputs=heard, connections=edges)
    closed: dict[str, str] = {}
    for name in WAYS if way is None else (way,):
        try:
            made = WAYS[name](fed, chip, _pick_samples(heard, samples), options)
        except _ClosedError as e:
            closed[name] = str(e)
            continue
        if made.host is None:
            return _keep_input(bare, chip, samples, options)
        unheard = {name: node for name, node in network.inputs.items() if name not in heard}  # they feed nothing
        of_host = replace(made.host.network, inputs={**made.host.network.inputs, **unheard})
        return replace(made, host=replace(made.host, network=of_host))
    values = "" if samples is None else f" with values {_range_text(samples.values())}"
    reasons = "; ".join(f"{name}: {reason}" for name, reason in closed.items())
    raise ModelError(f"input{values} cannot come to {chip.name}: {reasons}")


def _keep_input(network: Network, chip: Chip, samples: Inputs | None, options: Options) -> InputLayer:
    """Keep the network, with samples that the chip's messages hold. Raises ModelError for others."""
    samples = None if samples is None else prepare_inputs(network, dict(samples), None, chip, options.on_multi_spike)[0]
    return InputLayer(network, None, samples, [])


def _pick_samples(inputs: dict[str, Node], samples: Inputs | None) -> Inputs | None:
    """Return the samples of some inputs."""
    if samples is None:
        return None
    some = Inputs({name: samples[name] for name in inputs})
    some.shape = samples.shape
    return some


def _can_keep_input(network: Network, samples: Inputs, chip: Chip, options: Options) -> bool:
    """Return whether the input stays unchanged: the chip takes it, or has to refuse it as spikes."""
    if not all(is_whole(array) for array in samples.values()) or _has_maximum(network, options):
        return False
    if _chip_takes(chip, options, samples.values()):
        return True
    are_signs = all(np.abs(array).max(initial=0) <= 1 for array in samples.values())
    return network.layout != "B" and not are_signs


def _has_maximum(network: Network, options: Options) -> bool:
    """Return whether a maximum that is not approximated precedes the first layers. Only the host can compute it."""
    first = _First.from_network(network, None)
    before = {*first.inputs, *first.junctions}
    return (
        any(isinstance(c, MaxPool2d) and c.source in before for c in network.connections)
        and "pool" not in options.approximate
    )


def _chip_takes(chip: Chip, options: Options, arrays) -> bool:
    return all(chip_takes(chip, options.on_multi_spike, array) for array in arrays)


def _range_text(arrays) -> str:
    return f"{min(float(a.min()) for a in arrays):g}..{max(float(a.max()) for a in arrays):g}"


def _try_exact(network: Network, chip: Chip, samples: Inputs | None, options: Options) -> InputLayer:
    """Send whole numbers unchanged, or on two lines, one for each sign."""
    if options.input_layer is None and _has_maximum(network, options):
        raise _ClosedError("a maximum of currents comes before the first layer")
    are_whole = samples is None or all(is_whole(array) for array in samples.values())
    if samples is None or (are_whole and _chip_takes(chip, options, samples.values())):
        return InputLayer(network, None, samples, [])
    if not are_whole:
        raise _ClosedError("its values are not whole numbers")
    split = [name for name in network.inputs if samples[name].min() < 0]
    parts = [np.maximum(sign * samples[name], 0) for name in split for sign in (1, -1)]
    kept = [samples[name] for name in network.inputs if name not in split]
    if not _chip_takes(chip, options, [*parts, *kept]):
        raise _ClosedError(f"a message of {chip.name} does not hold them")
    inputs, junctions, maps, gives = {}, {}, [], {}
    for name in split:
        shape = network.node(name).shape
        both = f"{name}/signed"
        junctions[both] = Node(both, shape)
        for sign, word in ((1.0, "positive"), (-1.0, "negative")):
            line = f"{name}/{word}"
            inputs[line] = Node(line, shape)
            maps.append(Scale(line, both, scale=np.float32(sign), delay=0))
            gives[line] = Encoding(layer=f"{name}/value", scale=sign, low=0, high=LARGEST_SPIKE)
    rest = _fed_by(network, {name: f"{name}/signed" for name in split}, inputs, junctions, maps)
    change = Change(", ".join(split), "signed values", "messages of one sign", "two lines, one for each sign", EXACT)
    return _make_input_layer(rest, Host("exact", _value_network(network, split), gives), samples, [change])


def _try_graded(network: Network, chip: Chip, samples: Inputs | None, options: Options) -> InputLayer:
    """Round numbers to integers of GRADED_BITS, or of a message's width, in the unit with the smallest loss."""
    assert samples is not None, "checked before"
    if options.input_layer is None and _has_maximum(network, options):
        raise _ClosedError("a maximum of currents comes before the first layer")
    real = [name for name in network.inputs if not is_whole(samples[name])] or list(network.inputs)
    room = _weight_room(network, chip, samples)
    inputs, junctions, maps, gives, errors = {}, {}, [], {}, []
    for name in real:
        is_signed = bool(samples[name].min() < 0)
        widest = min((1 << (GRADED_BITS - is_signed)) - 1, largest_payload(chip, is_signed))
        if widest < 1 or not chip_takes(chip, options.on_multi_spike, np.array([-widest if is_signed else 0, widest])):
            raise _ClosedError(f"messages of {chip.name} carry no numbers (neuron.spikes)")
        limits = [widest >> k for k in range(GRADED_BITS) if widest >> k >= FEWEST_LEVELS] or [widest]
        units = [_best_unit(samples[name], limit) for limit in limits]
        # The loss of rounding the input, and of rounding weights: larger integers make weights smaller and so coarser.
        best = int(np.argmin([loss**2 + (unit / room) ** 2 for unit, loss in units]))
        (unit, error), limit = units[best], limits[best]
        errors.append(error)
        shape = network.node(name).shape
        inputs[name] = Node(name, shape)
        junctions[f"{name}/real"] = Node(f"{name}/real", shape)
        maps.append(Scale(name, f"{name}/real", scale=np.float32(1 / unit), delay=0))
        gives[name] = Encoding(layer=f"{name}/value", scale=unit, low=-limit if is_signed else 0, high=limit)
    rest = _fed_by(network, {name: f"{name}/real" for name in real}, inputs, junctions, maps)
    host = Host("graded", _value_network(network, real), gives)
    how = f"{host.summary}, {100 * max(errors):.2g} % from the values (root mean square)"
    change = Change(", ".join(real), "real-valued input", "messages that carry integers", how, HOST)
    return _make_input_layer(rest, host, samples, [change])


def _weight_room(network: Network, chip: Chip, samples: Inputs) -> float:
    """Return the integers per unit of input at which rounding erases the first layers' weights, or infinity.

    A sum of weights has to fit the state PEAK times over, so a larger input scale makes weights coarser: a weight w
    becomes w * scale / unit, and rounding has an error of 1/sqrt(12) of a step (root mean square).
    """
    first = _First.from_network(network, samples)
    maps = first.build_maps(network)
    if first.mixed is not None or not all(c.is_linear for c in maps.connections):
        return inf
    run, _ = compute_host(Host("graded", maps, {}), {name: samples[name] for name in first.inputs}, samples.shape[1])
    largest = (1 << (chip.state.bits - 1 - chip.state.shift_bits)) / PEAK
    step = (chip.weights.step if chip.weights.exponent_max == 0 else 1) / sqrt(12)
    room = inf
    for c in normalize(maps).connections:
        peak = float(np.abs(run.states[c.target]["v"]).max())
        size = _rms(np.asarray(c.weight)) if np.size(c.weight) else 0.0
        if peak and size:
            room = min(room, size * largest / peak / step)
    return room


def _best_unit(values: np.ndarray, limit: int) -> tuple[float, float]:
    """Return the integers per unit of `values` with the smallest loss, and that loss: relative rms error."""
    largest = float(np.abs(values).max(initial=0)) or 1.0
    size = _rms(values) or 1.0
    units = [unit for unit in PIXEL_UNITS if unit * largest <= limit] + [limit / largest]
    losses = [_rms(np.rint(values * unit) / unit - values) / size for unit in units]
    best = int(np.argmin(losses))
    return units[best], losses[best]


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))


def _try_bias(network: Network, chip: Chip, samples: Inputs | None, _options: Options) -> InputLayer:
    """Run the linear maps into the first layers on the host, and write the results to the neurons' bias registers."""
    assert samples is not None, "checked before"
    if not chip.neuron.bias:
        raise _ClosedError(f"neurons of {chip.name} have no bias")
    first = _First.from_network(network, samples)
    is_constant = all((samples[name] == samples[name][:, :1]).all() for name in first.inputs)
    if not is_constant and not chip.neuron.bias_per_step:
        raise _ClosedError(f"it changes from step to step, and {chip.name} writes biases once (neuron.bias_per_step)")
    programs = [name for name in first.layers if name in network.programs]
    if programs:
        raise _ClosedError(f"the neurons of {programs[0]!r} are programs, which have no bias register")
    if first.mixed is not None:
        raise _ClosedError(f"{first.mixed!r} adds it to the spikes of layers before anything can be injected")
    of_host = first.build_maps(network)
    registers = {f"{name}/bias": name for name in first.layers}
    gives = {line: Encoding(layer=name, register=name) for line, name in registers.items()}
    inputs = {name: node for name, node in network.inputs.items() if name not in first.inputs}
    lines = {line: Node(line, network.node(name).shape) for line, name in registers.items()}
    rest = Network(
        {**inputs, **lines},
        {name: node for name, node in network.nodes.items() if name not in first.junctions},
        (
            *(c for c in network.connections if c not in of_host.connections),
            *(connect_registers(line, name, lines[line].n_neurons) for line, name in registers.items()),
        ),
    )
    host = Host("bias", of_host, gives, is_static=chip.neuron.bias_per_step is not True)
    when = "once for each sample" if is_constant else "in every step"
    changes = [
        Change(name, "real-valued input", "a bias that can be written", f"its linear map, written {when}", HOST)
        for name in first.layers
    ]
    return _make_input_layer(rest, host, samples, changes)


def _try_host(network: Network, chip: Chip, samples: Inputs | None, options: Options) -> InputLayer:
    """Run the layers up to the first spiking ones on the host; their spikes become inputs of the chip."""
    first = _First.from_network(network, samples)
    layers = first.find_host_layers(network)
    left = [name for name in network.layers if name not in layers]
    if not left:
        raise _ClosedError("no layer would be left for the chip")
    lost = [name for name in network.outputs if name in layers]
    if lost:
        raise _ClosedError(f"output layer {lost[0]!r} reads the input, so it would not be on the chip")
    needed = _find_feeding(network, layers)
    sources = {name: node for name, node in network.inputs.items() if name in needed}
    nodes = {name: node for name, node in network.nodes.items() if name in needed or name in layers}
    ends = {*needed, *layers}
    of_host = Network(sources, nodes, tuple(c for c in network.connections if c.target in nodes and c.source in ends))
    behind = _find_feeding(network, set(left))
    lines = {name: Node(name, network.node(name).shape) for name in network.layers if name in layers and name in behind}
    if not lines:
        raise _ClosedError("the layers left for the chip would get no input")
    silent = [name for name in lines if not network.node(name).neuron.fires]
    if silent:
        raise _ClosedError(f"layer {silent[0]!r} never fires, so it has nothing to send")
    gives = {name: Encoding(layer=name) for name in lines}
    inputs = {name: node for name, node in network.inputs.items() if name in behind}
    kept = {
        name: node for name, node in network.nodes.items() if name in left or (name in behind and name not in lines)
    }
    rest = Network({**inputs, **lines}, kept, tuple(c for c in network.connections if c.target in kept))
    host = Host("host", of_host, gives)
    changes = [
        Change(name, "real-valued input", "messages of spikes", "on the CPU, as the framework computes it", HOST)
        for name in host.layers
    ]
    made = _make_input_layer(rest, host, samples, changes)
    if made.samples is not None and not _chip_takes(chip, options, [made.samples[name] for name in lines]):
        values = _range_text([made.samples[name] for name in lines])
        raise _ClosedError(f"{chip.name} does not take spikes {values}; choose on_multi_spike")
    return made


WAYS: dict[str, Callable] = {"exact": _try_exact, "bias": _try_bias, "graded": _try_graded, "host": _try_host}


@dataclass(frozen=True)
class _First:
    """The nodes that real-valued `inputs` feed: `junctions`, and the `layers` behind them.

    `mixed`: a junction that layers feed too, or None.
    """

    inputs: tuple[str, ...]
    junctions: tuple[str, ...]
    layers: tuple[str, ...]
    mixed: str | None

    @classmethod
    def from_network(cls, network: Network, samples: Inputs | None) -> "_First":
        real = [] if samples is None else [name for name in network.inputs if not is_whole(samples[name])]
        inputs = set(real or network.inputs)
        while True:
            reached: set[str] = set()
            for name in network.order:
                fed = any(c.source in inputs | reached for c in network.into(name))
                if network.node(name).neuron is None and fed:
                    reached.add(name)
            more = {c.source for name in reached for c in network.into(name) if c.source in network.inputs} - inputs
            if not more:
                break
            inputs |= more
        before = inputs | reached
        layers = [n for n in network.layers if any(c.source in before for c in network.into(n))]
        mixed = [n for n in reached if any(c.source not in before for c in network.into(n))]
        in_order = tuple(name for name in network.inputs if name in inputs)
        return cls(in_order, tuple(n for n in network.order if n in reached), tuple(layers), next(iter(mixed), None))

    def build_maps(self, network: Network) -> Network:
        """Return the maps from the inputs into the layers; the membrane of a layer there is its synaptic sum."""
        before = {*self.inputs, *self.junctions}
        junctions = {name: node for name, node in network.nodes.items() if name in self.junctions}
        readouts = {name: Node(name, network.node(name).input_shape, READOUT) for name in self.layers}
        edges = tuple(c for c in network.connections if c.source in before)
        return Network({name: network.inputs[name] for name in self.inputs}, {**junctions, **readouts}, edges)

    def find_host_layers(self, network: Network) -> set[str]:
        """Return the layers and every layer that feeds them."""
        layers = set(self.layers)
        while True:
            more = {n for n in _find_feeding(network, layers) if n in network.layers} - layers
            if not more:
                return layers
            layers |= more


def _find_feeding(network: Network, layers) -> set[str]:
    """Return the inputs, junctions and layers that feed these layers, directly or through junctions."""
    seen: set[str] = set()
    pending = list(layers)
    while pending:
        for c in network.into(pending.pop()):
            if c.source not in seen:
                seen.add(c.source)
                is_junction = c.source in network.nodes and network.node(c.source).neuron is None
                pending += [c.source] if is_junction else []
    return seen


def _fed_by(network: Network, junction_of: dict[str, str], inputs: dict, junctions: dict, maps: list) -> Network:
    """Replace some inputs by junctions, which `maps` connect to the new `inputs`."""
    kept = {name: node for name, node in network.inputs.items() if name not in junction_of}
    rest = (c.replace(source=junction_of.get(c.source, c.source)) for c in network.connections)
    return Network({**inputs, **kept}, {**junctions, **network.nodes}, (*maps, *rest))


def _value_network(network: Network, names: list[str]) -> Network:
    """Return a host network that computes nothing: a layer `NAME/value` per input, whose membrane is its value."""
    inputs = {name: network.inputs[name] for name in names}
    nodes = {f"{name}/value": Node(f"{name}/value", node.shape, READOUT) for name, node in inputs.items()}
    return Network(inputs, nodes, tuple(Scale(name, f"{name}/value", delay=0) for name in names))


def _make_input_layer(network: Network, host: Host, samples: Inputs | None, changes: list[Change]) -> InputLayer:
    """Build the InputLayer, with the samples that the host produces."""
    return InputLayer(network, host, None if samples is None else behind_host(network, host, samples), changes)


def behind_host(network: Network, host: Host, samples: Inputs) -> Inputs:
    """Return samples for the network behind the host, from float32 `samples`; registers stay float32."""
    of_host = {name: samples[name] for name in host.network.inputs}
    run, _ = compute_host(host, of_host, samples.shape[1])
    made = {} if host.registers else run_host(host, of_host, samples.shape[1])[1]
    left = Inputs()
    left.shape = samples.shape
    for name in network.inputs:
        if name in host.registers:
            v = run.states[host.gives[name].layer]["v"]
            left[name] = np.broadcast_to(v, (*samples.shape, *v.shape[2:]))
        else:
            left[name] = made[name] if name in made else samples[name].astype(np.int32)
    return left
