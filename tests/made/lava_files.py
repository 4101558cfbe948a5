"""Tiny lava-dl `.net` files, and the computation of SLAYER in plain NumPy, from the sources of lava-dl."""

import h5py
import numpy as np

NEURON = {"type": b"CUBA", "iDecay": 4096, "vDecay": 0, "vThMant": 1, "refDelay": 1, "gradedSpike": False}
LOIHI = {"type": b"LOIHI", "iDecay": 1024, "vDecay": 400, "vThMant": 10, "refDelay": 1, "wgtExp": 0}


def dense(weight, /, **changes) -> dict:
    weight = np.asarray(weight, np.float32)
    return {"type": [b"dense"], "shape": [len(weight)], "weight": weight, "neuron": dict(NEURON), **changes}


def pool(shape, kernel, /, **changes) -> dict:
    weight = np.full((1, 1, *kernel), 2.0, np.float32)
    return {"type": [b"pool"], "shape": shape, "kernelSize": kernel, "stride": kernel, "padding": [0, 0],
            "dilation": [1, 1], "weight": weight, "neuron": dict(LOIHI), **changes}  # fmt: skip


def write(path, layers):
    """Write a `.net` file of these layers, without values that are None, and return its path."""
    with h5py.File(path, "w") as file:
        for index, layer in enumerate(layers):
            for key, value in layer.items():
                for name, item in value.items() if isinstance(value, dict) else [("", value)]:
                    if item is not None:
                        file[f"layer/{index}/{key}/{name}".rstrip("/")] = item
    return path


def slayer_neurons(drive, neuron, bias=0, recurrent=None):
    """Spikes [T, n] of CUBA or LOIHI neurons for synaptic sums `drive` [T, n]; recurrent [n, n] reads spikes of t-1.

    Integers as in `slayer/neuron/dynamics/leaky_integrator.py`, decays rounded to zero; state scaled by 64.
    """
    u = v = last = np.zeros(drive.shape[1], np.int64)
    spikes = np.zeros(drive.shape, np.int64)
    for t, x in enumerate(drive):
        x = x if recurrent is None else x + recurrent @ last
        u = np.sign(u) * (np.abs(u) * (4096 - neuron["iDecay"]) >> 12) + 64 * x
        v = np.sign(v) * (np.abs(v) * (4096 - neuron["vDecay"]) >> 12) + u + 64 * bias
        last = spikes[t] = v > 64 * neuron["vThMant"]
        v = np.where(last, 0, v)
    return spikes


def held_back(spikes, steps):
    """Delay spikes [T, n] by `steps` [n]."""
    late = np.zeros_like(spikes)
    for i, d in enumerate(np.broadcast_to(steps, spikes.shape[1])):
        late[d:, i] = spikes[: len(spikes) - d, i]
    return late
