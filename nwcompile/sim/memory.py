"""Memory: what a simulation takes for certain, counted before it begins from its samples, steps and neurons.

Only arrays are counted that are written whole and are there at one moment, so that nothing is refused that has room.
`benchmarks/memory.py` compares with what runs take: from as much to `MOST_BEYOND` times as much.
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

MOST_BEYOND = 3  # A run is taken to need at most so many times what is counted here.
COUNT_BYTES = 4  # of an Activity's count, and of what the cycle backend records as spikes
STATE_BYTES = {True: 8, False: 4}  # of a state, a sum and a value, by whether the network is in integers
WEIGHT_BYTES = 4  # of a weight in the tables of the cycle backend
TOTALS_BYTES = 24  # of a neuron in a sample: its spikes, and its states u and v
TOUCHED_BYTES = 1  # of whether anything came to a neuron
CHUNK_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}  # of the samples that the sequence backend works on at once
CHUNK_NUMBER_BYTES = 24  # of a neuron of the widest layer there, in a step of a sample


def samples_at_once(network: Network, n_samples: int, n_steps: int, device: str = "cpu") -> int:
    """Samples per chunk of the sequence backend."""
    return max(1, min(n_samples, CHUNK_BYTES[device] // (CHUNK_NUMBER_BYTES * n_steps * _widest(network))))


def run_bytes(
    model: Network | Program, n_samples: int, n_steps: int, backend: str, record: str, device: str = "cpu"
) -> int:
    """Bytes that a run takes besides its inputs: what it records, and what its backend holds at the same moment."""
    network, n_all = model.network if isinstance(model, Program) else model, n_samples * n_steps
    spikes, states = _recorded(network, record == "all")
    n_neurons = _count(network.layers, network)
    if backend == "sequence" and network.is_fixed:
        return _chunk_bytes(network, n_samples, n_steps, spikes + states, device)
    if not isinstance(model, Program):  # the values of all nodes in all steps
        n_values = _count(network.inputs, network) + _count(network.nodes, network)
        return n_all * (spikes + states + STATE_BYTES[network.is_fixed] * n_values)
    if backend == "reference" and record != "totals":
        return n_all * (spikes + states + _widest(network))
    tables = model.axons.n_axons * AXON.itemsize + WEIGHT_BYTES * sum(map(n_weights, network.connections))
    if record == "totals":
        return tables + TOTALS_BYTES * n_samples * n_neurons
    counts = COUNT_BYTES * (_count(network.inputs, network) + n_neurons)  # records of threads, beside their sum
    of_threads = 2 * STATE_BYTES[True] * n_neurons if states else 0  # a layer that keeps its states has all kept
    return tables + n_all * (spikes + states + counts + of_threads)


def calibration_bytes(network: Network, n_samples: int, n_steps: int) -> int:
    """Bytes that `sim.sequence.run.record` takes besides the samples, of a network before it is in integers."""
    return _chunk_bytes(network, n_samples, n_steps, _recorded(network, False)[0], "cpu")


def _recorded(network: Network, keep_states: bool) -> tuple[int, int]:
    """Bytes of spikes and of states that a Run holds for each sample and step."""
    nodes, size = [network.node(name) for name in network.layers], STATE_BYTES[network.is_fixed]
    kept = [node for node in nodes if keep_states or not node.neuron.fires]  # Layers that never fire keep theirs.
    spikes = sum(node.n_neurons * np.dtype(node.neuron.spike_dtype).itemsize for node in nodes)
    return spikes, sum(node.n_neurons * len(node.neuron.state_names) * size for node in kept)


def _chunk_bytes(network: Network, n_samples: int, n_steps: int, run: int, device: str) -> int:
    """Bytes of integers on the sequence backend that records `run` bytes of a sample and step: the larger moment."""
    updates = STATE_BYTES[True] * n_steps * _count(network.layers, network)
    n_chunk = samples_at_once(network, n_samples, n_steps, device) if device == "cpu" else 0
    sums = (
        (STATE_BYTES[True] + TOUCHED_BYTES) * n_chunk * n_steps * max(network.node(n).n_neurons for n in network.layers)
    )
    return updates + max(sums, n_samples * n_steps * (run + _widest(network)))


def verify_simulation(
    model: Network | Program, n_samples: int, n_steps: int, n_made: int, backend: str, record: str, device: str
) -> None:
    """Raise NotEnoughMemoryError where a run takes more than this process may, with what would have room.

    `n_made`: bytes of the inputs that are yet to be made of what was given.
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
        made = n_made / (n_samples * n_steps) * run["n_samples"] * run["n_steps"]
        return int(made) + run_bytes(model, **run)

    def advice(room: int) -> str:
        def has_room(**changed) -> bool:
            return MOST_BEYOND * n_bytes(**changed) <= room

        n = most_with_room(lambda n: has_room(n_samples=n), n_samples)
        t = most_with_room(lambda t: has_room(n_steps=t), n_steps)
        ways = [f"at most {count_text(n, 'sample')} at once"] * (n > 0) + [f"at most {count_text(t, 'step')}"] * (t > 0)
        ways += ["record='spikes'"] * (record == "all" and has_room(record="spikes"))
        ends_together = isinstance(model, Program) and not model.chip.waits_for_neighbors
        has_totals = backend == "cycle" and record != "totals" and ends_together
        ways += ["record='totals'"] * (has_totals and has_room(record="totals"))
        takes = isinstance(model, Program) or not model.is_fixed
        ways += ["backend='sequence'"] * (backend != "sequence" and takes and has_room(backend="sequence"))
        return f"give {' or '.join(ways)}" if ways else "use a machine with more"

    work = f"a run of {count_text(n_samples, 'sample')} of {count_text(n_steps, 'step')} on backend {backend!r} "
    work += f"with record={record!r}"
    verify_room(work, n_bytes(), advice)


def most_with_room(has_room: Callable[[int], bool], too_many: int) -> int:
    """The largest number below `too_many` that has room; 0 for none."""
    return bisect_left(range(1, too_many), True, key=lambda n: not has_room(n))


def _count(names, network: Network) -> int:
    return sum(network.node(name).n_neurons for name in names)


def _widest(network: Network) -> int:
    return max(network.node(name).n_neurons for name in (*network.inputs, *network.layers))


def n_weights(connection: Connection) -> int:
    """Numbers that a connection holds as its weight; 0 of a maximum, a mean or a product."""
    return int(np.size(connection.weight)) if connection.has_weight else 0
