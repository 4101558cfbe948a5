"""lava-dl `.net` files: integer networks as SLAYER exports them, taken in with their weights untouched.

The format is in lava-dl, `lava/lib/dl/netx/README.md`: HDF5 with `/layer/<i>/{type, shape, weight, neuron/...}`; what
it leaves open is settled by who writes it (`slayer/block/base.py`) and who runs it (`netx/hdf5.py`).

    the layers as they stand in the file      entry.py:read_entries
    neurons -> NeuronSpec                      neuron.py:neuron_spec
    sigma-delta neurons -> NeuronProgram       programs.py:sigma_delta_program
    ALIF, resonators, graded spikes -> likewise  slayer.py:slayer_program
    synapses -> connections                    wires.py:connection
    complex weights -> two real connections    complex_weights.py:parts_of
    delays of spikes, inputs and synapses      delay.py:delays
"""

from collections.abc import Mapping
from dataclasses import fields
from math import prod
from os import PathLike

from nwcompile.errors import ModelError, shown, unknown_choice
from nwcompile.frontend.lava.complex_weights import Parts, split_complex_weights
from nwcompile.frontend.lava.delay import NONE, add_delays, read_delays
from nwcompile.frontend.lava.entry import DENSE, Entry, read_entries
from nwcompile.frontend.lava.neuron import RESONATORS, average_spec, has_bias, neuron_spec, neuron_type
from nwcompile.frontend.lava.programs import SIGMA_DELTA, sigma_delta_program
from nwcompile.frontend.lava.slayer import Arriving, is_program, slayer_program
from nwcompile.frontend.lava.wires import Shape, build_connection, build_recurrence
from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

ERROR_CODE = "NW2201"
OF_SLAYER = ("CUBA", "ALIF", *RESONATORS)  # a connection into these takes a step
BUILT_IN = (None, "CUBA", "LOIHI")  # None: of a dense layer without a neuron
NEURON_FIELDS = tuple(f.name for f in fields(NeuronSpec))


