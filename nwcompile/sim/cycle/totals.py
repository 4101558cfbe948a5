"""The cycle backend with `record="totals"`: only sums over the steps are kept, so the memory is constant."""

import numpy as np

from nwcompile.checkpoint import Pace, Steps, has_checkpoint, in_parts
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run, Totals
from nwcompile.kernels.cycle import Job
from nwcompile.sim.cycle.bus import collect_schedule, sum_schedule
from nwcompile.sim.cycle.kept import Neurons, add_steps, sum_steps
from nwcompile.sim.cycle.overload import take_losses
from nwcompile.sim.cycle.profile import sum_probes
from nwcompile.sim.cycle.run import ChipRun, Result, State, named_counters, split_layers
from nwcompile.sim.kept import groups_of_samples, program_digest
from nwcompile.sim.reference.run import output_of
from nwcompile.sim.values import verify_counts
from nwcompile.threads import over_samples

CHUNK_STEPS = 128  # Hardware steps per kernel call; few calls, and little memory.


def run_totals(program: Program, inputs: dict, n_steps: int, window: str, profile: bool) -> Run:
    """Simulate like `sim.cycle.run_program`, but record only sums over the steps (`ir.run.Totals`)."""
    network, schedule = program.network, program.schedule
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    n_hardware = schedule.n_hardware_steps(n_steps, window)
    chip_run = ChipRun(program, n_steps, n_hardware, window)
    x = [inputs[name] for name in network.inputs]
    if has_checkpoint():
        parts = _sum_with_checkpoint(chip_run, x, n_samples)
    else:
        flight_steps = 0 if profile else None
        parts = over_samples(
            n_samples, lambda part: _sum_part(chip_run, x, part, flight_steps), chip_run.plan.interrupted
        )
    received, sent, flits = (
        np.sum([getattr(p.steps, k).sum(0, keepdims=True) for p in parts], 0) for k in ("received", "sent", "flits")
    )
    counters = named_counters(program, received, sent)
    dropped = take_losses(program, received, counters)
    n_barriers = n_samples * schedule.period
    measured = chip_run.measured_fields(
        counters,
        flits,
        np.array([sum(int(p.cycles[0]) for p in parts)]),
        n_barriers * n_hardware,
        [sum_probes(p.probes) for p in parts if p.probes is not None] if profile else None,
    )
    if program.chip.is_bus:
        measured["bus"] = sum_schedule(collect_schedule([p.steps.bus for p in parts]))
    longest = None
    if program.chip.gives_times:
        barriers = schedule.period * program.chip.barrier_cycles(program.mapping.n_tiles)
        longest = max(int(p.longest[0]) for p in parts) + barriers
    names = network.layers
    spikes = split_layers(program, names, [p.spikes for p in parts])
    still = [name for name in names if not network.node(name).neuron.fires]
    states = chip_run.collect_states(still, [(p.u, p.v, p.words) for p in parts])
    output = output_of(network, spikes, states)
    totals = Totals(n_steps, n_hardware, longest)
    return Run(
        backend="cycle",
        device="cpu",
        window=window,
        n_samples=n_samples,
        spikes=spikes,
        states=states,
        output=output,
        counters=counters,
        dropped=dropped,
        totals=totals,
        readout=network.readout,
        **measured,
    )


def _sum_part(chip_run: ChipRun, x: list[np.ndarray], part: slice, flight_steps: int | None) -> "_Sums":
    """Return the sums of some samples."""
    sums, state = _Sums(chip_run, part.stop - part.start, flight_steps), chip_run.idle_state(flight_steps is not None)
    for b in range(part.start, part.stop):
        sums.run_sample(x, b, slice(0, chip_run.n_hardware), b - part.start, state)
        sums.u[b - part.start, 0], sums.v[b - part.start, 0] = state.net.states.u, state.net.states.v
        sums.words[b - part.start, 0] = state.programs.state
    return sums


