"""The cycle backend as a stream: a ChipRun that advances its State by some hardware steps at a time."""

import numpy as np

from nwcompile.ir.program import Program
from nwcompile.sim.cycle.bus import collect_schedule
from nwcompile.sim.cycle.overload import take_losses
from nwcompile.sim.cycle.run import ChipRun, Result, named_counters, split_spikes
from nwcompile.sim.rows import Rows, kept_layers
from nwcompile.threads import run_alone

NO_END = 1 << 62  # More steps than any stream has.


class Stream:
    """A stream on the cycle backend."""

    def __init__(self, program: Program, keep_states: bool):
        self.program = program
        self.chip_run = ChipRun(program, NO_END, NO_END, "aligned")
        self.state = self.chip_run.idle_state()
        self.kept = kept_layers(program.network, keep_states)
        self.n_done = 0  # hardware steps

    def run_steps(self, inputs: dict, n_rows: int, n_steps: int | None) -> Rows:
        """Simulate `n_rows` hardware steps with int32 inputs [1, row, *shape]; `n_steps`: T once the input ended."""
        program, chip_run = self.program, self.chip_run
        network = program.network
        chip_run.plan = chip_run.plan._replace(n_steps=NO_END if n_steps is None else n_steps)
        lines = [inputs[name].reshape(1, n_rows, node.n_neurons) for name, node in network.inputs.items()]
        x = np.concatenate([*lines, np.zeros((1, n_rows, 0), np.int32)], 2)
        result = chip_run.empty_result((1, n_rows), n_rows, bool(self.kept), None)
        job = chip_run.build_job(first_step=self.n_done, by_hardware=True)
        run_alone(lambda: chip_run.run_job(job, x, result, self.state), chip_run.plan.interrupted)
        self.n_done += n_rows
        return self._build_rows(result)

    def _build_rows(self, result: Result) -> Rows:
        program, chip_run = self.program, self.chip_run
        neurons, steps = result.neurons, result.steps
        spikes = split_spikes(program, [neurons.spikes])
        states = chip_run.collect_states(self.kept, [(neurons.u, neurons.v, neurons.words)]) if self.kept else {}
        counters = named_counters(program, steps.received, steps.sent)
        dropped = take_losses(program, steps.received, counters)
        measured = chip_run.measured_fields(counters, steps.flits, steps.cycles, program.schedule.period, None)
        fields = {name: measured.get(name) for name in ("step_cycles", "step_energy_pj", "link_flits")}
        bus = collect_schedule([steps.bus]) if program.chip.is_bus else None
        return Rows(spikes, states, counters, {**fields, "dropped": dropped, "bus": bus})
