"""Objective: the weights of step time, messages and axons for `options.optimize`, and the predicted step time.

The step time is the floorline of every step, links included. `options.step_limit_us` limits it.
"""

import math

import numpy as np

from nwcompile.cost.compare import predicted_figures
from nwcompile.cost.time.work import cycles_of_event
from nwcompile.cost.traffic.destinations import core_messages, count_flows
from nwcompile.cost.traffic.memory import stored_kind
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.errors import FitError, OptionError, Violation
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import given_figures
from nwcompile.ir.flat import cores_of_sources
from nwcompile.ir.network import Network
from nwcompile.ir.noc.routing import find_chip_crossings, find_ports
from nwcompile.ir.program import SYNAPSE_KINDS, Program
from nwcompile.ir.resources import RESOURCES
from nwcompile.kernels.mapping import cluster_state, link_flits
from nwcompile.kernels.mapping.cluster_state import MESSAGES, N_USED, REMOTE, TIME, CoreState, Demand, Objective
from nwcompile.passes.analyze import capacity
from nwcompile.passes.partition.floorline.demand import cluster_demand, core_rules, filled_cores, sending_cycles
from nwcompile.passes.partition.floorline.search import Search

ERROR_CODE = "NW5006"
TIE_WEIGHT = 1e-6  # Weight of tie breakers: too small to outweigh a single cycle or message.
# Router outputs that are looked up at once: 4 M, so that intermediate tables stay below some 100 MB.
OUTPUTS_AT_ONCE = 1 << 22
LARGEST_CYCLES = 1 << 62  # Cycles that represent no limit: sums of a few of them still fit an int64.
# Relative rounding error of cycles converted to microseconds, so that a reported time is a sufficient limit.
ROUNDED_SHARE = 1e-12


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
        static = chip.static_mw * chip.core.cycle_ns  # pJ per cycle: 1 mW ns is 1 pJ
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


def max_cycles(search: Search) -> int | None:
    """Return the cycles that all steps of all samples may take together; None without a limit or a choice of mapping.

    Raises OptionError for a chip that does not give the cycles of every event.
    """
    chip, limit_us = search.chip, search.options.step_limit_us
    if limit_us is None:
        return None
    _verify_times(chip)
    if chip.family.has_own_times:
        return None
    cycles = min(LARGEST_CYCLES, limit_us * 1000 / chip.core.cycle_ns * _n_steps(search))
    return max(1, round(cycles) if math.isclose(cycles, round(cycles), rel_tol=ROUNDED_SHARE) else int(cycles))


def step_us(cycles: float, search: Search) -> float:
    """Return the microseconds of a step if all steps of all samples together take this many cycles."""
    return cycles * search.chip.core.cycle_ns / 1000 / _n_steps(search)


def step_cycles(search: Search, cores: np.ndarray, sites: np.ndarray | None = None) -> int:
    """Return the cycles of all steps of all samples together, by the floorline of the cores, int[neuron].

    With `sites` int64[core], links between routers count too, as in `link_cycles`. Large networks: `count_means`.
    """
    if search.is_large:
        return int(count_means(search, np.unique(cores, return_inverse=True)[1].reshape(-1))[0][TIME])
    used, cluster_of = np.unique(cores, return_inverse=True)
    demand = cluster_demand(
        search.network, search.chip, search.activity, search.timing, cluster_of.reshape(-1), len(used)
    )
    state = filled_cores(demand, search.chip, np.arange(len(used)))
    if sites is None or not search.chip.family.has_routers:
        return int(state.busy.total[TIME])
    return time_with_links(demand, state, search.chip, sites[used])


