"""SANA-FE (`pip install sanafe==2.2.9`, in an environment of its own) on the nets of benchmarks/cycle.py.

    PYTHON benchmarks/sanafe_peer.py {random,dvs} NET.npz STEPS {simple,detailed,cycle}

Prints one line of JSON: seconds to build the chip and the net, CPU seconds of the steps, and what it counted.
"""

import json
import sys
import time

import numpy as np
import sanafe
from sanafe import layers

DVS_CORES = (1, 4, 16, 16, 4, 1)


def random_net(chip, data):
    """A net of `benchmarks.nets.random_net`, all neurons in one group."""
    net = sanafe.Network()
    group = net.create_neuron_group(
        "n",
        len(data["bias"]),
        model_attributes={"threshold": 1000.0, "leak_decay": 1.0, "reset": 0.0},
        default_synapse_hw_name="loihi_sparse_synapse",
        soma_hw_name="loihi_lif",
    )
    place(chip, group, data["core"], data["bias"])
    pairs = list(zip(data["src"].tolist(), data["dst"].tolist(), strict=True))
    group.connect_neurons_sparse(group, {"w": data["w"].astype(float)}, pairs)
    return net


def dvs_net(chip, data):
    """The DVS-gesture net, each layer in as many equal slices of channel-major neurons as DVS_CORES says."""
    net, thresholds = sanafe.Network(), [float(t) for t in data["thresholds"]]
    before = layers.Input2D(net, 32, 32, 1, threshold=thresholds[0])
    made = [before]
    for i in range(1, 5):
        stride = 2 if i == 1 else 1
        before = layers.Conv2D(net, before, data[f"conv{i}"], stride, stride, threshold=thresholds[i])
        made.append(before)
    made.append(layers.Dense(net, before, 11, data["dense1"], threshold=thresholds[5]))
    first = 0
    for i, (layer, n_cores) in enumerate(zip(made, DVS_CORES, strict=True)):
        n = len(layer)
        core = first + np.minimum(np.arange(n) // (n // n_cores), n_cores - 1)
        place(chip, layer.group, core, data["inputs"].reshape(-1) if i == 0 else None)
        first += n_cores
    return net


def place(arch, group, core, bias=None):
    """Map every neuron to its core, numbered through the tiles, and give it its bias."""
    per_tile = len(arch.tiles[0].cores)
    for i, neuron in enumerate(group.neurons):
        more = {} if bias is None else {"model_attributes": {"bias": float(bias[i])}}
        neuron.set_attributes(soma_hw_name="loihi_lif", **more)
        neuron.map_to_core(arch.tiles[core[i] // per_tile].cores[core[i] % per_tile])


def main() -> None:
    kind, path, steps, model = sys.argv[1:]
    start = time.process_time()
    arch = sanafe.load_loihi()
    with np.load(path) as data:
        net = (random_net if kind == "random" else dvs_net)(arch, data)
    chip = sanafe.SpikingChip(arch)
    chip.load(net)
    built, start = time.process_time() - start, time.process_time()
    result = chip.sim(int(steps), timing_model=model, processing_threads=1)
    keys = ("spikes", "packets_sent", "neurons_fired", "sim_time")
    counted = {key: result[key] for key in keys if key in result}
    print(json.dumps({"setup s": built, "seconds": time.process_time() - start, **counted}))


if __name__ == "__main__":
    main()
