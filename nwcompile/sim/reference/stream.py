"""The reference backend as a stream: it advances a Machine or NetworkMachine by some steps at a time."""

from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.sim.reference.run import Machine, NetworkMachine, RunRecorder
from nwcompile.sim.rows import Rows, build_activity, energy_per_row
from nwcompile.sim.values import verify_totals


class Stream:
    """A stream on the reference backend."""

    def __init__(self, program: Program, keep_states: bool):
        self.program, self.keep_states = program, keep_states
        self.machine = Machine(program, 1, "aligned")

    def run_steps(self, inputs: dict, n_rows: int, n_steps: int | None) -> Rows:
        """Simulate `n_rows` hardware steps with int32 inputs [1, row, *shape]; `n_steps`: T once the input ended."""
        recorder = RunRecorder(self.program.network, 1, n_rows, self.keep_states)
        counters = self.machine.run_steps(inputs, n_rows, n_steps, recorder, by_hardware=True)
        activity = build_activity(self.program, inputs, recorder.spikes)
        energy = energy_per_row(self.program, counters, activity)
        return Rows(recorder.spikes, recorder.states, counters, {"step_energy_pj": energy})


class NetworkStream:
    """A stream through a network that is not compiled; its rows are aligned steps."""

    def __init__(self, network: Network, keep_states: bool):
        self.network, self.keep_states = network, keep_states
        self.machine = NetworkMachine(network, 1)

    def run_steps(self, inputs: dict, n_rows: int, n_steps: int | None) -> Rows:
        """Simulate `n_rows` aligned steps with inputs [1, row, *shape]."""
        recorder = RunRecorder(self.network, 1, n_rows, self.keep_states)
        self.machine.run_steps(inputs, n_rows, recorder)
        verify_totals(recorder.spikes)
        return Rows(recorder.spikes, recorder.states, {}, {})
