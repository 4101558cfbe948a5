"""Fewer synapses and spikes where it counts: a step takes as long as its busiest core.

Two networks of 784-128-10 neurons learn real digits for equally many epochs, one of them plainly. The other is pruned
on the way, and its loss has a term for the cycles of the busiest core, counted on the mapping that the chip will run.
Both are mapped onto 4 cores of Loihi 1, where reading synapses (memory) is what a step's time goes into, and compared
on 1,000 test images: accuracy, the busiest core's synops, step time by floorline and as simulated, energy.
"""

import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from examples import mnist_snn
from nwcompile import nn

N_CORES, N_STEPS, N_EPOCHS = 4, 10, 20
N_SIMULATED = 50  # test images that the cycle backend times
SPARSITY, PRUNED_IN = 0.75, range(2, 10)  # of the weights of fc1, and the epochs in which they become so few
LOSS_OF_CYCLE = 4e-6  # a core cycle of the busiest core, in units of cross entropy
LEARNING_RATE = 2e-3


def network() -> nn.Sequential:
    lif = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 2e-3, "surrogate": "atan"}
    torch.manual_seed(0)
    layers = {
        "fc1": torch.nn.Linear(784, 128), "hidden": nn.LIFLayer(128, **lif),
        "fc2": torch.nn.Linear(128, 10), "output": nn.LIFLayer(10, **lif),
    }  # fmt: skip
    return nn.Sequential(OrderedDict(layers))


def train(data: mnist_snn.Digits, is_sparser: bool) -> nn.Sequential:
    net, program = network(), None
    labels = torch.from_numpy(data.train_labels)
    n_batches = -(-len(labels) // mnist_snn.BATCH)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=N_EPOCHS * n_batches, pct_start=0.2
    )
    order = np.random.default_rng(0)
    for epoch in range(N_EPOCHS):
        if is_sparser and epoch in PRUNED_IN:
            left = 1 - (epoch + 1 - PRUNED_IN.start) / len(PRUNED_IN)  # cubic, as Zhu and Gupta, arXiv 1710.01878
            nn.prune(net, {"fc1.weight": SPARSITY * (1 - left**3)})
            program = compiled(net, data)
        for i, rows in enumerate(np.array_split(order.permutation(len(labels)), n_batches)):
            x = torch.from_numpy(mnist_snn.encode(data.train_images[rows], [epoch, i], N_STEPS))
            nn.prepare_net(net)
            (out, _), spikes = nn.spikes_of(net, x)
            loss = torch.nn.functional.cross_entropy(10 * out.mean(1), labels[rows], label_smoothing=0.1)
            if program is not None:
                loss = loss + LOSS_OF_CYCLE * nn.busiest_core_loss(spikes, program, work="cycles", order=8)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    nn.prepare_net(net)
    return net


def compiled(net: nn.Sequential, data: mnist_snn.Digits) -> nw.Program:
    nn.prepare_net(net)
    images = mnist_snn.encode(data.train_images[:100], 5, N_STEPS)
    return nw.compile(nw.from_torch(net, images[:1]), "loihi1", images, nw.Options(n_cores=N_CORES))


def main() -> None:
    torch.set_num_threads(1)
    data = mnist_snn.digits()
    test = mnist_snn.encode(data.test_images, n_steps=N_STEPS)
    print("network  float    chip     busiest core  predicted  measured  energy    bound by")
    for name in ("plain", "sparser"):
        net = train(data, name == "sparser")
        program = compiled(net, data)
        outputs = mnist_snn.run(net, test), nw.simulate(program, test, "sequence").output
        in_float, on_chip = (100 * mnist_snn.accuracy(output, data.test_labels) for output in outputs)
        run = nw.simulate(program, test[:N_SIMULATED], "cycle", record="all")
        doc = nw.report(program, run, Path("build/sparser") / name, {"float": in_float / 100, "chip": on_chip / 100})
        synops, rows = np.mean(doc["steps"]["max_synops"]), doc["time"]["rows"]
        predicted, measured = (rows[row]["step_us"] for row in ("predicted", "measured"))
        print(
            f"{name:7}  {in_float:.1f} %   {on_chip:.1f} %   {synops:5.0f} synops  {predicted:6.2f} us  "
            f"{measured:5.2f} us  {doc['energy']['sample_nj']:.0f} nJ   {doc['bottleneck']['kind']}"
        )
    print(f"times: {run.time_basis}; energies of the cores: {run.energy_basis}")


if __name__ == "__main__":
    main()
