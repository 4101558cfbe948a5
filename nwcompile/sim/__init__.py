"""Simulators. All backends compute the same result for one Program and one input (DESIGN 4.3).

purpose                                              function                 file or folder
the reference: slow, obvious, the definition         run_program, run_network reference/
the chip cycle by cycle, with times                  run_program              cycle/
whole sequences in parallel, on a CPU or a GPU       run_program              sequence/
compare the backends with each other                 crosscheck               crosscheck.py
compare a program with its float network             float_difference         float_difference.py
device mismatch, and the accuracy that it costs      Devices, robustness      variation.py, robustness.py
check and convert inputs                             prepare_inputs           inputs.py
predict the memory of a run                          verify_simulation        memory.py
check the numbers that messages carry                verify_counts            values.py
layers that the host computes                        run_host                 host.py
a stream; one piece of its result                    Session; Chunk           session.py; chunk.py
hardware steps of a stream; aligned steps            Rows, Aligned            rows.py
inputs given as lists of spiking lines               frames_of                events.py
parts of a run for a checkpoint                      groups_of_samples        kept.py
compare a chip's spike log with a program            compare_log              spike_log.py
what the imported module returns; classes            read_out, find_answers   answers.py
accuracy on labeled samples                          accuracy                 accuracy.py
"""

from functools import partial
from pathlib import Path

from nwcompile.argument_types import checked
from nwcompile.checkpoint import use_checkpoint
from nwcompile.errors import BackendError, OptionError, unknown_choice
from nwcompile.ir.host import add_registers
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.sim.cycle.overload import verify_backend
from nwcompile.sim.host import with_host
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.memory import verify_simulation

ERROR_CODE = "NW6101"
BACKENDS = ("reference", "cycle", "sequence")
DEVICES = ("cpu", "cuda")
WINDOWS = ("aligned", "hardware")
RECORDS = ("spikes", "all", "totals")


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
    for kind, word, choices in (("device", device, DEVICES), ("window", window, WINDOWS), ("record", record, RECORDS)):
        if word not in choices:
            raise OptionError(unknown_choice(kind, word, choices))
    if backend not in BACKENDS:
        raise BackendError(unknown_choice("backend", backend, BACKENDS))
    if profile and backend != "cycle":
        raise OptionError(f"profile=True needs times, and only backend 'cycle' measures them, not {backend!r}")
    if record == "totals" and backend != "cycle":
        raise OptionError(f"record='totals' needs backend 'cycle', not {backend!r}; use record='spikes'")
    if record == "totals" and flight_steps:
        raise OptionError(
            "record='totals' keeps no steps, so there are no flits in flight to show; use record='spikes'"
        )
    if checkpoint is not None:
        _verify_kept(model, backend, device, profile)
    has_room = partial(verify_simulation, model, backend=backend, record=record, device=device)
    if isinstance(model, Network):
        of_network = ("reference",) if model.is_fixed else ("reference", "sequence")
        if backend not in of_network or window != "aligned" or device != "cpu":
            kind = "in integers that is" if model.is_fixed else "that is"
            raise BackendError(
                f"a network {kind} not compiled runs on backend {' or '.join(map(repr, of_network))}, device 'cpu', "
                f"window 'aligned' only, not {backend!r}, {device!r}, {window!r}; compile it for a chip first"
            )
        if backend == "sequence":
            from nwcompile.sim.sequence.float_run import run_network
        else:
            from nwcompile.sim.reference.run import run_network

        inputs, _, n_steps = prepare_inputs(model, x, steps, before=has_room)
        with use_checkpoint(checkpoint):
            run = run_network(add_registers(model), inputs, n_steps, record == "all")
        return with_host(run, inputs.host_run)
    if not isinstance(model, Program):
        raise OptionError(f"simulate takes a Network or a Program, not {type(model).__name__}")
    verify_backend(model, backend)
    if profile and model.chip.has_merges:
        raise BackendError(
            f'profiles follow flits through channels or over a bus; {model.chip.name} has noc.router = "merges"; '
            "use `nwcompile export --to ranc`, which writes when each packet is sent and arrives"
        )
    if profile and model.chip.has_pool_times:
        raise BackendError(
            f"profiles follow flits through a network, and {model.chip.name} is one pool of neurons without one; leave "
            "profile out: Run.step_cycles has the times of its steps"
        )
    if model.chip.waits_for_neighbors and (profile or record == "totals"):
        what = "a profile" if profile else "record='totals'"
        raise BackendError(
            f"{what} follows steps that end for all cores at once, and those of {model.chip.name} wait for their "
            'neighbors only (cost.sync = "neighbors"): Run.step_cycles tells how long they take; leave it out, or set '
            'cost.sync = "barrier"'
        )
    if device == "cuda" and backend != "sequence":
        raise BackendError(f"backend {backend!r} has no CUDA kernels; use backend='sequence', or device='cpu'")
    inputs, _, n_steps = prepare_inputs(model.network, x, steps, model.chip, model.on_multi_spike, has_room)
    if record == "totals":
        from nwcompile.sim.cycle.totals import run_totals

        with use_checkpoint(checkpoint):
            totals = run_totals(model.loaded_program, inputs, n_steps, window, profile)
        return with_host(totals, inputs.host_run)
    more = (flight_steps,) if profile else (device,) if backend == "sequence" else ()
    with use_checkpoint(checkpoint):
        run = _load_backend(backend)(model.loaded_program, inputs, n_steps, record == "all", window, *more)
    return with_host(run, inputs.host_run)


def _verify_kept(model, backend: str, device: str, profile: bool) -> None:
    """Raise OptionError if a checkpoint could not store anything of this run."""
    is_float = isinstance(model, Network) and backend == "sequence"
    unkept = {
        "a profile": profile,
        "device='cuda'": device == "cuda",
        "a float network on backend 'sequence'": is_float,
    }
    if wrong := [what for what, is_given in unkept.items() if is_given]:
        other = "; use backend='reference', or leave checkpoint out" if is_float else "; leave one of them out"
        raise OptionError(f"checkpoint keeps nothing of a run with {' and '.join(wrong)}{other}")


def _load_backend(name: str):
    if name == "reference":
        from nwcompile.sim.reference.run import run_program
    elif name == "cycle":
        from nwcompile.sim.cycle.run import run_program
    else:
        from nwcompile.sim.sequence.run import run_program
    return run_program
