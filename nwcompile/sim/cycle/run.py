"""The cycle-level backend: cores and a flit-by-flit network on chip, by events or in lockstep: it alone tells times."""

from typing import Any, NamedTuple

import numpy as np

from nwcompile.checkpoint import is_keeping
from nwcompile.cost.energy import energy_pj, step_energy_pj
from nwcompile.cost.neuron_program import instructions
from nwcompile.cost.time.pool import pool_times
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.cost.traffic.multicast import multicast_trees
from nwcompile.cost.traffic.tokens import add_tokens
from nwcompile.errors import BackendError, ModelError
from nwcompile.ir.flat import count_lines, csr_offset
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.kernels import jit
from nwcompile.kernels.cores.probes import Probes
from nwcompile.kernels.cores.programs.call import Programs
from nwcompile.kernels.cores.synapse import Drive
from nwcompile.kernels.cores.tables import (
    CORE,
    MESSAGE,
    N_COUNTS,
    N_COUNTS_LOST,
    STUCK,
    TOO_LONG,
    CoreTables,
    CoreWork,
    Costs,
    InputQueue,
    Outbox,
    SharedAxons,
)
from nwcompile.kernels.cycle import (
    INTERRUPTED,
    N_SENT,
    ChipCores,
    EventNetwork,
    Job,
    LossyDelivery,
    NeuronRecord,
    Plan,
    SpikingNet,
    StepRecord,
    run_samples,
)
from nwcompile.kernels.noc import bus
from nwcompile.kernels.noc.bus_cores import BusNetwork
from nwcompile.kernels.noc.lockstep_cores import LockstepNetwork
from nwcompile.kernels.noc.merges import MergeNetwork
from nwcompile.sim.cycle import neighbors
from nwcompile.sim.cycle.axons import axon_tables
from nwcompile.sim.cycle.bus import bus_network, bus_of, schedule_of
from nwcompile.sim.cycle.kept import run_kept
from nwcompile.sim.cycle.lockstep import lockstep_network, suits_cores
from nwcompile.sim.cycle.merges import merge_network, verify_packets
from nwcompile.sim.cycle.noc_tables import mesh_of, queues, with_trees
from nwcompile.sim.cycle.overload import longest_step, loses_messages, stopped, take_losses
from nwcompile.sim.cycle.profile import Ends, probes_for, profile
from nwcompile.sim.reference.run import finish
from nwcompile.sim.sequence import tables
from nwcompile.sim.values import MAX_REPEATED_SPIKES, verify_counts
from nwcompile.threads import n_threads, over_samples, over_steps

ERROR_CODE = "NW6104"
# Counters of a Run, in the order of the columns that kernels count in: of what cores receive, and of what they send.
RECEIVED = ("synops_dense", "synops_sparse", "synops_conv", "synops", "weight_reads", "messages_in",
            "messages_io_in")  # fmt: skip
SENT = ("neuron_visits", "neuron_updates", "neuron_instructions", "spikes_out", "messages_out", "hops_ew", "hops_ns",
        "messages_io_out")  # fmt: skip


def run_program(
    program: Program, inputs: dict, n_steps: int, keep_states: bool, window: str, flight_steps: int | None = None
) -> Run:
    """Simulate a program on its chip; `inputs[name]` is int32 `[B, T, *shape]`. Raises BackendError if stuck.

    With `flight_steps` the Run has a Profile, and that the flits in flight in so many steps.
    """
    network, schedule = program.network, program.schedule
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    n_hardware = schedule.n_hardware_steps(n_steps, window)
    lines = [inputs[n].reshape(n_samples, n_steps, -1) for n in network.inputs]
    x = np.concatenate([*lines, np.zeros((n_samples, n_steps, 0), np.int32)], 2)
    chip_run = ChipRun(program, n_steps, n_hardware, window)
    keep = keep_states or any(not network.node(n).neuron.fires for n in network.layers)
    notes = None
    if is_keeping():
        records, steps = run_kept(chip_run, x, keep)
    else:
        results = chip_run.run_some(x, slice(0, len(x)), keep, flight_steps)
        records, steps = [r.neurons for r in results], [r.steps for r in results]
        notes = None if flight_steps is None else [r.probes for r in results]
    spikes = spikes_of(program, [r.spikes for r in records])
    kept = [name for name in network.layers if keep_states or not network.node(name).neuron.fires]
    states = chip_run.states(kept, [(r.u, r.v, r.words) for r in records])
    received: Any = sum(s.received for s in steps)
    sent: Any = sum(s.sent for s in steps)
    flits: Any = sum(s.flits for s in steps)
    cycles: Any = sum(s.cycles for s in steps)
    counters = named_counters(program, received, sent)
    add_tokens(program, counters, n_samples)
    dropped = take_losses(program, received, counters)
    if chip_run.waits:
        flits = neighbors.flits_by_step(program, inputs, spikes, window, flits)
    measured = chip_run.measured(counters, flits, cycles, n_samples * schedule.period, notes)
    if program.chip.is_bus:
        measured["bus"] = schedule_of([s.bus for s in steps])
    return finish(program, "cycle", "cpu", window, spikes, states, inputs, counters, dropped=dropped, **measured)


