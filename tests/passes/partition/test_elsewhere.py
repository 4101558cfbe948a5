"""Which shipped chips and boards a FitError names: each that is said to take the network does, and quickly."""

import re
import time

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.noc.board import chips_used
from nwcompile.ir.options import Options
from nwcompile.passes.partition import elsewhere as stage
from nwcompile.passes.partition.elsewhere import BOARDS, CHIPS, elsewhere
from tests.chips import small_chip

SPEC = NeuronSpec(threshold=1.0, reset="zero", strict=True)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) / 8


def dense(*sizes: int, spec: NeuronSpec = SPEC) -> Network:
    names = ["in", *(f"fc{i}" for i in range(1, len(sizes)))]
    edges = [Dense(a, b, floats(n, m)) for a, b, m, n in zip(names, names[1:], sizes, sizes[1:], strict=False)]
    return Network.from_arrays({name: (spec, (n,)) for name, n in zip(names[1:], sizes[1:], strict=True)}, edges,
                               {"in": (sizes[0],)})  # fmt: skip


def maps(channels: int, side: int = 64) -> Network:
    edges = [Conv2d("in", "a", floats(channels, 2, 3, 3), padding=1),
             Conv2d("a", "b", floats(channels, channels, 3, 3), padding=1)]  # fmt: skip
    shape = channels, side, side
    return Network.from_arrays({"a": (SPEC, shape), "b": (SPEC, shape)}, edges, {"in": (2, side, side)})


def last_line(network: Network, chip: str) -> str:
    with pytest.raises(nw.FitError) as error:
        nw.compile(network, chip)
    assert str(error.value).splitlines()[-1] == error.value.elsewhere
    return error.value.elsewhere


def test_a_network_too_wide_for_speck_is_sent_to_the_chips_that_take_it():
    said = last_line(dense(100, 3000, 40), "speck")
    assert said.startswith("as it is it fits loihi1 (5 of 128 cores), loihi2 (")
    for name, n in re.findall(r"(\w+) \((\d+) of \d+ cores\)", said.partition(";")[0]):
        program = nw.compile(dense(100, 3000, 40), name, options=Options(optimize="cores", placer="row-major"))
        assert program.mapping.n_cores <= int(n)


def test_a_network_too_large_for_one_chip_is_sent_to_the_board_of_it_first():
    network = maps(5)
    said = last_line(network, "spinnaker2")
    found = re.match(r"as it is it fits spinnaker2_48 \((\d+) of 48 chips\), loihi1 \(\d+ of 128 cores\)", said)
    options = Options(partitioner="sequential", placer="row-major")
    program = nw.compile(network, "spinnaker2_48", options=options)
    assert chips_used(program.chip.noc, program.mapping.site_of) == int(found[1]) == 2


def test_a_network_too_large_to_try_is_judged_by_its_totals(monkeypatch):
    monkeypatch.setattr(stage, "MOST_SYNAPSES", 1000)
    n_chips = -(-2 * 10 * 64 * 64 // 256) / 152
    said = last_line(maps(10), "spinnaker2")
    assert said.startswith(
        f"by its totals it may fit spinnaker2_48 (at least {int(np.ceil(n_chips))} of 48 chips), loihi1 ("
    )
    assert "as it is" not in said


def test_a_network_that_no_chip_can_have_is_told_so():
    spec = SPEC.replace(reset_timing="next", refractory=100)
    assert last_line(dense(4, 3, spec=spec), "loihi1") == "as it is it fits none of the shipped chips and boards"


def test_nothing_is_said_for_a_chip_of_ones_own_or_where_cores_are_bound():
    network, loihi1 = dense(4, 3), Chip.load("loihi1")
    assert elsewhere(network, small_chip(), Options()) is None
    assert elsewhere(network, loihi1.replace({"noc.rows": 2}), Options()) is None
    assert elsewhere(network, loihi1, Options(n_cores=2)) is None
    assert elsewhere(network, loihi1, Options(fixed_sites={"fc1": ((0, 0, 0),)})) is None
    assert "loihi1" not in elsewhere(network, loihi1, Options()).replace("loihi1_nahuku", "")


def test_hopeless_networks_are_refused_in_a_second_or_so():
    network = maps(48, side=96)
    last_line(network, "truenorth")
    start = time.perf_counter()
    last_line(network, "truenorth")
    assert time.perf_counter() - start < 3


def test_proposed_chips_are_shipped_and_their_boards_are_boards():
    assert {*CHIPS, *BOARDS.values()} <= {*Chip.names()}
    assert all(Chip.load(board).is_board and not Chip.load(name).is_board for name, board in BOARDS.items())
