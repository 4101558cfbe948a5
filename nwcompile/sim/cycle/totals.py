"""The cycle backend with `record="totals"`: only sums over the steps are kept, so the memory is constant."""

import numpy as np

from nwcompile.checkpoint import Pace, Steps, has_checkpoint, in_parts
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run, Totals
from nwcompile.kernels.cycle import Job
from nwcompile.sim.cycle.machine import Samples, add_steps, measure_counts, named_counts, sum_steps
from nwcompile.sim.cycle.profile import sum_probes
from nwcompile.sim.cycle.run import ChipRun, Result, State
from nwcompile.sim.machine import count_samples, recorded_layers
from nwcompile.sim.runs import groups_of_samples, output_of, program_digest
from nwcompile.threads import over_samples

CHUNK_STEPS = 128  # Hardware steps per kernel call; few calls, and little memory.


def run_totals(program: Program, inputs: dict, n_steps: int, window: str, profile: bool) -> Run:
    """Simulate like a CycleMachine, but record only sums over the steps (`ir.run.Totals`)."""
    network, schedule = program.network, program.schedule
    n_samples = count_samples(inputs)
    n_hardware = schedule.n_hardware_steps(n_steps, window)
    chip_run = ChipRun(program, n_steps, n_hardware, window)
    if has_checkpoint():
        parts = _sum_with_checkpoint(chip_run, inputs, n_samples)
    else:
        flight_steps = 0 if profile else None
        parts = over_samples(
            n_samples, lambda part: _sum_part(chip_run, inputs, part, flight_steps), chip_run.plan.interrupted
        )
    steps = parts[0].steps
    for part in parts[1:]:
        add_steps(steps, part.steps)
    counts = named_counts(sum_steps(steps)) | {"cycles": np.sum([p.cycles for p in parts], 0)}
    probes = [sum_probes(p.probes) for p in parts if p.probes is not None]
    n_barriers = n_samples * schedule.period * n_hardware
    measured = measure_counts(chip_run, counts, n_samples, n_barriers, probes)
    longest = None
    if program.chip.gives_times:
        barriers = schedule.period * program.chip.barrier_cycles(program.mapping.n_tiles)
        longest = max(int(p.longest[0]) for p in parts) + barriers
    spikes, u, v, words = (np.concatenate([getattr(p, name) for p in parts]) for name in ("spikes", "u", "v", "words"))
    spikes = chip_run.split_layers(network.layers, spikes)
    finals = parts[0].neurons._replace(u=u, v=v, words=words)
    states = chip_run.named_states(recorded_layers(network, False), finals)
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
        totals=totals,
        readout=network.readout,
        **measured,
    )


def _sum_part(chip_run: ChipRun, inputs: dict, part: slice, flight_steps: int | None) -> "_Sums":
    """Return the sums of some samples."""
    sums, state = _Sums(chip_run, part.stop - part.start, flight_steps), chip_run.idle_state(flight_steps is not None)
    for b in range(part.start, part.stop):
        sums.run_sample(inputs, b, slice(0, chip_run.n_hardware), b - part.start, state)
        sums.u[b - part.start, 0], sums.v[b - part.start, 0] = state.net.states.u, state.net.states.v
        sums.words[b - part.start, 0] = state.programs.state
    return sums


def _sum_with_checkpoint(chip_run: ChipRun, inputs: dict, n_samples: int) -> list["_Sums"]:
    """Return the sums of all samples, group by group; the checkpoint stores them after some steps at a time."""
    plan, pace = chip_run.plan, Pace()
    given = [program_digest(chip_run.program), plan.n_steps, chip_run.n_hardware, plan.is_aligned]

    def sum_group(some: slice) -> _Sums:
        n = some.stop - some.start
        sums, state = _Sums(chip_run, n, None, n_rows=1), Samples(chip_run, n)

        def run_part(part: slice, steps: slice) -> tuple[slice, _Sums]:
            of_part = _Sums(chip_run, part.stop - part.start, None)
            for b in range(part.start, part.stop):
                chip = state.load_chip(b)
                of_part.run_sample(inputs, some.start + b, steps, b - part.start, chip)
                state.idle.append(chip)
            return part, of_part

        def run_steps(steps: slice) -> None:
            for part, of_part in over_samples(n, lambda part: run_part(part, steps), plan.interrupted):
                sums.add_part(part, of_part)

        work = Steps(chip_run.n_hardware, run_steps, {}, lambda: state.arrays | sums.sum_arrays)
        in_parts("totals", lambda: [*given, {name: a[some] for name, a in inputs.items()}], work, pace)
        sums.u[:, 0], sums.v[:, 0] = state.neurons.states.u, state.neurons.states.v
        sums.words[:, 0] = state.neurons.words
        return sums

    return [sum_group(some) for some in groups_of_samples(n_samples, n_samples, True)]


class _Sums:
    """Counters (`steps`) and profile (`probes`) of some samples, summed over time, and the final state of each sample.

    `spikes`: of each neuron, summed too. `u`, `v`: int64[b, 1, neuron] like `spikes`. `words`: int64[b, 1, word] of
    neuron programs. `cycles`: int64[1], core cycles of all steps; `longest`: of the longest step; without barriers.
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
        steps = {name: getattr(self.steps, name) for name in ("received", "sent", "flits", "sums", "peaks")}
        return {**steps, "spikes": self.spikes, "cycles": self.cycles, "longest": self.longest}

    def add_part(self, part: slice, of_part: "_Sums") -> None:
        """Add the sums of a part of the samples over further steps; all steps share one row."""
        add_steps(self.steps, sum_steps(of_part.steps))
        self.spikes[part] += of_part.spikes
        self.cycles += of_part.cycles
        np.maximum(self.longest, of_part.longest, out=self.longest)

    def run_sample(self, inputs: dict, sample: int, steps: slice, b: int, state: State) -> None:
        """Simulate hardware steps of a sample, which is row b of the sums."""
        for first in range(steps.start, steps.stop, len(self.steps.cycles)):
            job = self.chip_run.build_job(first_sample=sample, first_step=first, by_hardware=True)
            self._run_chunk(job, inputs, min(steps.stop - first, len(self.steps.cycles)), b, state)

    def _run_chunk(self, job: Job, inputs: dict, n_rows: int, b: int, state: State) -> None:
        """Simulate `n_rows` hardware steps and add them to the sums. Raises ModelError like `ChipRun.verify_spikes`."""
        chip_run, cycles = self.chip_run, self.steps.cycles[:n_rows]
        self.neurons.spikes[:] = 0
        cycles[:] = 0
        sample, first = job.first_sample, job.first_step
        now = {name: a[sample : sample + 1, first : first + n_rows] for name, a in inputs.items()}
        record = Result(self.neurons, self.steps._replace(cycles=cycles), self.probes)
        chip_run.run_job(job, chip_run.join_inputs(now, 1), record, state)
        chip_run.verify_spikes(self.neurons, sample, first)
        self.spikes[b] += np.abs(self.neurons.spikes.astype(np.int64)).sum(1)
        self.cycles += cycles.sum()
        np.maximum(self.longest, cycles.max(), out=self.longest)
