"""Objective: the weights of step time, messages and axons for `options.optimize`."""

import numpy as np

from nwcompile.cost.time.work import cycles_of_event
from nwcompile.cost.traffic.memory import stored_kind
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import given_figures
from nwcompile.ir.network import Network
from nwcompile.ir.program import SYNAPSE_KINDS
from nwcompile.kernels.mapping.cluster_state import Objective

ERROR_CODE = "NW5006"
# Weight of tie breakers: too small to outweigh a single cycle or message.
TIE_WEIGHT = 1e-6


def objective_weights(network: Network, chip: Chip, activity: Activity, n_steps: int, optimize: str) -> Objective:
    """Return the weights of the sum in `moves.cost`.

    In addition to the floorline, `time` counts every message with its costs of sending and receiving, divided by the
    cores. This is a price of traffic, so that more messages have to be worth it, not a forecast of waiting times.
    Energies are in picojoules, without hops, which are unknown before placement. If messages fork on their way, sending
    one costs the same wherever it goes. Raises OptionError for an objective that the chip has no figures for.
    """
    is_tree = chip.noc.multicast == "tree"
    if optimize == "traffic":
        return Objective(time=TIE_WEIGHT, remote=1.0)
    if optimize in ("energy", "edp"):
        if not chip.has_energies:
            raise OptionError(
                f"optimize={optimize!r} needs the energy of every event, which {chip.name} does not give; "
                "use optimize='time' or 'traffic'"
            )
        pj = given_figures(chip.energy)
        message = pj["message_in_pj"] + (0.0 if is_tree else pj["message_out_pj"])
        static = (chip.energy.static_mw or 0.0) * chip.core.cycle_ns  # pJ per cycle: 1 mW ns is 1 pJ
        if optimize == "energy":
            return Objective(time=float(static + TIE_WEIGHT), messages=float(message))
        fixed = float(fixed_pj(network, chip, activity, n_steps))
        return Objective(fixed=fixed, time=float(static), messages=float(message), factor=0.0, factor_time=1.0)
    message = cycles_of_event(chip, "message_in") + (0 if is_tree else cycles_of_event(chip, "message_out"))
    return Objective(time=1.0, messages_by_cores=float(message))


def fixed_pj(network: Network, chip: Chip, activity: Activity, n_steps: int) -> float:
    """Return the energy that does not depend on the mapping: visits, updates, spikes and synops, over all samples.

    It includes sending messages that fork, one for every spike that is read. `n_steps`: hardware steps.
    """
    pj, total, is_tree = given_figures(chip.energy), 0.0, chip.noc.multicast == "tree"
    is_read = {name: np.zeros(network.node(name).n_neurons, bool) for name in network.layers}
    for name in network.layers:
        n = network.node(name).n_neurons
        updates = (
            activity.updates[name].sum() if name in activity.updates else n * activity.n_steps * activity.n_samples
        )
        total += pj["visit_pj"] * n * n_steps * activity.n_samples + pj["update_pj"] * float(updates)
        total += pj["spike_pj"] * float(activity.counts[name].sum())
    for c in network.connections:
        wires = connection_wiring(network, c)
        spikes = activity.count_reads(c.source).sum(0, dtype=np.int64)
        kind = SYNAPSE_KINDS[stored_kind(wires.kind, chip)]
        total += pj[f"synop_{kind}_pj"] * float(spikes @ wires.fan_out)
        if c.source in is_read:
            is_read[c.source] |= wires.fan_out > 0
    for name, read in is_read.items():
        total += is_tree * pj["message_out_pj"] * float(activity.counts[name].sum(0)[read].sum())
    return total
