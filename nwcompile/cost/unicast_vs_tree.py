"""What the same spikes send as single messages, and as messages that fork in the routers."""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.cost.traffic.multicast import can_fork, spike_fanout
from nwcompile.ir.activity import Activity
from nwcompile.ir.program import Program


@dataclass(frozen=True)
class SendCost:
    """Of one sample: messages of neurons and their hops; `hottest` are the most flits over one link in one step."""

    messages: float
    hops: float
    hottest: float


def compare_multicast(program: Program, activity: Activity, window: str) -> dict[str, SendCost]:
    """What `activity` sends by "unicast" and by "tree"; without the latter where messages of the chip cannot fork.

    Messages to a neuron's own core count, as in the counters; the hottest link is one of all, those to io sites too.
    """
    network, costs = program.network, {}
    spikes = np.concatenate([activity.counts[name].sum(0, dtype=np.int64) for name in network.offsets])
    for kind in ("unicast", "tree") if can_fork(program.chip) else ("unicast",):
        sent = spike_fanout(program, kind, activity)
        flits = link_flits(program, activity, window, kind)
        totals = spikes @ sent.messages, spikes @ sent.hops.sum(1), flits.max(initial=0)
        costs[kind] = SendCost(*(float(total) / activity.n_samples for total in totals))
    return costs
