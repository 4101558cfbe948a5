"""Which shipped chips and boards a FitError names: each that is said to take the network does, and quickly."""

import re

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import chips_used
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.stages import refusal
from nwcompile.passes.stages import run as stages
from nwcompile.passes.stages.refusal import describe_other_chips
from tests.made.chips import small_chip

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
    assert said.startswith("it fits unchanged on loihi1 (5 of 128 cores), loihi2 (")
    for name, n in re.findall(r"(\w+) \((\d+) of \d+ cores\)", said.partition(";")[0]):
        program = nw.compile(dense(100, 3000, 40), name, options=Options(optimize="cores", placer="row-major"))
        assert program.mapping.n_cores <= int(n)


def test_a_network_too_large_for_one_chip_is_sent_to_the_board_of_it_first():
    network = maps(5)
    said = last_line(network, "spinnaker2")
    found = re.match(r"it fits unchanged on spinnaker2_48 \((\d+) of 48 chips\), loihi1 \(\d+ of 128 cores\)", said)
    options = Options(partitioner="sequential", placer="row-major")
    program = nw.compile(network, "spinnaker2_48", options=options)
    assert chips_used(program.chip.noc, program.mapping.site_of) == int(found[1]) == 2


def test_a_network_too_large_to_try_is_judged_by_its_totals(monkeypatch):
    monkeypatch.setattr(refusal, "MOST_SYNAPSES", 1000)
    n_chips = -(-2 * 10 * 64 * 64 // 256) / 152
    said = last_line(maps(10), "spinnaker2")
    assert said.startswith(
        f"judged by totals alone, it may fit on spinnaker2_48 (at least {int(np.ceil(n_chips))} of 48 chips), loihi1 ("
    )


def test_a_network_that_no_chip_can_have_is_told_so():
    spec = SPEC.replace(reset_timing="next", refractory=100)
    assert last_line(dense(4, 3, spec=spec), "loihi1") == "no shipped chip or board takes it unchanged"


def test_nothing_is_said_for_a_chip_of_ones_own_or_where_cores_are_bound():
    network, loihi1 = dense(4, 3), Chip.load("loihi1")
    assert describe_other_chips(network, small_chip(), Options()) is None
    assert describe_other_chips(network, loihi1.replace({"noc.rows": 2}), Options()) is None
    assert describe_other_chips(network, loihi1, Options(n_cores=2)) is None
    assert describe_other_chips(network, loihi1, Options(fixed_sites={"fc1": ((0, 0, 0),)})) is None
    assert "loihi1" not in describe_other_chips(network, loihi1, Options()).replace("loihi1_nahuku", "")


def test_hopeless_networks_are_refused_after_a_look_at_few_synapses(monkeypatch):
    looked_at = []

    def counted(network, *given):
        looked_at.append(sum(synapse_count(network, c) for c in network.connections))
        return partition(network, *given)

    monkeypatch.setattr(stages, "partition", counted)
    last_line(maps(8, side=32), "truenorth")
    assert 0 < sum(looked_at) <= refusal.MOST_SYNAPSES
    looked_at.clear()
    last_line(maps(48, side=96), "truenorth")  # of 190 million synapses
    assert sum(looked_at) == 0


def test_the_look_at_synapses_ends_when_all_that_may_be_looked_at_are(monkeypatch):
    network = dense(100, 3000, 40)
    n_synapses = 100 * 3000 + 3000 * 40
    n_looks = []
    for most in (1, 2):
        monkeypatch.setattr(refusal, "MOST_SYNAPSES", most * (n_synapses + 1000))
        n_looks.append(last_line(network, "speck").partition("; judged by totals")[0].count(" of "))
    assert n_looks == [1, 2]


def test_shipped_files_say_which_are_proposed_and_of_which_chip_a_board_is():
    shipped = {name: Chip.load(name) for name in Chip.names()}
    boards = {name: chip.listing.board_of for name, chip in shipped.items() if chip.listing.board_of is not None}
    loihi2 = dict.fromkeys(("loihi2_hala", "loihi2_kapoho"), "loihi2")
    assert boards == {"loihi1_nahuku": "loihi1", **loihi2, "spinnaker2_48": "spinnaker2"}
    assert all(shipped[name].is_board and not shipped[of].is_board for name, of in boards.items())
    assert not any(shipped[name].listing.proposed for name in ("tiny", "ladderbus", "loihi1_davies2018", "mesh_def"))
    named = [chip.name for chip in shipped["loihi2"].proposals()]
    assert named[:4] == ["loihi2_kapoho", "loihi2_hala", "h1v1", "h1v2"]
    assert "loihi2" not in named and "tiny" not in named


def test_a_folder_of_ones_own_chips_is_proposed_too(tmp_path):
    mine = 'name = "mine"\nbase = "loihi1"\nproposed = true\n[noc]\ncolumns = 2\n[sources]\nnoc = "assumed: a test"\n'
    (tmp_path / "mine.toml").write_text(mine)
    (tmp_path / "other.toml").write_text("[project]\nname = 'no chip'\n")
    small = (
        mine.replace("mine", "small")
        .replace("columns = 2", "columns = 1\nrows = 1\ncores_per_router = 1")
        .replace("proposed = true\n", "")
    )
    (tmp_path / "small.toml").write_text(small)
    with pytest.raises(nw.FitError) as error:
        nw.compile(dense(100, 3000, 40), Chip.load(tmp_path / "small.toml"))
    assert "loihi1 (5 of 128 cores), loihi2 (4 of 128 cores), mine (5 of 32 cores)" in error.value.elsewhere
    assert "small" not in error.value.elsewhere


@pytest.mark.parametrize("line, text", [
    ("proposed = 1", "proposed: expected true or false, got 1"),
    ("board_of = 2", "board_of: expected the name of a chip, got 2"),
    ('board_of = "loihi1"', "board_of: this is one chip; give noc.chip_columns or noc.chip_rows, or leave it out"),
])  # fmt: skip
def test_listing_keys_are_checked(line, text):
    with pytest.raises(nw.ChipError) as error:
        Chip.from_toml(f'name = "mine"\nbase = "loihi1"\n{line}\n', "mine.toml")
    assert str(error.value) == f"mine.toml: {text}"


def test_a_network_of_more_weights_than_axon_types_is_not_sent_to_truenorth():
    assert "truenorth" not in describe_other_chips(dense(100, 60), Chip.load("loihi1"), Options())
    few = np.where(floats(60, 100) > 0, np.float32(1), np.float32(-1))
    network = Network.from_arrays({"a": (SPEC.replace(strict=False), (60,))}, [Dense("in", "a", few)], {"in": (100,)})
    assert "truenorth (at least 1 of 4096 cores)" in describe_other_chips(network, Chip.load("loihi1"), Options())


def test_a_network_of_very_long_delays_is_judged_by_its_totals_relay_neurons_among_them(monkeypatch):
    monkeypatch.setattr(stages, "relay_delays", None)  # none is made to be counted
    edges = [Dense("in", "a", floats(8, 8)), Dense("a", "b", floats(8, 8), delay=500_000)]
    said = describe_other_chips(
        Network.from_arrays({"a": SPEC, "b": SPEC}, edges, {"in": 8}), Chip.load("speck"), Options()
    )
    n_relays = 8 * (-(-500_001 // (1 + Chip.load("loihi1").neuron.delay_max_steps)) - 1)
    assert f"judged by totals alone, it may fit on loihi1 (at least {-(-(n_relays + 16) // 1024)} of 128 cores)" in said


def test_a_network_in_integers_is_sent_to_chips_whose_clamps_make_no_difference():
    weight = np.random.default_rng(0).integers(0, 6, (6, 5)).astype(np.int8)  # membranes never fall below 0
    spec = NeuronSpec(threshold=512, decay_v=2048, v_min=0, fixed=FixedPoint(), reset="zero")
    network = Network.from_arrays({"a": (spec, (6,))}, [Dense("in", "a", weight)], {"in": 5})
    assert network.is_fixed
    said = describe_other_chips(network, Chip.load("speck"), Options())
    assert "loihi1 (1 of 128 cores)" in said and nw.compile(network, "loihi1").mapping.n_cores == 1
    acts = Network.from_arrays({"a": (spec, (6,))}, [Dense("in", "a", weight - 3)], {"in": 5})
    assert "loihi1" not in describe_other_chips(acts, Chip.load("speck"), Options())


def test_a_fan_in_that_would_be_split_is_judged_by_its_totals():
    said = describe_other_chips(dense(20000, 4), Chip.load("h1v1"), Options())
    assert said.endswith("; judged by totals alone, it may fit on loihi2 (at least 1 of 128 cores)")


def test_speck_is_not_named_where_spikes_come_too_late_or_go_too_far():
    edges = [Dense("in", "a", floats(4, 6)), Dense("a", "a", floats(4, 4), delay=5)]
    late = Network.from_arrays({"a": SPEC}, edges, {"in": 6})
    shape = (5, 128, 128)  # on two cores, each of which sends to both, and to b and c
    edges = [Conv2d("in", "a", floats(5, 2, 1, 1)), Conv2d("a", "a", floats(5, 5, 1, 1)),
             *(Conv2d("a", name, floats(1, 5, 1, 1)) for name in "bc")]  # fmt: skip
    layers = {"a": (SPEC, shape), "b": (SPEC, (1, 128, 128)), "c": (SPEC, (1, 128, 128))}
    far = Network.from_arrays(layers, edges, {"in": (2, 128, 128)})
    for network in (late, far):
        said = describe_other_chips(network, Chip.load("h1v1"), Options())
        assert "loihi1 (" in said and "speck" not in said
        with pytest.raises(nw.FitError):
            nw.compile(network, "speck")
