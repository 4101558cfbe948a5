"""Notes of to_nir that somebody damaged: refused with a sentence, or the network that the parameters hold too."""

import json
import random
import warnings
from dataclasses import replace

import h5py
import numpy as np
import pytest

from nwcompile.errors import ModelError, NwError, NwWarning
from nwcompile.frontend.nir import from_nir
from nwcompile.frontend.nir.write import to_nir
from nwcompile.ir.connection import Conv2d, Dense, Pool2d, Scale, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from tests.fuzz.mutate import damaged_table
from tests.fuzz.trees import file_bytes, odd_item, read_tree
from tests.long import EXAMPLES
from tests.made.neuron_programs import cuba
from tests.made.nir_graphs import weights


def integers() -> Network:
    """A network of integers: neurons of a NeuronSpec and a program, a constant input, shared axons."""
    whole = NeuronSpec(threshold=np.array([64, 128, 192]), decay_u=1000, decay_v=300, fixed=FixedPoint())
    edges = [
        Dense("x", "a", np.array([[3, -2], [1, 5], [0, 7]]), np.array([1, 0, 2]), exponent=1, sign_mode="mixed"),
        Dense("on", "b", np.array([[4], [6]], np.int8)),
        Sparse("a", "b", [0, 2, 2], [1, 0, 0], np.array([3, -2, 5]), delay=2),
    ]
    network = Network.from_arrays({"a": (whole, (3,)), "b": (cuba(64, 4096, 0), (2,))}, edges, {"x": 2, "on": 1})
    shared = replace(network.nodes["a"], axon_of=np.array([0, 0, 2]))
    return replace(
        network, inputs=network.inputs | {"on": replace(network.inputs["on"], constant=3)},
        nodes=network.nodes | {"a": shared},
    )  # fmt: skip


def floats() -> Network:
    """A float network with every kind of connection."""
    leaky = NeuronSpec(beta=np.array([0.5, 0.75, 0.9]), reset="subtract", reset_timing="next", v_min=-1.0)
    layers = {"c": (NeuronSpec(), (2, 4, 4)), "p": (None, (2, 2, 2)), "a": (leaky, (3,))}
    edges = [
        Conv2d("x", "c", weights(2, 1, 1, 3), stride=(np.int64(1), 1), padding=(0, 1), groups=2),
        Pool2d("c", "p", 2),
        Dense("p", "a", weights(3, 8), np.ones(3)),
        Scale("a", "a", 0.5),
        Scale("a", "a", delay=2),
        Sparse("a", "b", [0, 2, 2], [1, 0, 0], weights(3), delay=2),
        Sparse("a", "b", [], [], []),
    ]
    return Network.from_arrays({**layers, "b": (NeuronSpec(alpha=0.5), (2,))}, edges, {"x": (2, 4, 4)})


@pytest.fixture(scope="module", params=[floats, integers], ids=lambda make: make.__name__)
def tree(request, tmp_path_factory) -> dict:
    """The HDF5 tree of a network with every kind of note, each note as the table that its JSON text holds."""
    network = request.param()
    path = tmp_path_factory.mktemp("noted") / "a.nir"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        to_nir(network, path)
    assert from_nir(path).hash == network.hash
    with h5py.File(path) as file:
        return notes(read_tree(file), json.loads)


def notes(item, change):
    """The tree with `change` made to every note; what a text has become, if it is none any more, stays."""
    if not isinstance(item, dict):
        return item
    inside = {name: notes(inner, change) for name, inner in item.items()}
    if "nwcompile" in item:
        note = item["nwcompile"]
        inside["nwcompile"] = change(note.item() if isinstance(note, np.ndarray) else note)
    return inside


def tables(item) -> list[dict]:
    found = [item] if isinstance(item, dict) and "nwcompile" in item else []
    return found + [t for inner in (item.values() if isinstance(item, dict) else ()) for t in tables(inner)]


def damaged(tree: dict, seed: int) -> bytes:
    """The file with one note damaged, and now and then its nodes too."""
    rng = random.Random(seed)
    holders = tables(tree)
    chosen = rng.randrange(len(holders))
    texts = iter([json.dumps(damaged_table(rng, h["nwcompile"]) if i == chosen else h["nwcompile"])
                  for i, h in enumerate(holders)])  # fmt: skip
    order = {id(h["nwcompile"]): next(texts) for h in holders}
    whole = notes(tree, lambda table: np.array(order[id(table)]))
    return file_bytes(damaged_table(rng, whole, odd_item) if rng.random() < 0.2 else whole)


def outcomes(tree: dict, path, seeds) -> dict[str, int]:
    count = {"read": 0, "refused": 0}
    for seed in seeds:
        path.write_bytes(damaged(tree, seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NwWarning)
            try:
                network = from_nir(path)
                to_nir(network, path)
                assert from_nir(path).hash == network.hash, seed
                count["read"] += 1
            except NwError as error:
                assert isinstance(error, ModelError) and str(error).isprintable(), seed
                count["refused"] += 1
    return count


def test_damaged_notes_are_refused_or_hold(tree, tmp_path):
    count = outcomes(tree, tmp_path / "a.nir", range(15, 30))
    assert count["refused"] > 5 and count["read"] > 1, count


@pytest.mark.long
def test_many_damaged_notes_are_refused_or_hold(tree, tmp_path):
    outcomes(tree, tmp_path / "a.nir", range(1000, 1000 + 8 * EXAMPLES))
