import numpy as np
import pytest

from nwcompile.cost.time.work import RECEIVE, SEND
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import chips_used
from nwcompile.ir.connection import Conv2d
from nwcompile.ir.network import Network
from nwcompile.ir.noc.routing import find_chip_crossings
from nwcompile.ir.options import Options
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.place.chip_regions import (
    cluster_regions,
    region_sizes,
    sites_by_region,
    take_fewest_chips,
    twice_the_cores,
    whole_chips,
)
from nwcompile.passes.place.place import place
from nwcompile.passes.prepare.schedule import schedule
from tests.made.chips import small_chip
from tests.made.nets import FIXED, conv_net, dense_net, integers

BOARD = {"noc__columns": 8, "noc__rows": 8, "noc__chip_columns": 4, "noc__chip_rows": 4, "noc__chip_hop_cycles": 200,
         "core__max_in_axons": None, "core__max_out_axons": None, "core__synapse_bits": None}  # fmt: skip


def chips_of(chip: Chip, site: np.ndarray) -> np.ndarray:
    return chip.sites[site, 1] // 4 * 2 + chip.sites[site, 0] // 4


def test_regions_are_as_few_chips_as_hold_the_cores_and_alike():
    chip = small_chip(**BOARD)  # 4 chips of 32 cores
    assert region_sizes(chip, 32).tolist() == [32]
    assert region_sizes(chip, 33).tolist() == [16, 17]
    assert region_sizes(chip, 65).tolist() == [21, 22, 22]
    assert region_sizes(chip, 128).tolist() == [32, 32, 32, 32]


def test_one_region_where_nothing_is_slower_between_chips_or_cores_differ():
    alike = small_chip(**{**BOARD, "noc__chip_hop_cycles": None})
    assert region_sizes(alike, 128).tolist() == [128]
    unequal = small_chip(**BOARD, core__max_neurons=[64] * 64 + [32] * 64)
    assert region_sizes(unequal, 128).tolist() == [128]
    assert region_sizes(small_chip(**{**BOARD, "noc__chip_columns": 1, "noc__chip_rows": 1}), 128).tolist() == [128]
    slow_flits = small_chip(**{**BOARD, "noc__chip_hop_cycles": None}, noc__chip_link_cycles_per_flit=4)
    assert region_sizes(slow_flits, 128).tolist() == [32, 32, 32, 32]


def test_beyond_one_chip_numbers_of_cores_are_whole_chips_in_powers_of_two():
    chip = small_chip(**BOARD)
    assert [whole_chips(chip, n) for n in (7, 32, 33, 64, 65, 128)] == [7, 32, 64, 64, 128, 128]
    assert [twice_the_cores(chip, n) for n in (7, 20, 32, 64)] == [14, 32, 64, 128]
    six = small_chip(**{**BOARD, "noc__columns": 12})
    assert [whole_chips(six, n) for n in (33, 65, 129, 192)] == [64, 128, 192, 192]
    faulty = chip.replace({"noc.routing": "up-down", "noc.faults": ["0,0"]})
    assert [whole_chips(faulty, n) for n in (30, 31, 63)] == [30, 62, 126]
    alike = small_chip(**{**BOARD, "noc__chip_hop_cycles": None})
    assert (whole_chips(alike, 33), twice_the_cores(alike, 33)) == (33, 66)


def test_a_board_with_a_chip_too_small_for_a_region_has_none_at_any_number_of_cores():
    chip = small_chip(**{**BOARD, "noc__rows": 11, "noc__cores_per_router": 1})  # two chips of 4 x 3
    assert [region_sizes(chip, n).tolist() for n in (32, 64, 88)] == [[32], [64], [88]]
    assert [whole_chips(chip, n) for n in (17, 33, 70)] == [17, 33, 70]
    assert [twice_the_cores(chip, n) for n in (17, 33, 70)] == [34, 66, 88]


def test_cores_of_a_region_have_sites_of_one_chip():
    chip = small_chip(**BOARD)
    sizes = region_sizes(chip, 70)
    site = sites_by_region(chip, sizes, -np.arange(chip.n_cores))
    assert len(np.unique(site)) == 70
    assert np.array_equal(chips_of(chip, site), np.repeat([0, 1, 2], sizes))


