"""Samples as streams: a program with every kind of stream state, its chunks, and their expected values."""

from dataclasses import fields, replace
from functools import cache

import numpy as np
from hypothesis import Phase, settings

import nwcompile as nw
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense, Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim.session import Session
from tests.made.nets import integers
from tests.made.neuron_programs import cuba
from tests.made.random_programs import OF_PROGRAMS

SHORT = settings(OF_PROGRAMS, max_examples=2, phases=[Phase.explicit, Phase.generate])


def stream(program, x: np.ndarray, backend: str, sizes, record: str = "all") -> list[nw.Chunk]:
    """Feed one sample [T, *shape] in pieces of these sizes, repeated, and return the chunks."""
    session, chunks, first, i = Session(program, backend, record), [], 0, 0
    while first < len(x):
        n = sizes[i % len(sizes)]
        chunks.append(session.feed(x[first : first + n]))
        first, i = first + n, i + 1
    return [*chunks, session.close()]


def joined(parts: list, axis: int):
    """Concatenate a field over all chunks: arrays, or dicts and dataclasses of arrays."""
    if isinstance(parts[0], dict):
        return {name: joined([part[name] for part in parts], axis) for name in parts[0]}
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis)
    return None if parts[0] is None else joined([vars(part) for part in parts], axis)


def assert_same(found, wanted, where: str):
    if isinstance(wanted, dict):
        assert set(found) == set(wanted), where
        for name in wanted:
            assert_same(found[name], wanted[name], f"{where}.{name}")
    elif isinstance(wanted, np.ndarray):
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted), where
    else:
        assert found is None and wanted is None, where


def assert_is_run(chunks: list[nw.Chunk], run: nw.Run):
    """Assert that the chunks equal the run in every array, and that each begins at the right step."""
    for chunk, following in zip(chunks, chunks[1:], strict=False):
        assert following.first_step == chunk.first_step + chunk.n_steps
        assert following.first_hardware_step == chunk.first_hardware_step + chunk.n_hardware_steps
    for name in {f.name for f in fields(nw.Chunk)} - {"backend", "first_step", "first_hardware_step"}:
        axis = 1 if name in ("spikes", "states", "output") else 0
        wanted = getattr(run, name)
        wanted = vars(wanted) if name in ("dropped", "bus") and wanted is not None else wanted
        assert_same(joined([getattr(chunk, name) for chunk in chunks], axis), wanted, name)


@cache
def everything(execution: str = "pipelined") -> Program:
    """Build a program with every kind of stream state: currents, membranes, refractory times, words, spikes in transit.

    `loop` and `words` are recurrent, `words` as a neuron program; `late` and `program` are the same without recurrence.
    """
    cuba_lif = NeuronSpec(threshold=900, decay_u=1500, decay_v=300, refractory=4, fixed=FixedPoint())
    gated = replace(cuba_lif, spikes="gated", reset="subtract", refractory=0, threshold=300)
    layers = {
        "loop": cuba_lif,
        "late": cuba_lif,
        "gated": gated,
        "program": cuba(900, 1500, 300),
        "words": cuba(700, 900, 90),
    }
    few = {n: (np.arange(n), np.arange(n) % 2, np.full(n, 9, np.int8)) for n in (5, 6)}  # other layers read only `loop`
    edges = [
        Sparse("in", "loop", *few[6]), Dense("loop", "loop", integers((5, 5), 2), delay=2),
        Dense("in", "late", integers((5, 6), 3), delay=3), Dense("in", "gated", integers((5, 6), 4)),
        Dense("late", "program", integers((5, 5), 5), delay=1), Dense("in", "program", integers((5, 6), 6)),
        Sparse("gated", "words", *few[5]), Dense("words", "words", integers((5, 5), 8), delay=3),
    ]  # fmt: skip
    network = Network.from_arrays({name: (neuron, (5,)) for name, neuron in layers.items()}, edges, {"in": (6,)})
    core_of = {name: np.arange(5) % 2 for name in layers}
    chip = Chip.load("tiny").replace({"neuron.spikes": ["binary", "bipolar"]})
    mapping = Mapping.from_arrays(core_of, chip.sites[:2])
    return emit(network, schedule(network, execution), mapping, chip, None, {}, "graded")


def spikes_in(program: Program, n: int = 14) -> np.ndarray:
    """Random spikes of one sample, `[n, *shape]`."""
    shape = program.network.inputs["in"].shape
    return (np.random.default_rng(1).random((n, *shape)) < 0.4).astype(np.int32)
