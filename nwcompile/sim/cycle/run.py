"""The cycle-level backend: cores and a flit-by-flit network on chip, by events or in lockstep: it alone tells times."""

import numpy as np

from nwcompile.cost.energy import energy_pj
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.cost.traffic.multicast import multicast_trees
from nwcompile.errors import BackendError, ModelError
from nwcompile.ir.flat import count_lines, csr_offset
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.kernels import jit
from nwcompile.kernels.cores.probes import Watch
from nwcompile.kernels.cores.tables import N_COUNTS, N_COUNTS_LOST, STUCK, TOO_LONG, Costs, Outbox, Pipeline
from nwcompile.kernels.cycle import INTERRUPTED, Plan, Record, run_samples
from nwcompile.kernels.noc import bus
from nwcompile.sim.cycle.axons import axon_table
from nwcompile.sim.cycle.bus import bus_cores, bus_of, schedule_of, waiting
from nwcompile.sim.cycle.lockstep import cores_in_lockstep, suits_cores
from nwcompile.sim.cycle.noc_tables import fabric, planted, queues
from nwcompile.sim.cycle.overload import longest_step, stopped, take_losses
from nwcompile.sim.cycle.profile import Ends, profile, watch
from nwcompile.sim.inputs import MAX_REPEATED_SPIKES, verify_counts
from nwcompile.sim.parallel import n_threads, over_samples, over_steps
from nwcompile.sim.reference.run import finish
from nwcompile.sim.sequence import tables

RECEIVED = ("synops_dense", "synops_sparse", "synops_conv", "synops", "weight_reads", "messages_in",
            "messages_io_in")  # fmt: skip
SENT = ("neuron_visits", "neuron_updates", "spikes_out", "messages_out", "hops_ew", "hops_ns", "messages_io_out")


def run_program(
    program: Program, inputs: dict, n_steps: int, keep_states: bool, window: str, flight_steps: int | None = None
) -> Run:
    """Simulate a program on its chip; `inputs[name]` is int32 `[B, T, *shape]`. Raises BackendError if stuck.

    With `flight_steps` the Run has a Profile, and that the flits in flight in so many steps.
    """
    jit.wait_for_others()
    network, schedule = program.network, program.schedule
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    n_hardware = schedule.n_hardware_steps(n_steps, window)
    lines = [inputs[n].reshape(n_samples, n_steps, -1) for n in network.inputs]
    x = np.concatenate([*lines, np.zeros((n_samples, n_steps, 0), np.int32)], 2)
    chip_run = ChipRun(program, n_steps, n_hardware, window)
    keep = keep_states or any(not network.node(n).neuron.fires for n in network.layers)
    records, notes = chip_run.run_all(x, keep, flight_steps)
    spikes = layers_of(program, network.layers, [r.spikes for r in records])
    spikes = {name: a.astype(network.node(name).neuron.spike_dtype) for name, a in spikes.items()}
    kept = [name for name in network.layers if keep_states or not network.node(name).neuron.fires]
    u, v = (layers_of(program, kept, [getattr(r, state) for r in records]) for state in ("u", "v"))
    states = {name: {"u": u[name], "v": v[name]} for name in kept}
    received = sum(r.received for r in records)
    counters = named_counters(program, received, sum(r.sent for r in records))
    dropped = take_losses(program, received, counters)
    measured = chip_run.measured(
        counters, sum(r.flits for r in records), sum(r.cycles for r in records), n_samples * schedule.period,
        None if flight_steps is None else notes,
    )  # fmt: skip
    if program.chip.is_bus:
        measured["bus"] = schedule_of([r.bus for r in records])
    return finish(program, "cycle", "cpu", window, spikes, states, inputs, counters, dropped=dropped, **measured)


def named_counters(program: Program, received: np.ndarray, sent: np.ndarray) -> dict[str, np.ndarray]:
    """The counters of a Run, int64[H, core], of int64[H, core and gate, ...] and int64[H, core, SENT]."""
    counters = {name: received[:, : program.mapping.n_cores, i] for i, name in enumerate(RECEIVED)}
    counters |= {name: sent[:, :, i] for i, name in enumerate(SENT)}
    counters["hops"] = counters["hops_ew"] + counters["hops_ns"]
    counters["deliveries"] = counters["messages_in"].copy()
    come, leave = counters["messages_io_in"], counters["messages_io_out"]
    counters["messages_io"] = come + leave
    ways = io_routes(program)
    for i, name in enumerate(("hops_io_ew", "hops_io_ns")):
        counters[name] = np.zeros_like(come) if ways is None else come * ways[0].hops[:, i] + leave * ways[1].hops[:, i]
    return counters


