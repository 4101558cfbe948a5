"""Read the layers of a lava-dl `.net` file as numbered entries; each number is checked when it is read."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.frontend.hdf5 import read_hdf5

RECURRENT = ("dense_rec", "recurrent")  # names of lava-dl and of the older SLAYER
DENSE = ("dense", *RECURRENT)
TRANSPOSED = ("convT", "unpool")
SUPPORTED = ("input", *DENSE, "conv", "pool", *TRANSPOSED, "flatten", "average")
REFUSED = {
    "concat": "the format lists it, but no version of lava-dl writes or runs it; give each source its own connection "
    "in a Network.from_arrays",
    "dense_comp": "the format lists it, but no version of lava-dl writes it; a dense entry of resonators holds complex "
    "weights as weight/real and weight/imag",
}
LARGEST = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Entry:
    """One `/layer/<i>`: its number and type, and by name its datasets (arrays or text) and groups (dicts)."""

    index: int
    kind: str
    values: dict

    @property
    def name(self) -> str:
        """The layer's name in the Network."""
        return f"layer{self.index}"

    @property
    def has_neurons(self) -> bool:
        """Whether the entry is a layer of neurons; dense layers without neurons in the file have those of netx."""
        return self.kind not in ("flatten", "average") and ("neuron" in self.values or self.kind != "input")

    def fail(self, text: str) -> ModelError:
        """Return an error that names this layer and its type."""
        return ModelError(f"lava-dl layer {self.index} ({self.kind}): {text}")

    def read_text(self, key: str, group: str) -> str | None:
        """Return the text at `group/key`, or None."""
        value = self.values.get(group, {}).get(key)
        value = value.flat[0] if isinstance(value, np.ndarray) and value.size else value
        return str(value) if isinstance(value, str) else None

    def read_integers(self, key: str, default=None, group: str | None = None) -> np.ndarray:
        """Return the integers of `key` as int64, or `default`; `group` names a group ("neuron") that holds the key."""
        where = f"{group}/{key}" if group else key
        value = (self.values.get(group, {}) if group else self.values).get(key, default)
        if value is None:
            raise self.fail(f"{where} is missing; export the model again")
        if isinstance(value, dict) and {"real", "imag"} & set(value):
            raise self.fail(f"{where} is complex, which only dense and conv layers of resonators (RF, ADRF) are")
        if isinstance(value, dict | str) or np.asarray(value).dtype.kind not in "biuf":
            raise self.fail(f"{where} must be real numbers")
        array = np.asarray(value)
        if not array.size:
            raise self.fail(f"{where} has shape {array.shape}, so no values; export the model again")
        off = array[~(np.isfinite(array) & (array == np.trunc(array)) & (np.abs(array * 1.0) <= LARGEST))]
        if off.size:
            raise self.fail(
                f"{where} has {off.size} values that are not whole numbers within +-{LARGEST}, the first {off[0]}; "
                "export the model quantized"
            )
        return array.astype(np.int64)

    @property
    def has_complex_weight(self) -> bool:
        """Whether the weights are stored as `weight/real` and `weight/imag`."""
        weight = self.values.get("weight")
        return isinstance(weight, dict) and {"real", "imag"} <= set(weight)

    def read_weight(self, part: str = "real") -> np.ndarray:
        """Return the weights, or the given part of complex weights."""
        return self.read_integers(part, group="weight") if self.has_complex_weight else self.read_integers("weight")

    def read_integer(self, key: str, default=None, group: str | None = None) -> int:
        """Return the single integer of `key`."""
        array = self.read_integers(key, default, group)
        if (array != array.flat[0]).any():
            raise self.fail(f"{f'{group}/' if group else ''}{key} differs within the layer; one value is supported")
        return int(array.flat[0])

    def read_per_neuron(self, key: str, shape: tuple[int, ...], default=None, group: str | None = None) -> np.ndarray:
        """Return the integers of `key`, broadcastable to `shape`: one, one per channel (first axis), or all."""
        array = self.read_integers(key, default, group)
        if array.size == 1 or (array == array.flat[0]).all() and array.size in (shape[0], prod(shape)):
            return array.reshape(-1)[0]
        if array.size == prod(shape):
            return array.reshape(shape)
        if array.size == shape[0]:
            return array.reshape(-1, *[1] * (len(shape) - 1))
        sizes = " or ".join(str(n) for n in sorted({1, shape[0], prod(shape)}))
        where = f"{group}/{key}" if group else key
        raise self.fail(f"{where} has {array.size} values; a layer of shape {shape} takes {sizes}")

    def read_shape(self) -> tuple[int, ...]:
        """Return the declared shape, [C, H, W] or [n]."""
        shape = tuple(int(n) for n in self.read_integers("shape").reshape(-1))
        if min(shape) < 1 or prod(shape) > LARGEST:
            raise self.fail(f"shape {shape} must be whole numbers >= 1 of at most {LARGEST} neurons together")
        return shape

    def read_pair(self, name: str, default: int) -> tuple[int, int]:
        """Return (rows, columns) from one number for both, or from two."""
        values = self.read_integers(name, default).reshape(-1)
        if values.size > 2:
            raise self.fail(f"{name} has {values.size} values; it must have one, or two (rows, columns)")
        return int(values[0]), int(values[-1])


def read_entries(path) -> list[Entry]:
    """Return the layers by number; raise ModelError for an incomplete file or an unknown type."""
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
        kind = kind.flat[0] if isinstance(kind, np.ndarray) and kind.size else kind
        kind = str(kind) if isinstance(kind, str) else ""
        entry = Entry(index, kind, values)
        if kind in REFUSED:
            raise entry.fail(REFUSED[kind])
        if kind not in SUPPORTED:
            raise ModelError(
                f"lava-dl layer {index}: type {kind!r} is not supported; supported: {', '.join(SUPPORTED)}"
            )
        if not isinstance(values.get("neuron", {}), dict):
            raise entry.fail("neuron must be a group of numbers; export the model again")
        entries.append(entry)
    return entries
