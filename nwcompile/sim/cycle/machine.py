"""The cycle backend as a Machine: its samples are spread over threads, or the steps of few samples are.

The network on chip is empty between two steps, so the state of a sample is the state of its neurons.
"""

from collections.abc import Iterator
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from nwcompile.cost.basis import find_basis
from nwcompile.cost.energy import energy_pj, step_energy_pj
from nwcompile.cost.family import find_cost
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import BackendError, ModelError
from nwcompile.ir.program import Program
from nwcompile.kernels.cores.probes import Probes
from nwcompile.kernels.cycle import NeuronRecord, StepRecord
from nwcompile.sim.cycle.overload import take_losses
from nwcompile.sim.cycle.profile import build_profile
from nwcompile.sim.cycle.run import ChipRun, Result, State
from nwcompile.sim.machine import NO_END, Rows, build_activity, count_samples, layer_offsets, recorded_layers
from nwcompile.sim.sequence import tables
from nwcompile.threads import n_threads, over_samples, over_steps

SUMMED = ("received", "sent", "cycles", "flits", "sums")  # Fields of StepRecord that are sums.
# Counters of a Run in the column order of the kernels: counters of the receive side, and of the send side.
RECEIVED = ("synops_dense", "synops_sparse", "synops_conv", "synops", "weight_reads", "messages_in",
            "messages_io_in")  # fmt: skip
SENT = ("neuron_visits", "neuron_updates", "neuron_instructions", "spikes_out", "messages_out", "hops_ew", "hops_ns",
        "messages_io_out")  # fmt: skip


