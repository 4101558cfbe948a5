"""The cycle backend with `record="totals"`: any number of steps in the memory of a few, only sums are kept."""

import numpy as np

from nwcompile.ir.program import Program
from nwcompile.ir.run import Run, Totals
from nwcompile.kernels.cycle import Job
from nwcompile.sim.cycle.bus import schedule_of, summed_schedule
from nwcompile.sim.cycle.overload import take_losses
from nwcompile.sim.cycle.profile import summed
from nwcompile.sim.cycle.run import ChipRun, Result, State, layers_of, named_counters
from nwcompile.sim.parallel import over_samples
from nwcompile.sim.reference.run import output_of
from nwcompile.sim.values import verify_counts

CHUNK_STEPS = 128  # Hardware steps simulated at once: few calls, and memory for 128 steps only.


def run_totals(program: Program, inputs: dict, n_steps: int, window: str, profile: bool) -> Run:
    """Simulate like `sim.cycle.run_program`, but keep sums over the steps instead of the steps (`ir.run.Totals`)."""
    network, schedule = program.network, program.schedule
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    n_hardware = schedule.n_hardware_steps(n_steps, window)
    chip_run = ChipRun(program, n_steps, n_hardware, window)
    x = [inputs[name] for name in network.inputs]
    parts = over_samples(
        n_samples, lambda part: _Sums(chip_run, x, part, 0 if profile else None), chip_run.plan.interrupted
    )
    received, sent = (sum(getattr(p.steps, k) for p in parts).sum(0, keepdims=True) for k in ("received", "sent"))
    counters = named_counters(program, received, sent)
    dropped = take_losses(program, received, counters)
    n_barriers = n_samples * schedule.period
    measured = chip_run.measured(
        counters,
        sum(p.steps.flits for p in parts).sum(0, keepdims=True),
        np.array([sum(p.cycles for p in parts)]),
        n_barriers * n_hardware,
        [summed(p.probes) for p in parts] if profile else None,
    )
    if program.chip.is_bus:
        measured["bus"] = summed_schedule(schedule_of([p.steps.bus for p in parts]))
    longest = None
    if program.chip.gives_times:
        barriers = schedule.period * program.chip.barrier_cycles(program.mapping.n_tiles)
        longest = max(p.longest for p in parts) + barriers
    names = network.layers
    spikes = layers_of(program, names, [p.spikes for p in parts])
    still = [name for name in names if not network.node(name).neuron.fires]
    states = chip_run.states(still, [(p.u, p.v, p.words) for p in parts])
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
        **measured,
    )


class _Sums:
    """Some samples, simulated: sums of what `steps` and `probes` hold for single steps, and how each sample ended.

    `spikes`, `u`, `v`: int64[b, 1, neuron]; `words`: int64[b, 1, word] of neurons that are programs; `cycles`,
    `longest`: core cycles without barriers.
    """

    def __init__(self, chip_run: ChipRun, x: list[np.ndarray], part: slice, flight_steps: int | None):
        n_neurons = len(chip_run.neurons.rule_of)
        n_rows = min(CHUNK_STEPS, chip_run.n_hardware)
        self.neurons, self.steps, self.probes = chip_run.result((1, n_rows), n_rows, False, flight_steps)
        self.spikes, self.u, self.v = (np.zeros((part.stop - part.start, 1, n_neurons), np.int64) for _ in range(3))
        self.words = np.zeros((part.stop - part.start, 1, len(chip_run.programs.state)), np.int64)
        self.cycles = self.longest = 0
        state = chip_run.state(flight_steps is not None)
        for b in range(part.start, part.stop):
            for first in range(0, chip_run.n_hardware, n_rows):
                job = chip_run.job(first_sample=b, first_step=first, by_hardware=True)
                self._chunk(chip_run, job, x, b - part.start, state)
            self.u[b - part.start, 0] = state.net.states.u
            self.v[b - part.start, 0] = state.net.states.v
            self.words[b - part.start, 0] = state.programs.state

    def _chunk(self, chip_run: ChipRun, job: Job, x: list[np.ndarray], b: int, state: State) -> None:
        """Simulate up to CHUNK_STEPS hardware steps and add them to the sums."""
        n_rows = min(len(self.steps.cycles), chip_run.n_hardware - job.first_step)
        cycles = self.steps.cycles[:n_rows]
        self.neurons.spikes[:] = 0
        cycles[:] = 0
        now = [a[job.first_sample : job.first_sample + 1, job.first_step : job.first_step + n_rows] for a in x]
        n_given = max(min(n_rows, chip_run.plan.n_steps - job.first_step), 0)
        lines = [a.reshape(1, n_given, int(np.prod(a.shape[2:]))) for a in now]
        given = np.concatenate([*lines, np.zeros((1, n_given, 0), np.int32)], 2)
        chip_run.go(job, given, Result(self.neurons, self.steps._replace(cycles=cycles), self.probes), state)
        self._verify(chip_run, job)
        self.spikes[b] += np.abs(self.neurons.spikes.astype(np.int64)).sum(1)
        self.cycles += int(cycles.sum())
        self.longest = max(self.longest, int(cycles.max()))

    def _verify(self, chip_run: ChipRun, job: Job) -> None:
        """Raise ModelError where a neuron fires more often at once than a message tells."""
        program = chip_run.program
        spikes = layers_of(program, program.network.layers, [self.neurons.spikes])
        is_late = chip_run.plan.is_aligned and chip_run.plan.period == 1
        first = {name: job.first_step - (program.schedule.offset[name] if is_late else 0) for name in spikes}
        verify_counts(program.network, chip_run.chip, program.on_multi_spike, spikes, job.first_sample, first)