def named_counters(program: Program, received: np.ndarray, sent: np.ndarray) -> dict[str, np.ndarray]:
    """The counters of a Run, int64[H, core], of int64[H, core and io site, ...] and int64[H, core, SENT]."""
    counters = {name: received[:, : program.mapping.n_cores, i] for i, name in enumerate(RECEIVED)}
    counters |= {name: sent[:, :, i] for i, name in enumerate(SENT)}
    counters["hops"] = counters["hops_ew"] + counters["hops_ns"]
    counters["deliveries"] = counters["messages_in"].copy()
    come, leave = counters["messages_io_in"], counters["messages_io_out"]
    counters["messages_io"] = come + leave
    routes = io_routes(program)
    for i, name in enumerate(("hops_io_ew", "hops_io_ns")):
        counters[name] = np.zeros_like(come)
        if routes is not None:
            counters[name] = come * routes[0].hops[:, i] + leave * routes[1].hops[:, i]
    return counters


def spikes_of(program: Program, parts: list[np.ndarray]) -> dict[str, np.ndarray]:
    """`layers_of` spikes, for all layers, in the type of each."""
    network = program.network
    types = {name: network.node(name).neuron.spike_dtype for name in network.layers}
    return layers_of(program, network.layers, parts, types)


def layers_of(program: Program, names, parts: list[np.ndarray], types: dict | None = None) -> dict[str, np.ndarray]:
    """The part [B, T, *shape] of each of these layers in arrays [b, T, neuron] of consecutive samples.

    Of the type in `types`, or that of the arrays.
    """
    network, parts_of = program.network, {}
    n_lines = count_lines(network)
    for name in names:
        node, first = network.node(name), network.offsets[name] - n_lines
        of_layer = [p[:, :, first : first + node.n_neurons] for p in parts]
        whole = np.concatenate(of_layer, dtype=None if types is None else types[name], casting="unsafe")
        parts_of[name] = whole.reshape(*whole.shape[:2], *node.shape)
    return parts_of


class Result(NamedTuple):
    """What some samples, or some of their steps, gave."""

    neurons: NeuronRecord
    steps: StepRecord
    probes: Probes | None  # None where nothing is profiled


class State(NamedTuple):
    """Everything that changes while samples run: queues, messages, cores, neurons, sums on their way."""

    cores: ChipCores
    net: SpikingNet
    programs: Programs
    lossy: LossyDelivery | None
    shared: SharedAxons | None
    event: EventNetwork | None
    lockstep: LockstepNetwork | None
    bus: BusNetwork | None
    merges: MergeNetwork | None

    @property
    def link_flits(self) -> np.ndarray:
        """int64[link]: flits carried in the last micro-step."""
        if self.event is not None:
            return self.event.queues.flits
        if self.merges is not None:
            return self.merges.flits
        if self.lockstep is not None:
            return self.lockstep.flits
        assert self.bus is not None, "there is one of the four"
        return self.bus.waiting.totals.flits


