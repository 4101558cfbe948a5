"""How long `nw.estimate` takes for all chips, on four networks.

    python benchmarks/estimate.py --reference DIR [--nets mnist,oxford,pilotnet,vgg]

mnist: the trained demo network (`examples/mnist_snn.py`) and 20 test images. oxford, pilotnet: the stored networks of
lava-dl in DIR (models/lava_oxford; lava_gts/pilotnet_lif), with the raster, and the image in 24 steps, that lie there.
vgg: SpikingJelly's `spiking_vgg11_bn` with random weights on 2 random images of 3 x 32 x 32 in 4 steps; as is usual for
images so small, its classifier is one linear layer of 10 (made for 224 x 224, it has 120 million weights).
Every network is estimated three times in one process. "first s" is the first time, "warm s" the second, in seconds of
wall clock; chips are compiled for at once, on as many threads as there are cores. "warm CPU s" is the third time, on
one core, in seconds of processor time of the whole process.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.pilotnet import pilotnet
from benchmarks.record import save

N_IMAGES = 20
VGG_STEPS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--nets", default=",".join(NETS))
    args = parser.parse_args()
    save("estimate", [row(name, args.reference) for name in args.nets.split(",")], {"nets": args.nets})


def row(name: str, reference: Path) -> dict:
    """One network, estimated for all chips."""
    import nwcompile as nw
    from nwcompile.threads import n_threads

    network, x = NETS[name](reference)
    seconds, cores = [], os.sched_getaffinity(0)
    for clock, used in ((time.perf_counter, cores), (time.perf_counter, cores), (time.process_time, [min(cores)])):
        os.sched_setaffinity(0, used)
        start = clock()
        made = nw.estimate(network, "all", x)
        seconds.append(clock() - start)
    os.sched_setaffinity(0, cores)
    print(f"{name}\n{made!r}\n", flush=True)
    fits = [chip.chip for chip in made.chips if chip.fits]
    n_neurons = sum(network.node(layer).n_neurons for layer in network.layers)
    return {"network": name, "neurons": n_neurons, "samples": len(x), "steps": int(np.shape(x)[1]),
            "chips": len(made.chips), "fits": len(fits), "threads": n_threads(), "first s": seconds[0],
            "warm s": seconds[1], "warm CPU s": seconds[2]}  # fmt: skip


def mnist(_: Path) -> tuple:
    """The trained demo network and its first test images."""
    import nwcompile as nw
    from examples import mnist_snn

    net, example = mnist_snn.trained()
    return nw.from_torch(net, example), mnist_snn.encode(mnist_snn.digits().test_images[:N_IMAGES])


def oxford(reference: Path) -> tuple:
    """The network of lava-dl's Oxford example and its raster [1, 2000, 200]."""
    import nwcompile as nw

    folder = reference / "models" / "lava_oxford"
    events, x = np.load(folder / "input.npy"), np.zeros((1, 2000, 200), np.int8)
    x[0, np.round(events[:, 2]).astype(int), events[:, 0].astype(int)] = 1
    return nw.from_lava(folder / "network.net"), x


def vgg(_: Path) -> tuple:
    """SpikingJelly's VGG-11 with batch norm, step by step."""
    import torch

    stub = ModuleType("torchvision._internally_replaced_utils")  # spiking_vgg asks torchvision for trained weights only
    stub.load_state_dict_from_url = None
    sys.modules |= {"torchvision": ModuleType("torchvision"), stub.__name__: stub}
    from spikingjelly.activation_based import layer, neuron, surrogate
    from spikingjelly.activation_based.model import spiking_vgg

    import nwcompile as nw

    torch.manual_seed(0)
    net = spiking_vgg.spiking_vgg11_bn(
        spiking_neuron=neuron.IFNode, surrogate_function=surrogate.ATan(), detach_reset=True, num_classes=10
    ).eval()
    net.avgpool, net.classifier = layer.AdaptiveAvgPool2d(1), layer.Linear(512, 10)
    x = np.random.default_rng(0).random((2, VGG_STEPS, 3, 32, 32), np.float32)
    return nw.from_torch(net, x), x


NETS = {"mnist": mnist, "oxford": oxford, "pilotnet": pilotnet, "vgg": vgg}

if __name__ == "__main__":
    main()
