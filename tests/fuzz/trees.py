"""HDF5 files as trees: groups are dicts, datasets arrays, and a few things that no framework writes are callables."""

import random
from contextlib import suppress

import h5py
import numpy as np

from tests.fuzz.mutate import damaged_bytes, damaged_table, odd_array


def read_tree(group) -> dict:
    """The tree of a file or group that we wrote ourselves."""
    return {
        name: read_tree(item) if isinstance(item, h5py.Group) else np.asarray(item[()]) for name, item in group.items()
    }


def huge(group, name):
    group.create_dataset(name, (1 << 20, 1 << 22), np.float32, chunks=(1, 1 << 10), compression="gzip")


def packed_zeros(group, name):
    group.create_dataset(name, data=np.zeros(200_000), compression="gzip")


def external_link(group, name):
    group[name] = h5py.ExternalLink("other.h5", "/node")


def soft_link(group, name):
    group[name] = h5py.SoftLink("/nowhere")


def ring(group, name):
    group[name] = group


def alias_of_root(group, name):
    group[name] = group.file["/"]


def nothing(group, name):
    group[name] = h5py.Empty(np.float32)


def pairs(group, name):
    group[name] = np.zeros(2, [("a", np.int8), ("b", np.float64)])


def ragged(group, name):
    group.create_dataset(name, (2,), h5py.vlen_dtype(np.int32))


def reference(group, name):
    group.create_dataset(name, data=group.ref, dtype=h5py.ref_dtype)


def deep(group, name):
    for _ in range(40):
        group = group.create_group(name)


def elsewhere(group, name):
    group.create_dataset(name, (4,), np.int8, external=[("other.bin", 0, 4)])


SPECIAL = (huge, packed_zeros, external_link, soft_link, ring, alias_of_root, nothing, pairs, ragged, reference, deep,
           elsewhere)  # fmt: skip


def file_bytes(tree: dict) -> bytes:
    """The bytes of an HDF5 file with that tree."""
    with h5py.File("made in memory", "w", driver="core", backing_store=False) as file:
        _fill(file, tree)
        file.flush()
        return file.id.get_file_image()


def _fill(group, tree: dict) -> None:
    for name, item in tree.items():
        with suppress(ValueError, TypeError, OSError, RuntimeError):  # what HDF5 cannot hold is left out
            if isinstance(item, dict):
                _fill(group.create_group(name), item)
            elif callable(item):
                item(group, name)
            elif item.dtype.kind in "OU":
                group.create_dataset(name, data=item.astype(object), dtype=h5py.string_dtype())
            else:
                group[name] = item


def odd_item(rng: random.Random):
    """An array, an empty group, or something that no framework writes."""
    if rng.random() < 0.3:
        return rng.choice(SPECIAL)
    return {} if rng.random() < 0.1 else np.asarray(odd_array(rng))


def damaged_file(rng: random.Random, tree: dict) -> bytes:
    """A file of the tree, damaged in its content, in its bytes, or in both."""
    how = rng.random()
    data = file_bytes(damaged_table(rng, tree, odd_item) if how < 0.75 else tree)
    return damaged_bytes(rng, data) if how > 0.65 else data
