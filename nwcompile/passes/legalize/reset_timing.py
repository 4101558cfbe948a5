"""Reset timing: replace a reset that is one step late by an immediate one if the spikes stay the same.

Proof. Let v be the membrane in the step of a spike, before any reset. `next` keeps v until the next step and subtracts
the threshold right after the leak; `now` subtracts it at once, and the leak acts on the rest. Without a leak both give
v - threshold + input, in every later step too, also while a neuron is refractory. A reset to zero forgets v, so the
leak does not matter. A clamp at 0 or below changes neither, because the rest after a spike is not below 0. This fails
for bipolar neurons with a clamp, which stay unchanged.

`both` subtracts the threshold by the count that the membrane of the previous step stands for, then the difference. That
count is 0, and `both` equals `now`, as long as no membrane stays above its threshold: always if a neuron spikes as
often as its membrane holds the threshold. For binary neurons it requires that no step adds more than what a leak leaves
of two thresholds, which is not checked.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.dynamics import nearest_decay

WHY = {"zero": "zero now forgets as much as zero next", "subtract": "without a leak both leave the same membrane",
       "both": "with several spikes a step no membrane is left above its threshold"}  # fmt: skip


def reset_now(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Replace late resets by immediate ones if the chip has no late ones and the spikes are provably the same."""
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
    """Return whether a neuron with a late reset sends the same spikes on `chip` as with a reset in the same step."""
    counts_all = spec.spikes == "multi" and spec.max_spikes is None
    if spec.reset_timing == "now" or (spec.reset_timing == "both" and not counts_all):
        return False
    if np.min(np.asarray(spec.threshold)) < 0:  # a late reset takes a cleared membrane for one that fired
        return False
    if spec.clamp == "reset" and spec.v_min is not None:
        return False
    if spec.v_min is not None and (np.max(spec.v_min) > 0 or spec.spikes == "bipolar"):
        return False
    if spec.reset == "subtract":
        return spec.reset_timing == "both" or not np.any(_leak_share(spec, chip))
    return spec.reset == "zero" or (spec.reset == "value" and not np.any(spec.reset_value))


def _leak_share(spec: NeuronSpec, chip: Chip) -> np.ndarray:
    """Return the share of the membrane that the chip's leak removes per step; 0 without a leak."""
    form = chip.fixed_point
    if spec.fixed is not None:
        return spec.fixed.lost(spec.decay_v)
    keep = np.asarray(spec.beta if spec.membrane == "linear" else 1 - np.asarray(spec.k), np.float32)
    return form.lost(nearest_decay(keep.astype(np.float64), form, 0))
