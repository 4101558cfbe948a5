"""Simulators. All backends compute the same result for one Program and one input (DESIGN 4.3).

purpose                                              function                 file or folder
the reference: slow, obvious, the definition         ProgramMachine           reference/
the chip cycle by cycle, with times                  CycleMachine             cycle/
whole sequences in parallel, on a CPU or a GPU       SequenceMachine          sequence/
the interface of backends: a state and advance       Machine, Rows            machine.py
whole runs on any machine, with a checkpoint or not  run_machine              runs.py
a stream on any machine; one piece of its result     Session; Chunk           session.py
options that exclude each other                      RunOptions               run_options.py
compare the backends with each other                 crosscheck               crosscheck.py
compare a program with its float network             float_difference         float_difference.py
device mismatch, and the accuracy that it costs      Devices, robustness      variation.py
read noise of memory cells, new in each step         simulate_reads           read_noise.py
check and convert inputs; lists of spiking lines     prepare_inputs; frames_of inputs.py
predict the memory of a run                          verify_simulation        memory.py
check the numbers that messages carry                verify_counts            values.py
layers that the host computes                        run_host                 host.py
compare a chip's spike log with a program            compare_log              spike_log.py
what the imported module returns; classes            read_out, find_answers   answers.py
accuracy on labeled samples                          accuracy                 accuracy.py
"""

from functools import partial
from importlib import import_module
from pathlib import Path

from nwcompile.argument_types import checked
from nwcompile.checkpoint import use_checkpoint
from nwcompile.ir.host import add_registers
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.sim.host import with_host
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.machine import Machine
from nwcompile.sim.memory import verify_simulation
from nwcompile.sim.run_options import BACKENDS, DEVICES, RECORDS, WINDOWS, RunOptions
from nwcompile.sim.runs import run_machine

__all__ = ["BACKENDS", "DEVICES", "RECORDS", "WINDOWS", "Machine", "load_machine", "simulate"]

ERROR_CODE = "NW6101"
MACHINES = {  # of programs: where each backend's Machine is; loaded when it runs
    "reference": ("reference.run", "ProgramMachine"),
    "cycle": ("cycle.machine", "CycleMachine"),
    "sequence": ("sequence.run", "SequenceMachine"),
}


@checked()
def simulate(
    model,
    x=None,
    backend: str = "reference",
    device: str = "cpu",
    window: str = "aligned",
    record: str = "spikes",
    steps=None,
    profile: bool = False,
    flight_steps: int = 0,
    checkpoint: Path | str | None = None,
) -> Run:
    """Simulate a Program, or a Network on backend reference. Float networks also run on sequence, with equal results.

    `x` is `[B, T, *shape]` or in the network's layout (`ir.network.LAYOUTS`), a dict of such arrays by input name, or
    None with `steps=N`. Results are `[B, T, *shape]` and include the spikes of host layers (`Run.host`).
    `device="cuda"` (backend sequence) gives the same integers and counters on a GPU for every NeuronSpec option.
    `record="all"` records the states of every layer. `record="totals"` (backend cycle) records only sums over the
    steps (`ir.run.Totals`), so memory does not grow with them. `window="hardware"` runs exactly T hardware steps;
    nothing is frozen or drained. `profile=True` (backend cycle) adds a Profile to the Run, with the flits in flight
    in the first `flight_steps` steps. A folder `checkpoint` stores finished samples and steps; after a kill, the same
    call resumes from them and gives the same Run. Checkpoints are not available with a profile, on device "cuda", or
    for float networks on backend sequence.
    Raises ModelError for unusable input, ArtifactError for an unusable `checkpoint`, BackendError for a missing
    backend or device, OptionError for unknown choices, and NotEnoughMemoryError before a run that does not fit.
    """
    RunOptions(
        model=model,
        backend=backend,
        device=device,
        window=window,
        record=record,
        profile=profile,
        flight_steps=flight_steps,
        has_checkpoint=checkpoint is not None,
    )
    has_room = partial(verify_simulation, model, backend=backend, record=record, device=device)
    if isinstance(model, Network):
        loaded: Network | Program = add_registers(model)
        inputs, _, n_steps = prepare_inputs(model, x, steps, before=has_room)
    else:
        loaded = model.loaded_program
        inputs, _, n_steps = prepare_inputs(model.network, x, steps, model.chip, model.on_multi_spike, has_room)
    more = {"flight_steps": flight_steps} if profile else {"device": device} if backend == "sequence" else {}
    with use_checkpoint(checkpoint):
        if record == "totals":
            run_totals = import_module("nwcompile.sim.cycle.totals").run_totals
            run = run_totals(loaded, inputs, n_steps, window, profile)
        elif backend == "sequence" and isinstance(loaded, Network):
            run_network = import_module("nwcompile.sim.sequence.float_run").run_network
            run = run_network(loaded, inputs, n_steps, record == "all")
        else:
            run = run_machine(load_machine(loaded, backend, record == "all", window, n_steps, **more), inputs, n_steps)
    return with_host(run, inputs.host_run)


def load_machine(
    model: Network | Program,
    backend: str,
    keep_states: bool,
    window: str = "aligned",
    n_steps: int | None = None,
    **more,
) -> Machine:
    """Build the Machine of a backend, for a run of `n_steps` or for a stream. `more`: options of that backend alone."""
    if isinstance(model, Network):
        return import_module("nwcompile.sim.reference.run").NetworkMachine(model, keep_states, n_steps)
    module, name = MACHINES[backend]
    return getattr(import_module(f"nwcompile.sim.{module}"), name)(model, keep_states, window, n_steps, **more)
