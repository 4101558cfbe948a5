"""Metrics of a network's results: accuracy, and the consumption of a chip."""

import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError
from nwcompile.ir.program import Program
from nwcompile.sim import simulate


@checked()
def accuracy(output: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of samples, 0..1, whose largest output is at their label.

    `output`: `[B, n_classes]`, or `[B, T, n_classes]` spikes or membranes, which are summed over the steps. Of equal
    outputs the first counts. `labels`: `[B]`. Raises ModelError for other shapes.
    """
    if output.ndim not in (2, 3) or labels.shape != output.shape[:1]:
        shapes = f"output {tuple(output.shape)} and labels {tuple(labels.shape)}"
        raise ModelError(f"accuracy takes output [B, n_classes] or [B, T, n_classes] and labels [B], not {shapes}")
    total = output if output.ndim == 2 else output.sum(1)
    return float((total.argmax(1) == labels.to(total.device)).double().mean())


@checked("program")
def chip_consumption(program: Program, x) -> dict[str, float | None]:
    """Return the average consumption of the chip of `program` per sample of `x` `[B, T, *shape]`.

    `neuron_updates`, `synops`, `spikes` and `messages` are counts. `energy_pj` is their energy with the chip file's
    energies per event, None for a chip without cited energies.
    """
    run = simulate(program, x, backend="sequence")
    names = {"neuron_updates": "neuron_updates", "synops": "synops", "spikes": "spikes_out", "messages": "messages_out"}
    counts = {key: float(run.counters[name].sum()) / run.n_samples for key, name in names.items()}
    energy = None if run.energy_pj is None else run.energy_pj["total"] / run.n_samples
    return {**counts, "energy_pj": energy}
