"""Tiny lava-dl `.net` files."""

import h5py
import numpy as np

NEURON = {"type": b"CUBA", "iDecay": 4096, "vDecay": 0, "vThMant": 1, "refDelay": 1, "gradedSpike": False}


def dense(weight, /, **changes) -> dict:
    weight = np.asarray(weight, np.float32)
    return {"type": [b"dense"], "shape": [len(weight)], "weight": weight, "neuron": dict(NEURON), **changes}


def write(path, layers):
    """A `.net` file of these layers; what is None is left out. Returns its path."""
    with h5py.File(path, "w") as file:
        for index, layer in enumerate(layers):
            for key, value in layer.items():
                for name, item in value.items() if isinstance(value, dict) else [("", value)]:
                    if item is not None:
                        file[f"layer/{index}/{key}/{name}".rstrip("/")] = item
    return path
