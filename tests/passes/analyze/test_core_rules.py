"""Layers and destinations of a core: counted exactly, refused by name, and kept by the sequential partitioner."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.analyze.core_rules import split_by_layers
from nwcompile.passes.stages.refusal import describe_other_chips
from tests.made.chips import small_chip
from tests.made.nets import FIXED, dense_net, integers
from tests.made.violations import first_lines, lines


def on_cores(network: Network, **core_of) -> Mapping:
    n_cores = 1 + max(max(cores) for cores in core_of.values())
    return Mapping.from_arrays(core_of, small_chip().sites[:n_cores])


def test_core_rules_count_the_layers_of_a_core():
    network, chip = dense_net(2, 3, 2), small_chip(core__max_layers=1)
    assert lines(network, chip, mapping=on_cores(network, fc1=[0] * 3, fc2=[1] * 2)) == []
    assert lines(network, chip, mapping=on_cores(network, fc1=[0] * 3, fc2=[0, 1])) == [
        "layers of a core  fc1 -> core 0  2 of 1  give each of the 2 layers cores of its own or raise core.max_layers"
    ]


def test_core_rules_count_the_cores_that_a_core_sends_to_itself_among_them():
    network = dense_net(2, 2, 4, recurrent=True)
    mapping = on_cores(network, fc1=[0, 0], fc2=[1, 2, 3, 3])
    assert lines(network, small_chip(core__max_destinations=4), mapping=mapping) == []
    advice = "make what fc1 feeds (fc2, fc1) so small that it takes 3 cores or raise core.max_destinations"
    assert lines(network, small_chip(core__max_destinations=3), mapping=mapping) == [
        f"destination cores  fc1 -> core 0  4 of 3  {advice}"
    ]


def test_core_rules_count_the_cores_that_one_neuron_sends_to():
    edges = [Dense("in", "a", integers((2, 1))), Dense("a", "b", integers((2, 2)))]
    network = Network.from_arrays({"a": (FIXED, (2,)), "b": (FIXED, (2,))}, edges, {"in": (1,)})
    chip = small_chip(core__max_neuron_destinations=1)
    assert lines(network, chip, mapping=on_cores(network, a=[0, 0], b=[1, 1])) == []
    advice = "make what a feeds (b) so small that it takes 1 core or raise core.max_neuron_destinations"
    assert lines(network, chip, mapping=on_cores(network, a=[0, 0], b=[1, 2])) == [
        f"destination cores of a neuron  a -> core 0  2 of 1  {advice}"
    ]


def test_core_rules_are_those_of_each_core_by_itself():
    network = dense_net(2, 2, 2)
    mapping = Mapping.from_arrays({"fc1": [0, 0], "fc2": [1, 2]}, small_chip().sites[[1, 2, 3]])
    assert lines(network, small_chip(core__max_destinations=[1, 2] + [1] * 10), mapping=mapping) == []
    assert len(lines(network, small_chip(core__max_destinations=[2, 1] + [2] * 10), mapping=mapping)) == 1


def test_core_rules_show_the_worst_five_cores_and_count_the_others():
    network = dense_net(1, 7, 3)
    mapping = on_cores(network, fc1=list(range(7)), fc2=[7, 8, 9])
    found = lines(network, small_chip(core__max_destinations=1), mapping=mapping)
    assert [line.split("  ")[1] for line in found] == [f"fc1 -> core {c}" for c in range(5)] + ["fc1 -> 2 more cores"]


@pytest.mark.parametrize(
    ("rule", "n_cores"), [({}, 2), ({"core__max_layers": 1}, 3), ({"core__max_destinations": 1}, 3)]
)
def test_compile_shares_no_core_where_a_rule_forbids_it_and_says_how_it_cut(rule, n_cores):
    network = dense_net(2, 40, 40, 40)
    program = nw.compile(network, small_chip(**rule))
    assert program.mapping.n_cores == n_cores
    warning = (
        "small limits the layers or destinations of a core, which partitioner 'floorline' cannot keep: cores are cut "
        "as with partitioner='sequential'"
    )
    assert (warning in program.manifest["warnings"]) == bool(rule)
    told = nw.compile(network, small_chip(**rule), options=nw.Options(partitioner="sequential"))
    assert warning not in told.manifest["warnings"]


@pytest.mark.parametrize("method", ["striped", "streaming", "kernighan-lin", "metis"])
def test_method_that_cannot_keep_a_rule_is_refused(method):
    with pytest.raises(nw.OptionError) as error:
        nw.compile(dense_net(2, 40, 40), small_chip(core__max_layers=1), options=nw.Options(partitioner=method))
    assert str(error.value) == (
        f"small limits the layers or destinations of a core, which partitioner '{method}' cannot keep; use "
        "partitioner='sequential'"
    )


def speck_net(n_readers: int) -> Network:
    """A convolution read by several layers, each too large for a core of another."""
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False, v_min=-1.0)
    names = [f"b{i}" for i in range(n_readers)]
    edges = [Conv2d("in", "a", np.full((2, 1, 1, 1), 0.5, np.float32))]
    edges += [Conv2d("a", name, np.full((2, 2, 1, 1), 0.5, np.float32)) for name in names]
    return Network.from_arrays(dict.fromkeys(["a", *names], spec), edges, {"in": (1, 8, 8)})


def test_speck_takes_two_readers_and_copies_a_layer_for_a_third():
    x = np.ones((1, 4, 1, 8, 8), np.int8)
    program = nw.compile(speck_net(2), "speck")
    assert program.mapping.n_cores == 3
    assert nw.crosscheck(program, x).agree
    program = nw.compile(speck_net(3), "speck")
    assert program.network.layers == ("a", "a/copy2", "b0", "b1", "b2") and program.mapping.n_cores == 5
    assert nw.crosscheck(program, x).agree
    assert np.array_equal(*(nw.simulate(program, x).spikes[name] for name in ("a", "a/copy2")))


def test_speck_refuses_more_copies_than_it_has_cores():
    with pytest.raises(nw.FitError) as error:
        nw.compile(speck_net(7), "speck")
    assert first_lines(error.value) == (
        "1 limit exceeded on speck\n  cores  network with copies -> speck  11 of 9  a needs up to 4 copies, 2 "
        "destination cores of a core: make what it feeds smaller or raise noc.columns"
    )


def test_chips_that_copy_neurons_are_named_where_another_refuses():
    said = describe_other_chips(speck_net(3), Chip.load("loihi1"), nw.Options())
    assert "speck (5 of 9 cores)" in said
    assert "speck" not in describe_other_chips(speck_net(7), Chip.load("loihi1"), nw.Options())


def test_speck_refuses_ten_layers():
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False)
    names = [f"a{i}" for i in range(10)]
    edges = [Dense(a, b, np.ones((2, 2), np.float32)) for a, b in zip(["in", *names], names, strict=False)]
    with pytest.raises(nw.FitError) as error:
        nw.compile(Network.from_arrays(dict.fromkeys(names, (spec, (2,))), edges, {"in": (2,)}), "speck")
    assert first_lines(error.value) == (
        "1 limit exceeded on speck\n  cores  network -> speck  10 of 9  use at most 9 layers or raise noc.columns"
    )


def test_truenorth_copies_a_layer_that_is_read_on_two_cores():
    spec = NeuronSpec(threshold=1.0, reset="zero", strict=False)
    edges = [Dense("in", "a", np.ones((20, 3), np.float32)), Dense("a", "b", np.ones((257, 20), np.float32))]
    network = Network.from_arrays({"a": (spec, (20,)), "b": (spec, (257,))}, edges, {"in": (3,)})
    program = nw.compile(network, Chip.load("truenorth"), options=nw.Options(placer="row-major"))
    assert program.network.layers == ("a", "a/copy2", "b") and program.mapping.n_cores == 4
    (row,) = program.manifest["legalization"]
    assert (row["was"], row["has"], row["how"], row["label"]) == (
        "spikes for more than 1 core", "1 destination core of a neuron", "20 more neurons, up to 2 copies of each",
        "exact",
    )  # fmt: skip
    x = (np.random.default_rng(0).random((2, 6, 3)) < 0.5).astype(np.int8)
    assert nw.crosscheck(program, x).agree


def test_a_core_with_too_many_layers_is_cut_into_as_few_as_can_run_them():
    network, chip = dense_net(*[4] * 8), small_chip(core__max_layers=3)
    core_of = np.repeat([0, 1, 1, 1, 1, 1, 2], 4)  # the layers of core 1 are five
    cut = split_by_layers(network, chip, core_of)
    assert cut.tolist() == np.repeat([0, 1, 1, 1, 2, 2, 3], 4).tolist()
    assert split_by_layers(network, small_chip(), core_of) is core_of
    mapping = nw.compile(network, chip, options=nw.Options(optimize="cores")).mapping
    assert mapping.n_cores == 3  # of seven layers