def from_lava(path, neuron: Mapping | None = None, input_shape=None) -> Network:
    """The fixed-point Network of a lava-dl `.net` file: input `input`, layers `layer<i>` as numbered in the file.

    Shapes are [C, H, W] or [n]. u = decay(u, iDecay) + 64 * 2**wgtExp * (sum w*s); v = decay(v, vDecay) + u + 64*bias;
    reset to 0. Types: `input` (with a neuron a layer fed with weight*x + bias, else only a shape), `dense`,
    `dense_rec` (its own spikes of t-1 come back through weight_rec), `conv`, `pool` (a weighted sum per window),
    `flatten`, and at the end `average`: a readout whose v is 64 times the spikes of each group. A dense layer without
    neuron gets netx's: a readout whose v is the running sum of its input. Thresholds that v cannot reach make readouts.

    Neurons fire at v > 64*vThMant. CUBA networks trained before lava-dl v0.3 (September 2022) were trained to fire at
    v >= 64*vThMant, which no key of the file tells: read those with `neuron={"strict": False}`.

    Time: a spike of LOIHI neurons (the older SLAYER) acts in the same aligned step; every connection into CUBA neurons
    (lava-dl) takes one step, the first one too, as in lava-dl's stored outputs. But where a CUBA layer has a bias,
    those steps are left out in the whole network: a bias acts from the first step whose input can have arrived, so that
    layers start one after the other, which is what the chip's pipeline does with delay 0 (what layer L of CUBA layers,
    from 1, gives in aligned step t is seen in hardware step t + L).

    SDNN neurons are lava's sigma-delta processes, as programs (`ir.neuron_programs`) whose states of 24 bits saturate:
    an `input` entry sends how much its whole numbers change (those that netx's transform gives; a weight and a bias
    only where the file gives them), the others have a ReLU, one with `sigma_output` is a readout. Messages are changes
    in units of 1/64. As in netx every connection between them takes one step, and biases act from the first step on.

    ALIF, RF_PHASE, RF_IZHIKEVICH, ADRF_PHASE and ADRF_IZHIKEVICH neurons, and CUBA ones with `gradedSpike`, are
    programs that compute as SLAYER does (`slayer.py` names the rules), timed as CUBA neurons; states of 24 bits
    saturate. A graded spike is the state as a whole number, 2**12 times what SLAYER sends, and the layers behind take
    it as that. Resonators have complex weights, of which neurons of their own add up the imaginary parts, `layer1/imag`
    (`complex_weights.py`); an `input` entry gives them its input as both parts. netx takes ADRF for RF, and decays
    through a logarithm and back, which may change their last digit; the file's are taken here.

    A `delay` of one number, one per channel or one per neuron holds back a layer's spikes; in the last layer, which
    must then have no bias, its input. One per input, or per synapse of a dense layer, holds back what it names.
    Where delays differ, each makes a connection of its own with its synapses as a list.

    `neuron` overrides NeuronSpec fields in all layers, `{"layer3": {...}}` in one. `input_shape` [C, H, W] is needed
    where the first layer is a pool, or a conv with a stride. Raises ModelError, naming the layer, for what is missing,
    not whole or not supported: other neurons, complex weights of graded spikes, concat.
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
        _check_place(entry, entries, entry is acting[-1])
        before = layers.get(source, (None, shape))[0]
        many, after, arriving = _connect_source(entry, source, shape, before)
        spec = _read_neurons(entry, after, arriving, given[entry.name])
        incoming, leaving = read_delays(entry, after, prod(shape))
        if entry is acting[-1] and leaving.any():
            _check_last(entry, spec)
            incoming, leaving = incoming + leaving.T, NONE
        layers |= {**many.layers, entry.name: (spec, after)}
        wires += [(entry, c, (incoming, late), shape) for c in many.from_source]
        joining += many.joining
        source, shape, late = entry.name, after, leaving
    connections = []
    steps = _connection_steps(acting, layers)
    for entry, c, more, shape in wires:
        connections += add_delays(entry, c.replace(delay=steps[entry.name]), more, shape)
        if entry.kind == "dense_rec":
            connections.append(build_recurrence(entry, prod(layers[entry.name][1])))
    return Network.from_arrays(layers, [*connections, *joining], {"input": first})


def _connect_source(entry: Entry, source: str, shape: Shape, before) -> tuple[Parts, Shape, Arriving]:
    """What connects `source`, which has the neurons `before`, to an entry, the entry's shape, and what it receives."""
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
    """Steps that the connection into each layer takes, as lava's processes do (see `from_lava`)."""
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
    """What `neuron=` gives for every layer: fields for all whose neurons are in the file, then those by its name."""
    names = [e.name for e in acting if e.has_neurons and e.read_text("type", "neuron") in BUILT_IN]
    common = {key: value for key, value in neuron.items() if not isinstance(value, Mapping)}
    for name in neuron:
        if name not in common and name not in names:
            raise ModelError(unknown_choice("neuron layer", name, names))
    of_all = {e.name for e in acting if "neuron" in e.values and e.name in names}
    return {e.name: {**(common if e.name in of_all else {}), **neuron.get(e.name, {})} for e in acting}


def _check_place(entry: Entry, entries: list[Entry], is_last: bool) -> None:
    if entry.kind == "input" and entry is not entries[0]:
        raise entry.fail("an input entry must come first")
    if entry.kind == "average" and not is_last:
        raise entry.fail("an average must come last, because it gives numbers, not spikes")


def _check_last(entry: Entry, spec: NeuronSpec | NeuronProgram) -> None:
    """A last layer's delay moves to its input, which gives the same spikes only if nothing else drives it."""
    if has_bias(spec) or entry.kind == "dense_rec":
        raise entry.fail(
            "a delay on the spikes of the last layer is not supported where it has a bias or feeds itself; export it "
            "as 0"
        )


def _input_shape(entries: list[Entry], given) -> tuple[int, ...]:
    """Shape of what the network is fed: that of the input entry, or `given`, or what the first layer's weights tell."""
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
    """Shape of the source of a convolution with stride 1."""
    weight = first.read_weight()
    out = first.read_shape()
    if weight.ndim < 4 or len(out) != 3:
        raise first.fail(f"weight {weight.shape} and shape {out} must be [C_out, C_in, rows, columns] and [C, H, W]")
    padding = first.read_pair("padding", 0)
    dilation = first.read_pair("dilation", 1)
    size = (out[1 + a] - 1 + dilation[a] * (weight.shape[2 + a] - 1) + 1 - 2 * padding[a] for a in (0, 1))
    return (weight.shape[1] * first.read_integer("groups", 1), *size)
