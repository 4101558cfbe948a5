"""The cycle backend: cores and a flit-by-flit network on chip, simulated by events or in lockstep, with times."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nwcompile.checkpoint import has_checkpoint
from nwcompile.cost.basis import find_basis
from nwcompile.cost.energy import energy_pj, step_energy_pj
from nwcompile.cost.neuron_program import chip_instructions
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
    StepTimes,
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
from nwcompile.sim.cycle.axons import build_axon_tables
from nwcompile.sim.cycle.bus import build_bus, bus_network, collect_schedule
from nwcompile.sim.cycle.kept import run_with_checkpoint
from nwcompile.sim.cycle.lockstep import cores_fit_lockstep, lockstep_network
from nwcompile.sim.cycle.merges import merge_network, verify_packets
from nwcompile.sim.cycle.noc_tables import add_trees, build_mesh, build_queues
from nwcompile.sim.cycle.overload import explain_stop, longest_step, loses_messages, take_losses
from nwcompile.sim.cycle.profile import Ends, build_profile, probes_for
from nwcompile.sim.reference.run import finish_run
from nwcompile.sim.sequence import tables
from nwcompile.sim.values import MAX_REPEATED_SPIKES, verify_counts
from nwcompile.threads import n_threads, over_samples, over_steps

ERROR_CODE = "NW6104"
# Counters of a Run in the column order of the kernels: counters of the receive side, and of the send side.
RECEIVED = ("synops_dense", "synops_sparse", "synops_conv", "synops", "weight_reads", "messages_in",
            "messages_io_in")  # fmt: skip
SENT = ("neuron_visits", "neuron_updates", "neuron_instructions", "spikes_out", "messages_out", "hops_ew", "hops_ns",
        "messages_io_out")  # fmt: skip


def run_program(
    program: Program, inputs: dict, n_steps: int, keep_states: bool, window: str, flight_steps: int | None = None
) -> Run:
    """Simulate a program on its chip; `inputs[name]` is int32 `[B, T, *shape]`. Raises BackendError if stuck.

    With `flight_steps` the Run has a Profile, with the flits in flight in the first `flight_steps` steps.
    """
    network, schedule = program.network, program.schedule
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    n_hardware = schedule.n_hardware_steps(n_steps, window)
    lines = [inputs[n].reshape(n_samples, n_steps, -1) for n in network.inputs]
    x = np.concatenate([*lines, np.zeros((n_samples, n_steps, 0), np.int32)], 2)
    chip_run = ChipRun(program, n_steps, n_hardware, window)
    keep = keep_states or any(not network.node(n).neuron.fires for n in network.layers)
    notes = None
    if has_checkpoint():
        records, steps = run_with_checkpoint(chip_run, x, keep)
    else:
        results = chip_run.run_some(x, slice(0, len(x)), keep, flight_steps)
        records, steps = [r.neurons for r in results], [r.steps for r in results]
        notes = None if flight_steps is None else [r.probes for r in results]
    spikes = split_spikes(program, [r.spikes for r in records])
    kept = [name for name in network.layers if keep_states or not network.node(name).neuron.fires]
    states = chip_run.collect_states(kept, [(r.u, r.v, r.words) for r in records])
    received: Any = sum(s.received for s in steps)
    sent: Any = sum(s.sent for s in steps)
    flits: Any = sum(s.flits for s in steps)
    cycles: Any = sum(s.cycles for s in steps)
    counters = named_counters(program, received, sent)
    add_tokens(program, counters, n_samples)
    dropped = take_losses(program, received, counters)
    if chip_run.waits:
        flits = neighbors.flits_by_step(program, inputs, spikes, window, flits)
    measured = chip_run.measured_fields(counters, flits, cycles, n_samples * schedule.period, notes)
    if program.chip.is_bus:
        measured["bus"] = collect_schedule([s.bus for s in steps])
    return finish_run(program, "cycle", "cpu", window, spikes, states, inputs, counters, dropped=dropped, **measured)


def named_counters(program: Program, received: np.ndarray, sent: np.ndarray) -> dict[str, np.ndarray]:
    """Build a Run's counters int64[H, core] from int64[H, core and io site, RECEIVED] and int64[H, core, SENT]."""
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


