"""Read lava-dl `.net` files: integer networks as SLAYER exports them, with unchanged weights.

The format is in lava-dl, `lava/lib/dl/netx/README.md`: HDF5 with `/layer/<i>/{type, shape, weight, neuron/...}`. Where
it is ambiguous, the writer (`slayer/block/base.py`) and the reader (`netx/hdf5.py`) decide.

    the layers in the file                        entry.py:read_entries
    neurons -> NeuronSpec                         neurons.py:neuron_spec
    sigma-delta neurons -> NeuronProgram          neurons.py:sigma_delta_program
    ALIF, resonators, graded spikes -> likewise   neurons.py:slayer_program
    synapses -> connections                       wires.py:build_connection
    complex weights -> two real connections       wires.py:split_complex_weights
    delays of spikes, inputs and synapses         wires.py:read_delays
"""

from collections.abc import Mapping
from dataclasses import fields
from math import prod
from os import PathLike

from nwcompile.errors import ModelError, shown, unknown_choice
from nwcompile.frontend.lava.entry import DENSE, RECURRENT, Entry, read_entries
from nwcompile.frontend.lava.neurons import (
    RESONATORS,
    SIGMA_DELTA,
    Arriving,
    average_spec,
    has_bias,
    is_program,
    neuron_spec,
    neuron_type,
    sigma_delta_program,
    slayer_program,
)
from nwcompile.frontend.lava.wires import (
    NONE,
    Parts,
    Shape,
    add_delays,
    build_connection,
    build_recurrence,
    read_delays,
    split_complex_weights,
)
from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

ERROR_CODE = "NW2201"
OF_SLAYER = ("CUBA", "ALIF", *RESONATORS)  # A connection into these takes a step.
BUILT_IN = (None, "CUBA", "LOIHI")  # None: a dense layer without neurons
NEURON_FIELDS = tuple(f.name for f in fields(NeuronSpec))


