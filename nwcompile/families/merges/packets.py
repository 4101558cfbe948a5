"""Packet traces on chips whose routers are merges: when each packet of a sample is sent, and arrives or is lost."""

from dataclasses import dataclass

import numpy as np

from nwcompile.errors import OptionError
from nwcompile.families.merges.chip import MergeRouters
from nwcompile.families.merges.kernel import N_LOGGED, MergeNetwork
from nwcompile.ir.flat import locate_sources
from nwcompile.ir.program import Program
from nwcompile.sim.cycle.run import ChipRun

ERROR_CODE = "NW6201"


@dataclass(frozen=True, eq=False)
class Packets:
    """The packets of one sample in order of arrival; cycles count from the tick of their step.

    `step`: hardware step. `source`: input line or neuron, numbered as in the program's `Network.offsets`. `core`:
    logical destination core, -1 for spikes that leave the chip. Packets of input lines are sent after a step's scan,
    and `step_cycles` says when the next step may begin. A packet is `lost` if it arrives in the very cycle in which
    its core clears its axons.
    """

    step: np.ndarray  # int64[packet]
    source: np.ndarray  # int64[packet]
    core: np.ndarray  # int64[packet]
    sent: np.ndarray  # int64[packet]
    written: np.ndarray  # int64[packet]
    lost: np.ndarray  # bool[packet]
    step_cycles: np.ndarray  # int64[H]: cycles of each hardware step until its last packet has arrived

    @property
    def period_cycles(self) -> int:
        """Smallest tick period in cycles with which every packet arrives in time."""
        return int(self.step_cycles.max())

    def is_late(self, period_cycles: int) -> np.ndarray:
        """Return bool[packet]: whether each acts one tick late with this tick period."""
        return self.written > period_cycles


def trace_packets(
    program: Program, inputs: dict[str, np.ndarray], n_steps: int, spikes: np.ndarray | None = None
) -> Packets:
    """Trace the packets of one sample: `inputs[name]` is int32[1, T, ...], as `sim.inputs.prepare_inputs` returns.

    `spikes`: recorded elsewhere, int[T, neuron] in the order of the layers; by default they are computed.
    """
    chip = program.chip
    if not isinstance(chip.family, MergeRouters):
        raise OptionError(f'packets are followed on chips with noc.router = "merges", which {chip.name} is not')
    offsets, program = program.network.offsets, program.loaded_program
    n_hardware = program.schedule.n_hardware_steps(n_steps)
    run = ChipRun(program, n_steps, n_hardware, "aligned")
    result = run.empty_result((1, n_steps), n_hardware, False, None, is_shared=spikes is not None)
    if spikes is not None:
        result.neurons.spikes[0] = spikes
    axons = run.axons.axons
    state = run.idle_state(n_logged=len(axons.row) * n_hardware * program.schedule.period)
    run.run_job(run.build_job(computes=spikes is None), run.join_inputs(inputs, 1), result, state)
    assert isinstance(state.network, MergeNetwork), "such chips have no other routers"
    log = state.network.log[: state.network.now[N_LOGGED]]
    rows = axons.row[log["axon"]]
    names, number = locate_sources(program.network, rows["source"])
    return Packets(
        step=log["step"] // program.schedule.period,
        source=np.array([offsets[name] for name in names.tolist()], np.int64) + number,
        core=np.where(rows["core"] < axons.n_cores, rows["core"], -1).astype(np.int64),
        sent=log["sent"],
        written=log["written"],
        lost=log["lost"],
        step_cycles=result.steps.cycles + program.schedule.period * chip.barrier_cycles(program.mapping.n_tiles),
    )
