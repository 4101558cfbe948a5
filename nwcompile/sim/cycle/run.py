"""The cycle backend: cores and a flit-by-flit network on chip, simulated by events or in lockstep, with times."""

from typing import Any, NamedTuple

import numpy as np

from nwcompile.cost.family import find_cost
from nwcompile.cost.neuron_program import chip_instructions
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.ir.flat import count_lines, csr_offset
from nwcompile.ir.program import Program
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
    Job,
    LossyDelivery,
    NeuronRecord,
    Plan,
    SpikingNet,
    StepRecord,
    run_samples,
)
from nwcompile.sim.cycle.engine import find_engine
from nwcompile.sim.cycle.overload import explain_stop, longest_step, loses_messages
from nwcompile.sim.cycle.profile import Ends, probes_for
from nwcompile.sim.machine import layer_offsets
from nwcompile.sim.sequence import tables
from nwcompile.sim.values import MAX_REPEATED_SPIKES, verify_counts

ERROR_CODE = "NW6104"


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
    network: Any  # of a type of kernels.cycle.ENGINES


class ChipRun:
    """The constant tables of a program on its chip, and the functions that simulate samples with them."""

    def __init__(self, program: Program, n_steps: int, n_hardware: int, window: str):
        jit.wait_for(jit.CYCLE)
        self.program, self.chip, self.n_hardware = program, program.chip, n_hardware
        network, chip = program.network, program.chip
        self.engine = find_engine(chip)(program)
        self.axons = self.engine.axons
        self.costs = self._build_costs()
        self.waits = not chip.family.has_barrier
        self.is_in_lockstep = self.engine.fits_lockstep(self.costs)
        self.neurons = tables.neuron_tables(network, network.layers)
        self.programs = tables.program_tables(network, network.layers)
        self.pool = find_cost(chip).pool_times(program)
        self.synapses = tables.synapse_tables(network, program.schedule.clip_delays(n_hardware), program.mapping)
        steps_late = [program.schedule.steps_late(n, network.node(n).n_neurons) for n in network.offsets]
        self.late = np.concatenate(steps_late) if program.schedule.stagger else np.zeros(0, np.int64)
        by_message = self.costs.drops or self.waits
        self.members = tables.member_tables(network, program.mapping) if by_message else None
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
            **longest_step(self.program, self.engine.slowest_hop, self.axons.axons),
        )

    def _build_plan(self, n_steps: int, window: str) -> Plan:
        program, network = self.program, self.program.network
        n_inputs = int(np.count_nonzero(program.core_of < 0))
        nodes = [network.node(n) for n in network.layers]
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
            offset=program.schedule.first_steps(nodes),
            instructions=np.concatenate(n_instructions),
            first=csr_offset(counts),
            neuron=program.visiting_order,
            interrupted=np.zeros(1, bool),
        )

    def verify_spikes(self, record: NeuronRecord, first_sample: int, first_step: int = 0) -> None:
        """Raise ModelError if a neuron fires more often at once than a message can carry.

        `first_sample`, `first_step`: numbers of the first sample and hardware step of the record.
        """
        program = self.program
        spikes = self.split_layers(program.network.layers, record.spikes)
        late = layer_offsets(program.schedule, "aligned" if self.plan.is_aligned else "hardware")
        verify_counts(program.network, self.chip, program.on_multi_spike, spikes, first_sample, first_step, late)

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
        probes = None
        if flight_steps is not None:
            probes = probes_for(self.engine, n_rows, n_cores, n_sites, flight_steps, self.chip.ticks[0])
        return Result(neurons, self.step_record(n_rows), probes)

    def step_record(self, n_rows: int) -> StepRecord:
        """Allocate the record of `n_rows` hardware steps."""
        n_cores, n_sites = self.program.mapping.n_cores, self.axons.axons.n_sites
        return StepRecord(
            received=np.zeros((n_rows, n_sites, N_COUNTS_LOST if self.costs.drops else N_COUNTS), np.int64),
            sent=np.zeros((n_rows, n_cores, N_SENT), np.int64),
            cycles=np.zeros(n_rows, np.int64),
            flits=np.zeros((n_rows, len(self.chip.link_cycles)), np.int64),
            sums=np.zeros((n_rows, self.engine.n_sums), np.int64),
            peaks=np.zeros((n_rows, self.engine.n_peaks), np.int64),
            stopped=np.zeros(2, np.int64),
        )

    def empty_drive(self) -> Drive:
        """Return an empty buffer of synaptic sums in flight."""
        longest = int(self.synapses.connection["delay"].max(initial=1)) + int(self.late.max(initial=0))
        return tables.empty_drive(longest + 1, self.synapses)

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
        lossy, shared = None, self.axons.shared
        if shared is not None:
            shared = shared._replace(last_set=shared.last_set.copy(), last_heard=shared.last_heard.copy())
        if self.costs.drops:
            assert self.members is not None, "chips that drop messages count them one by one"
            lossy = LossyDelivery(self.members, self.axons.fan_out.sent, np.zeros(n_sources, np.int64))
        return State(
            cores=ChipCores(
                tables=core_tables, pool=self.pool, times=times, fan_out=self.axons.fan_out, io=self.axons.io, work=work
            ),
            net=SpikingNet(
                self.neurons, self.synapses, tables.resting_states(n_neurons), self.empty_drive(), self.late
            ),
            programs=tables.copy_programs(self.programs),
            lossy=lossy,
            shared=shared,
            network=self.engine.idle_network(self.is_in_lockstep and not is_profiled, n_logged),
        )

    def run_job(self, job: Job, x: np.ndarray, result: Result, state: State) -> None:
        """Simulate the job on x int32[b, step, input line], as many hardware steps as `result.steps` has rows."""
        neurons, steps, probes = result
        x = np.ascontiguousarray(x)
        if self.engine.run_steps is not None:
            self.engine.run_steps(self, job, x, result, state)
            return
        code = run_samples(self.plan, job, *state, probes, neurons, steps, x)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code in (STUCK, TOO_LONG):
            outbox = state.cores.work.outbox
            raise explain_stop(self.program, code, steps.stopped, self.axons.axons, outbox, state.network.flits)

    def join_inputs(self, inputs: dict[str, np.ndarray], n_samples: int) -> np.ndarray:
        """Return int32[b, step, input line] of inputs [b, step, *shape] by name."""
        nodes = self.program.network.inputs
        n_steps = next((inputs[name].shape[1] for name in nodes), 0)
        lines = [inputs[name].reshape(n_samples, n_steps, node.n_neurons) for name, node in nodes.items()]
        return np.concatenate([*lines, np.zeros((n_samples, n_steps, 0), np.int32)], 2)

    def split_layers(self, names, array: np.ndarray) -> dict[str, np.ndarray]:
        """Return views [b, step, *shape] of an array [b, step, neuron] by layer."""
        network, n_lines = self.program.network, count_lines(self.program.network)
        nodes = {name: (network.node(name), network.offsets[name] - n_lines) for name in names}
        return {
            name: array[:, :, first : first + node.n_neurons].reshape(*array.shape[:2], *node.shape)
            for name, (node, first) in nodes.items()
        }

    def named_states(self, names: list[str], record: NeuronRecord) -> dict[str, dict[str, np.ndarray]]:
        """Return the states [b, step, *shape] of layers by name."""
        network, states = self.program.network, {}
        for name in names:
            if name not in network.programs:
                of_kind = {"u": record.u, "v": record.v}
                states[name] = {state: self.split_layers([name], a)[name] for state, a in of_kind.items()}
                continue
            node, first = network.node(name), network.offsets[name] - count_lines(network)
            values = tables.program_states(self.programs, node, record.words, first)
            states[name] = {state: a.reshape(*a.shape[:2], *node.shape) for state, a in values.items()}
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
