"""Chips on which one limit binds, none can be kept, or all are met exactly: methods find a mapping or say why."""

from importlib.util import find_spec

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.activity import Activity
from nwcompile.ir.resources import RESOURCE_OF
from nwcompile.passes.analyze import capacity
from nwcompile.passes.partition.partition import PARTITIONERS, partition
from tests.made.chips import small_chip
from tests.made.nets import dense_net

NETWORK = dense_net(8, 24, 24)
METHODS = [m for m in PARTITIONERS if m != "hypergraph" or find_spec("mtkahypar")]
SURE = ("sequential", "floorline")  # find a mapping wherever slices are one
FREE = {"core.max_neurons": 10_000, "core.max_in_axons": None, "core.max_out_axons": None, "core.synapse_bits": None}
SLICES = np.arange(48) // 4  # 12 cores of 4 neurons, each of one layer


def on_chip(method: str, limits: dict):
    """The mapping by one method on 12 cores of these limits."""
    options = nw.Options(partitioner=method)
    return partition(NETWORK, small_chip().replace({**FREE, **limits}), Activity.uniform(NETWORK, 2), options).mapping


def used_by(core_of: np.ndarray) -> dict[str, int]:
    """The most that any core takes of each resource."""
    held, *_ = capacity.count_usage(NETWORK, small_chip(), core_of, int(core_of.max()) + 1)
    return {name: int(used.max()) for name, used in held.items()}


def found_or_explained(method: str, limits: dict, n_slices: int) -> dict[str, int] | None:
    """What the fullest cores hold; None where a method that need not find anything names the slices that fit."""
    try:
        mapping = on_chip(method, limits)
    except FitError as error:
        assert method not in SURE
        assert f"use partitioner='sequential', which needs {n_slices}" in str(error)
        return None
    return used_by(np.concatenate([mapping.core_of[name] for name in NETWORK.layers]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("resource", "limit", "n_slices"),
    [("neurons", 10, 5), ("in_axons", 24, 2), ("out_axons", 12, 2), ("synapse_bits", 2600, 5)],
)
def test_one_limit_that_binds_is_kept(method, resource, limit, n_slices):
    assert used_by(np.zeros(48, np.int32))[resource] > limit  # else it would not bind
    used = found_or_explained(method, {f"core.{RESOURCE_OF[resource].limit_key}": limit}, n_slices)
    assert used is None or used[resource] <= limit
    assert used is not None or resource == "out_axons"


@pytest.mark.parametrize("method", METHODS)
def test_chip_that_slices_fill_exactly_is_filled_or_the_error_names_the_slices(method):
    exact = used_by(SLICES)
    used = found_or_explained(method, {f"core.{RESOURCE_OF[name].limit_key}": n for name, n in exact.items()}, 12)
    assert used is None or used == exact


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"core.max_neurons": 3}, "  cores  network -> small  16 of 12  make fc1 smaller or raise noc.columns"),
        (
            {"core.max_in_axons": 23},
            "one neuron of fc2 alone takes 24: give it fewer inputs",
        ),
        ({"core.max_out_axons": 1}, "  cores  network -> small  24 of 12  make fc1 smaller or raise noc.columns"),
        (
            {"core.synapse_bits": 64},
            "one neuron of fc2 alone takes 1536: give it fewer inputs",
        ),
    ],
)
def test_chip_on_which_nothing_fits_is_refused_by_the_limit_that_is_too_small(method, limits, said):
    with pytest.raises(FitError) as error:
        on_chip(method, limits)
    assert said in str(error.value)
