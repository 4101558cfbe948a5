"""Unicast and multicast: the traffic of the same spikes as single messages and as messages that fork in routers."""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.cost.traffic.multicast import can_fork, spike_fanout
from nwcompile.ir.activity import Activity
from nwcompile.ir.program import Program


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