def _sum_with_checkpoint(chip_run: ChipRun, x: list[np.ndarray], n_samples: int) -> list["_Sums"]:
    """Return the sums of all samples, group by group; the checkpoint stores them after some steps at a time."""
    plan, pace = chip_run.plan, Pace()
    given = [program_digest(chip_run.program), plan.n_steps, chip_run.n_hardware, plan.is_aligned]

    def sum_group(some: slice) -> _Sums:
        n = some.stop - some.start
        sums, neurons = _Sums(chip_run, n, None, n_rows=1), Neurons(chip_run, n)

        def run_part(part: slice, steps: slice) -> tuple[slice, _Sums]:
            of_part = _Sums(chip_run, part.stop - part.start, None)
            for b in range(part.start, part.stop):
                chip = neurons.load_chip(b)
                of_part.run_sample(x, some.start + b, steps, b - part.start, chip)
                neurons.idle.append(chip)
            return part, of_part

        def run_steps(steps: slice) -> None:
            for part, of_part in over_samples(n, lambda part: run_part(part, steps), plan.interrupted):
                sums.add_part(part, of_part)

        work = Steps(chip_run.n_hardware, run_steps, {}, lambda: neurons.at.arrays | sums.sum_arrays)
        in_parts("totals", lambda: [*given, [a[some] for a in x]], work, pace)
        sums.u[:, 0], sums.v[:, 0] = neurons.at.states.u, neurons.at.states.v
        sums.words[:, 0] = neurons.at.words
        return sums

    return [sum_group(some) for some in groups_of_samples(n_samples, n_samples)]


class _Sums:
    """Sums of `steps` and `probes` over the steps of some samples, and the final state of each sample.

    `spikes`, `u`, `v`: int64[b, 1, neuron]; `words`: int64[b, 1, word] of neuron programs; `cycles`, `longest`:
    int64[1], core cycles without barriers.
    """

    def __init__(self, chip_run: ChipRun, n_samples: int, flight_steps: int | None, n_rows: int | None = None):
        self.chip_run = chip_run
        n_neurons = len(chip_run.neurons.rule_of)
        n_rows = min(CHUNK_STEPS, chip_run.n_hardware) if n_rows is None else n_rows
        self.neurons, self.steps, self.probes = chip_run.empty_result((1, n_rows), n_rows, False, flight_steps)
        self.spikes, self.u, self.v = (np.zeros((n_samples, 1, n_neurons), np.int64) for _ in range(3))
        self.words = np.zeros((n_samples, 1, len(chip_run.programs.state)), np.int64)
        self.cycles, self.longest = np.zeros(1, np.int64), np.zeros(1, np.int64)

    @property
    def sum_arrays(self) -> dict[str, np.ndarray]:
        """All sums, without the final states."""
        steps = {name: getattr(self.steps, name) for name in ("received", "sent", "flits", "bus")}
        return {**steps, "spikes": self.spikes, "cycles": self.cycles, "longest": self.longest}

    def add_part(self, part: slice, of_part: "_Sums") -> None:
        """Add the sums of a part of the samples over further steps; all steps share one row."""
        add_steps(self.steps, slice(0, 1), sum_steps(of_part.steps))
        self.spikes[part] += of_part.spikes
        self.cycles += of_part.cycles
        np.maximum(self.longest, of_part.longest, out=self.longest)

    def run_sample(self, x: list[np.ndarray], sample: int, steps: slice, b: int, state: State) -> None:
        """Simulate hardware steps of a sample, which is row b of the sums."""
        for first in range(steps.start, steps.stop, len(self.steps.cycles)):
            job = self.chip_run.build_job(first_sample=sample, first_step=first, by_hardware=True)
            self._run_chunk(job, x, min(steps.stop - first, len(self.steps.cycles)), b, state)

    def _run_chunk(self, job: Job, x: list[np.ndarray], n_rows: int, b: int, state: State) -> None:
        """Simulate `n_rows` hardware steps and add them to the sums. Raises ModelError like `ChipRun.verify_spikes`."""
        chip_run, cycles = self.chip_run, self.steps.cycles[:n_rows]
        self.neurons.spikes[:] = 0
        cycles[:] = 0
        now = [a[job.first_sample : job.first_sample + 1, job.first_step : job.first_step + n_rows] for a in x]
        n_given = max(min(n_rows, chip_run.plan.n_steps - job.first_step), 0)
        lines = [a.reshape(1, n_given, int(np.prod(a.shape[2:]))) for a in now]
        given = np.concatenate([*lines, np.zeros((1, n_given, 0), np.int32)], 2)
        chip_run.run_job(job, given, Result(self.neurons, self.steps._replace(cycles=cycles), self.probes), state)
        program = chip_run.program
        spikes = split_layers(program, program.network.layers, [self.neurons.spikes])
        is_late = chip_run.plan.is_aligned and chip_run.plan.period == 1
        first = {name: job.first_step - (program.schedule.offset[name] if is_late else 0) for name in spikes}
        verify_counts(program.network, chip_run.chip, program.on_multi_spike, spikes, job.first_sample, first)
        self.spikes[b] += np.abs(self.neurons.spikes.astype(np.int64)).sum(1)
        self.cycles += cycles.sum()
        np.maximum(self.longest, cycles.max(), out=self.longest)
