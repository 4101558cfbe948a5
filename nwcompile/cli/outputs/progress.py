"""Progress on stderr: one line for every stage of the compiler."""

import sys

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule
from nwcompile.ir.shown import counted
from nwcompile.passes.legalize.approximate import Approximated
from nwcompile.passes.legalize.legalize import Legalized
from nwcompile.passes.legalize.relay_delays import Relayed
from nwcompile.passes.legalize.sums.send_sums import WithSums
from nwcompile.passes.partition.copy_neurons import Copied
from nwcompile.passes.partition.logical_cores import Partitioned
from nwcompile.passes.partition.merge_axons import Merged
from nwcompile.passes.place.place import routed_cost
from nwcompile.passes.quantize.quantize import Quantized
from nwcompile.report.text import improved, stage_line

STAGES = ("normalize", "legalize", "estimate", "schedule", "quantize", "prove", "calibrate", "partition", "place",
          "check", "interleave", "emit")  # fmt: skip
# Stages that go over an earlier one's result, where needed.
REPEATS = {"delays": "schedule", "compare": "prove", "split": "prove", "merge": "calibrate", "copies": "partition"}


def stages_of(options: Options) -> tuple[str, ...]:
    """The stages that these options ask for, in order."""
    stages = list(STAGES)
    if options.approximate:
        stages.insert(stages.index("prove") + 1, "approximate")
    return (*stages, "limit") if options.step_limit_us is not None else tuple(stages)


class Progress:
    """What `flow.compile` calls after each stage: prints name, size, seconds and the figure that the stage improved."""

    # As the last stage that made one left it.
    network: Network
    activity: Activity
    mapping: Mapping

    def __init__(self, network: Network, chip: Chip, options: Options):
        self.before, self.chip, self.options = network, chip, options

    def __call__(self, name: str, value, seconds: float) -> None:
        if name == "input":
            print(f"input: {value.text}  {seconds:.1f} s", file=sys.stderr, flush=True)
            return
        if isinstance(value, Quantized | WithSums | Merged | Copied):
            self.network = value.quantized.network if isinstance(value, WithSums) else value.network
        if isinstance(value, Activity | Merged | Copied):
            self.activity = value if isinstance(value, Activity) else value.activity
        if isinstance(value, Partitioned | Copied):
            self.mapping = value.mapping
        stages = stages_of(self.options)
        place = stages.index(REPEATS.get(name, name)) + 1
        line = stage_line(place, len(stages), name, self.size(value), seconds, self.figure(name, value))
        print(line, file=sys.stderr, flush=True)

    def size(self, value) -> str:
        """What a stage made, in a few words."""
        value = value.network if isinstance(value, Legalized | Approximated | Merged) else value
        value = value.timing if isinstance(value, Relayed | WithSums) else value
        value = value.mapping if isinstance(value, Partitioned | Copied) else value
        if isinstance(value, Network):
            n_neurons = count_neurons(value)
            return f"{counted(len(value.layers), 'layer')}, {counted(n_neurons, 'neuron')}"
        if isinstance(value, Schedule):
            return f"{value.execution}, depth {value.depth}"
        if isinstance(value, Quantized):
            bits = sorted({row["bits"] for row in value.table if row["bits"] is not None}) or ["no"]
            return f"{'/'.join(map(str, bits))}-bit weights"
        if isinstance(value, Activity):
            return (
                f"{counted(value.n_samples, 'sample')} of {counted(value.n_steps, 'step')}"
                if value.updates
                else "no samples"
            )
        if isinstance(value, Mapping):
            return f"{counted(value.n_cores, 'core')} on {counted(value.n_tiles, 'tile')}"
        return counted(value.axons.n_axons, "axon") if isinstance(value, Program) else ""

    def figure(self, name: str, value) -> str:
        """The figure that a stage improved, or that says how well it did."""
        if name == "normalize":
            return improved("connections", len(self.before.connections), len(value.connections))
        if name == "prove":
            return "; ".join(f"{change.layer}: {change.how}" for change in value[1])
        if name == "approximate":
            return "" if value.price is None else f"spikes changed {value.price.spikes_changed_percent:.1f} %"
        if name in REPEATS:
            return "; ".join(f"{change.layer}: {change.how}" for change in value.changes)
        if name == "quantize":
            known = [row for row in value.table if row["spike_agreement_percent"] is not None]
            if not known:
                return ""
            worst = min(known, key=lambda row: row["spike_agreement_percent"])
            return f"spikes alike {worst['spike_agreement_percent']:.1f} % or more (least: {worst['layer']})"
        if name == "calibrate":
            rate = float(np.mean(np.concatenate([value.rate(layer) for layer in self.network.layers])))
            return f"{'' if value.updates else 'assumed '}{100 * rate:.1f} % of neurons a step"
        if name == "place":
            return improved("hops a step and sample", self._hops(self.mapping), self._hops(value))
        return ""

    def _hops(self, mapping: Mapping) -> float:
        activity = self.activity
        messages = routed_cost(mapping, self.network, self.chip, activity, "traffic")
        return messages / (activity.n_steps * activity.n_samples)