def layers_of(program: Program, names, parts: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The part [B, T, *shape] of each of these layers in arrays [b, T, neuron] of consecutive samples."""
    network, found = program.network, {}
    n_lines = count_lines(network)
    for name in names:
        node, first = network.node(name), network.offsets[name] - n_lines
        whole = np.concatenate([p[:, :, first : first + node.n_neurons] for p in parts])
        found[name] = whole.reshape(*whole.shape[:2], *node.shape)
    return found


class ChipRun:
    """A program's constant tables; `run` simulates some samples with a state of its own."""

    def __init__(self, program: Program, n_steps: int, n_hardware: int, window: str):
        self.program, self.chip = program, program.chip
        network, chip = program.network, program.chip
        own = multicast_trees(program) if chip.noc.multicast == "tree" else None
        self.axons = axon_table(program, own)
        self.mesh, self.bus, self.n_links = None, None, len(chip.link_cycles)
        if chip.is_bus:
            self.bus = bus_of(chip, self.axons.site, chip.ticks[1])
        else:
            self.mesh, _ = fabric(chip, chip.ticks[1])
            self.mesh = self.mesh if own is None else planted(self.mesh, own.trees)
        per_cycle = chip.ticks[0]
        cost = chip.cost
        ticks = [(c or 0) * per_cycle for c in (cost.visit_cycles, cost.update_cycles, cost.spike_cycles,
                                                cost.message_out_cycles)]  # fmt: skip
        self.costs = Costs(*ticks, cost.units == "shared", per_cycle, chip.noc.on_full == "drop",
                           *longest_step(program, self.mesh, self.axons))  # fmt: skip
        self.is_in_lockstep = self.mesh is not None and suits_cores(self.mesh, self.axons, self.costs)
        self.neurons = tables.neurons(network, network.layers)
        self.synapses = tables.synapses(network, program.schedule.delay, program.mapping)
        self.members = tables.members(network, program.mapping, program.core_of)
        n_inputs = int(np.count_nonzero(program.core_of < 0))
        offset = [np.full(network.node(n).n_neurons, program.schedule.offset[n]) for n in network.layers]
        counts = np.bincount(program.core_of[n_inputs:], minlength=program.mapping.n_cores)
        self.plan = Plan(n_steps, n_hardware, program.schedule.period, window == "aligned", np.concatenate(offset),
                         csr_offset(counts), program.visiting_order, n_inputs, per_cycle, program.repeats,
                         MAX_REPEATED_SPIKES,
                         0, 0, False, True, True, np.zeros(1, bool))  # fmt: skip

    def run_all(self, x: np.ndarray, keep: bool, flight_steps: int | None) -> tuple[list[Record], list[Watch]]:
        """Simulate samples x int32[B, T, input line] on the cores at hand: Records, Watches of consecutive samples.

        Fewer samples than cores share the cores step by step, unless they are watched.
        """
        if len(x) < n_threads() and flight_steps is None and not self.costs.drops:
            try:
                return self.run_steps(x, keep), []
            except (BackendError, ModelError):  # of several steps that must stop, the first is to be named
                pass
        done = over_samples(len(x), lambda own: self.run(x, own, keep, flight_steps), self.plan.interrupted)
        return [record for record, _ in done], [w for _, w in done]

    def run(self, x: np.ndarray, own: slice, keep: bool, flight_steps: int | None) -> tuple[Record, Watch]:
        """Simulate some of the samples. Raises ModelError where a neuron spikes too often to be sent."""
        plan = self.plan._replace(first_sample=own.start)
        record = self.record((own.stop - own.start, plan.n_steps), plan.n_hardware, keep)
        w = self.watch(plan.n_hardware, flight_steps)
        self.go(plan, x[own], record, w, self.state())
        self.verify(record, own.start)
        return record, w

    def run_steps(self, x: np.ndarray, keep: bool) -> list[Record]:
        """Simulate each sample: one thread computes its neurons, all move the messages of steps that are computed."""
        plan, w, idle = self.plan, self.watch(1, None), []
        records = [self.record((1, plan.n_steps), plan.n_hardware, keep, True) for _ in x]
        own = [self.state() for _ in x]

        def some(b: int, steps: slice, state: tuple, computes: bool) -> None:
            r, then = (
                records[b],
                plan._replace(first_sample=b, first=steps.start, computes=computes, moves=not computes),
            )
            part = {name: getattr(r, name)[steps] for name in ("received", "sent", "cycles", "flits", "bus")}
            self.go(then, x[b : b + 1, steps], r._replace(updated=r.updated[:, steps], **part), w, state)

        def move(b: int, steps: slice) -> None:
            try:
                state = idle.pop()
            except IndexError:
                state = self.state()
            some(b, steps, state, False)
            idle.append(state)

        over_steps(len(x), plan.n_hardware, lambda b, steps: some(b, steps, own[b], True), move, plan.interrupted)
        for b, record in enumerate(records):
            self.verify(record, b)
        return records

    def verify(self, record: Record, first_sample: int) -> None:
        """Raise ModelError where a neuron fires more often at once than a message tells."""
        if self.plan.repeats:
            program = self.program
            spikes = layers_of(program, program.network.layers, [record.spikes])
            verify_counts(program.network, self.chip, program.on_multi_spike, spikes, first_sample)

    def record(self, shape: tuple[int, int], n_rows: int, keep: bool, is_shared: bool = False) -> Record:
        """Zeros for spikes (and states, if they are kept) of `shape` samples and steps, and `n_rows` hardware steps.

        `is_shared`: some compute neurons, others go on with what is recorded.
        """
        n_cores, n_neurons = self.program.mapping.n_cores, len(self.neurons.rule_of)
        kept = (*shape, n_neurons) if keep else (0, 0, 0)
        return Record(
            np.zeros((*shape, n_neurons), np.int32), np.zeros(kept, np.int64), np.zeros(kept, np.int64),
            np.zeros((n_rows, len(self.axons.site), N_COUNTS_LOST if self.costs.drops else N_COUNTS), np.int64),
            np.zeros((n_rows, n_cores, len(SENT)), np.int64), np.zeros(n_rows, np.int64),
            np.zeros((n_rows, self.n_links), np.int64), np.zeros(2, np.int64),
            np.zeros((n_rows, bus.N_COUNTS), np.int64),
            np.zeros((shape[0], n_rows, n_neurons) if is_shared else (0, 0, 0), bool),
        )  # fmt: skip

    def watch(self, n_rows: int, flight_steps: int | None) -> Watch:
        """Empty notes for `n_rows` hardware steps."""
        return watch(self.mesh or self.bus, n_rows, self.program.mapping.n_cores, len(self.axons.site), flight_steps)

    def state(self) -> tuple:
        """Everything that changes while samples run: queues, messages, cores, neurons, sums on their way."""
        n_cores, n_axons = len(self.axons.site), len(self.axons.row)
        n_sources, n_neurons = len(self.program.core_of), len(self.neurons.rule_of)
        of_axon = [np.zeros(n_axons, np.int64) for _ in range(6)]
        box = Outbox(*(np.zeros(n_axons, np.int32) for _ in range(3)), *of_axon[:4], np.zeros(n_cores + 1, np.int64),
                     np.zeros(n_cores, np.int64), np.zeros(n_cores, np.int64), *of_axon[4:],
                     np.zeros(n_sources, np.int64))  # fmt: skip
        n_slots = int(self.synapses.delay.max(initial=1)) + 1
        acc, events = np.zeros((n_slots, n_sources), np.int64), np.zeros((n_slots, n_sources), np.uint8)
        if self.bus is not None:
            q, p = waiting(self.bus, self.n_links), bus_cores(self.bus)
        else:
            q = queues(self.mesh, self.n_links)
            p = Pipeline(*(np.zeros(n_cores, t) for t in (np.int8, *[np.int64] * 3, *[np.int32] * 2, *[np.int64] * 2,
                                                          np.int32, np.int64)), np.zeros(1, np.int64))  # fmt: skip
        lockstep = cores_in_lockstep(self.mesh, n_axons) if self.is_in_lockstep else None
        return q, box, p, tables.scratch(n_neurons), acc, events, lockstep

    def go(self, plan: Plan, x: np.ndarray, record: Record, w: Watch, state: tuple) -> None:
        """Simulate the hardware steps from `plan.first` on of x int32[b, step, input line], as many as `record` has."""
        q, box, p, scratch, acc, events, lockstep = state
        mesh, lockstep = (None, lockstep) if lockstep is not None and not w.is_on else (self.mesh, None)
        code = run_samples(
            plan, mesh, lockstep, self.bus, q, w, self.costs, self.axons, box, p, self.neurons, self.synapses,
            self.members, np.ascontiguousarray(x), record, scratch, acc, events,
        )  # fmt: skip
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code in (STUCK, TOO_LONG):
            raise stopped(self.program, code, record.stopped, self.axons, box, q)

    def ends(self) -> Ends:
        """Where the messages of a profile come from and go to."""
        own, ways = self.program.core_of, io_routes(self.program)
        site = self.axons.site
        return Ends(site, np.where(own < 0, -1, site[own]), None if ways is None else ways[0].site)

    def measured(self, counters: dict, flits: np.ndarray, cycles: np.ndarray, n_barriers: int, notes) -> dict:
        """What a Run says of time and energy; `n_barriers` belong to each row, `notes` are the Watches or None."""
        chip, program = self.chip, self.program
        found = {"link_flits": flits}
        if chip.has_times:
            found["step_cycles"] = cycles + n_barriers * chip.barrier_cycles(program.mapping.n_tiles)
            found["seconds"] = float(found["step_cycles"].sum() * chip.core.cycle_ns * 1e-9)
        found["energy_pj"] = energy_pj(counters, chip, found.get("seconds"))
        if notes is not None:
            n_ticks = int(cycles.sum()) * chip.ticks[0]
            found["profile"] = profile(self.mesh or self.bus, notes, flits, self.ends(), n_ticks, chip.ticks[0])
        return found