def test_regions_of_a_map_are_its_quarters():
    network = conv_net(shape=(2, 8, 8), channels=3, n_out=8, padding=1)
    n = sum(network.node(name).n_neurons for name in network.layers)
    region = cluster_regions(network, np.ones(n, np.int64), np.arange(n), np.array([1, 1, 1, 1]))
    of_map = region[: 3 * 64].reshape(3, 8, 8)
    assert (of_map == np.kron([[0, 1], [2, 3]], np.ones((4, 4), int))).all()
    assert region[3 * 64 :].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    heavy = np.ones(n, np.int64)
    heavy[: 3 * 64] = 3 * np.tile(np.arange(64) < 8, 3) + 1  # the first row four times as heavy
    assert np.unique(cluster_regions(network, heavy, np.arange(n), np.array([1, 1]))[:64:8]).tolist() == [0, 1]


@pytest.mark.long
def test_default_mapping_of_a_board_sends_little_between_its_chips():
    chip = small_chip(**BOARD)
    edges = [Conv2d(a, b, integers((4, n, 3, 3)), padding=1) for a, b, n in (("in", "a", 1), ("a", "b", 4))]
    network = Network.from_arrays(dict.fromkeys("ab", FIXED), edges, {"in": (1, 12, 12)})
    activity = Activity.uniform(network, 2)
    slow = np.flatnonzero(find_chip_crossings(chip.grid, 4, 4))
    flits, core_of = [], []
    for method in ("floorline", "striped"):
        options = Options(n_cores=64, partitioner=method, placer="routed")
        mapping = partition(network, chip, activity, options).mapping
        core_of.append(mapping.core_of["b"])
        program = emit(network, schedule(network), place(mapping, network, chip, activity, options), chip, activity, {})
        flits.append(int(link_flits(program, activity)[:, slow].sum()))
    assert flits[0] < 0.25 * flits[1]  # half of them where moves are not kept within regions
    again = partition(network, chip, activity, Options(n_cores=64)).mapping
    assert np.array_equal(core_of[0], again.core_of["b"])


@pytest.mark.parametrize("optimize", ["time", "traffic"])
@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_a_net_without_any_work_is_spread_over_as_many_cores_as_asked_for(optimize, units):
    free = {f"cost__{event}_cycles": 0 for event in (*SEND, *RECEIVE)}
    chip, network = small_chip(**free, cost__units=units), dense_net(6, 100, 40)
    silent = Activity({name: np.zeros((2, network.node(name).n_neurons), np.int32) for name in network.offsets}, 1)
    assert partition(network, chip, silent, Options(optimize=optimize, n_cores=7)).mapping.n_cores == 7


def test_pixels_without_work_are_dealt_over_regions_by_number():
    network = conv_net(shape=(1, 8, 8), channels=1, n_out=4, padding=1)
    n = sum(network.node(name).n_neurons for name in network.layers)
    region = cluster_regions(network, np.zeros(n, np.int64), np.arange(n), np.array([1, 1]))
    assert np.bincount(region[:64]).tolist() == [32, 32]


@pytest.mark.parametrize("placer", ["anneal", "row-major", "spectral", "routed"])
def test_cores_are_placed_on_the_fewest_chips_of_a_board_that_hold_them(placer):
    chip, network = small_chip(**BOARD, core__max_neurons=4), dense_net(20, 80, 90)
    options = Options(n_cores=43, placer=placer)
    activity = Activity.uniform(network)
    mapping = place(partition(network, chip, activity, options).mapping, network, chip, activity, options)
    assert mapping.n_cores == 43 and chips_used(chip.noc, mapping.site_of) == 2
    mapping.verify(network, chip)


def test_the_whole_board_is_kept_where_sites_are_bound():
    chip, network = small_chip(**BOARD), dense_net(20, 30)
    mapping = partition(network, chip, Activity.uniform(network), Options(n_cores=2)).mapping
    assert take_fewest_chips(mapping, chip, Options())[0].noc.columns == 4
    last = (7, 7, 1)
    for options in (Options(fixed_sites={"fc1": (last,)}), Options(optimize="traffic"), Options(placer=place)):
        assert take_fewest_chips(mapping, chip, options) == (chip, mapping)
    for keys in ({"io.sites": ["7,7,1"]}, {"noc.routing": "up-down", "noc.faults": ["7,7"]}, {"noc.chip_columns": None,
                 "noc.chip_rows": None, "noc.chip_hop_cycles": None}):  # fmt: skip
        bound = chip.replace(keys)
        assert take_fewest_chips(mapping, bound, Options())[0] is bound
