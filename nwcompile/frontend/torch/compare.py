"""Compare the spikes of the imported network with those of the module on the example."""

import warnings

import numpy as np
import torch

from nwcompile.errors import NwWarning
from nwcompile.ir.network import Network
from nwcompile.sim import simulate

ROUNDING = 1e-5  # of messages that are not whole numbers: torch's exp and tanh round otherwise
MAX_ROUNDED = 0.02  # part of the entries that rounding may change
MAX_SAMPLES = 2  # Two samples reveal a wrong import as well as more, in less time.


def compare_drawn(network: Network, inputs: torch.Tensor, spikes: dict[str, torch.Tensor]) -> None:
    """Warn with NwWarning about the first layer whose spikes differ clearly on drawn `inputs`, `[B, T, *shape]`."""
    layer = find_different_layer(network, inputs, spikes)
    if layer:
        text = f"layer {layer!r} spikes differently from the module on drawn inputs; please report it"
        warnings.warn(text, NwWarning, stacklevel=3)


def find_different_layer(network: Network, inputs: torch.Tensor, spikes: dict[str, torch.Tensor]) -> str | None:
    """Return the first layer whose `spikes` the network does not have on drawn `inputs`, `[B, T, *shape]`, or None.

    Inputs without the example's scale bring more neurons to their threshold, where sums in another order round to the
    other side; a wrong map changes more.
    """
    run = simulate(network, inputs.float().cpu().numpy())
    for layer, expected in spikes.items():
        got = run.spikes[layer].reshape(expected.shape)
        differs = ~np.isclose(got, expected.float().cpu().numpy(), ROUNDING, ROUNDING)
        if differs.mean() > MAX_ROUNDED:
            return layer
    return None


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
        differs = (got != expected) & ~np.isclose(got, expected, ROUNDING, ROUNDING)
        if (expected == np.trunc(expected)).all():
            differs = got != expected
        if differs.any():
            where = np.argwhere(differs)
            sample, step, neuron = where[np.argmin(where[:, 1])]
            message = (
                f"layer {layer!r} spikes differently from the module on the example: {len(where)} of {got.size} "
                f"entries, first in step {step}, sample {sample}, neuron {neuron}: {expected[sample, step, neuron]:g} "
                f"in the module, {got[sample, step, neuron]} in the network"
            )
            warnings.warn(message, NwWarning, stacklevel=3)
            return
