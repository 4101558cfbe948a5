"""What a network's results are worth: accuracy, and what a chip spends on them."""

import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError
from nwcompile.ir.program import Program
from nwcompile.sim import simulate


@checked()
def accuracy(output: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of samples whose largest output is that of their label, 0..1.

    `output`: `[B, n_classes]`, or `[B, T, n_classes]` spikes or membranes, which are summed over the steps; of equal
    ones the first counts. `labels`: `[B]`. Raises ModelError for other shapes.
    """
    if output.ndim not in (2, 3) or labels.shape != output.shape[:1]:
        shapes = f"output {tuple(output.shape)} and labels {tuple(labels.shape)}"
        raise ModelError(f"accuracy takes output [B, n_classes] or [B, T, n_classes] and labels [B], not {shapes}")
    total = output if output.ndim == 2 else output.sum(1)
    return float((total.argmax(1) == labels.to(total.device)).double().mean())


@checked("program")
def chip_consumption(program: Program, x) -> dict[str, float | None]:
    """What the chip of `program` spends on a sample of `x` `[B, T, *shape]`, on average.

    `neuron_updates`, `synops`, `spikes` and `messages` are counts; `energy_pj` is the sum of the chip file's energies
    over them, None for a chip without cited energies.
    """
    run = simulate(program, x, backend="sequence")
    names = {"neuron_updates": "neuron_updates", "synops": "synops", "spikes": "spikes_out", "messages": "messages_out"}
    counts = {key: float(run.counters[name].sum()) / run.n_samples for key, name in names.items()}
    energy = None if run.energy_pj is None else run.energy_pj["total"] / run.n_samples
    return {**counts, "energy_pj": energy}
