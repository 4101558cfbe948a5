"""Prepare: choose how input reaches the chip, and fold what only training needed."""

from dataclasses import replace

import numpy as np

from nwcompile.errors import FitError, ModelError, Violation
from nwcompile.ir.network import Node
from nwcompile.passes.prepare.input_layer import legalize_input
from nwcompile.passes.prepare.merge_inputs import merge_inputs
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.prepare.prune_zeros import prune_zeros
from nwcompile.passes.prepare.weight_bits import apply_weight_bits
from nwcompile.passes.quantize.memory import verify_memory
from nwcompile.passes.stages.draft import Draft, Stage


def choose_input(draft: Draft) -> Draft:
    """Choose how input reaches the chip; layers in front of that run on the host. Sets the readout of the options.

    Raises FitError for neurons with several inputs that they do not add up, which no chip model has.
    """
    network = merge_inputs(draft.given)
    if gated := [_describe_inputs(node) for node in network.nodes.values() if node.n_inputs > 1]:
        raise FitError(draft.chip.name, gated)
    if draft.options.readout is not None:
        draft = replace(draft, given=draft.given.change_readout(draft.options.readout))
    chosen = legalize_input(network, draft.chip, draft.calibration, draft.options)
    network = replace(chosen.network, left_out=draft.given.left_out, readout=draft.given.readout)
    labels = None if draft.labels is None else _check_labels(chosen.samples, draft.labels)
    return replace(
        draft, input=replace(chosen, network=network), network=network, labels=labels, changes=chosen.changes
    )


def fold_maps(draft: Draft) -> Draft:
    """Apply the weight widths; fold scales, batch norms and average pools. Raises OptionError, NotEnoughMemoryError."""
    normal = normalize(prune_zeros(apply_weight_bits(draft.network, draft.chip, draft.options), draft.chip))
    verify_memory(normal, draft.input.samples)
    return replace(draft, network=normal, normal=normal)


def _describe_inputs(node: Node) -> Violation:
    advice = "chip models add up one synaptic sum for a neuron; run the network with nw.simulate, or train it without "
    return Violation("inputs of a neuron", node.name, node.n_inputs, 1, f"{advice}gates")


def _check_labels(samples: dict | None, given) -> np.ndarray:
    """Return the labels as int[B]. Raises ModelError if they do not match the samples."""
    labels = np.asarray(given)
    n_samples = 0 if not samples else len(next(iter(samples.values())))
    if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
        raise ModelError(
            f"labels of shape {list(labels.shape)} and type {labels.dtype} must be whole numbers, one for each of the "
            f"{n_samples} calibration samples",
            code="NW5011",
        )
    return labels


STAGES = (Stage("input", choose_input), Stage("normalize", fold_maps))
