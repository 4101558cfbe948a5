"""One fold of benchmarks/quantize.py: a float net is trained, made narrow afterwards or in training, and tested."""

import copy
import time

import numpy as np
import torch

import nwcompile as nw
from benchmarks.quantize_nets import CASES, Case
from nwcompile import nn
from nwcompile.sim.float_difference import answers

CHIP = "loihi1"
LEARNING_RATE = 5e-3
LABEL_SMOOTHING = 0.1
COUNT_SCALE = 10.0  # logits are spike rates (0..1) times this
N_CALIBRATION = 500  # training samples that scales are searched on, or all where there are fewer
TEST_SEED, CALIBRATION_SEED = 1000, 2000
POST_TRAINING = (8, 4, 2)  # bits of weights


def run(name: str, k: int) -> dict:
    """Right answers to the test samples of fold k, by how the net was made.

    `right`: {"float": n, "post-training 8": n, ...}, of `n_test`; `seconds` of all.
    """
    torch.set_num_threads(1)
    start, case = time.perf_counter(), CASES[name]
    values, labels, folds = case.data()
    train, test = folds[k].train, folds[k].test
    encode = case.coder(values[train])
    spikes, calibration = encode(values[test], TEST_SEED), encode(values[train][:N_CALIBRATION], CALIBRATION_SEED)

    def right(result: nw.Run) -> int:
        return int((answers(result) == labels[test]).sum())

    def trained(net: nn.Sequential, part: int) -> nn.Sequential:
        return fit(net, case, lambda rows, seed: encode(values[train][rows], seed), labels[train], [k, part])

    torch.manual_seed(k)
    begun = trained(case.layers(), 0)
    network = nw.from_torch(trained(copy.deepcopy(begun), 1), spikes[:2])
    found = {"float": right(nw.simulate(network, spikes))}
    for bits in POST_TRAINING:
        program = nw.compile(network, CHIP, calibration, nw.Options(bits=bits))
        found[f"post-training {bits}"] = right(nw.simulate(program, spikes, backend="sequence"))
    return {"right": found, "n_test": len(test), "seconds": time.perf_counter() - start}


def fit(net: nn.Sequential, case: Case, spikes_of, labels: np.ndarray, seed: list[int]) -> nn.Sequential:
    """The net after `case.n_epochs` more epochs; `spikes_of(rows, seed)` encodes training samples, anew each time."""
    n_batches = -(-len(labels) // case.batch)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    steps = case.n_epochs * n_batches
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    order, wanted = np.random.default_rng(seed), torch.from_numpy(labels)
    net.train()
    for epoch in range(case.n_epochs):
        for i, rows in enumerate(np.array_split(order.permutation(len(labels)), n_batches)):
            nn.prepare_net(net)
            rates = net(torch.from_numpy(spikes_of(rows, [*seed, epoch, i])))[0].mean(1)
            loss = torch.nn.functional.cross_entropy(COUNT_SCALE * rates, wanted[rows], label_smoothing=LABEL_SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    nn.prepare_net(net)
    return net.eval()
