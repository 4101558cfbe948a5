"""Simulators: one Program, one input, one answer, whichever backend computes it (DESIGN 4.3).

purpose                                              function                 file or folder
the definition, slow and obvious                     run_program, run_network reference/
the chip in time, cycle by cycle                     run_program              cycle/
whole sequences at once, on a CPU or a GPU           run_program              sequence/
the backends against each other                      crosscheck               crosscheck.py
the chip against the float network                   float_difference         float_difference.py
varied devices, and what they lose                   Devices, robustness      variation.py, robustness.py
inputs that a network or a chip takes                prepare                  inputs.py
what a run takes of memory, before it                verify_simulation        memory.py
the numbers that messages carry                      verify_counts            values.py
what the CPU computes of them first                  run_host                 host.py
one sample without an end; what it gives at once     Session; Chunk           session.py; chunk.py
its steps as a backend does them, and as they are    Rows, Aligned            rows.py
steps told by the lines that spike                   frames_of                events.py
what a checkpoint keeps of a run                     groups_of_samples        kept.py
spikes that a chip has logged, against a program     compare_log              spike_log.py
answers that are right                               accuracy                 accuracy.py
"""

from functools import partial
from pathlib import Path

from nwcompile.argument_types import checked
from nwcompile.checkpoint import keeping
from nwcompile.errors import BackendError, OptionError, unknown_choice
from nwcompile.ir.host import add_registers
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.sim.cycle.overload import verify_backend
from nwcompile.sim.host import with_host
from nwcompile.sim.inputs import prepare
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
    """Simulate a Network (backend reference; a float one also sequence, the same numbers) or a Program.

    `device="cuda"` (backend sequence) gives the same integers and counters on a GPU, every NeuronSpec option included.
    `x` is `[B, T, *shape]`, or as the network's layout says (`ir.network.LAYOUTS`), a dict of such arrays by input
    name, or None with `steps=N`; results are `[B, T, *shape]`. The spikes of layers on the host are among them
    (`Run.host`). `record="all"` keeps every
    layer's states; `record="totals"` (backend cycle) keeps sums over the steps only, so that memory does not grow with
    them (`ir.run.Totals`). `window="hardware"` runs exactly T hardware steps, nothing frozen or drained.
    `profile=True` (backend cycle) gives the Run a Profile, with the flits in flight in the first `flight_steps` steps.
    With a folder `checkpoint` (not with a profile, device "cuda", or a float network on backend sequence) samples and
    steps that are done are kept there, and the same call goes on from them after it was killed, to the same Run.
    Raises ModelError for unusable input, ArtifactError for an unusable `checkpoint`, BackendError for a backend or
    device that is missing, OptionError for unknown choices, NotEnoughMemoryError before a run that cannot have room.
    """
    for kind, word, choices in (("device", device, DEVICES), ("window", window, WINDOWS), ("record", record, RECORDS)):
        if word not in choices:
            raise OptionError(unknown_choice(kind, word, choices))
    if backend not in BACKENDS:
        raise BackendError(unknown_choice("backend", backend, BACKENDS))
    if profile and backend != "cycle":
        raise OptionError(f"profile=True needs times, and only backend 'cycle' measures them, not {backend!r}")
    if record == "totals" and backend != "cycle":
        raise OptionError(f"record='totals' is of backend 'cycle' only, not {backend!r}; use record='spikes'")
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

        inputs, _, n_steps = prepare(model, x, steps, before=has_room)
        with keeping(checkpoint):
            run = run_network(add_registers(model), inputs, n_steps, record == "all")
        return with_host(run, inputs.host_run)
    if not isinstance(model, Program):
        raise OptionError(f"simulate takes a Network or a Program, not {type(model).__name__}")
    verify_backend(model, backend)
    if profile and model.chip.has_merges:
        raise BackendError(
            f'profiles follow flits through channels or over a bus; {model.chip.name} has noc.router = "merges": what '
            "`nwcompile export --to ranc` writes says when each packet is sent and there"
        )
    if profile and model.chip.has_pool_times:
        raise BackendError(
            f"profiles follow flits through a network, and {model.chip.name} is one pool of neurons without any; leave "
            "profile out: Run.step_cycles tells how long its steps take"
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
    inputs, _, n_steps = prepare(model.network, x, steps, model.chip, model.on_multi_spike, has_room)
    if record == "totals":
        from nwcompile.sim.cycle.totals import run_totals

        with keeping(checkpoint):
            totals = run_totals(model.loaded_program, inputs, n_steps, window, profile)
        return with_host(totals, inputs.host_run)
    more = (flight_steps,) if profile else (device,) if backend == "sequence" else ()
    with keeping(checkpoint):
        run = _backend(backend)(model.loaded_program, inputs, n_steps, record == "all", window, *more)
    return with_host(run, inputs.host_run)


def _verify_kept(model, backend: str, device: str, profile: bool) -> None:
    """Raise OptionError for a run of which a checkpoint would keep nothing."""
    is_float = isinstance(model, Network) and backend == "sequence"
    unkept = {
        "a profile": profile,
        "device='cuda'": device == "cuda",
        "a float network on backend 'sequence'": is_float,
    }
    if wrong := [what for what, is_given in unkept.items() if is_given]:
        other = "; use backend='reference', or leave checkpoint out" if is_float else "; leave one of them out"
        raise OptionError(f"checkpoint keeps nothing of a run with {' and '.join(wrong)}{other}")


def _backend(name: str):
    if name == "reference":
        from nwcompile.sim.reference.run import run_program
    elif name == "cycle":
        from nwcompile.sim.cycle.run import run_program
    else:
        from nwcompile.sim.sequence.run import run_program
    return run_program
