"""Reset timing: a reset one step late that gives the same spikes as one in the step of the spike.

Why it does. Let v be the membrane in the step of a spike, before any reset. `next` keeps v until the next step and
takes the threshold off right after the leak; `now` takes it off at once, and the leak acts on what is left. Where
nothing leaks both give v - threshold + input, in every later step too, while a neuron is refractory as well. A reset
to zero forgets v, so there the leak does not matter. A clamp at 0 or below changes neither: what is left of a neuron
that fired is not below 0. It does for bipolar neurons, which are left alone with a clamp.

`both` takes the threshold off by the count that the membrane of the step before stands for, and then the difference.
That count is 0, and `both` is `now`, as long as no membrane is left above its threshold: always where a neuron spikes
as often as its membrane holds the threshold. Of binary neurons it is true only while no step adds more than what a leak
leaves of two thresholds, which is not looked at.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.dynamics import rounded_decay

WHY = {"zero": "zero now forgets as much as zero next", "subtract": "without a leak both leave the same membrane",
       "both": "with several spikes a step no membrane is left above its threshold"}  # fmt: skip


def reset_now(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """The network with late resets made at once where the chip cannot wait and the spikes are provably the same."""
    nodes, changes = dict(network.nodes), []
    for name in network.built_in:
        spec = nodes[name].neuron
        if not spec.fires or spec.reset == "none" or spec.reset_timing in chip.neuron.reset_timing:
            continue
        if "now" not in chip.neuron.reset_timing or not is_same_now(spec, chip):
            continue
        kind = "subtract" if spec.reset == "subtract" else "zero"
        nodes[name] = Node(name, nodes[name].shape, spec.replace(reset=kind, reset_timing="now"))
        was = f"reset {spec.reset}, {spec.reset_timing}"
        has, why = f"resets {', '.join(chip.neuron.reset_timing)}", WHY.get(spec.reset_timing, WHY[kind])
        changes.append(Change(name, was, has, why, EXACT))
    return (Network(network.inputs, nodes, network.connections), changes) if changes else (network, [])


def is_same_now(spec: NeuronSpec, chip: Chip) -> bool:
    """Whether a neuron with a late reset sends the same spikes on `chip` as with a reset in the same step."""
    counts_all = spec.spikes == "multi" and spec.max_spikes is None
    if spec.reset_timing == "now" or (spec.reset_timing == "both" and not counts_all):
        return False
    if np.min(np.asarray(spec.threshold)) < 0:  # a late reset takes a cleared membrane for one that has fired
        return False
    if spec.clamp == "reset" and spec.v_min is not None:
        return False
    if spec.v_min is not None and (np.max(spec.v_min) > 0 or spec.spikes == "bipolar"):
        return False
    if spec.reset == "subtract":
        return spec.reset_timing == "both" or not np.any(_decay(spec, chip))
    return spec.reset == "zero" or (spec.reset == "value" and not np.any(spec.reset_value))


def _decay(spec: NeuronSpec, chip: Chip) -> np.ndarray:
    """The share of the membrane that is lost in a step on the chip; 0: it does not leak."""
    form = chip.fixed_point
    if spec.fixed is not None:
        return spec.fixed.lost(spec.decay_v)
    keep = np.asarray(spec.beta if spec.membrane == "linear" else 1 - np.asarray(spec.k), np.float32)
    return form.lost(rounded_decay(keep.astype(np.float64), form, 0))
