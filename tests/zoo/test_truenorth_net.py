"""A network made for TrueNorth lands on five of its cores as it is, within three points of one with free weights."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from benchmarks.folds import mnist, stratified
from tests.zoo.cell import label_of
from tests.zoo.inputs import poisson
from tests.zoo.truenorth_net import Patches, fixed, of_classes, train, votes, with_axon_types

N_STEPS = 8
N_EPOCHS = 4
MOST_LOSS = 0.03  # Three points of accuracy, the goal.


def share_right(counts, labels: np.ndarray) -> float:
    return float((np.asarray(counts).argmax(1) == labels).mean())


@pytest.mark.long
def test_network_of_patches_and_axon_types_lands_on_truenorth_near_the_accuracy_of_free_weights():
    images, labels = mnist()
    fold = stratified(labels, 5)[0]
    x = poisson(torch.from_numpy(images)[:, None], N_STEPS, 1.0)
    x_train, y_train = x[:, fold.train], torch.from_numpy(labels[fold.train])
    x_test, y_test = x[:, fold.test], labels[fold.test]

    torch.manual_seed(0)
    free = train(Patches(), x_train, y_train, N_EPOCHS, 5e-3)
    torch.manual_seed(0)
    typed = fixed(train(with_axon_types(Patches()), x_train, y_train, N_EPOCHS, 1e-2))
    with torch.no_grad():
        in_float = share_right(votes(free, x_test), y_test)
    for linear in (*typed.patches, typed.out):
        assert all(len(np.unique(row[row != 0])) <= 4 for row in linear.weight.detach().numpy())

    calibration = x_train[:, :32].numpy()
    network = nw.from_torch(typed, calibration, "TB")
    program = nw.compile(network, "truenorth", calibration)
    output = nw.simulate(program, x_test.numpy(), backend="sequence").output
    assert label_of(program.manifest.get("legalization", [])) == "exact"
    assert program.mapping.n_cores == 5  # one a patch, one for the votes
    assert in_float > 0.91
    assert share_right(of_classes(output.mean(1)), y_test) >= in_float - MOST_LOSS
    assert nw.crosscheck(program, x_test[:, :1].numpy()).agree
