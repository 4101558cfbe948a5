"""lava-dl `.net` files: integer networks as SLAYER exports them, taken in with their weights untouched.

The format is in lava-dl, `lava/lib/dl/netx/README.md`: HDF5 with `/layer/<i>/{type, shape, weight, neuron/...}`.
Shapes are stored [C, H, W] and a convolution is torch's, with a last kernel axis of length 1 (time).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from os import PathLike
from pathlib import Path

import numpy as np

from nwcompile.errors import ModelError, unknown_choice
from nwcompile.frontend.hdf5 import read_hdf5
from nwcompile.ir.connection import Connection, Conv2d, Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec

SUPPORTED = ("input", "dense", "conv", "flatten")
STRICT = {"CUBA": False, "LOIHI": True}  # whether v must exceed the threshold
DELAY = {"CUBA": 1, "LOIHI": 0}  # aligned delay of the connections into such a layer
THRESHOLD_UNIT = BIAS_UNIT = 64
INPUT_WEIGHT = 64  # of an input entry that gives none (netx, create_input)
LARGEST = (1 << 31) - 1
NEURON_FIELDS = tuple(f.name for f in fields(NeuronSpec))


def from_lava(path, neuron: Mapping | None = None) -> Network:
    """The fixed-point Network of a lava-dl `.net` file: input `input`, layers `layer<i>` as numbered in the file.

    Shapes are [C, H, W] or [n]. u = decay(u, iDecay) + 64 * 2**wgtExp * (sum w*s); v = decay(v, vDecay) + u + 64*bias;
    reset to 0. An `input` entry with a neuron is a layer fed with weight * x + bias; without one it is only a shape.
    Neurons of type CUBA (lava-dl) fire at v >= 64*vThMant and every connection into them takes one step, the first one
    too; those of type LOIHI (the older SLAYER) fire at v > 64*vThMant, and a spike acts in the same aligned step: a
    chip's pipeline adds the step per layer, with each layer's bias starting when its first input can arrive.
    A `delay` that is equal in a whole layer adds to the connection that leaves it. `neuron` overrides NeuronSpec
    fields in all layers. Raises ModelError, naming the layer, for what is missing, not whole or not supported.
    """
    if not isinstance(path, str | PathLike):
        raise ModelError(f"from_lava takes the path of a lava-dl .net file, not {type(path).__name__}")
    if neuron is not None and not isinstance(neuron, Mapping):
        raise ModelError(f"neuron={neuron!r} must be a dict of NeuronSpec fields")
    for name in neuron or {}:
        if name not in NEURON_FIELDS:
            raise ModelError(unknown_choice("neuron field", name, NEURON_FIELDS))
    entries = _entries(path)
    source, shape, later = "input", _input_shape(entries[0]), 0
    inputs, layers, connections = {source: shape}, {}, []
    for entry in entries:
        if entry.kind == "flatten" or (entry.kind == "input" and "neuron" not in entry.values):
            continue
        if later and entry.kind == "input":
            raise entry.fail("an input entry must come first")
        connection, shape = _connection(entry, source, shape, later)
        layers[entry.name] = _spec(entry, shape, neuron or {}), shape
        connections.append(connection)
        source, later = entry.name, _axon_delay(entry)
    if later:
        raise entry.fail(f"a delay of {later} steps on the spikes of the last layer is not supported; export it as 0")
    return Network.from_arrays(layers, connections, inputs)


@dataclass(frozen=True, eq=False)
class Entry:
    """One `/layer/<i>`: its number, type, and datasets (arrays, or text) and groups (dicts) by name."""

    index: int
    kind: str
    values: dict

    @property
    def name(self) -> str:
        """The layer's name in the Network."""
        return f"layer{self.index}"

    def fail(self, text: str) -> ModelError:
        """An error that names this layer and its type."""
        return ModelError(f"lava-dl layer {self.index} ({self.kind}): {text}")

    def whole(self, key: str, default=None, group: str | None = None) -> np.ndarray:
        """The whole numbers of `key`, int64, or `default`; of the group `neuron` where `group` says so."""
        where = f"{group}/{key}" if group else key
        value = (self.values[group] if group else self.values).get(key, default)
        if value is None:
            raise self.fail(f"{where} is missing; export the model again")
        if isinstance(value, dict | str) or np.asarray(value).dtype.kind not in "biuf":
            raise self.fail(f"{where} must be real numbers")
        array = np.asarray(value)
        if not array.size:
            raise self.fail(f"{where} has shape {array.shape}, so no values; export the model again")
        off = array[~(np.isfinite(array) & (array == np.trunc(array)) & (np.abs(array * 1.0) <= LARGEST))]
        if off.size:
            raise self.fail(
                f"{where} has {off.size} values that are not whole numbers within +-{LARGEST}, the first {off[0]}; "
                "export the model quantised"
            )
        return array.astype(np.int64)

    def single(self, key: str, default=None, group: str | None = None) -> int:
        """The one whole number of `key`."""
        array = self.whole(key, default, group)
        if (array != array.flat[0]).any():
            raise self.fail(f"{f'{group}/' if group else ''}{key} differs within the layer; one value is supported")
        return int(array.flat[0])


