"""What is fuzzed: for each reader, how a damaged file is made, and how far it is taken when it is not refused."""

import json
import random
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nwcompile.errors import NwError
from nwcompile.frontend.lava import from_lava
from nwcompile.frontend.nir import from_nir
from nwcompile.frontend.nir.dialects import DIALECTS
from nwcompile.ir import artifact
from nwcompile.ir.chip import HWMODELS, Chip
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.crosscheck import crosscheck
from tests.fuzz.mutate import damaged_array, damaged_bytes, damaged_table
from tests.fuzz.trees import damaged_file
from tests.fuzz.wholes import lava_trees, nir_trees, program_files

LARGEST_RUN = 20_000  # neurons and synapses of a network that is also run


@dataclass(frozen=True)
class Reader:
    """`suffix` of its files, `make(rng)` the bytes of a damaged one, `read(rng, path)` what a person does with it."""

    suffix: str
    make: Callable[[random.Random], bytes]
    read: Callable[[random.Random, Path], None]


def outcome(name: str, seed: int, index: int, folder: Path) -> str:
    """What became of one input: "refused", "accepted", or a text that says what is wrong with the refusal.

    Equal arguments make equal files. The file stays in the folder where anything but an NwError is raised.
    """
    rng = random.Random(f"{name} {seed} {index}")
    path = folder / f"{name}-{seed}-{index}{READERS[name].suffix}"
    path.write_bytes(READERS[name].make(rng))
    result = "accepted"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            READERS[name].read(rng, path)
    except NwError as e:
        result = "refused" if str(e) and str(e).isprintable() else f"no sentence: {str(e)!r}"
    path.unlink()
    return result


def _make_nir(rng: random.Random) -> bytes:
    return damaged_file(rng, rng.choice(nir_trees()))


def _read_nir(rng: random.Random, path: Path) -> None:
    dialect = rng.choice((None, *sorted(DIALECTS)))
    reset = rng.choice(("zero", "subtract", "value", None))
    dt = rng.choice((1e-4, 1e-4, 1e-4, 1.0, None))
    given = {} if reset is None or dialect is None else {"reset": reset}
    _use(from_nir(path, dt=dt, dialect=dialect, neuron=given))


def _make_lava(rng: random.Random) -> bytes:
    return damaged_file(rng, rng.choice(lava_trees()))


def _read_lava(rng: random.Random, path: Path) -> None:
    _use(from_lava(path, rng.choice((None, None, {"strict": False}))))


def _use(network: Network) -> None:
    """A network that was accepted verifies, has a hash, and, if it is small, runs."""
    network.verify()
    assert len(network.hash) == 64
    n = sum(network.node(name).n_neurons for name in (*network.inputs, *network.nodes))
    if n + sum(np.size(getattr(c, "weight", 0)) for c in network.connections) < LARGEST_RUN:
        simulate(network, {name: np.ones((1, 3, *node.shape)) for name, node in network.inputs.items()}, steps=3)


def _make_program(rng: random.Random) -> bytes:
    """A damaged file, or one whose sum is right but whose content was made up."""
    data = rng.choice(program_files())
    if rng.random() < 0.1:
        return damaged_bytes(rng, data)
    manifest, arrays = artifact.decode(data, "whole")
    if rng.random() < 0.6:
        manifest = damaged_table(rng, manifest)
    if rng.random() < 0.5:
        name = rng.choice(sorted(arrays))
        arrays[name] = damaged_array(rng, arrays[name])
        if rng.random() < 0.1:
            del arrays[name]
    return artifact.encode(json.loads(json.dumps(manifest)), arrays)


def _read_program(_rng: random.Random, path: Path) -> None:
    program = Program.load(path)
    program.verify()
    network = program.network
    assert len(program.hash) == 64
    if sum(network.node(name).n_neurons for name in network.offsets) < LARGEST_RUN:
        x = {name: np.ones((1, 3, *node.shape), np.int8) for name, node in network.inputs.items()}
        assert crosscheck(program, x, steps=3).agree


def compile_kernels() -> None:
    """Run every whole program on every backend once: compiling kernels takes longer than a worker may be silent."""
    for data in program_files():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "whole.nwc"
            path.write_bytes(data)
            program = Program.load(path)
        for backend in BACKENDS:
            simulate(program, backend=backend, steps=2)


def _make_chip(rng: random.Random) -> bytes:
    name = rng.choice(Chip.names())
    if rng.random() < 0.3:
        return damaged_bytes(rng, (HWMODELS / f"{name}.toml").read_bytes())
    return toml(damaged_table(rng, Chip.load(name).to_dict())).encode()


def _read_chip(rng: random.Random, path: Path) -> None:
    chip = Chip.load(path)
    assert Chip.from_dict(chip.to_dict()) == chip
    assert max(chip.ticks) >= 1 and len(chip.sites) == chip.n_cores and len(chip.hash) == 64


def toml(table: dict) -> str:
    """A table as TOML text; what TOML cannot say is left out."""
    return "\n".join(f"{_key(key)} = {_toml(value)}" for key, value in table.items() if value is not None)


def _toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(v) for v in value if v is not None) + "]"
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return json.dumps(value)


def _key(key) -> str:
    return json.dumps(str(key))


READERS = {
    "nir": Reader(".nir", _make_nir, _read_nir),
    "lava": Reader(".net", _make_lava, _read_lava),
    "program": Reader(".nwc", _make_program, _read_program),
    "chip": Reader(".toml", _make_chip, _read_chip),
}
