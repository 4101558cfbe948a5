"""Memory: what a simulation takes for certain, counted before it begins from its samples, steps and neurons.

Only arrays are counted that are written whole and are there at one moment, so that nothing is refused that has room.
`benchmarks/memory.py` compares with what runs take: from as much to `MOST_BEYOND` times as much.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.shown import counted
from nwcompile.kernels.cores.tables import AXON
from nwcompile.memory import verify_room

MOST_BEYOND = 3  # A run is taken to need at most so many times what is counted here.
INPUT_BYTES = 4  # of a prepared input number: int32 or float32
COUNT_BYTES = 4  # of an Activity's count, and of what the cycle backend records as spikes
STATE_BYTES = {True: 8, False: 4}  # of a state and of a sum, by whether the network is in integers
WEIGHT_BYTES = 4  # of a weight in the tables of the cycle backend
TOTALS_BYTES = 24  # of a neuron in a sample: its spikes, and its states u and v
TOUCHED_BYTES = 1  # of whether anything came to a neuron
CHUNK_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}  # of the samples that the sequence backend works on at once
CHUNK_NUMBER_BYTES = 24  # of a neuron of the widest layer there, in a step of a sample


class Recorded(NamedTuple):
    """Bytes of a sample and step that a Run holds."""

    spikes: int
    states: int  # those that are kept: of all layers, or of those that never fire


def samples_at_once(network: Network, n_samples: int, n_steps: int, device: str = "cpu") -> int:
    """So many samples the sequence backend works on at once."""
    return max(1, min(n_samples, CHUNK_BYTES[device] // (CHUNK_NUMBER_BYTES * n_steps * _widest(network))))


def recorded(network: Network, keep_states: bool) -> Recorded:
    """What a Run of the network holds for each sample and step."""
    nodes, size = [network.node(name) for name in network.layers], STATE_BYTES[network.is_fixed]
    kept = [node for node in nodes if keep_states or not node.neuron.fires]
    return Recorded(
        spikes=sum(node.n_neurons * np.dtype(node.neuron.spike_dtype).itemsize for node in nodes),
        states=sum(node.n_neurons * len(node.neuron.state_names) * size for node in kept),
    )


def reference_bytes(model: Network | Program, n_samples: int, n_steps: int, keep_states: bool) -> int:
    """Bytes that the reference backend takes beside its inputs: what it records, and values or sums on their way."""
    network = model.network if isinstance(model, Program) else model
    size, n_all = STATE_BYTES[network.is_fixed], n_samples * n_steps
    run = n_all * sum(recorded(network, keep_states))
    if isinstance(model, Program):
        n_slots = max(model.schedule.within(n_steps + model.schedule.depth), default=1) + 1
        return run + max(2 * size * n_slots * n_samples * _count(network.layers, network), n_all * _widest(network))
    return run + n_all * size * (2 * _count(network.inputs, network) + _count(network.nodes, network))


def sequence_bytes(network: Network, n_samples: int, n_steps: int, keep_states: bool, device: str = "cpu") -> int:
    """Bytes that the sequence backend takes beside its inputs: what it records, and the sums of some samples."""
    run, n_all = sum(recorded(network, keep_states)), n_samples * n_steps
    if not network.is_fixed:
        return n_all * (run + INPUT_BYTES * (_count(network.inputs, network) + _count(network.nodes, network)))
    return _in_integers(network, n_samples, n_steps, run, device)


def calibration_bytes(network: Network, n_samples: int, n_steps: int) -> int:
    """Bytes that `sim.sequence.run.record` takes beside the samples, of a network as it is before it is in integers."""
    return _in_integers(network, n_samples, n_steps, recorded(network, False).spikes, "cpu")


def _in_integers(network: Network, n_samples: int, n_steps: int, run: int, device: str) -> int:
    """Bytes of integers on the sequence backend that records `run` bytes of a sample and step."""
    updates, n_all = STATE_BYTES[True] * n_steps * _count(network.layers, network), n_samples * n_steps
    n_last = (n_samples - 1) % samples_at_once(network, n_samples, n_steps, device) + 1
    sums = (STATE_BYTES[True] + TOUCHED_BYTES) * n_last * n_steps * _widest(network, with_inputs=False)
    before = (n_samples - n_last) * n_steps * run
    return updates + max(before + (sums if device == "cpu" else 0), n_all * (run + _widest(network)))


def cycle_bytes(program: Program, n_samples: int, n_steps: int, keep_states: bool) -> int:
    """Bytes that the cycle backend takes beside its inputs: these side by side, records of threads and their sum."""
    network, n_all = program.network, n_samples * n_steps
    run, n_neurons = recorded(network, keep_states), _count(network.layers, network)
    spikes = COUNT_BYTES * (_count(network.inputs, network) + n_neurons) + run.spikes
    records = 2 * STATE_BYTES[True] * n_neurons if run.states else 0  # a layer that keeps its states has all kept
    return _cycle_tables(program) + n_all * (spikes + records + run.states)


def totals_bytes(program: Program, n_samples: int) -> int:
    """Bytes that the cycle backend takes beside its inputs for totals: three numbers of a neuron a sample."""
    return _cycle_tables(program) + TOTALS_BYTES * n_samples * _count(program.network.layers, program.network)


def _cycle_tables(program: Program) -> int:
    return program.axons.n_axons * AXON.itemsize + WEIGHT_BYTES * sum(map(n_weights, program.network.connections))


def verify_simulation(
    model: Network | Program, n_samples: int, n_steps: int, n_made: int, backend: str, record: str, device: str
) -> None:
    """Raise NotEnoughMemoryError where a run takes more than this process may, with what would have room.

    `n_made`: bytes of the inputs that are yet to be made of what was given.
    """
    of_inputs = n_made / (n_samples * n_steps)

    def n_bytes(
        n_samples: int = n_samples, n_steps: int = n_steps, record: str = record, backend: str = backend
    ) -> int:
        made = int(of_inputs * n_samples * n_steps)
        return made + of_run(n_samples, n_steps, record, backend)

    def of_run(n_samples: int, n_steps: int, record: str, backend: str) -> int:
        keep, network = record == "all", model.network if isinstance(model, Program) else model
        if backend == "sequence":
            return sequence_bytes(network, n_samples, n_steps, keep, device)
        if isinstance(model, Program) and record == "totals":
            return totals_bytes(model, n_samples)
        if isinstance(model, Program) and backend == "cycle":
            return cycle_bytes(model, n_samples, n_steps, keep)
        return reference_bytes(model, n_samples, n_steps, keep)

    def advice(room: int) -> str:
        def has_room(**changed) -> bool:
            return MOST_BEYOND * n_bytes(**changed) <= room

        n = most_with_room(lambda n: has_room(n_samples=n), n_samples)
        t = most_with_room(lambda t: has_room(n_steps=t), n_steps)
        ways = [f"at most {counted(n, 'sample')} at once"] * (n > 0) + [f"at most {counted(t, 'step')}"] * (t > 0)
        ways += ["record='spikes'"] * (record == "all" and has_room(record="spikes"))
        ends_together = isinstance(model, Program) and not model.chip.waits_for_neighbors
        has_totals = backend == "cycle" and record != "totals" and ends_together
        ways += ["record='totals'"] * (has_totals and has_room(record="totals"))
        takes = isinstance(model, Program) or not model.is_fixed
        ways += ["backend='sequence'"] * (backend != "sequence" and takes and has_room(backend="sequence"))
        return f"give {' or '.join(ways)}" if ways else "use a machine with more"

    work = f"a run of {counted(n_samples, 'sample')} of {counted(n_steps, 'step')} on backend {backend!r} "
    work += f"with record={record!r}"
    verify_room(work, n_bytes(), advice)


def most_with_room(has_room: Callable[[int], bool], too_many: int) -> int:
    """The largest number below `too_many` that has room; 0 for none."""
    return bisect_left(range(1, too_many), True, key=lambda n: not has_room(n))


def _count(names, network: Network) -> int:
    return sum(network.node(name).n_neurons for name in names)


def _widest(network: Network, with_inputs: bool = True) -> int:
    names = (*network.inputs, *network.layers) if with_inputs else network.layers
    return max(network.node(name).n_neurons for name in names)


def n_weights(connection: Connection) -> int:
    """Numbers that a connection holds as its weight; 0 of a maximum, a mean or a product."""
    return int(np.size(connection.weight)) if connection.has_weight else 0