def from_lava(path, neuron: Mapping | None = None, input_shape=None) -> Network:
    """Return the fixed-point Network of a lava-dl `.net` file: input `input`, layers `layer<i>` as numbered there.

    Shapes are [C, H, W] or [n]. u = decay(u, iDecay) + 64 * sum(floor(w * 2**wgtExp) * s); v = decay(v, vDecay) + u +
    64*bias; reset to 0. Types: `input` (with neurons, a layer driven by weight*x + bias; else only a shape), `dense`,
    `dense_rec` or SLAYER 1's `recurrent` (its own spikes of t-1 return through weight_rec or recWeight), `conv`, `pool`
    (a weighted sum per window), `convT` and `unpool` (transposed convolutions), `flatten`, and at the end `average`: a
    readout whose v is 64 times the spikes of each group. A dense layer without neurons gets the default of netx: a
    readout whose v is the running sum of its input. A threshold that v cannot reach makes a readout.

    Neurons fire at v > 64*vThMant. CUBA networks trained before lava-dl v0.3 (September 2022) fire at v >= 64*vThMant;
    no key in the file records this. Read those with `neuron={"strict": False}`.

    Time: a spike of LOIHI neurons (the older SLAYER) acts in the same aligned step. Every connection into CUBA neurons
    (lava-dl), the first included, takes one step, as in lava-dl's stored outputs. If any CUBA layer has a bias, these
    steps are omitted in the whole network: a bias acts from the first step in which input can have arrived, so layers
    start one after the other. The chip's pipeline does the same with delay 0: the output of CUBA layer L (from 1) in
    aligned step t appears in hardware step t + L.

    SDNN neurons are lava's sigma-delta processes, as programs (`ir.neuron_programs`) whose 24-bit states saturate. An
    `input` entry sends the change of its integers (those that netx's transform returns; weight and bias apply only if
    the file has them), the others have a ReLU, and one with `sigma_output` is a readout. Messages are changes in units
    of 1/64. As in netx, every connection between them takes one step, and biases act from the first step.

    ALIF, RF_PHASE, RF_IZHIKEVICH, ADRF_PHASE and ADRF_IZHIKEVICH neurons, and CUBA ones with `gradedSpike`, are
    programs that compute as SLAYER does (`programs.py` has the rules). Their timing is that of CUBA neurons; 24-bit
    states saturate. A graded spike is the state as an integer, 2**12 times SLAYER's value, and the next layers scale it
    accordingly. Resonators have complex weights; extra neurons `layer1/imag` add up the imaginary parts
    (`wires.py`). An `input` entry feeds its input to both parts. netx replaces ADRF by RF and converts decays
    through a logarithm and back, which may change the last digit; this reader uses the file's values.

    A `delay` of one number, one per channel or one per neuron delays a layer's spikes; in the last layer, which must
    then have no bias, it delays the input. One per input, or one per synapse of a dense layer, delays those. If delays
    differ, each becomes a separate connection with a list of its synapses.

    `neuron` overrides NeuronSpec fields in all layers, `{"layer3": {...}}` in one. `input_shape` [C, H, W] is required
    if the first layer is a pool or a conv with a stride. Raises ModelError, naming the layer, for missing, fractional
    or unsupported values: other neurons, complex weights of graded spikes, concat.
    """
    if not isinstance(path, str | PathLike):
        raise ModelError(f"from_lava takes the path of a lava-dl .net file, not {type(path).__name__}")
    _check_fields(neuron)
    entries = read_entries(path)
    acting = [entry for entry in entries if entry.has_neurons or entry.kind == "average"]
    for entry in acting:
        if "neuron" in entry.values:
            neuron_type(entry)
    given = _overrides_per_layer(neuron or {}, acting)
    first = _input_shape(entries, input_shape)
    layers: dict[str, tuple[NeuronSpec | NeuronProgram, Shape]] = {}
    wires: list[tuple[Entry, Connection, tuple, Shape]] = []
    joining: list[Connection] = []
    source, shape, late = "input", first, NONE
    for entry in acting:
        is_last = entry is acting[-1]
        if entry.kind == "input" and entry is not entries[0]:
            raise entry.fail("an input entry must come first")
        if entry.kind == "average" and not is_last:
            raise entry.fail("an average must come last, because it gives numbers, not spikes")
        before = layers.get(source, (None, shape))[0]
        many, after, arriving = _connect_source(entry, source, shape, before)
        spec = _read_neurons(entry, after, arriving, given[entry.name])
        incoming, leaving = read_delays(entry, after, prod(shape))
        if is_last and leaving.any():  # The delay moves to the input, so nothing else may drive the layer.
            if has_bias(spec) or entry.kind in RECURRENT:
                raise entry.fail(
                    "a delay on the spikes of the last layer is not supported where it has a bias or feeds itself; "
                    "export it as 0"
                )
            incoming, leaving = incoming + leaving.T, NONE
        layers |= {**many.layers, entry.name: (spec, after)}
        wires += [(entry, c, (incoming, late), shape) for c in many.from_source]
        joining += many.joining
        source, shape, late = entry.name, after, leaving
    connections = []
    steps = _connection_steps(acting, layers)
    for entry, c, more, shape in wires:
        connections += add_delays(entry, c.replace(delay=steps[entry.name]), more, shape)
        if entry.kind in RECURRENT:
            connections.append(build_recurrence(entry, prod(layers[entry.name][1])))
    return Network.from_arrays(layers, [*connections, *joining], {"input": first})


def _connect_source(entry: Entry, source: str, shape: Shape, before) -> tuple[Parts, Shape, Arriving]:
    """Return the connections from `source` with neurons `before` to an entry, its shape, and its input format."""
    kind = "" if entry.kind == "average" else neuron_type(entry)
    is_graded = isinstance(before, NeuronProgram) and before.sends == "graded" and before.name not in SIGMA_DELTA
    if is_graded and entry.kind == "average":
        raise entry.fail("an average of graded spikes is not supported; end in a layer of neurons")
    is_complex = entry.has_complex_weight and entry.kind in ("dense", "conv")
    if kind in RESONATORS and not is_complex and entry.kind != "input":
        raise entry.fail("resonators need complex weights, weight/real and weight/imag, of a dense or conv layer")
    if not is_complex or kind not in RESONATORS:
        c, after = build_connection(entry, source, shape)
        return Parts({}, [c], []), after, Arriving(is_graded=is_graded)
    if is_graded:
        raise entry.fail("complex weights of graded spikes are not supported; train the layer before with binary ones")
    sends_spikes = before is not None and before.message == "binary"
    many = split_complex_weights(entry, source, shape, sends_spikes)
    return many, build_connection(entry, source, shape, "real")[1], Arriving(is_packed=True)


