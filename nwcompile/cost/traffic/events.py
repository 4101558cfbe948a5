"""Events: every counter of a run that an activity causes on a program, without simulation.

There is one message per non-zero spike and destination core, for any number of synapses there (DESIGN 4.3 and 7).
"""

from functools import partial

import numpy as np

from nwcompile.cost.family import find_cost
from nwcompile.cost.neuron_program import chip_instructions
from nwcompile.cost.traffic.io_sites import io_messages, io_routes
from nwcompile.cost.traffic.multicast import spike_fanout
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import csr_sums
from nwcompile.ir.network import Network
from nwcompile.ir.program import SYNAPSE_KINDS, Axons, Program
from nwcompile.kernels.mapping import traffic


def count_events(program: Program, activity: Activity, window: str = "aligned") -> dict[str, np.ndarray]:
    """Count every counter of `nwcompile.ir.run.COUNTERS`, int64[H, core], that `activity` causes on a program.

    The counts are exact for exact spike counts. `neuron_updates` is exact if `activity.updates` has the layer;
    otherwise every neuron counts as updated in its own steps. `window="aligned"`: counts of aligned step t belong to
    hardware step t + offset. `window="hardware"`: row t of `activity` is hardware step t, and H = T. If cores wait for
    their neighbors, messages include tokens.
    """
    n_steps, n_cores = program.schedule.n_hardware_steps(activity.n_steps, window), program.mapping.n_cores
    axons, core_of, sent = program.axons, program.core_of, spike_fanout(program, activity=activity)

    def zeros(*outer):
        return np.zeros((*outer, n_steps, n_cores), np.int64)

    messages_in, words, synops = zeros(), zeros(), zeros(len(SYNAPSE_KINDS))
    spikes, messages_out, routed, updates, instructed = zeros(), zeros(), zeros(2), zeros(), zeros()
    for name, first in program.network.offsets.items():
        count, h0 = place_rows(program, name, activity.counts[name], window)
        reads, _ = place_rows(program, name, activity.count_reads(name), window)
        last = first + count.shape[1]
        offset = axons.offset[first : last + 1]
        count_arrivals(axons, offset, h0, count, reads, messages_in, synops, words)
        if name in program.network.layers:
            cores = core_of[first:last]
            traffic.count_departures(
                count, h0, cores, sent.messages[first:last], sent.hops[first:last], spikes, messages_out, routed
            )
            n_instructions = chip_instructions(program.chip, program.network.node(name).neuron)
            always = np.broadcast_to(activity.n_samples, activity.counts[name].shape)
            updated, _ = place_rows(program, name, activity.updates.get(name, always), window)
            for t, of_neuron in enumerate(updated):
                of_core = _per_core(cores, of_neuron, n_cores)
                updates[h0 + t] += of_core
                instructed[h0 + t] += n_instructions * of_core
    visits = np.tile(_per_core(core_of[core_of >= 0], activity.n_samples, n_cores), (n_steps, 1))
    by_kind = {f"synops_{kind}": synops[i] for i, kind in enumerate(SYNAPSE_KINDS)}
    io = _count_io(program, activity, n_steps, window)
    counters = {"synops": synops.sum(0), **by_kind, "weight_reads": words, "neuron_visits": visits,
                "neuron_updates": updates, "neuron_instructions": instructed, "spikes_out": spikes,
                "messages_out": messages_out, "messages_in": messages_in, "deliveries": messages_in.copy(),
                "hops": routed.sum(0), "hops_ew": routed[0], "hops_ns": routed[1], **io}  # fmt: skip
    find_cost(program.chip).add_tokens(program, counters, activity.n_samples)
    return counters


def count_arrivals(axons: Axons, offset: np.ndarray, h0: int, counts, reads, messages, synops, words) -> None:
    """Count the messages and reads of one node's axons, at `offset` int64[n + 1], from step h0 on.

    `counts`, `reads`: int[T, n], messages of each source, and how often its synapses are read. Adds to messages and
    words, int64[H, core], and synops, int64[kind, H, core].
    """
    traffic.count_arrivals(reads, h0, offset, axons.core, axons.synops, axons.words, messages, synops, words)
    if reads is not counts:  # of several messages that set one axon, only one reads its synapses
        nothing = np.zeros_like(axons.synops), np.zeros_like(axons.words)
        traffic.count_arrivals(counts - reads, h0, offset, axons.core, *nothing, messages, synops, words)


def synops_into(network: Network, activity: Activity) -> dict[str, np.ndarray]:
    """Return the stored weights read for each neuron of each layer, int64[n], in all steps and samples of `activity`.

    Zeros in dense rows count, padded taps of convolutions do not (DESIGN 4.3).
    """
    synops = {name: np.zeros(network.node(name).n_neurons, np.int64) for name in network.layers}
    for connection in network.connections:
        wires = connection_wiring(network, connection)
        sent = activity.count_reads(connection.source).sum(0, dtype=np.int64)
        of_class = np.zeros(wires.n_source_classes, np.int64)
        np.add.at(of_class, wires.source_class, sent)
        synops[connection.target] += csr_sums(wires.offset, of_class[wires.taps])[wires.target_class]
    return synops


def _count_io(program: Program, activity: Activity, n_steps: int, window: str) -> dict[str, np.ndarray]:
    """Count the messages through the chip's io.sites, int64[H, core]; zeros without io.sites."""
    routes, shape = io_routes(program), (n_steps, program.mapping.n_cores)
    come, leave, *along = np.zeros((4, *shape), np.int64)
    if routes is not None:
        come, leave = io_messages(program, activity, n_steps, partial(place_rows, program, window=window))
        along = [come * routes[0].hops[:, i] + leave * routes[1].hops[:, i] for i in range(2)]
    return {"messages_io": come + leave, "messages_io_in": come, "messages_io_out": leave, "hops_io_ew": along[0],
            "hops_io_ns": along[1]}  # fmt: skip


def place_rows(program: Program, name: str, rows: np.ndarray, window: str) -> tuple[np.ndarray, int]:
    """Return activity [T, n] of a layer or input by hardware step, and the hardware step of its first row."""
    if window != "aligned" or program.schedule.period > 1:
        return rows, 0
    return program.schedule.spread_rows(name, rows), program.schedule.offset[name]


def _per_core(cores: np.ndarray, amount, n_cores: int) -> np.ndarray:
    """Return int64[core]: sum of `amount` (a number, or one per neuron) over the neurons of each core."""
    total = np.zeros(n_cores, np.int64)
    np.add.at(total, cores, amount)
    return total
