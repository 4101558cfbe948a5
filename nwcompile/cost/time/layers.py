"""Attribution of a core's work to its layers: counters are per core, people think in layers."""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.time.work import SEND, update_cycles
from nwcompile.cost.traffic.events import count_arrivals, synops_into
from nwcompile.ir.activity import Activity
from nwcompile.ir.program import SYNAPSE_KINDS, Program


@dataclass(frozen=True, eq=False)
class LayerShare:
    """Share of each layer in each core's work: `send`, `receive`: float64[layer, core]; each column sums to 1.

    `messages`: int64[node, core], messages of each input or layer (in the order of `Network.offsets`) to each core.
    `reads`: int64[node, core], the synaptic operations that they cause. `sent`: int64[source], spikes.
    """

    layers: tuple[str, ...]
    send: np.ndarray
    receive: np.ndarray
    messages: np.ndarray
    reads: np.ndarray
    sent: np.ndarray

    def event_share(self, event: str) -> np.ndarray:
        """Return float64[layer, core]: the shares for one kind of event."""
        return self.send if event in SEND else self.receive

    def largest_layer(self, cycles: dict[str, np.ndarray], events: tuple[str, ...], core: int) -> str:
        """Return the layer with most of the cycles (float64 or int64[H, core] by event) of `events` on a core."""
        total = sum(self.event_share(e)[:, core] * cycles[e][:, core].sum() for e in events)
        return self.layers[int(np.argmax(total))]


def layer_share(program: Program, activity: Activity) -> LayerShare:
    """Compute the share of each layer in each core's work under `activity`, on a chip that has times."""
    network, n_cores = program.network, program.mapping.n_cores
    synops = synops_into(network, activity)
    send, receive, held = np.zeros((3, len(network.layers), n_cores))
    for i, name in enumerate(network.layers):
        cores = program.mapping.core_of[name]
        send[i] = np.bincount(cores, _send_cycles(program, name, activity), n_cores)
        receive[i] = np.bincount(cores, synops[name], n_cores)
        held[i] = np.bincount(cores, minlength=n_cores)
    messages, reads, sent = _count_arriving(program, activity)
    return LayerShare(
        layers=network.layers,
        send=_column_shares(send, held),
        receive=_column_shares(receive, held),
        messages=messages,
        reads=reads,
        sent=sent,
    )


def _send_cycles(program: Program, name: str, activity: Activity) -> np.ndarray:
    """Return float64[n]: cycles of each neuron of a layer in its core's sending unit."""
    visit, _, spike, message = (getattr(program.chip.cost, f"{event}_cycles") for event in SEND)
    update = update_cycles(program.chip, program.network.node(name).neuron)
    first, spikes = program.network.offsets[name], activity.counts[name].sum(0, dtype=np.int64)
    n_steps = activity.n_steps * activity.n_samples
    updates = activity.updates[name].sum(0) if name in activity.updates else n_steps
    n_axons = np.diff(program.axons.offset[first : first + len(spikes) + 1])
    n_axons = n_axons + (program.chip.io.sites is not None and name in program.network.outputs)
    return n_steps * visit + updates * update + spikes * (spike + n_axons * message)


def _count_arriving(program: Program, activity: Activity) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the messages of each node to each core, their synaptic operations, and the spikes of each source."""
    axons, offsets, n_cores = program.axons, program.network.offsets, program.mapping.n_cores
    sent = [activity.counts[name].sum(0, dtype=np.int64) for name in offsets]
    messages, words = np.zeros((2, len(offsets), n_cores), np.int64)
    reads = np.zeros((len(SYNAPSE_KINDS), len(offsets), n_cores), np.int64)
    for i, (name, first) in enumerate(offsets.items()):
        offset = axons.offset[first : first + len(sent[i]) + 1]
        read = activity.count_reads(name).sum(0, dtype=np.int64) if name in activity.heard else None
        of_node = sent[i][None]
        count_arrivals(axons, offset, i, of_node, of_node if read is None else read[None], messages, reads, words)
    return messages, reads.sum(0), np.concatenate(sent)


def _column_shares(amount: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Divide each column by its sum; a column of zeros uses the column of `otherwise`."""
    amount = np.where(amount.sum(0) > 0, amount, otherwise)
    return np.divide(amount, amount.sum(0), out=np.zeros_like(amount), where=amount.sum(0) > 0)