def _read_neurons(entry: Entry, shape: Shape, arriving: Arriving, override: dict) -> NeuronSpec | NeuronProgram:
    if entry.kind == "average":
        return average_spec()
    kind = neuron_type(entry)
    if kind == "SDNN":
        return sigma_delta_program(entry, shape)
    if is_program(entry, kind, arriving, override):
        return slayer_program(entry, shape, kind, arriving, override)
    return neuron_spec(entry, shape, override)


def _connection_steps(acting: list[Entry], layers: dict[str, tuple]) -> dict[str, int]:
    """Return the steps that the connection into each layer takes, as in lava's processes (see `from_lava`)."""
    types = {entry.name: "" if entry.kind == "average" else neuron_type(entry) for entry in acting}
    of_slayer = 0 if any(has_bias(layers[name][0]) for name, kind in types.items() if kind in OF_SLAYER) else 1
    inputs = [entry.name for entry in acting if entry.kind == "input"]
    return {n: of_slayer if k in OF_SLAYER else int(k == "SDNN" and n not in inputs) for n, k in types.items()}


def _check_fields(neuron) -> None:
    if neuron is not None and not isinstance(neuron, Mapping):
        raise ModelError(f"neuron={shown(neuron)} must be a dict of NeuronSpec fields, or of such dicts by layer")
    for part in (neuron or {}, *(value for value in (neuron or {}).values() if isinstance(value, Mapping))):
        for name, value in part.items():
            if name not in NEURON_FIELDS and not (part is neuron and isinstance(value, Mapping)):
                raise ModelError(unknown_choice("neuron field", name, NEURON_FIELDS))


def _overrides_per_layer(neuron: Mapping, acting: list[Entry]) -> dict[str, dict]:
    """Return the fields that `neuron=` sets per layer: common ones where the file has neurons, then those by name."""
    names = [e.name for e in acting if e.has_neurons and e.read_text("type", "neuron") in BUILT_IN]
    common = {key: value for key, value in neuron.items() if not isinstance(value, Mapping)}
    for name in neuron:
        if name not in common and name not in names:
            raise ModelError(unknown_choice("neuron layer", name, names))
    of_all = {e.name for e in acting if "neuron" in e.values and e.name in names}
    return {e.name: {**(common if e.name in of_all else {}), **neuron.get(e.name, {})} for e in acting}


def _input_shape(entries: list[Entry], given) -> tuple[int, ...]:
    """Return the network's input shape: from the input entry, `given`, or the weights of the first layer."""
    if given is not None:
        sizes = given if isinstance(given, list | tuple) else (given,)
        if not sizes or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
            raise ModelError(
                f"input_shape={shown(given)} must be whole numbers >= 1, (channels, rows, columns) or (n,)"
            )
        given = tuple(sizes)
    head = entries[0]
    if head.kind == "input" and ("shape" in head.values or head.has_neurons):
        if given not in (None, head.read_shape()):
            raise head.fail(f"it has shape {head.read_shape()}, but input_shape={given}; leave input_shape out")
        return head.read_shape()
    first = next((entry for entry in entries if entry.kind not in ("input", "flatten")), head)
    if given is not None:
        return given
    if first.kind in DENSE:
        return (max(1, first.read_weight().size // max(1, prod(first.read_shape()))),)
    if first.kind == "conv" and first.read_pair("stride", 1) == (1, 1):
        return _unstrided_source(first)
    raise first.fail("the file does not tell the input's shape; give input_shape=(channels, rows, columns)")


def _unstrided_source(first: Entry) -> tuple[int, ...]:
    """Return the source shape of a convolution with stride 1."""
    weight = first.read_weight()
    out = first.read_shape()
    if weight.ndim < 4 or len(out) != 3:
        raise first.fail(f"weight {weight.shape} and shape {out} must be [C_out, C_in, rows, columns] and [C, H, W]")
    padding = first.read_pair("padding", 0)
    dilation = first.read_pair("dilation", 1)
    size = (out[1 + a] - 1 + dilation[a] * (weight.shape[2 + a] - 1) + 1 - 2 * padding[a] for a in (0, 1))
    return (weight.shape[1] * first.read_integer("groups", 1), *size)
