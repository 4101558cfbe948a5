"""Memory: a lower bound on the memory of a simulation, from its samples, steps and neurons.

It counts only arrays that are fully written and exist at the same time, so no run that fits is refused.
`benchmarks/memory.py` compares it with real runs: large ones take 1 to `MOST_BEYOND` times as much.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np

from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.shown import count_text
from nwcompile.kernels.cores.tables import AXON
from nwcompile.memory import verify_room

MOST_BEYOND = 3  # Memory of a large run over the bytes counted here, at most.
COUNT_BYTES = 4  # per input line, and per spike record of the cycle backend
STATE_BYTES = {True: 8, False: 4}  # per state, sum and value of a network; True: in integers
WEIGHT_BYTES = 4  # per weight in the tables of the cycle backend
TOTALS_BYTES = 24  # per neuron and sample: its spikes, and its states u and v
TOUCHED_BYTES = 1  # per flag "a message arrived" of a neuron
CHUNK_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}  # per chunk of samples of the sequence backend
CHUNK_NUMBER_BYTES = 24  # per neuron of the widest layer, step and sample of a chunk


def samples_at_once(network: Network, n_samples: int, n_steps: int, device: str = "cpu") -> int:
    """Samples per chunk of the sequence backend. A GPU keeps the records of all layers until the end of a chunk."""
    kept = sum(_recorded_bytes(network, True)) if device == "cuda" else 0
    n_bytes = n_steps * (CHUNK_NUMBER_BYTES * _widest_layer(network) + kept)
    return max(1, min(n_samples, CHUNK_BYTES[device] // n_bytes))


def run_bytes(
    model: Network | Program, n_samples: int, n_steps: int, backend: str, record: str, device: str = "cpu"
) -> int:
    """Return the bytes of a run without its inputs: its records, and the arrays its backend holds at the same time."""
    network, n_all = model.network if isinstance(model, Program) else model, n_samples * n_steps
    spikes, states = _recorded_bytes(network, record == "all")
    n_neurons = _count_neurons(network.layers, network)
    if backend == "sequence" and network.is_fixed:
        return _chunk_bytes(network, n_samples, n_steps, spikes + states, device)
    if not isinstance(model, Program):  # the values of all nodes in all steps
        n_values = _count_neurons(network.inputs, network) + _count_neurons(network.nodes, network)
        return n_all * (spikes + states + STATE_BYTES[network.is_fixed] * n_values)
    if backend == "reference" and record != "totals":
        return n_all * (spikes + states + _widest_layer(network))
    tables = model.axons.n_axons * AXON.itemsize + WEIGHT_BYTES * sum(map(n_weights, network.connections))
    if record == "totals":
        return tables + TOTALS_BYTES * n_samples * n_neurons
    raw_states = 2 * STATE_BYTES[True] * n_neurons if states else 0  # recording one layer records all
    raw_spikes = COUNT_BYTES * n_neurons  # by hardware step; gone when the states are aligned
    simulating = COUNT_BYTES * _count_neurons(network.inputs, network) + raw_spikes + raw_states
    return tables + n_all * max(simulating, spikes + raw_states + max(raw_spikes, states))


def calibration_bytes(network: Network, n_samples: int, n_steps: int) -> int:
    """Return the bytes of `sim.sequence.run.record_activity` without the samples, for a network not yet in integers."""
    return _chunk_bytes(network, n_samples, n_steps, _recorded_bytes(network, False)[0], "cpu")


def _recorded_bytes(network: Network, keep_states: bool) -> tuple[int, int]:
    """Return the bytes of spikes and of states in a Run, per sample and step."""
    nodes, size = [network.node(name) for name in network.layers], STATE_BYTES[network.is_fixed]
    kept = [node for node in nodes if keep_states or not node.neuron.fires]  # States of readouts are always recorded.
    spikes = sum(node.n_neurons * np.dtype(node.neuron.spike_dtype).itemsize for node in nodes)
    return spikes, sum(node.n_neurons * len(node.neuron.state_names) * size for node in kept)


def _chunk_bytes(network: Network, n_samples: int, n_steps: int, run: int, device: str) -> int:
    """Return the peak bytes of an integer run on the sequence backend that records `run` bytes per sample and step."""
    updates = STATE_BYTES[True] * n_steps * _count_neurons(network.layers, network)
    n_chunk = samples_at_once(network, n_samples, n_steps) if device == "cpu" else 0  # a GPU has memory of its own
    n_sums = max(network.node(name).n_sums for name in network.layers)
    sums = (STATE_BYTES[True] + TOUCHED_BYTES) * n_chunk * n_steps * n_sums
    return updates + max(sums, n_samples * n_steps * (run + _widest_layer(network)))


def verify_simulation(
    model: Network | Program, n_samples: int, n_steps: int, n_made: int, backend: str, record: str, device: str
) -> None:
    """Raise NotEnoughMemoryError if a run exceeds this process's memory; the message says what would fit.

    `n_made`: bytes of input arrays that are not yet allocated.
    """
    given: dict[str, Any] = {
        "n_samples": n_samples,
        "n_steps": n_steps,
        "backend": backend,
        "record": record,
        "device": device,
    }

    def n_bytes(**changed) -> int:
        run = given | changed
        made = n_made * run["n_samples"] * run["n_steps"] // (n_samples * n_steps)
        return made + run_bytes(model, **run)

    def advice(room: int) -> str:
        def has_room(**changed) -> bool:
            return MOST_BEYOND * n_bytes(**changed) <= room

        n = most_with_room(lambda n: has_room(n_samples=n), n_samples)
        t = most_with_room(lambda t: has_room(n_steps=t), n_steps)
        ways = [f"at most {count_text(n, 'sample')} at once"] * (n > 0) + [f"at most {count_text(t, 'step')}"] * (t > 0)
        ways += ["record='spikes'"] * (record == "all" and has_room(record="spikes"))
        ends_together = isinstance(model, Program) and model.chip.family.has_barrier
        has_totals = backend == "cycle" and record != "totals" and ends_together
        ways += ["record='totals'"] * (has_totals and has_room(record="totals"))
        has_sequence = backend != "sequence" and (isinstance(model, Program) or not model.is_fixed)
        ways += ["backend='sequence'"] * (has_sequence and has_room(backend="sequence"))
        return f"give {' or '.join(ways)}" if ways else "use a machine with more"

    work = f"a run of {count_text(n_samples, 'sample')} of {count_text(n_steps, 'step')} on backend {backend!r} "
    work += f"with record={record!r}"
    verify_room(work, n_bytes(), advice)


def most_with_room(has_room: Callable[[int], bool], too_many: int) -> int:
    """Return the largest number below `too_many` that fits; 0 if none does."""
    return bisect_left(range(1, too_many), True, key=lambda n: not has_room(n))


def _count_neurons(names, network: Network) -> int:
    return sum(network.node(name).n_neurons for name in names)


def _widest_layer(network: Network) -> int:
    return max(network.node(name).n_sums for name in (*network.inputs, *network.layers))


def n_weights(connection: Connection) -> int:
    """Number of weights of a connection; 0 for a maximum, a mean or a product."""
    return int(np.size(connection.weight)) if connection.has_weight else 0
