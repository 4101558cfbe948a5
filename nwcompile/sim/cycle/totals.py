"""The cycle backend with `record="totals"`: any number of steps in the memory of a few, only sums are kept."""

import numpy as np

from nwcompile.ir.program import Program
from nwcompile.ir.run import Run, Totals
from nwcompile.kernels.cycle import Plan
from nwcompile.sim.cycle.bus import schedule_of, summed_schedule
from nwcompile.sim.cycle.overload import take_losses
from nwcompile.sim.cycle.profile import summed
from nwcompile.sim.cycle.run import ChipRun, layers_of, named_counters
from nwcompile.sim.inputs import verify_counts
from nwcompile.sim.parallel import over_samples
from nwcompile.sim.reference.run import output_of

CHUNK = 128  # hardware steps simulated at once


def run_totals(program: Program, inputs: dict, n_steps: int, window: str, profile: bool) -> Run:
    """Simulate like `sim.cycle.run_program`, but keep sums over the steps instead of the steps (`ir.run.Totals`)."""
    network, schedule = program.network, program.schedule
    n_samples = len(next(iter(inputs.values()))) if inputs else 1
    n_hardware = schedule.n_hardware_steps(n_steps, window)
    chip_run = ChipRun(program, n_steps, n_hardware, window)
    x = [inputs[name] for name in network.inputs]
    parts = over_samples(
        n_samples, lambda own: _Sums(chip_run, x, own, 0 if profile else None), chip_run.plan.interrupted
    )
    received, sent = (sum(getattr(p.record, k) for p in parts).sum(0, keepdims=True) for k in ("received", "sent"))
    counters = named_counters(program, received, sent)
    dropped = take_losses(program, received, counters)
    n_barriers = n_samples * schedule.period
    measured = chip_run.measured(
        counters, sum(p.record.flits for p in parts).sum(0, keepdims=True), np.array([sum(p.cycles for p in parts)]),
        n_barriers * n_hardware, [summed(p.notes) for p in parts] if profile else None,
    )  # fmt: skip
    if program.chip.is_bus:
        measured["bus"] = summed_schedule(schedule_of([p.record.bus for p in parts]))
    longest = None
    if program.chip.has_times:
        barriers = schedule.period * program.chip.barrier_cycles(program.mapping.n_tiles)
        longest = max(p.longest for p in parts) + barriers
    names = network.layers
    spikes = layers_of(program, names, [p.spikes for p in parts])
    still = [name for name in names if not network.node(name).neuron.fires]
    states = {name: {} for name in still}
    for state in ("u", "v"):
        for name, values in layers_of(program, still, [getattr(p, state) for p in parts]).items():
            states[name][state] = values
    output = output_of(network, spikes, states)
    totals = Totals(n_steps, n_hardware, longest)
    return Run("cycle", "cpu", window, n_samples, spikes, states, output, counters, dropped=dropped, totals=totals,
               **measured)  # fmt: skip


class _Sums:
    """Some samples, simulated: sums of what `record` and `notes` hold for single steps, and how each sample ended.

    `spikes`, `u`, `v`: int64[b, 1, neuron]; `cycles`, `longest`: core cycles without barriers.
    """

    def __init__(self, chip_run: ChipRun, x: list[np.ndarray], own: slice, flight_steps: int | None):
        plan, n_neurons = chip_run.plan, len(chip_run.neurons.rule_of)
        n_rows = min(CHUNK, plan.n_hardware)
        self.record = chip_run.record((1, n_rows), n_rows, False)
        self.notes = chip_run.watch(n_rows, flight_steps)
        self.spikes, self.u, self.v = (np.zeros((own.stop - own.start, 1, n_neurons), np.int64) for _ in range(3))
        self.cycles = self.longest = 0
        state = chip_run.state()
        for b in range(own.start, own.stop):
            for first in range(0, plan.n_hardware, n_rows):
                part = plan._replace(first_sample=b, first=first, by_hardware=True)
                self._chunk(chip_run, part, x, b - own.start, state)
            neurons = state[3]
            self.u[b - own.start, 0], self.v[b - own.start, 0] = neurons.u, neurons.v

    def _chunk(self, chip_run: ChipRun, plan: Plan, x: list[np.ndarray], b: int, state: tuple) -> None:
        """Simulate up to CHUNK hardware steps and add them to the sums."""
        n_rows = min(len(self.record.cycles), plan.n_hardware - plan.first)
        cycles = self.record.cycles[:n_rows]
        self.record.spikes[:] = 0
        cycles[:] = 0
        now = [a[plan.first_sample : plan.first_sample + 1, plan.first : plan.first + n_rows] for a in x]
        n_given = max(min(n_rows, plan.n_steps - plan.first), 0)
        lines = [a.reshape(1, n_given, int(np.prod(a.shape[2:]))) for a in now]
        given = np.concatenate([*lines, np.zeros((1, n_given, 0), np.int32)], 2)
        chip_run.go(plan, given, self.record._replace(cycles=cycles), self.notes, state)
        self._verify(chip_run, plan)
        self.spikes[b] += np.abs(self.record.spikes.astype(np.int64)).sum(1)
        self.cycles += int(cycles.sum())
        self.longest = max(self.longest, int(cycles.max()))

    def _verify(self, chip_run: ChipRun, plan: Plan) -> None:
        """Raise ModelError where a neuron fires more often at once than a message tells."""
        program = chip_run.program
        spikes = layers_of(program, program.network.layers, [self.record.spikes])
        late = plan.is_aligned and plan.period == 1
        first = {name: plan.first - (program.schedule.offset[name] if late else 0) for name in spikes}
        verify_counts(program.network, chip_run.chip, program.on_multi_spike, spikes, plan.first_sample, first)
