"""A convolutional net that others trained for the Speck chip: spiking as in sinabs, and as accurate; then on a chip."""

from importlib import import_module

import numpy as np
import pytest
import torch

import nwcompile as nw
from tests.frontend.frameworks import framework

example = import_module("examples.05_sinabs_mnist")
N_STEPS = 100


@pytest.fixture(scope="module")
def ann(reference):
    return example.trained(reference / "models" / "sinabs" / "mnist_params.pt")


def compiled(ann, x, calibration):
    network = nw.from_torch(ann, x[:2, :4], relu=example.IAF)
    chip = nw.Chip.load("tiny").replace(example.ROOM)
    return network, nw.compile(network, chip, calibration, nw.Options(partitioner="sequential", placer="row-major"))


def test_network_spikes_as_the_one_that_sinabs_makes(ann):
    images, _ = example.digits(0, 2500)
    x = example.encode(images, 30)
    convert = framework("sinabs.from_torch").from_model
    spiking = convert(ann, num_timesteps=30).spiking_model
    given = {}
    for name, part in spiking.named_children():
        part.register_forward_hook(lambda _, __, result, name=name: given.update({name: result}))
    with torch.no_grad():
        spiking(torch.from_numpy(x).float().flatten(0, 1))
    network = nw.from_torch(ann, x[:, :4], relu=example.IAF)
    run = nw.simulate(network, x)
    assert network.layers == ("1", "4", "7", "11", "12")
    for layer in network.layers[:-1]:
        got = run.spikes[layer]
        assert got.any()
        np.testing.assert_array_equal(got, given[layer].numpy().reshape(got.shape), layer)
    np.testing.assert_allclose(run.output, given["12"].numpy().reshape(run.output.shape), atol=1e-5)


def test_network_compiles_for_a_chip_with_weight_sharing(ann):
    images, labels = example.digits(0, 1000)
    x = example.encode(images, 30)
    network, program = compiled(ann, x, x[:1, :6])
    shared = [c.weight.size for c in program.network.connections if isinstance(c, nw.Conv2d)]
    assert program.chip.weights.sharing and shared == [20 * 25, 32 * 20 * 100, 128 * 32 * 36]
    assert example.accuracy(network, x, labels) >= 0.8
    assert example.accuracy(program, x, labels, backend="sequence") >= 0.8


@pytest.mark.long
def test_network_is_as_accurate_as_it_has_to_be(ann):
    images, labels = example.digits(0, 5)
    assert len(images) == 1000
    x = example.encode(images, N_STEPS)
    network, program = compiled(ann, x, example.encode(example.digits(1, 1000)[0], 25, seed=1))
    few = slice(None, None, 10)
    assert example.accuracy(program, x[few], labels[few], backend="sequence") >= 0.94
    assert nw.crosscheck(program, x[:1, :8]).agree
    assert example.accuracy(network, x, labels) >= 0.96
