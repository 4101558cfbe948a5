"""Cost of one spike of each source on every core. A step's work is the sum over its spikes, so it has gradients."""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.neuron_program import chip_instructions
from nwcompile.cost.time.work import COUNTERS_OF, compute_work
from nwcompile.cost.traffic.multicast import spike_fanout
from nwcompile.ir.program import SYNAPSE_KINDS, Program


@dataclass(frozen=True, eq=False)
class SpikeCost:
    """Cost of one spike of each neuron of a layer, or of each line of an input.

    `synops`: int64[source, core], weights read. `cycles`: int64[unit, source, core], busy core cycles of each unit;
    None on a chip without times.
    """

    synops: np.ndarray
    cycles: np.ndarray | None


def spike_cost(program: Program, name: str) -> SpikeCost:
    """Compute the SpikeCost of an input or layer with the figures of `traffic.count_events` and `work.compute_work`."""
    axons, first = program.axons, program.network.offsets[name]
    n_sources, n_cores = program.network.node(name).n_neurons, program.mapping.n_cores
    at = slice(axons.offset[first], axons.offset[first + n_sources])
    place = axons.source[at] - first, axons.core[at]
    counters = _no_events(n_sources, n_cores)
    counters["messages_in"][place] = 1
    counters["weight_reads"][place] = axons.words[at]
    for i, kind in enumerate(SYNAPSE_KINDS):
        counters[f"synops_{kind}"][place] = axons.synops[at, i]
    if name in program.network.layers:
        home = np.arange(n_sources), program.core_of[first : first + n_sources]
        counters["spikes_out"][home] = 1
        counters["messages_out"][home] = spike_fanout(program).messages[first : first + n_sources]
        if program.chip.io.sites is not None and name in program.network.outputs:
            counters["messages_io_out"][home] = 1
    synops = np.sum([counters[f"synops_{kind}"] for kind in SYNAPSE_KINDS], axis=0)
    return SpikeCost(synops, _busy_cycles(program, counters))


def idle_cycles(program: Program) -> np.ndarray | None:
    """Return int64[unit, core]: busy cycles of a step without spikes that updates every neuron; None without times."""
    counters = _no_events(1, program.mapping.n_cores)
    held = np.bincount(program.core_of[program.core_of >= 0], minlength=program.mapping.n_cores)
    counters["neuron_visits"][0] = counters["neuron_updates"][0] = held
    for name in program.network.layers:
        n = chip_instructions(program.chip, program.network.node(name).neuron)
        cores = program.mapping.core_of[name]
        counters["neuron_instructions"][0] += n * np.bincount(cores, minlength=program.mapping.n_cores)
    busy = _busy_cycles(program, counters)
    return None if busy is None else busy[:, 0]


def _no_events(n_rows: int, n_cores: int) -> dict[str, np.ndarray]:
    names = ["neuron_instructions", *(name for names in COUNTERS_OF.values() for name in names)]
    return {name: np.zeros((n_rows, n_cores), np.int64) for name in names}


def _busy_cycles(program: Program, counters: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return int64[unit, row, core]: `compute_work` of counters whose rows are sources instead of steps."""
    if not program.chip.has_times:
        return None
    no_flits = np.zeros((1, len(program.chip.link_cycles)), np.int64)
    return compute_work(program, counters, no_flits, 1).busy
