"""Layers fixed at sites of unequal cores: numbered, and cut where too large, so that they fit there."""

import numpy as np
import pytest

from nwcompile.errors import FitError
from nwcompile.ir.activity import Activity
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.options import Options
from nwcompile.passes.analyze import capacity
from nwcompile.passes.analyze.fixed_sites import split_to_sites
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.place.place import place
from tests.made.chips import small_chip
from tests.made.nets import dense_net
from tests.made.partitioners import METHODS


def held(network, chip, mapping) -> np.ndarray:
    """bool[core]: whether its site holds each."""
    flat = np.concatenate([mapping.core_of[name] for name in network.layers])
    used = capacity.used_by_core(network, chip, flat, mapping.n_cores)
    return (used <= capacity.site_limits(chip)[chip.site_index(mapping.site_of), : used.shape[1]]).all(1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_layers_fixed_at_small_cores_fit_there(method, seed):
    rng = np.random.default_rng(seed)
    network = dense_net(8, *(int(n) for n in rng.integers(20, 100, 3)))
    chip = small_chip(core__max_neurons=[16, 32, 16, 64, 64, 64, 64, 64, 32, 64, 16, 64], core__max_in_axons=None,
                      core__max_out_axons=None)  # fmt: skip
    at = [chip.sites[i].tolist() for i in rng.permutation([0, 1, 2, 8])[:2]]
    layers = rng.permutation(list(network.layers))[:2]
    options = Options(partitioner=method, fixed_sites={str(n): [tuple(s)] for n, s in zip(layers, at, strict=True)})
    activity = Activity.uniform(network)
    mapping = place(partition(network, chip, activity, options).mapping, network, chip, activity, options)
    mapping.verify(network, chip)
    assert held(network, chip, mapping).all()
    for name, site in zip(layers, at, strict=True):
        assert mapping.site_of[mapping.core_of[str(name)].min()].tolist() == site


def test_a_core_too_large_for_its_site_is_cut_and_one_that_fits_is_only_numbered_anew():
    network, chip = dense_net(3, 20, 4), small_chip(core__max_neurons=[4] + [24] * 11)
    one = np.zeros(24, np.int32)
    options = Options(fixed_sites={"fc1": [(0, 0, 0)]})
    assert split_to_sites(network, chip, one, options).tolist() == [0] * 4 + [1] * 20
    two = np.repeat([0, 1], [21, 3])
    options = Options(fixed_sites={"fc2": [(0, 0, 0)]})
    assert split_to_sites(network, chip, two, options).tolist() == [1] * 21 + [0] * 3
    chip = small_chip(core__synapse_bits=[192] + [1 << 17] * 11)  # one row of 64 bits for every in-axon
    assert split_to_sites(network, chip, one, Options(fixed_sites={"fc1": [(0, 0, 0)]})).tolist() == [0] * 6 + [1] * 18


def test_two_layers_of_one_core_fixed_apart_both_leave_it():
    network = dense_net(3, 20, 4)
    chip = small_chip(core__max_neurons=[4, 2] + [24] * 10)
    options = Options(fixed_sites={"fc2": [(0, 0, 1)], "fc1": [(0, 0, 0)]})
    cores = split_to_sites(network, chip, np.zeros(24, np.int32), options)
    assert cores.tolist() == [1] * 4 + [2] * 16 + [0] * 2 + [2] * 2
    options = Options(fixed_sites={"fc1": [(1, 0, 0)], "fc2": [(2, 0, 0)]})  # both hold all of them
    assert split_to_sites(network, chip, np.zeros(24, np.int32), options).tolist() == [0] * 20 + [1] * 4


@pytest.mark.parametrize("keys, told", [
    ({"core__max_neurons": [4] + [24] * 11}, "neurons  fc1 -> core 0  24 of 4"),
    ({"core__synapse_bits": [63] + [1 << 17] * 11}, "synapse memory  fc2 -> core 0  1856 of 63"),
])  # fmt: skip
def test_no_core_is_cut_where_their_number_is_given_or_nothing_fits(keys, told):
    network, n_cores = dense_net(3, 20, 4), 1 if "core__max_neurons" in keys else None
    options = Options(partitioner="sequential", n_cores=n_cores, fixed_sites={"fc1": [(0, 0, 0)]})
    with pytest.raises(FitError, match=told):
        partition(network, small_chip(**keys), Activity.uniform(network), options)


@pytest.mark.parametrize("keys, n_cores", [({}, 2), ({"core__max_layers": 1}, None)])
def test_cores_that_may_not_be_cut_are_numbered_anew(keys, n_cores):
    network, chip = dense_net(3, 20), small_chip(core__max_neurons=[4] + [16] * 11, **keys)
    options = Options(partitioner=lambda *_: {"fc1": np.repeat([0, 1], [16, 4])}, n_cores=n_cores,
                      fixed_sites={"fc1": [(0, 0, 0)]})  # fmt: skip
    mapping = partition(network, chip, Activity.uniform(network), options).mapping
    assert mapping.core_of["fc1"].tolist() == [1] * 16 + [0] * 4
    assert mapping.site_of[0].tolist() == [0, 0, 0]


def test_a_layer_without_sites_is_as_one_that_is_not_fixed():
    network, chip = dense_net(3, 20, 4), small_chip(core__max_neurons=[4] + [24] * 11)
    cores = np.repeat([0, 1], [21, 3])
    options = Options(fixed_sites={"fc1": [], "fc2": [(0, 0, 0)]})
    assert split_to_sites(network, chip, cores, options).tolist() == [1] * 21 + [0] * 3
    cores = np.repeat([0, 1], [19, 5])
    options = Options(fixed_sites={"fc1": [], "fc2": [(1, 0, 0)]})
    assert split_to_sites(network, chip, cores, options).tolist() == [1] * 19 + [0] * 5


def test_a_mapping_of_another_kind_is_never_cut():
    network, chip = dense_net(3, 20, 4), small_chip(core__max_neurons=[4] + [24] * 11)
    given = Mapping.from_arrays({"fc1": np.zeros(20, int), "fc2": np.zeros(4, int)}, chip.sites[1:2])
    options = Options(partitioner=lambda *_: given, fixed_sites={"fc1": [(0, 0, 0)]})
    with pytest.raises(FitError, match="neurons  fc1 -> core 0  24 of 4"):
        partition(network, chip, Activity.uniform(network), options)