class ChipRun:
    """A program's constant tables; `run` simulates some samples with a state of its own."""

    def __init__(self, program: Program, n_steps: int, n_hardware: int, window: str):
        jit.wait_for_others()
        self.program, self.chip, self.n_hardware = program, program.chip, n_hardware
        network, chip = program.network, program.chip
        trees = multicast_trees(program) if chip.noc.multicast == "tree" else None
        self.axons, self.tokens = axon_tables(program, trees), None
        if chip.waits_for_neighbors:
            self.axons, self.tokens = neighbors.with_tokens(program, self.axons)
        self.mesh, self.bus = None, None
        if chip.has_merges:
            verify_packets(program, self.axons.fan_out)
        elif chip.is_bus:
            self.bus = bus_of(chip, self.axons.sites.site, chip.ticks[1])
        else:
            mesh = mesh_of(chip, chip.ticks[1])
            self.mesh = mesh if trees is None else with_trees(mesh, trees.trees)
        self.costs = self._costs()
        self.waits = chip.waits_for_neighbors
        self.is_in_lockstep = (
            self.mesh is not None and not self.waits and suits_cores(self.mesh, self.axons.axons, self.costs)
        )
        self.neurons = tables.neurons(network, network.layers)
        self.programs = tables.programs(network, network.layers)
        self.pool = pool_times(program)
        self.synapses = tables.synapses(network, program.schedule.clip_delays(n_hardware), program.mapping)
        by_message = self.costs.drops or self.waits
        self.members = tables.members(network, program.mapping, program.core_of) if by_message else None
        self.plan = self._plan(n_steps, window)

    def _costs(self) -> Costs:
        cost, per_cycle = self.chip.cost, self.chip.ticks[0]
        return Costs(
            visit=(cost.visit_cycles or 0) * per_cycle,
            update=(cost.update_cycles or 0) * per_cycle,
            instruction=(cost.instruction_cycles or 0) * per_cycle,
            spike=(cost.spike_cycles or 0) * per_cycle,
            message=(cost.message_out_cycles or 0) * per_cycle,
            shared=cost.units == "shared",
            drops=loses_messages(self.chip),
            scan=self.chip.scan_cycles * per_cycle,
            **longest_step(self.program, self.mesh, self.axons.axons),
        )

    def _plan(self, n_steps: int, window: str) -> Plan:
        program, network = self.program, self.program.network
        n_inputs = int(np.count_nonzero(program.core_of < 0))
        nodes = [network.node(n) for n in network.layers]
        offset = [np.full(node.n_neurons, program.schedule.offset[node.name]) for node in nodes]
        n_instructions = [np.full(node.n_neurons, instructions(self.chip, node.neuron)) for node in nodes]
        counts = np.bincount(program.core_of[n_inputs:], minlength=program.mapping.n_cores)
        return Plan(
            n_steps=n_steps,
            period=program.schedule.period,
            is_aligned=window == "aligned",
            n_inputs=n_inputs,
            ticks_per_cycle=self.chip.ticks[0],
            repeats=program.repeats,
            max_repeats=MAX_REPEATED_SPIKES,
            offset=np.concatenate(offset),
            instructions=np.concatenate(n_instructions),
            first=csr_offset(counts),
            neuron=program.visiting_order,
            interrupted=np.zeros(1, bool),
        )

    def run_some(self, x: np.ndarray, some: slice, keep: bool, flight_steps: int | None) -> list[Result]:
        """Simulate some of the samples on the cores at hand: the Results of consecutive samples.

        Fewer samples than cores share the cores step by step, where they can (`shares_steps`) and are not profiled.
        """
        first, n_samples = some.start, some.stop - some.start
        if flight_steps is None and self.shares_steps(n_samples):
            try:
                return self.run_steps(x[some], keep, first)
            except (BackendError, ModelError):  # the first of several steps that must stop is the one to be named
                pass

        def work(part: slice) -> Result:
            return self.run(x, slice(first + part.start, first + part.stop), keep, flight_steps)

        return over_samples(n_samples, work, self.plan.interrupted)

    def run(self, x: np.ndarray, part: slice, keep: bool, flight_steps: int | None) -> Result:
        """Simulate some of the samples. Raises ModelError where a neuron spikes too often to be sent."""
        result = self.result((part.stop - part.start, self.plan.n_steps), self.n_hardware, keep, flight_steps)
        self.go(self.job(first_sample=part.start), x[part], result, self.state(flight_steps is not None))
        self.verify(result.neurons, part.start)
        return result

    def shares_steps(self, n_samples: int) -> bool:
        """Whether so few samples are better run by `share`, and can be: no message is lost, all steps end together."""
        return n_samples < n_threads() and not self.costs.drops and not self.waits

    def run_steps(self, x: np.ndarray, keep: bool, first_sample: int = 0) -> list[Result]:
        """Simulate each sample, over its steps.

        `first_sample` is the number of the first in the errors of the run.
        """
        shape = (1, self.plan.n_steps)
        results = [self.result(shape, self.n_hardware, keep, None, is_shared=True) for _ in x]
        self.share(x, results, [self.state() for _ in x], first_sample)
        for b, result in enumerate(results):
            self.verify(result.neurons, first_sample + b)
        return results

    def share(
        self, x: np.ndarray, results: list[Result], computing: list[State], first_sample: int, first_step: int = 0
    ) -> None:
        """Simulate the steps that each result has rows for: one thread computes neurons, all move what they have sent.

        `computing`: where the neurons of each sample are.
        """
        idle: list = []

        def some(b: int, steps: slice, state: State, computes: bool) -> None:
            r, now = results[b], slice(first_step + steps.start, first_step + steps.stop)
            rows = {name: getattr(r.steps, name)[steps] for name in ("received", "sent", "cycles", "flits", "bus")}
            neurons = r.neurons._replace(updated=r.neurons.updated[:, steps])
            job = self.job(first_sample=first_sample + b, first_step=now.start, computes=computes, moves=not computes)
            self.go(job, x[b : b + 1, now], Result(neurons, r.steps._replace(**rows), None), state)

        def move(b: int, steps: slice) -> None:
            try:
                state = idle.pop()
            except IndexError:
                state = self.state()
            some(b, steps, state, False)
            idle.append(state)

        n_rows = len(results[0].steps.cycles)
        over_steps(len(x), n_rows, lambda b, steps: some(b, steps, computing[b], True), move, self.plan.interrupted)

    def verify(self, record: NeuronRecord, first_sample: int, first_step: int = 0) -> None:
        """Raise ModelError where a neuron fires more often at once than a message tells.

        The record begins with these.
        """
        if self.plan.repeats:
            program = self.program
            spikes = layers_of(program, program.network.layers, [record.spikes])
            first = dict.fromkeys(spikes, first_step)
            verify_counts(program.network, self.chip, program.on_multi_spike, spikes, first_sample, first)

    def job(
        self,
        first_sample: int = 0,
        first_step: int = 0,
        by_hardware: bool = False,
        computes: bool = True,
        moves: bool = True,
    ) -> Job:
        """What one call is to do: all of it, if nothing else is said."""
        return Job(first_sample, first_step, by_hardware, computes=computes, moves=moves)

    def result(
        self, shape: tuple[int, int], n_rows: int, keep: bool, flight_steps: int | None, is_shared: bool = False
    ) -> Result:
        """Zeros for spikes (and states, if they are kept) of `shape` samples and steps, and `n_rows` hardware steps.

        With `flight_steps` there are probes. `is_shared`: some compute neurons, others go on with what is recorded.
        """
        n_cores, n_neurons, n_sites = self.program.mapping.n_cores, len(self.neurons.rule_of), self.axons.axons.n_sites
        kept = (*shape, n_neurons) if keep else (0, 0, 0)
        n_words = len(self.programs.state)
        neurons = NeuronRecord(
            spikes=np.zeros((*shape, n_neurons), np.int32),
            u=np.zeros(kept, np.int64),
            v=np.zeros(kept, np.int64),
            words=np.zeros((*shape, n_words) if keep else (0, 0, 0), np.int64),
            updated=np.zeros((shape[0], n_rows, n_neurons) if is_shared else (0, 0, 0), bool),
        )
        probes, net = None, self.mesh or self.bus
        if flight_steps is not None and net is not None:
            probes = probes_for(net, n_rows, n_cores, n_sites, flight_steps, self.chip.ticks[0])
        return Result(neurons, self.step_record(n_rows), probes)

    def step_record(self, n_rows: int) -> StepRecord:
        """Zeros for so many hardware steps."""
        n_cores, n_sites = self.program.mapping.n_cores, self.axons.axons.n_sites
        return StepRecord(
            received=np.zeros((n_rows, n_sites, N_COUNTS_LOST if self.costs.drops else N_COUNTS), np.int64),
            sent=np.zeros((n_rows, n_cores, N_SENT), np.int64),
            cycles=np.zeros(n_rows, np.int64),
            flits=np.zeros((n_rows, len(self.chip.link_cycles)), np.int64),
            bus=np.zeros((n_rows, bus.N_COUNTS), np.int64),
            stopped=np.zeros(2, np.int64),
        )

    def drive(self) -> Drive:
        """No synaptic sums on their way."""
        return tables.drive(int(self.synapses.connection["delay"].max(initial=1)) + 1, len(self.program.core_of))

    def state(self, is_profiled: bool = False, n_logged: int = 0) -> State:
        """An idle chip; lockstep where it suits, but a profile needs the events. Merges may log so many packets."""
        n_sites, n_axons = self.axons.axons.n_sites, len(self.axons.axons.row)
        n_sources, n_neurons = len(self.program.core_of), len(self.neurons.rule_of)
        work = CoreWork(
            outbox=Outbox(
                message=np.zeros(n_axons, MESSAGE),
                first=np.zeros(n_sites + 1, np.int64),
                tail=np.zeros(n_sites, np.int64),
            ),
            inputs=InputQueue(
                first=np.zeros(n_sites, np.int64),
                after=np.zeros(n_axons, np.int64),
                left=np.zeros(n_axons, np.int64),
            ),
            core=np.zeros(n_sites, CORE),
        )
        core_tables = CoreTables(self.axons.axons, self.axons.sites, self.costs)
        lossy = event = lockstep = on_bus = merges = None
        shared = self.axons.shared
        if shared is not None:
            shared = shared._replace(last_set=shared.last_set.copy(), last_heard=shared.last_heard.copy())
        if self.costs.drops and self.members is not None:
            lossy = LossyDelivery(self.members, self.axons.fan_out.sent, np.zeros(n_sources, np.int64))
        if self.bus is not None:
            on_bus = bus_network(self.bus, len(self.chip.link_cycles))
        elif self.mesh is None:
            merges = merge_network(self.chip, n_axons, n_logged)
        elif self.is_in_lockstep and not is_profiled:
            lockstep = lockstep_network(self.mesh, n_axons)
        else:
            event = EventNetwork(self.mesh, queues(self.mesh))
        return State(
            cores=ChipCores(core_tables, self.pool, self.axons.fan_out, self.axons.io, work),
            net=SpikingNet(self.neurons, self.synapses, tables.scratch(n_neurons), self.drive()),
            programs=tables.of_samples(self.programs),
            lossy=lossy,
            shared=shared,
            event=event,
            lockstep=lockstep,
            bus=on_bus,
            merges=merges,
        )

    def go(self, job: Job, x: np.ndarray, result: Result, state: State) -> None:
        """Simulate the job's hardware steps of x int32[b, step, input line], as many as `result.steps` has rows."""
        neurons, steps, probes = result
        x = np.ascontiguousarray(x)
        if self.waits:
            neighbors.go(self, job, x, result, state)
            return
        code = run_samples(self.plan, job, *state, probes, neurons, steps, x)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code in (STUCK, TOO_LONG):
            outbox = state.cores.work.outbox
            raise stopped(self.program, code, steps.stopped, self.axons.axons, outbox, state.link_flits)

    def states(self, names: list[str], records: list[tuple]) -> dict[str, dict[str, np.ndarray]]:
        """The states [B, T, *shape] of layers in the (u, v, words) of consecutive samples, as NeuronRecord has them."""
        program, network = self.program, self.program.network
        u, v, words = zip(*records, strict=True)
        of_u, of_v = (layers_of(program, names, list(parts)) for parts in (u, v))
        states = {name: {"u": of_u[name], "v": of_v[name]} for name in names}
        for name in (name for name in names if name in network.programs):
            node, first = network.node(name), network.offsets[name] - count_lines(network)
            values = tables.program_states(self.programs, node, np.concatenate(words), first)
            states[name] = {state: x.reshape(*x.shape[:2], *node.shape) for state, x in values.items()}
        return states

    def ends(self) -> Ends:
        """Where the messages of a profile come from and go to."""
        core_of, routes = self.program.core_of, io_routes(self.program)
        site = self.axons.sites.site
        return Ends(
            network=self.program.network,
            site=site,
            source=np.where(core_of < 0, -1, site[core_of]),
            entry=None if routes is None else routes[0].site,
        )

    def measured(self, counters: dict, flits: np.ndarray, cycles: np.ndarray, n_barriers: int, notes) -> dict:
        """What a Run says of time and energy; `n_barriers` belong to each row, `notes` are the Probes or None."""
        chip, program = self.chip, self.program
        fields: dict[str, Any] = {"link_flits": flits}
        if chip.gives_times:
            fields["step_cycles"] = cycles + n_barriers * chip.barrier_cycles(program.mapping.n_tiles)
            fields["seconds"] = float(fields["step_cycles"].sum() * chip.core.cycle_ns * 1e-9)
        steps = step_energy_pj(counters, chip, flits, fields.get("step_cycles"))
        fields |= {"step_energy_pj": steps, "energy_pj": energy_pj(steps)}
        net = self.mesh or self.bus
        if notes is not None and net is not None:
            n_ticks = int(cycles.sum()) * chip.ticks[0]
            fields["profile"] = profile(net, notes, flits, self.ends(), n_ticks)
        return fields
