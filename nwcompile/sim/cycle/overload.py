"""Overload on a chip: the time limit of a step, the error for longer steps, and lost messages."""

import numpy as np

from nwcompile.cost.neuron_program import chip_instructions
from nwcompile.cost.time.work import link_name
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.errors import BackendError
from nwcompile.ir.chip import Chip
from nwcompile.ir.program import Program
from nwcompile.ir.run import Dropped
from nwcompile.kernels.cores.tables import LOST_AT, LOST_EW, LOST_NS, LOST_OUT, LOST_TO, STUCK, Axons, Outbox
from nwcompile.sim.values import MAX_REPEATED_SPIKES


def loses_messages(chip: Chip) -> bool:
    """Whether messages can be lost: dropped at a full buffer, or arriving while a core clears its axons."""
    return chip.noc.on_full == "drop" or chip.family.loses_late is not None


def verify_backend(program: Program, backend: str) -> None:
    """Raise BackendError unless the backend can reproduce the chip: its barriers, and the messages that it drops."""
    if not program.chip.family.has_barrier and program.schedule.period > 1:
        raise BackendError(
            f"execution='phased' needs a barrier after every phase, and cores of {program.chip.name} wait for their "
            "neighbors only (cost.sync = \"neighbors\"); compile with execution='pipelined', or set "
            'cost.sync = "barrier"'
        )
    if program.chip.noc.on_full != "drop":
        return
    if backend != "cycle":
        raise BackendError(
            f"backend {backend!r} cannot tell which messages {program.chip.name} drops (noc.on_full = 'drop'); "
            "use backend 'cycle', or noc.on_full = 'stall'"
        )
    if unknown := [key for key in program.chip.unknown_costs if key != "cost.barrier_cycles"]:
        raise BackendError(
            f"which messages {program.chip.name} drops (noc.on_full = 'drop') depends on its times, and it gives no "
            f"{', '.join(unknown)}; give them, or set noc.on_full = 'stall'"
        )


def longest_step(program: Program, slowest_hop: int | None, axons: Axons) -> dict[str, int]:
    """Return the fields `longest_step`, `longest_idle` and `longest_message` of `Costs`, in ticks.

    The bounds assume that a flit-hop takes `slowest_hop` ticks, with no overlap. None: the network always gets done, so
    only the first field is needed.
    """
    chip, cost = program.chip, program.chip.cost
    limit = (chip.noc.max_step_cycles or 0) * chip.ticks[0]
    if slowest_hop is None:
        return {"longest_step": limit, "longest_idle": 0, "longest_message": 0}
    visit, update, instruction, spike, message = (
        (c or 0) * chip.ticks[0]
        for c in (
            cost.visit_cycles,
            cost.update_cycles,
            cost.instruction_cycles,
            cost.spike_cycles,
            cost.message_out_cycles,
        )
    )
    nodes = [program.network.node(name) for name in program.network.layers]
    update += instruction * max(chip_instructions(chip, node.neuron) for node in nodes)
    n_links = [axons.row["hops_ew"] + axons.row["hops_ns"]]
    n_links += [direction.hops.sum(1) for direction in io_routes(program) or ()]
    n_hops = 2 + max(int(hops.max(initial=0)) for hops in n_links)
    n_spikes = MAX_REPEATED_SPIKES if program.repeats else 1
    idle = int(np.count_nonzero(program.core_of >= 0)) * (visit + update + n_spikes * spike)
    idle += program.mapping.n_cores * chip.scan_cycles * chip.ticks[0]  # visits of unused neuron slots
    ticks, flits = (int(axons.row[name].max(initial=1)) for name in ("ticks", "flits"))
    return {
        "longest_step": limit,
        "longest_idle": idle + slowest_hop,
        "longest_message": spike + message + ticks + flits * n_hops * slowest_hop,
    }


def explain_stop(
    program: Program, code: int, where: np.ndarray, axons: Axons, outbox: Outbox, link_flits: np.ndarray
) -> BackendError:
    """Return the error for a step, `where` = (sample, hardware step), that is stuck or takes too long.

    Accepted flits reached a core or io site; offered flits are those of all messages of the step (phase). The
    bottleneck is the link that needs longest for its flits.
    """
    chip, messages = program.chip, outbox.message[: int(outbox.first[-1])]
    is_tree = messages["to"] >= chip.n_cores
    flits = np.where(is_tree, messages["copies"], axons.row["flits"][np.where(is_tree, 0, messages["axon"])])
    offered = int((messages["times"] * flits).sum())
    accepted = int(link_flits[len(chip.link_cycles) - chip.n_cores :].sum())
    place = f"step {where[1]} of sample {where[0]} on {chip.name}"
    loads = f"{accepted} of {offered} flits offered were accepted"
    busiest = chip.family.link_busy(chip, link_flits)
    link = f"; the busiest link is {link_name(chip, int(busiest.argmax()))}" if busiest.any() else ""
    if code == STUCK:
        return BackendError(f"{place}: messages got stuck, {loads}{link}; please report this chip file")
    limit = chip.noc.max_step_cycles
    if limit is None:
        return BackendError(
            f"{place}: not done after twice the sequential time of its work, {loads}{link}; "
            "please report this chip file"
        )
    return BackendError(
        f"{place}: not done after {limit} cycles (noc.max_step_cycles), {loads}{link}; "
        "send less, place it again, or raise noc.max_step_cycles"
    )


def take_losses(program: Program, received: np.ndarray, counters: dict[str, np.ndarray]) -> Dropped | None:
    """Return the dropped messages of `received` int64[H, core and io site, N_COUNTS_LOST].

    The hops that they did not make are subtracted from `counters`. Messages that a core clears made all their hops.
    Returns None for a chip that loses no messages.
    """
    if not loses_messages(program.chip):
        return None
    lost = received[:, : program.mapping.n_cores]
    for name, column in (("hops_ew", LOST_EW), ("hops_ns", LOST_NS)):
        counters[name] -= lost[:, :, column]
        counters["hops"] -= lost[:, :, column]
    for i, name in enumerate(("hops_io_ew", "hops_io_ns")):
        if (routes := io_routes(program)) is not None:
            counters[name] -= lost[:, :, LOST_OUT] * routes[1].hops[:, i]
    return Dropped(received[:, :, LOST_AT], received[:, :, LOST_TO])