class Samples:
    """Samples between two steps: the states of their neurons, and idle chips, at most one per thread."""

    def __init__(self, chip_run: ChipRun, n_samples: int, first_sample: int = 0):
        self.chip_run, self.n_samples, self.first_sample = chip_run, n_samples, first_sample
        self.idle: list[State] = []
        self._neurons: tables.SimState | None = None
        self._lock = Lock()

    @property
    def neurons(self) -> tables.SimState:
        """States of the neurons, built when they are first needed; a run of all steps at once needs none."""
        with self._lock:  # Threads must not build two.
            if self._neurons is None:
                run = self.chip_run
                n_neurons = len(run.neurons.rule_of)
                self._neurons = tables.initial_state(self.n_samples, n_neurons, run.empty_drive(), run.programs)
            return self._neurons

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, except its number."""
        return self.neurons.arrays

    def load_chip(self, b: int) -> State:
        """Return an idle chip that holds the neurons of sample b and updates them in place."""
        try:
            chip = self.idle.pop()
        except IndexError:
            chip = self.chip_run.idle_state()
            nothing = self.chip_run.empty_result((1, 0), 0, False, None)
            no_step = np.zeros((1, 0, self.chip_run.plan.n_inputs), np.int32)
            self.chip_run.run_job(self.chip_run.build_job(), no_step, nothing, chip)  # clears the chip
        states, drive, programs = self.neurons.sample_state(b, self.chip_run.programs)
        assert drive is not None, "all neurons of a chip have sums on their way"
        return chip._replace(net=chip.net._replace(states=states, drive=drive), programs=programs)


class CycleMachine:
    """A program on its chip. Its rows are hardware steps; its counts are the fields of a StepRecord.

    With `flight_steps` it is profiled: all steps of a run are simulated at once.
    """

    backend, device = "cycle", "cpu"

    def __init__(
        self,
        program: Program,
        keep_states: bool,
        window: str,
        n_steps: int | None = None,
        flight_steps: int | None = None,
    ):
        self.model, self.window, self.flight_steps = program, window, flight_steps
        self.n_rows = NO_END if n_steps is None else program.schedule.n_hardware_steps(n_steps, window)
        self.chip_run = ChipRun(program, n_steps or NO_END, self.n_rows, window)
        # If cores wait only for their neighbors, no step ends for all cores at once.
        self.least_rows = self.n_rows if self.chip_run.waits else 1
        self.recorded = recorded_layers(program.network, keep_states)
        self.late = layer_offsets(program.schedule, window)
        self.probes: list[Probes] = []  # of consecutive samples, if profiled

    def start(self, n_samples: int, first_sample: int = 0) -> Samples:
        """Return the state of samples before their first step."""
        return Samples(self.chip_run, n_samples, first_sample)

    def samples_at_once(self, n_samples: int) -> int:
        """All samples are simulated together."""
        return n_samples

    def empty_counts(self, n_rows: int) -> dict[str, np.ndarray]:
        """Allocate the counts of `n_rows` steps."""
        return named_counts(self.chip_run.step_record(n_rows))

    def advance(self, state: Samples, inputs: dict, rows: slice, n_steps: int | None) -> Rows:
        """Simulate hardware steps with inputs [B, row, *shape].

        Raises BackendError if a step does not end, and ModelError if a neuron fires more often at once than a message
        can carry.
        """
        run, n_rows = self.chip_run, rows.stop - rows.start
        run.plan = run.plan._replace(n_steps=NO_END if n_steps is None else n_steps)
        x = run.join_inputs(inputs, state.n_samples)
        shape = (state.n_samples, n_rows)
        result = run.empty_result(shape, n_rows, bool(self.recorded), None)
        if self._shares_steps(state.n_samples):
            before = {name: a.copy() for name, a in state.arrays.items()}
            try:
                self._share_steps(state, rows.start, x, result)
                return self._split_layers(result)
            except (BackendError, ModelError):  # a sequential run names the first step that fails
                result = run.empty_result(shape, n_rows, bool(self.recorded), None)
                for name, a in state.arrays.items():
                    a[...] = before[name]
        parts = over_samples(
            state.n_samples, lambda part: self._run_part(state, part, rows, x, result.neurons), run.plan.interrupted
        )
        for part in parts:
            add_steps(result.steps, part.steps)
        self.probes = [part.probes for part in parts if part.probes is not None]
        return self._split_layers(result)

    def _run_part(self, state: Samples, part: slice, rows: slice, x: np.ndarray, record: NeuronRecord) -> Result:
        """Simulate steps of some samples, one sample after the other; return their records."""
        run, n_rows = self.chip_run, rows.stop - rows.start
        done = run.empty_result((0, 0), n_rows, False, self.flight_steps)
        for some, chip in self._load_chips(state, part, rows):
            neurons = NeuronRecord(*(a[some] for a in record))
            sample = state.first_sample + some.start
            job = run.build_job(first_sample=sample, first_step=rows.start, by_hardware=True)
            run.run_job(job, x[some], done._replace(neurons=neurons), chip)
            if run.plan.repeats:  # the kernel stops there
                run.verify_spikes(neurons, sample, rows.start)
        return done

    def _load_chips(self, state: Samples, part: slice, rows: slice) -> Iterator[tuple[slice, State]]:
        """Yield each sample with a chip that holds its neurons; for all rows of a run, all samples with one chip."""
        if rows == slice(0, self.n_rows):  # the kernel clears the chip before each sample
            yield part, self.chip_run.idle_state(self.flight_steps is not None)
            return
        for b in range(part.start, part.stop):
            chip = state.load_chip(b)
            yield slice(b, b + 1), chip
            state.idle.append(chip)

    def _shares_steps(self, n_samples: int) -> bool:
        """Whether `_share_steps` pays off and applies: few samples, no lost messages, and all steps end together."""
        run, is_run = self.chip_run, self.n_rows != NO_END and self.flight_steps is None
        return is_run and n_samples < n_threads() and not run.costs.drops and not run.waits

    def _share_steps(self, state: Samples, first_step: int, x: np.ndarray, record: Result) -> None:
        """Simulate steps in parallel: for each sample one thread computes the neurons, all move the messages."""
        run, (n_samples, n_rows) = self.chip_run, record.neurons.spikes.shape[:2]
        computing = [state.load_chip(b) for b in range(n_samples)]
        updated, idle = (1, n_rows, len(run.neurons.rule_of)), list[State]()
        results = []
        for b in range(n_samples):
            neurons = NeuronRecord(*(a[b : b + 1] for a in record.neurons))._replace(updated=np.zeros(updated, bool))
            results.append(Result(neurons, run.step_record(n_rows), None))

        def run_rows(b: int, rows: slice, chip: State, computes: bool) -> None:
            of_rows = {name: getattr(results[b].steps, name)[rows] for name in (*SUMMED, "peaks")}
            neurons = NeuronRecord(*(a[:, rows] for a in results[b].neurons))
            job = run.build_job(state.first_sample + b, first_step + rows.start, True, computes, not computes)
            run.run_job(job, x[b : b + 1, rows], Result(neurons, results[b].steps._replace(**of_rows), None), chip)

        def move(b: int, rows: slice) -> None:
            try:
                chip = idle.pop()
            except IndexError:
                chip = run.idle_state()
            run_rows(b, rows, chip, False)
            idle.append(chip)

        over_steps(n_samples, n_rows, lambda b, rows: run_rows(b, rows, computing[b], True), move, run.plan.interrupted)
        for b, result in enumerate(results):
            if run.plan.repeats:
                run.verify_spikes(result.neurons, state.first_sample + b, first_step)
            add_steps(record.steps, result.steps)
        state.idle += computing

    def _split_layers(self, result: Result) -> Rows:
        """Return the records by layer."""
        neurons, run = result.neurons, self.chip_run
        spikes = run.split_layers(self.model.network.layers, neurons.spikes)
        return Rows(spikes, run.named_states(self.recorded, neurons), named_counts(result.steps))

    def measure(self, inputs: dict, rows: Rows, window: str) -> dict[str, Any]:
        """Return counters, lost messages, flits, times and energies, and the profile of a profiled run."""
        counts, n_samples = rows.counts, count_samples(rows.spikes)
        if self.chip_run.waits:  # flits by the step of their message, even if other cores were already in later steps
            flits = link_flits(self.model, build_activity(self.model, inputs, rows.spikes), window)
            assert (flits.sum(0) == counts["flits"].sum(0)).all(), "every flit takes the links of its route"
            counts = counts | {"flits": flits}
        return measure_counts(self.chip_run, counts, n_samples, n_samples * self.model.schedule.period, self.probes)


def named_counts(steps: StepRecord) -> dict[str, np.ndarray]:
    """Return the fields of a StepRecord by name."""
    return {name: getattr(steps, name) for name in (*SUMMED, "peaks")}


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


def measure_counts(
    run: ChipRun, counts: dict[str, np.ndarray], n_samples: int, n_barriers: int, probes: list[Probes]
) -> dict[str, Any]:
    """Return the Run's fields on counts, times and energies. `n_barriers`: barriers per row; `probes`: of a profile."""
    chip, program, flits, cycles = run.chip, run.program, counts["flits"], counts["cycles"]
    counters = named_counters(program, counts["received"], counts["sent"])
    find_cost(chip).add_tokens(program, counters, n_samples)
    fields: dict[str, Any] = {"link_flits": flits, "find_basis": partial(find_basis, program)}
    fields["dropped"] = take_losses(program, counts["received"], counters)
    fields |= run.engine.name_counts(counts["sums"], counts["peaks"])
    if chip.gives_times:
        fields["step_cycles"] = cycles + n_barriers * chip.barrier_cycles(program.mapping.n_tiles)
        fields["seconds"] = float(fields["step_cycles"].sum() * chip.core.cycle_ns * 1e-9)
    steps = step_energy_pj(counters, chip, flits, fields.get("step_cycles"))
    if probes:
        n_ticks = int(cycles.sum()) * chip.ticks[0]
        fields["profile"] = build_profile(run.engine, probes, flits, run.message_ends(), n_ticks)
    return fields | {"counters": counters, "step_energy_pj": steps, "energy_pj": energy_pj(steps)}


def add_steps(record: StepRecord, done: StepRecord) -> None:
    """Add the record of some samples; peaks are maxima."""
    for name in SUMMED:
        getattr(record, name)[...] += getattr(done, name)
    np.maximum(record.peaks, done.peaks, out=record.peaks)


def sum_steps(steps: StepRecord) -> StepRecord:
    """Sum a StepRecord over its steps; peaks are maxima."""
    of_all = {name: getattr(steps, name).sum(0, keepdims=True) for name in SUMMED}
    return steps._replace(peaks=steps.peaks.max(0, keepdims=True), **of_all)