def split_spikes(program: Program, parts: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Split spikes by layer (`split_layers`), in the spike type of each layer."""
    network = program.network
    types = {name: network.node(name).neuron.spike_dtype for name in network.layers}
    return split_layers(program, network.layers, parts, types)


def split_layers(program: Program, names, parts: list[np.ndarray], types: dict | None = None) -> dict[str, np.ndarray]:
    """Split arrays [b, T, neuron] of consecutive samples into arrays [B, T, *shape] of these layers.

    `types`: number type of each layer; default: the type of the arrays.
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
    """Records of some samples, or of some of their steps."""

    neurons: NeuronRecord
    steps: StepRecord
    probes: Probes | None  # None without a profile


class State(NamedTuple):
    """Everything that changes while samples run: queues, messages, cores, neurons, sums in flight."""

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
    """The constant tables of a program on its chip, and the functions that simulate samples with them."""

    def __init__(self, program: Program, n_steps: int, n_hardware: int, window: str):
        jit.wait_for_others()
        self.program, self.chip, self.n_hardware = program, program.chip, n_hardware
        network, chip = program.network, program.chip
        trees = multicast_trees(program) if chip.noc.multicast == "tree" else None
        self.axons, self.tokens = build_axon_tables(program, trees), None
        if chip.waits_for_neighbors:
            self.axons, self.tokens = neighbors.append_tokens(program, self.axons)
        self.mesh, self.bus = None, None
        if chip.has_merges:
            verify_packets(program, self.axons.fan_out)
        elif chip.is_bus:
            self.bus = build_bus(chip, self.axons.sites.site, chip.ticks[1])
        else:
            mesh = build_mesh(chip, chip.ticks[1])
            self.mesh = mesh if trees is None else add_trees(mesh, trees.trees)
        self.costs = self._build_costs()
        self.waits = chip.waits_for_neighbors
        self.is_in_lockstep = (
            self.mesh is not None and not self.waits and cores_fit_lockstep(self.mesh, self.axons.axons, self.costs)
        )
        self.neurons = tables.neuron_tables(network, network.layers)
        self.programs = tables.program_tables(network, network.layers)
        self.pool = pool_times(program)
        self.synapses = tables.synapse_tables(network, program.schedule.clip_delays(n_hardware), program.mapping)
        by_message = self.costs.drops or self.waits
        self.members = tables.member_tables(network, program.mapping, program.core_of) if by_message else None
        self.plan = self._build_plan(n_steps, window)

    def _build_costs(self) -> Costs:
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

    def _build_plan(self, n_steps: int, window: str) -> Plan:
        program, network = self.program, self.program.network
        n_inputs = int(np.count_nonzero(program.core_of < 0))
        nodes = [network.node(n) for n in network.layers]
        offset = [np.full(node.n_neurons, program.schedule.offset[node.name]) for node in nodes]
        n_instructions = [np.full(node.n_neurons, chip_instructions(self.chip, node.neuron)) for node in nodes]
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
        """Simulate some samples on all cores of the machine; return the Results of consecutive samples.

        Fewer samples than cores are parallelized over steps, if possible (`shares_steps`) and not profiled.
        """
        first, n_samples = some.start, some.stop - some.start
        if flight_steps is None and self.shares_steps(n_samples):
            try:
                return self.run_steps(x[some], keep, first)
            except (BackendError, ModelError):  # a sequential run names the first step that fails
                pass

        def run_one_part(part: slice) -> Result:
            return self.run_part(x, slice(first + part.start, first + part.stop), keep, flight_steps)

        return over_samples(n_samples, run_one_part, self.plan.interrupted)

    def run_part(self, x: np.ndarray, part: slice, keep: bool, flight_steps: int | None) -> Result:
        """Simulate some of the samples. Raises ModelError if a neuron spikes more often than a message can carry."""
        result = self.empty_result((part.stop - part.start, self.plan.n_steps), self.n_hardware, keep, flight_steps)
        self.run_job(
            self.build_job(first_sample=part.start), x[part], result, self.idle_state(flight_steps is not None)
        )
        self.verify_spikes(result.neurons, part.start)
        return result

    def shares_steps(self, n_samples: int) -> bool:
        """Whether `run_shared` pays off and applies: few samples, no lost messages, and all steps end together."""
        return n_samples < n_threads() and not self.costs.drops and not self.waits

    def run_steps(self, x: np.ndarray, keep: bool, first_sample: int = 0) -> list[Result]:
        """Simulate the samples in parallel over their steps. `first_sample`: number of the first one in errors."""
        shape = (1, self.plan.n_steps)
        results = [self.empty_result(shape, self.n_hardware, keep, None, is_shared=True) for _ in x]
        self.run_shared(x, results, [self.idle_state() for _ in x], first_sample)
        for b, result in enumerate(results):
            self.verify_spikes(result.neurons, first_sample + b)
        return results

    def run_shared(
        self, x: np.ndarray, results: list[Result], computing: list[State], first_sample: int, first_step: int = 0
    ) -> None:
        """Simulate the steps that each result has rows for: one thread computes the neurons, all move the messages.

        `computing`: state with the neurons of each sample.
        """
        idle: list = []

        def run_rows(b: int, steps: slice, state: State, computes: bool) -> None:
            r, now = results[b], slice(first_step + steps.start, first_step + steps.stop)
            rows = {name: getattr(r.steps, name)[steps] for name in ("received", "sent", "cycles", "flits", "bus")}
            neurons = r.neurons._replace(updated=r.neurons.updated[:, steps])
            job = self.build_job(
                first_sample=first_sample + b, first_step=now.start, computes=computes, moves=not computes
            )
            self.run_job(job, x[b : b + 1, now], Result(neurons, r.steps._replace(**rows), None), state)

        def move(b: int, steps: slice) -> None:
            try:
                state = idle.pop()
            except IndexError:
                state = self.idle_state()
            run_rows(b, steps, state, False)
            idle.append(state)

        n_rows = len(results[0].steps.cycles)
        over_steps(len(x), n_rows, lambda b, steps: run_rows(b, steps, computing[b], True), move, self.plan.interrupted)

    def verify_spikes(self, record: NeuronRecord, first_sample: int, first_step: int = 0) -> None:
        """Raise ModelError if a neuron fires more often at once than a message can carry.

        `first_sample`, `first_step`: numbers of the first sample and step of the record.
        """
        if self.plan.repeats:
            program = self.program
            spikes = split_layers(program, program.network.layers, [record.spikes])
            first = dict.fromkeys(spikes, first_step)
            verify_counts(program.network, self.chip, program.on_multi_spike, spikes, first_sample, first)

    def build_job(
        self,
        first_sample: int = 0,
        first_step: int = 0,
        by_hardware: bool = False,
        computes: bool = True,
        moves: bool = True,
    ) -> Job:
        """Build the job of one kernel call; by default it computes neurons and moves messages."""
        return Job(first_sample, first_step, by_hardware, computes=computes, moves=moves)

    def empty_result(
        self, shape: tuple[int, int], n_rows: int, keep: bool, flight_steps: int | None, is_shared: bool = False
    ) -> Result:
        """Allocate records of `shape` samples and steps, with states if `keep`, and of `n_rows` hardware steps.

        With `flight_steps` there are probes. `is_shared`: one thread computes neurons, others move their messages.
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
        """Allocate the record of `n_rows` hardware steps."""
        n_cores, n_sites = self.program.mapping.n_cores, self.axons.axons.n_sites
        return StepRecord(
            received=np.zeros((n_rows, n_sites, N_COUNTS_LOST if self.costs.drops else N_COUNTS), np.int64),
            sent=np.zeros((n_rows, n_cores, N_SENT), np.int64),
            cycles=np.zeros(n_rows, np.int64),
            flits=np.zeros((n_rows, len(self.chip.link_cycles)), np.int64),
            bus=np.zeros((n_rows, bus.N_COUNTS), np.int64),
            stopped=np.zeros(2, np.int64),
        )

    def empty_drive(self) -> Drive:
        """Return an empty buffer of synaptic sums in flight."""
        return tables.empty_drive(int(self.synapses.connection["delay"].max(initial=1)) + 1, len(self.program.core_of))

    def idle_state(self, is_profiled: bool = False, n_logged: int = 0) -> State:
        """Build an idle chip, in lockstep if supported and not profiled. Merges log up to `n_logged` packets."""
        n_sites, n_axons = self.axons.axons.n_sites, len(self.axons.axons.row)
        n_sources, n_neurons = len(self.program.core_of), len(self.neurons.rule_of)
        work = CoreWork(
            outbox=Outbox(
                message=np.zeros(n_axons, MESSAGE),
                first=np.zeros(n_sites + 1, np.int64),
                tail=np.zeros(n_sites, np.int64),
            ),
            inputs=InputQueue(
                first=np.zeros(n_sites, np.int64), after=np.zeros(n_axons, np.int64), left=np.zeros(n_axons, np.int64)
            ),
            core=np.zeros(n_sites, CORE),
        )
        times = StepTimes(self.chip.min_work_cycles(self.program.mapping.n_tiles), self.chip.sample_cycles)
        core_tables = CoreTables(self.axons.axons, self.axons.sites, self.costs)
        lossy = event = lockstep = on_bus = merges = None
        shared = self.axons.shared
        if shared is not None:
            shared = shared._replace(last_set=shared.last_set.copy(), last_heard=shared.last_heard.copy())
        if self.costs.drops:
            assert self.members is not None, "chips that drop messages count them one by one"
            lossy = LossyDelivery(self.members, self.axons.fan_out.sent, np.zeros(n_sources, np.int64))
        if self.bus is not None:
            on_bus = bus_network(self.bus, len(self.chip.link_cycles))
        elif self.mesh is None:
            merges = merge_network(self.chip, n_axons, n_logged)
        elif self.is_in_lockstep and not is_profiled:
            lockstep = lockstep_network(self.mesh, n_axons)
        else:
            event = EventNetwork(self.mesh, build_queues(self.mesh))
        return State(
            cores=ChipCores(
                tables=core_tables,
                pool=self.pool,
                times=times,
                fan_out=self.axons.fan_out,
                io=self.axons.io,
                work=work,
            ),
            net=SpikingNet(self.neurons, self.synapses, tables.resting_states(n_neurons), self.empty_drive()),
            programs=tables.copy_programs(self.programs),
            lossy=lossy,
            shared=shared,
            event=event,
            lockstep=lockstep,
            bus=on_bus,
            merges=merges,
        )

    def run_job(self, job: Job, x: np.ndarray, result: Result, state: State) -> None:
        """Simulate the job on x int32[b, step, input line], as many hardware steps as `result.steps` has rows."""
        neurons, steps, probes = result
        x = np.ascontiguousarray(x)
        if self.waits:
            neighbors.run_with_neighbors(self, job, x, result, state)
            return
        code = run_samples(self.plan, job, *state, probes, neurons, steps, x)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code in (STUCK, TOO_LONG):
            outbox = state.cores.work.outbox
            raise explain_stop(self.program, code, steps.stopped, self.axons.axons, outbox, state.link_flits)

    def collect_states(self, names: list[str], records: list[tuple]) -> dict[str, dict[str, np.ndarray]]:
        """Return the states [B, T, *shape] of layers from (u, v, words) of consecutive samples, as in NeuronRecord."""
        program, network = self.program, self.program.network
        u, v, words = zip(*records, strict=True)
        of_u, of_v = (split_layers(program, names, list(parts)) for parts in (u, v))
        states = {name: {"u": of_u[name], "v": of_v[name]} for name in names}
        for name in (name for name in names if name in network.programs):
            node, first = network.node(name), network.offsets[name] - count_lines(network)
            values = tables.program_states(self.programs, node, np.concatenate(words), first)
            states[name] = {state: x.reshape(*x.shape[:2], *node.shape) for state, x in values.items()}
        return states

    def message_ends(self) -> Ends:
        """Return the ends of messages for a profile."""
        core_of, routes = self.program.core_of, io_routes(self.program)
        site = self.axons.sites.site
        return Ends(
            network=self.program.network,
            site=site,
            source=np.where(core_of < 0, -1, site[core_of]),
            entry=None if routes is None else routes[0].site,
        )

    def measured_fields(self, counters: dict, flits: np.ndarray, cycles: np.ndarray, n_barriers: int, notes) -> dict:
        """Return the Run's fields on time and energy. `n_barriers`: barriers per row. `notes`: the Probes, or None."""
        chip, program = self.chip, self.program
        fields: dict[str, Any] = {"link_flits": flits, "find_basis": partial(find_basis, program)}
        if chip.gives_times:
            fields["step_cycles"] = cycles + n_barriers * chip.barrier_cycles(program.mapping.n_tiles)
            fields["seconds"] = float(fields["step_cycles"].sum() * chip.core.cycle_ns * 1e-9)
        steps = step_energy_pj(counters, chip, flits, fields.get("step_cycles"))
        fields |= {"step_energy_pj": steps, "energy_pj": energy_pj(steps)}
        net = self.mesh or self.bus
        if notes is not None and net is not None:
            n_ticks = int(cycles.sum()) * chip.ticks[0]
            fields["profile"] = build_profile(net, notes, flits, self.message_ends(), n_ticks)
        return fields
