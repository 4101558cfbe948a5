"""Ways to send: the cost of several spikes per step, and of single messages and trees that fork in routers."""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.cost.traffic.multicast import can_fork, spike_fanout
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import csr_sums
from nwcompile.ir.program import Program


@dataclass(frozen=True)
class Sender:
    """An input or layer with non-binary spikes: their shares of its spiking steps, 0..1, and the largest magnitude."""

    name: str
    several: float
    negative: float
    largest: int


@dataclass(frozen=True)
class MultiSpikes:
    """Effect of `senders` on the messages and synops of a sample.

    `sent`, `binary`, `one_by_one`: (messages, synops) of the whole network as sent, with one message per spiking step,
    and with n messages for n spikes. `payload_flits`: flits by which counts and signs lengthen a message.
    """

    on_multi_spike: str
    senders: tuple[Sender, ...]
    sent: tuple[float, float]
    binary: tuple[float, float]
    one_by_one: tuple[float, float]
    payload_flits: int


def multi_spikes(program: Program, activity: Activity, counters: dict[str, np.ndarray]) -> MultiSpikes | None:
    """Return the cost of several or negative spikes per step in a run of `program`; None if all spikes are binary.

    `counters[name]`: int64[H, core] of the same run.
    """
    if not activity.multi:
        return None
    axons, senders = program.axons, []
    synops = csr_sums(axons.offset, axons.synops.sum(1))
    per_spike = (np.diff(axons.offset), synops)  # of every source: messages and synops
    added = np.zeros((2, 2), np.int64)  # binary, one by one; messages, synops
    for name, multi in activity.multi.items():
        first = program.network.offsets[name]
        senders_slice = slice(first, first + len(multi.event_counts))
        for i, times in enumerate((multi.event_counts, multi.spikes)):
            added[i] += [int((times * amount[senders_slice]).sum()) for amount in per_spike]
        events, _, several, negative = multi.by_source.sum(1).tolist()
        senders.append(Sender(name, several / events, negative / events, multi.largest))
    sent = np.array([counters["messages_in"].sum(), counters["synops"].sum()])
    rest = sent - added[1 if program.repeats else 0]
    totals = np.stack([sent, *(rest + added)]) / activity.n_samples
    sent_now, binary, one_by_one = ((float(messages), float(synops)) for messages, synops in totals)
    layers = [s.name for s in senders if s.name in program.network.layers]
    flits = max((program.message_flits(name) for name in layers), default=0) - program.chip.noc.flits_per_message
    return MultiSpikes(
        on_multi_spike=program.on_multi_spike,
        senders=tuple(senders),
        sent=sent_now,
        binary=binary,
        one_by_one=one_by_one,
        payload_flits=max(flits, 0),
    )


@dataclass(frozen=True)
class SendCost:
    """Traffic of one sample: messages of neurons and their hops. `hottest`: most flits over one link in one step."""

    messages: float
    hops: float
    hottest: float


def compare_multicast(program: Program, activity: Activity, window: str) -> dict[str, SendCost]:
    """Return the traffic of `activity` as "unicast", and as "tree" if messages of the chip can fork.

    Messages to a neuron's own core count, as in the counters. The hottest link may be one to an io site.
    """
    network, costs = program.network, {}
    spikes = np.concatenate([activity.counts[name].sum(0, dtype=np.int64) for name in network.offsets])
    for kind in ("unicast", "tree") if can_fork(program.chip) else ("unicast",):
        sent = spike_fanout(program, kind, activity)
        flits = link_flits(program, activity, window, kind)
        totals = spikes @ sent.messages, spikes @ sent.hops.sum(1), flits.max(initial=0)
        costs[kind] = SendCost(*(float(total) / activity.n_samples for total in totals))
    return costs
