"""One fold of benchmarks/quantize.py: a float net is trained, made narrow afterwards or in training, and tested."""

import copy
import time
from collections.abc import Callable

import numpy as np
import torch

import nwcompile as nw
from benchmarks.quantize_nets import CASES, Case
from nwcompile import nn
from nwcompile.sim import BACKENDS
from nwcompile.sim.answers import strongest_neuron
from nwcompile.sim.crosscheck import compare_runs

LEARNING_RATES = (5e-3, 2e-3)  # of the first half of the epochs, and of the second
LABEL_SMOOTHING = 0.1
COUNT_SCALE = 10.0  # logits are spike rates (0..1) times this
N_CALIBRATION = 200  # training samples that scales are searched on, or all where there are fewer
TEST_SEED, CALIBRATION_SEED = 1000, 2000
POST_TRAINING, AWARE = (8, 4, 2), (4, 2)  # bits of weights


def run(name: str, k: int) -> dict:
    """Right answers to the test samples of fold k, by how the net was made.

    `right`: {"float": n, "post-training 8": n, ...}, of `n_test`; `compared`: numbers that were equal in the module and
    all backends, by quantization-aware net; `seconds` of all.
    """
    torch.set_num_threads(1)
    start, case = time.perf_counter(), CASES[name]
    values, labels, folds = case.data()
    train, test = folds[k].train, folds[k].test
    encode = case.coder(values[train])
    spikes, calibration = encode(values[test], TEST_SEED), encode(values[train][:N_CALIBRATION], CALIBRATION_SEED)

    def trained(net: torch.nn.Module, part: int) -> torch.nn.Module:
        rate = LEARNING_RATES[part]
        return fit(net, case, lambda rows, seed: encode(values[train][rows], seed), labels[train], [k, part], rate)

    torch.manual_seed(k)
    begun = trained(case.layers(), 0)
    network = nw.from_torch(trained(copy.deepcopy(begun), 1), spikes[:2])
    outputs, compared = {"float": nw.simulate(network, spikes).output}, {}
    for bits in POST_TRAINING:
        program = nw.compile(network, case.chip, calibration, nw.Options(bits=bits))
        outputs[f"post-training {bits}"] = nw.simulate(program, spikes, backend="sequence").output
    for bits in AWARE:
        choices = {"bits": bits, "surrogate": "atan", "learn_parameters": case.learned}
        aware = trained(nn.quantize_aware(begun, case.chip, calibration, **choices), 1)
        outputs[f"aware {bits}"], compared[f"aware {bits}"] = everywhere(aware, spikes, calibration)
    right = {how: int((strongest_neuron(output) == labels[test]).sum()) for how, output in outputs.items()}
    return {"right": right, "n_test": len(test), "compared": compared, "seconds": time.perf_counter() - start}


def everywhere(aware: nn.QuantizedNetwork, spikes: np.ndarray, calibration: np.ndarray) -> tuple[np.ndarray, int]:
    """The output on all samples, and how many spikes and states were found equal in the module and every backend.

    Raises AssertionError for the first that differs.
    """
    program = nw.compile(aware.network(), aware.chip, calibration)
    runs = {backend: nw.simulate(program, spikes, backend, record="all") for backend in BACKENDS}
    found = compare_runs(program, runs)
    assert found.agree, str(found)
    with torch.no_grad():
        inside, n_compared = aware.record(spikes), 0
    for layer, numbers in inside.items():
        on_chip = {"spikes": runs["sequence"].spikes[layer], **runs["sequence"].states[layer]}
        for what, array in numbers.items():
            assert np.array_equal(array, on_chip[what]), f"layer {layer}: {what} of the module is another"
            n_compared += array.size
    return runs["sequence"].output, n_compared


def fit(
    net: torch.nn.Module, case: Case, spikes_of: Callable, labels: np.ndarray, seed: list[int], rate: float
) -> torch.nn.Module:
    """The net after `case.n_epochs` more epochs; `spikes_of(rows, seed)` encodes training samples, anew each time."""
    n_batches = -(-len(labels) // case.batch)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    steps = case.n_epochs * n_batches
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    order, wanted = np.random.default_rng(seed), torch.from_numpy(labels)
    net.train()
    for epoch in range(case.n_epochs):
        for i, rows in enumerate(np.array_split(order.permutation(len(labels)), n_batches)):
            nn.prepare_net(net)
            output = net(torch.from_numpy(spikes_of(rows, [*seed, epoch, i])))
            rates = (output[0] if isinstance(output, tuple) else output).mean(1)
            loss = torch.nn.functional.cross_entropy(COUNT_SCALE * rates, wanted[rows], label_smoothing=LABEL_SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    nn.prepare_net(net)
    return net.eval()
