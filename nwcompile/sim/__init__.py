"""Simulators. All backends compute the same result for one Program and one input (DESIGN 4.3).

purpose                                              function                 file or folder
the reference: slow, obvious, the definition         ProgramMachine           reference/
the chip cycle by cycle, with times                  CycleMachine             cycle/
whole sequences in parallel, on a CPU or a GPU       SequenceMachine          sequence/
the interface of backends: a state and advance       Machine, Rows            machine.py
whole runs on any machine, with a checkpoint or not  run_machine              runs.py
a stream on any machine; one piece of its result     Session; Chunk           session.py
options that exclude each other                      RunOptions               __init__.py
compare the backends with each other                 crosscheck               crosscheck.py
compare a program with its float network             float_difference         float_difference.py
device mismatch, read noise, the accuracy they cost  Devices, robustness      variation.py
check and convert inputs; lists of spiking lines     prepare_inputs; frames_of inputs.py
predict the memory of a run                          verify_simulation        memory.py
check the numbers that messages carry                verify_counts            values.py
layers that the host computes                        run_host                 host.py
compare a chip's spike log with a program            compare_log              spike_log.py
what the imported module returns; classes            read_out, find_answers   answers.py
accuracy on labeled samples                          accuracy                 accuracy.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from nwcompile.argument_types import checked
from nwcompile.checkpoint import use_checkpoint
from nwcompile.errors import BackendError, NwError, OptionError, unknown_choice
from nwcompile.ir.host import add_registers
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.sim.cycle.overload import verify_backend
from nwcompile.sim.host import with_host
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.machine import Machine
from nwcompile.sim.memory import verify_simulation
from nwcompile.sim.runs import run_machine

__all__ = ["BACKENDS", "DEVICES", "RECORDS", "WINDOWS", "Machine", "load_machine", "simulate"]

ERROR_CODE = "NW6101"
MACHINES = {  # of programs: where each backend's Machine is; loaded when it runs
    "reference": ("reference.run", "ProgramMachine"),
    "cycle": ("cycle.machine", "CycleMachine"),
    "sequence": ("sequence.run", "SequenceMachine"),
}
BACKENDS = ("reference", "cycle", "sequence")
DEVICES = ("cpu", "cuda")
WINDOWS = ("aligned", "hardware")
RECORDS = ("spikes", "all", "totals")


@dataclass(frozen=True)
class RunOptions:
    """Options of `simulate` that fit each other and the model; others raise the first of the refusals."""

    model: Any
    backend: str
    device: str
    window: str
    record: str
    profile: bool
    flight_steps: int
    has_checkpoint: bool

    def __post_init__(self) -> None:
        for refusals in (self._refuse_choices, self._refuse_pairs, self._refuse_model):
            for error in refusals():
                raise error

    def _refuse_choices(self) -> Iterator[NwError]:
        for kind, word, choices, error in (
            ("device", self.device, DEVICES, OptionError),
            ("window", self.window, WINDOWS, OptionError),
            ("record", self.record, RECORDS, OptionError),
            ("backend", self.backend, BACKENDS, BackendError),
        ):
            if word not in choices:
                yield error(unknown_choice(kind, word, choices))

    def _refuse_pairs(self) -> Iterator[NwError]:
        backend, is_totals = self.backend, self.record == "totals"
        if self.profile and backend != "cycle":
            yield OptionError(f"profile=True needs times, and only backend 'cycle' measures them, not {backend!r}")
        if is_totals and backend != "cycle":
            yield OptionError(f"record='totals' needs backend 'cycle', not {backend!r}; use record='spikes'")
        if is_totals and self.flight_steps:
            yield OptionError(
                "record='totals' keeps no steps, so there are no flits in flight to show; use record='spikes'"
            )
        is_float = isinstance(self.model, Network) and backend == "sequence"
        unkept = {
            "a profile": self.profile,
            "device='cuda'": self.device == "cuda",
            "a float network on backend 'sequence'": is_float,
        }
        if self.has_checkpoint and (wrong := [what for what, is_given in unkept.items() if is_given]):
            other = "; use backend='reference', or leave checkpoint out" if is_float else "; leave one of them out"
            yield OptionError(f"checkpoint keeps nothing of a run with {' and '.join(wrong)}{other}")

    def _refuse_model(self) -> Iterator[NwError]:
        model, backend, device = self.model, self.backend, self.device
        if isinstance(model, Network):
            backends = ("reference",) if model.is_fixed else ("reference", "sequence")
            if backend not in backends or self.window != "aligned" or device != "cpu":
                kind = "in integers that is" if model.is_fixed else "that is"
                yield BackendError(
                    f"a network {kind} not compiled runs on backend {' or '.join(map(repr, backends))}, device 'cpu', "
                    f"window 'aligned' only, not {backend!r}, {device!r}, {self.window!r}; compile it for a chip first"
                )
            return
        if not isinstance(model, Program):
            yield OptionError(f"simulate takes a Network or a Program, not {type(model).__name__}")
        verify_backend(model, backend)
        chip = model.chip
        if (reason := chip.family.refuse_run(chip, self.profile, self.record == "totals")) is not None:
            yield BackendError(reason)
        if model.schedule.stagger and self.window == "hardware":
            yield OptionError(
                "window 'hardware' starts all neurons in step 0, and this program staggers them; use "
                "window='aligned', or compile with stagger=1"
            )
        if device == "cuda" and backend != "sequence":
            yield BackendError(f"backend {backend!r} has no CUDA kernels; use backend='sequence', or device='cpu'")


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
