from dataclasses import replace

import numpy as np
import torch

import nwcompile as nw
from examples import mnist_snn


def few(n):
    data = mnist_snn.digits(seed=3)
    return replace(data, train_images=data.train_images[:n], train_labels=data.train_labels[:n])


def test_digits_are_split_with_equal_shares_and_without_overlap():
    data = mnist_snn.digits(seed=3)
    assert data.train_images.shape == (4000, 784)
    assert np.bincount(data.test_labels).tolist() == [100] * 10
    assert np.bincount(data.train_labels).tolist() == [400] * 10
    assert (data.test_labels[:-1] > data.test_labels[1:]).any()  # shuffled
    images = np.concatenate([data.train_images, data.test_images])
    other = mnist_snn.digits(seed=4)
    everything = np.concatenate([other.train_images, other.test_images])
    np.testing.assert_array_equal(np.sort(images.sum(1)), np.sort(everything.sum(1)))
    assert (images.min(), images.max()) == (0, 1)


def test_encode_draws_the_same_spikes_for_the_same_seed_at_the_rate_of_the_pixels():
    images = np.array([[0.0, 0.25, 1.0]], np.float32)
    spikes = mnist_snn.encode(images, seed=1, n_steps=4000)
    assert spikes.shape == (1, 4000, 3)
    assert spikes.dtype == np.float32
    np.testing.assert_allclose(spikes.mean(1), images, atol=0.03)
    np.testing.assert_array_equal(spikes, mnist_snn.encode(images, seed=1, n_steps=4000))


def test_train_gives_the_same_network_for_the_same_seed():
    data = few(128)
    torch.manual_seed(0)
    one = mnist_snn.train(data, seed=5, n_epochs=2)
    torch.manual_seed(1)
    two = mnist_snn.train(data, seed=5, n_epochs=2)
    assert all(torch.equal(v, two.state_dict()[k]) for k, v in one.state_dict().items())
    other = mnist_snn.train(data, seed=6, n_epochs=2)
    assert not torch.equal(one[0].weight, other[0].weight)


def test_train_learns_and_the_imported_network_gives_its_answers():
    data = few(1000)
    losses = []
    net = mnist_snn.train(data, n_epochs=2, on_epoch=lambda epoch, loss: losses.append(loss))
    spikes = mnist_snn.encode(data.test_images[:200])
    in_float = mnist_snn.run(net, spikes)
    assert losses[-1] < losses[0]
    assert mnist_snn.accuracy(in_float, data.test_labels[:200]) > 0.6
    imported = nw.simulate(nw.from_torch(net, spikes[:2]), spikes).output
    assert (mnist_snn.answers(imported) == mnist_snn.answers(in_float)).mean() > 0.98


def test_answers_are_the_neuron_with_the_most_spikes_the_first_of_a_tie():
    spikes = np.zeros((2, 3, 10))
    spikes[0, :2, 7] = spikes[1, 0, 4] = spikes[1, 1, 9] = 1
    assert mnist_snn.answers(spikes).tolist() == [7, 4]
