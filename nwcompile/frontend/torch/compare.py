"""Compare the spikes of the imported network with those of the module on the example."""

import warnings

import numpy as np
import torch

from nwcompile.errors import NwWarning
from nwcompile.ir.network import Network
from nwcompile.sim import simulate

MAX_SAMPLES = 2  # Two samples reveal a wrong import as well as more, in less time.


def compare_spikes(network: Network, x: torch.Tensor, spikes: dict[str, torch.Tensor]) -> None:
    """Warn with NwWarning about the first layer whose spikes differ, and its first step and neuron.

    `x` is `[B, T, *shape]` and `spikes[layer]` `[B, T, *shape]`; the first 2 samples are compared.
    """
    run = simulate(network, x[:MAX_SAMPLES].float().cpu().numpy())
    for layer in network.layers:
        if layer not in spikes or not network.node(layer).neuron.fires:
            continue
        expected = spikes[layer][:MAX_SAMPLES].float().cpu().numpy().reshape(*run.spikes[layer].shape[:2], -1)
        got = run.spikes[layer].reshape(expected.shape)
        if (got != expected).any():
            where = np.argwhere(got != expected)
            sample, step, neuron = where[np.argmin(where[:, 1])]
            message = (
                f"layer {layer!r} spikes differently from the module on the example: {len(where)} of {got.size} "
                f"entries, first in step {step}, sample {sample}, neuron {neuron}: {expected[sample, step, neuron]:g} "
                f"in the module, {got[sample, step, neuron]} in the network"
            )
            warnings.warn(message, NwWarning, stacklevel=3)
            return