def _entries(path) -> list[Entry]:
    """The layers in the order of their numbers."""
    tree = read_hdf5(Path(path), "lava-dl").get("layer")
    if not isinstance(tree, dict) or not tree:
        raise ModelError(f"lava-dl file {path}: the HDF5 file has no group 'layer' with layers; export the model again")
    entries = []
    for index in range(len(tree)):
        values = tree.get(str(index))
        if not isinstance(values, dict):
            names = ", ".join(sorted(tree))
            raise ModelError(f"lava-dl file {path}: layers must be numbered from 0 without gaps, found {names}")
        kind = values.get("type", "")
        kind = str(kind.flat[0]) if isinstance(kind, np.ndarray) and kind.size else str(kind)
        if kind not in SUPPORTED:
            raise ModelError(
                f"lava-dl layer {index}: type {kind!r} is not supported; supported: {', '.join(SUPPORTED)}"
            )
        entry = Entry(index, kind, values)
        if not isinstance(values.get("neuron", {}), dict):
            raise entry.fail("neuron must be a group of numbers; export the model again")
        entries.append(entry)
    return entries


def _shape(entry: Entry) -> tuple[int, ...]:
    """The declared shape, [C, H, W] or [n]."""
    return tuple(int(n) for n in entry.whole("shape").reshape(-1))


def _input_shape(first: Entry) -> tuple[int, ...]:
    """Shape of what the network is fed: that of the input entry, or what a first dense layer takes."""
    if first.kind == "input":
        return _shape(first)
    if first.kind == "dense":
        return (max(1, first.whole("weight").size // max(1, prod(_shape(first)))),)
    raise first.fail("the first layer must be of type input or dense, because nothing else tells the input's shape")


def _connection(entry: Entry, source: str, shape: tuple[int, ...], later: int) -> tuple[Connection, tuple[int, ...]]:
    """The connection into a layer from `source` of `shape`, whose spikes come `later` steps late; its own shape."""
    kind = _neuron_type(entry)
    told = {"delay": DELAY[kind] + later, "exponent": _exponent(entry)}
    declared = _shape(entry)
    if entry.kind == "input":
        weight = np.array([[[[entry.single("weight", INPUT_WEIGHT)]]]])
        return Conv2d(source, entry.name, weight, source_shape=(1, 1, prod(shape)), **told), declared
    weight = entry.whole("weight")
    if entry.kind == "dense":
        n_target, n_source = prod(declared), prod(shape)
        if weight.size != n_target * n_source or weight.ndim > 1 and weight.shape[0] != n_target:
            raise entry.fail(f"weight {weight.shape} does not join {n_source} inputs to {n_target} neurons")
        return Dense(source, entry.name, weight.reshape(n_target, n_source), **told), (n_target,)
    if weight.ndim != 4 and (weight.ndim != 5 or weight.shape[4] != 1):
        raise entry.fail(f"weight {weight.shape} must be [C_out, C_in/groups, rows, columns, 1]")
    window = {name: _pair(entry, name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))}
    weight = weight.reshape(weight.shape[:4])
    groups = entry.single("groups", 1)
    return Conv2d(source, entry.name, weight, groups=groups, **window, **told), declared


def _pair(entry: Entry, name: str, default: int) -> tuple[int, int]:
    values = entry.whole(name, default).reshape(-1)
    if values.size > 2:
        raise entry.fail(f"{name} has {values.size} values; it must have one, or two (rows, columns)")
    return int(values[0]), int(values[-1])


def _neuron_type(entry: Entry) -> str:
    if "neuron" not in entry.values:
        raise entry.fail("it has no neuron; export the model with a CUBA or LOIHI neuron in every layer")
    kind = entry.values["neuron"].get("type")
    kind = str(kind.flat[0]) if isinstance(kind, np.ndarray) and kind.size else kind
    if not isinstance(kind, str) or kind not in STRICT:
        raise entry.fail(f"neuron type {kind!r} is not supported; supported: {', '.join(STRICT)}")
    return kind


def _exponent(entry: Entry) -> int:
    """`wgtExp`, of the layer or of its neuron: weights count 2**wgtExp times."""
    return entry.single("wgtExp") if "wgtExp" in entry.values else entry.single("wgtExp", 0, "neuron")


def _axon_delay(entry: Entry) -> int:
    delay = entry.single("delay", 0)
    if delay < 0:
        raise entry.fail(f"delay {delay} must be 0 or more steps")
    return delay


def _spec(entry: Entry, shape: tuple[int, ...], override: Mapping) -> NeuronSpec:
    """How the layer's neurons update, with its bias per neuron or per channel."""
    if entry.single("gradedSpike", False, "neuron"):
        raise entry.fail("gradedSpike neurons are not supported; train and export it with binary spikes")
    bias = entry.whole("bias", 0)
    if bias.size == 1:
        bias = bias.reshape(())
    elif bias.size == prod(shape):
        bias = bias.reshape(shape)
    elif bias.size == shape[0]:
        bias = bias.reshape(-1, *[1] * (len(shape) - 1))
    else:
        raise entry.fail(f"bias has {bias.size} values; shape {shape} takes 1, {shape[0]} or {prod(shape)}")
    refractory = entry.single("refDelay", 1, "neuron")
    spec = NeuronSpec(
        threshold=THRESHOLD_UNIT * entry.single("vThMant", None, "neuron"),
        strict=STRICT[_neuron_type(entry)],
        fixed=FixedPoint(),
        decay_u=entry.single("iDecay", None, "neuron"),
        decay_v=entry.single("vDecay", None, "neuron"),
        refractory=0 if refractory == 1 else refractory,  # 1 freezes no step
        bias=BIAS_UNIT * bias,
    )
    return spec.replace(**override)