def count_means(search: Search, cores: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the totals of cores int[neuron] (0.., none empty), int64[N_TOTALS], and the number of exceeded limits.

    All steps are as long as their mean, and words and links take no time. This needs no tables by source and core.
    """
    network, chip, activity, timing, *_ = search
    n_cores, n_steps = int(cores.max()) + 1, timing.n_hardware_steps(activity.n_steps, "aligned")
    usage = capacity.count_usage(network, chip, cores, n_cores)
    reached = usage.destinations
    flows = count_flows(network, reached, cores_of_sources(network, cores), activity)
    pair, messages = core_messages(reached, flows, n_cores)
    on_core, n_copies = flows.home >= 0, np.diff(reached.offset)[flows.source_class]
    sent = flows.messages * (np.minimum(n_copies, 1) if chip.noc.multicast == "tree" else n_copies)
    send = sending_cycles(network, chip, activity, timing, cores, np.arange(n_steps), n_steps).sum(1)
    send = send + cycles_of_event(chip, "message_out") * np.bincount(flows.home[on_core], sent[on_core], n_cores)
    synops = capacity.synaptic_load(network, activity) - activity.n_steps * activity.n_samples
    receive = np.bincount(cores, synops * max(cycles_of_event(chip, f"synop_{kind}") for kind in SYNAPSE_KINDS))
    receive += cycles_of_event(chip, "message_in") * np.bincount(pair[:, 1], messages, n_cores)
    busiest = (send + receive if chip.cost.units == "shared" else np.maximum(send, receive)).max()
    rules = core_rules(chip, n_cores, activity.n_samples * timing.period, [])
    total = np.zeros(cluster_state.N_TOTALS, np.int64)
    total[TIME] = max(busiest, n_steps * rules.min_work[n_cores]) + n_steps * rules.barrier[n_cores]
    total[MESSAGES], total[N_USED] = messages[pair[:, 0] >= 0].sum(), n_cores
    total[REMOTE] = messages[(pair[:, 0] >= 0) & (pair[:, 0] != pair[:, 1])].sum()
    return total, int((usage.by_core > rules.limit[:, : len(RESOURCES)]).sum())


def link_cycles(demand: Demand, state: CoreState, chip: Chip, site: np.ndarray, is_even: bool = False) -> np.ndarray:
    """Return int64[step]: core cycles of the busiest link for the messages of clusters on cores at `site` int64[core].

    As in `cost.time.work`, except that payloads and messages of input lines are left out. `is_even`: before placement,
    links from one chip to another share their flits evenly, and no other links count. The chip has routers.
    """
    flits = _link_flits(demand, state, chip, site).T * chip.noc.flits_per_message
    core_ticks, noc_ticks = chip.ticks
    return chip.family.link_busy(chip, _share_flits(flits, chip) if is_even else flits).max(1) * noc_ticks // core_ticks


def time_with_links(demand: Demand, state: CoreState, chip: Chip, site: np.ndarray, is_even: bool = False) -> int:
    """Return the cycles of all steps together, each as long as its busiest core or link; see `link_cycles`."""
    waits = np.maximum(link_cycles(demand, state, chip, site, is_even) - state.busy.top, 0)
    return int(state.busy.total[TIME] + waits.sum())


def _link_flits(demand: Demand, state: CoreState, chip: Chip, site: np.ndarray) -> np.ndarray:
    """Return int64[link, step]: messages over every link."""
    n_mesh, router = 4 * len(chip.grid.is_open), site // chip.noc.cores_per_router
    routers, to = np.unique(router, return_inverse=True)
    source_class, reader = np.nonzero(state.held.n_rows.T > 0)
    offset = np.searchsorted(source_class, np.arange(len(demand.classes.size) + 1))
    ends = n_mesh + np.stack([site, chip.n_cores + site])
    all_routers = np.arange(len(chip.grid.is_open))[:, None]
    parts = np.array_split(all_routers, 1 + len(all_routers) * len(routers) // OUTPUTS_AT_ONCE)
    flits = np.zeros((n_mesh + 2 * chip.n_cores, demand.sends.send.shape[1]), np.int64)
    link_flits.add_flits(
        demand.sends,
        state.held.core_of,
        offset,
        reader,
        router,
        to.reshape(-1),
        np.concatenate([find_ports(chip.grid, part, routers) for part in parts]),  # uint8[router, ...]: outputs
        chip.grid.neighbor,
        ends,
        chip.noc.multicast == "tree",
        flits,
    )
    return flits


def _share_flits(flits: np.ndarray, chip: Chip) -> np.ndarray:
    """Return int64[step, link]: the load of links between two chips if they share it evenly, and 0 elsewhere."""
    noc, grid = chip.noc, chip.grid
    router, direction = np.nonzero(find_chip_crossings(grid, noc.chip_columns, noc.chip_rows))
    y, x = np.divmod(router, grid.columns)
    tile = y // (noc.chip_rows or grid.rows) * grid.columns + x // (noc.chip_columns or grid.columns)
    side = np.unique(tile * 4 + direction, return_inverse=True)[1].reshape(-1)
    link, shared = router * 4 + direction, np.zeros_like(flits)
    total = np.zeros((int(side.max(initial=-1)) + 1, len(flits)), np.int64)
    np.add.at(total, side, flits.T[link])
    shared.T[link] = (total // np.bincount(side)[:, None])[side]
    return shared


def too_slow(chip: Chip, step_us: float, limit_us: float, n_cores: int) -> FitError:
    """Return the error for a mapping whose steps are predicted to take `step_us`, more than `limit_us`."""
    cores = f"{n_cores} core{'s' if n_cores != 1 else ''}"
    advice = "raise step_limit_us, or n_cores where it is given"
    scan_us = chip.scan_cycles * chip.core.cycle_ns / 1000
    if scan_us >= limit_us:
        advice = f"raise step_limit_us: a core visits all its slots in every step, which takes {scan_us:.4g} us"
    if chip.family.has_own_times:
        advice = "raise step_limit_us, or use fewer neurons or spikes"
    return FitError(
        chip.name, [Violation("predicted step time", f"network -> {cores}", step_us, limit_us, advice, unit=" us")]
    )


def verify_step_time(program: Program, limit_us: float) -> None:
    """Raise FitError if the program's predicted step, links included, takes longer than `limit_us`.

    Raises OptionError for a chip that does not give the cycles of every event.
    """
    _verify_times(program.chip)
    assert program.activity is not None, "a program has that of its compilation"
    figures = predicted_figures(program, program.activity)
    if figures.step_us is not None and figures.step_us > limit_us * (1 + ROUNDED_SHARE):
        raise too_slow(program.chip, figures.step_us, limit_us, figures.cores)


def _verify_times(chip: Chip) -> None:
    if not chip.gives_times:
        raise OptionError(
            f"step_limit_us needs the cycles of every event, which {chip.name} does not give; leave it out"
        )


def _n_steps(search: Search) -> int:
    """Return the hardware steps of all samples together."""
    return search.timing.n_hardware_steps(search.activity.n_steps, "aligned") * search.activity.n_samples
