"""What makes a network fit: each change that is named does, and a smaller one of its kind does not."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError, Violation
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import core_usage
from nwcompile.passes.partition import suggest_fit
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.partition.suggest_fit import shrink, smallest_change
from tests.made.chips import small_chip
from tests.made.gated_neurons import switched
from tests.made.nets import FIXED, conv_net, dense_net, integers, mixed_net, synapses


def told(network, chip) -> str:
    options = Options(partitioner="sequential")
    with pytest.raises(FitError) as error:
        nw.compile(network, chip, options=options)
    return str(error.value).splitlines()[-1]


def test_a_layer_too_large_by_a_few_neurons_is_told_how_many_cores_or_neurons():
    assert told(dense_net(2, 800), small_chip()) == (
        "it fits with 768 neurons in fc1 instead of 800, or 4 more cores (noc.columns=4)"
    )


def test_a_full_synapse_memory_is_told_how_many_bits():
    network, chip = dense_net(100, 120), small_chip(core__synapse_bits=100 * 64, core__max_neurons=12)
    found = told(network, chip)
    bits = int(found.split("-bit weights")[0].split()[-1])
    fits = [b for b in range(1, 9) if _fits(network, chip, b)]
    assert bits == max(fits) < 8


def _fits(network, chip, bits) -> bool:
    narrow = Network(network.inputs, network.nodes, tuple(c.replace(weight_bits=bits) for c in network.connections))
    try:
        partition(narrow, chip, Activity.uniform(network), Options(partitioner="sequential"))
    except FitError:
        return False
    return True


def test_a_neuron_that_no_core_holds_is_told_which_layer_to_shrink():
    edges = [Dense("in", "a", integers((300, 4))), Dense("a", "b", integers((8, 300), low=1))]  # zeros are no axons
    network = Network.from_arrays({"a": FIXED, "b": FIXED}, edges, {"in": (4,)})
    assert told(network, small_chip()) == "it fits with 256 neurons in a instead of 300"


def test_a_neuron_that_no_core_holds_is_tried_once_on_cores_that_are_alike(monkeypatch):
    tried = []
    fill = core_usage.fill_in_turn
    monkeypatch.setattr(core_usage, "fill_in_turn", lambda *given: tried.append(1) or fill(*given))
    wrapping = FIXED.replace(fixed=nw.Chip.load("truenorth").fixed_point)
    network = Network.from_arrays({"a": wrapping}, [Dense("in", "a", integers((10, 784), low=1))], {"in": (784,)})
    with pytest.raises(FitError, match="one neuron of a alone takes 784"):
        nw.compile(network, "truenorth")
    assert 0 < len(tried) < 1000  # not once for each of its 4,096 cores, and of as many times more as are tried


def test_cores_that_cannot_be_enough_are_not_tried(monkeypatch):
    tried = []
    monkeypatch.setattr(suggest_fit, "_try_fit", lambda network, chip, *_: tried.append((network, chip.n_cores)))
    chip, lacking = small_chip(core__max_neurons=1), [Violation("cores", "network -> small", 3000, 12, "")]
    for n_neurons, growths in ((1500, []), (200, [32, 64])):  # 125 and 17 times as many cores as there are
        tried.clear()
        network = Network.from_arrays({"a": (FIXED, (n_neurons,))}, [], {})
        smallest_change(network, chip, FitError(chip.name, lacking), Options())
        assert [n for tried_on, n in tried if tried_on is network] == [chip.n_cores * growth for growth in growths]


def test_maps_shrink_by_channels():
    network = conv_net((2, 8, 8), channels=30, n_out=3)
    chip = small_chip(core__max_in_axons=None, core__max_out_axons=None, core__synapse_bits=None)
    found = told(network, chip)
    assert "it fits with 21 channels in conv instead of 30" in found


@pytest.mark.parametrize("layer, n", [("a", 2), ("b", 3)])
def test_shrunk_keeps_the_synapses_of_the_neurons_that_stay(layer, n):
    edges = [Conv2d("in", "a", integers((4, 1, 2, 2))), Dense("a", "b", integers((5, 16))),
             Dense("b", "b", integers((5, 5), 1)), Conv2d("a", "a", integers((4, 4, 1, 1), 2), delay=1)]  # fmt: skip
    network = Network.from_arrays({"a": FIXED, "b": FIXED}, edges, {"in": (1, 3, 3)})
    small = shrink(network, layer, n)
    kept = n * int(np.prod(network.node(layer).shape[1:]))
    assert small.node(layer).n_neurons == kept
    for before, after in zip(network.connections, small.connections, strict=True):
        expected = {(i, j) for i, j in synapses(network, before)
                    if (before.source != layer or i < kept) and (before.target != layer or j < kept)}  # fmt: skip
        assert set(synapses(small, after)) == expected


def test_shrunk_cuts_lists_of_synapses():
    network = mixed_net(3)
    name = next(c.target for c in network.connections if type(c).__name__ == "Sparse")
    small = shrink(network, name, 2)
    kept = small.node(name).n_neurons
    for before, after in zip(network.connections, small.connections, strict=True):
        if type(before).__name__ == "Sparse" and name in (before.source, before.target):
            is_kept = [(before.source != name or i < kept) and (before.target != name or j < kept)
                       for i, j in zip(before.pre, before.post, strict=True)]  # fmt: skip
            assert len(after.pre) == sum(is_kept)


@pytest.mark.parametrize("edge", [
    Conv2d("in", "a", integers((8, 1, 2, 2))),
    Dense("in", "a", integers((32, 9))),
    nw.Sparse("in", "a", *np.indices((9, 32)).reshape(2, -1), integers(9 * 32)),
])  # fmt: skip
def test_shrunk_keeps_all_inputs_of_the_neurons_that_stay(edge):
    """A layer of 4 maps of 2 x 2 whose neurons have 2 inputs: 2 maps of each stay."""
    network = Network.from_arrays({"a": (switched(), (4, 2, 2))}, [edge], {"in": (1, 3, 3)})
    small = shrink(network, "a", 2)
    expected = {(i, j // 16 * 8 + j % 16) for i, j in synapses(network, edge) if j % 16 < 8}
    assert set(synapses(small, *small.connections)) == expected


def test_no_change_is_named_where_more_than_room_is_missing():
    network = dense_net(2, 3)
    needs = FitError("small", [Violation("reset", "fc1", "zero", "none", "")])
    assert smallest_change(network, small_chip(), needs, Options()) is None


@pytest.mark.parametrize(("choices", "advice"), [
    ({"partitioner": "sequential", "n_cores": 1}, "n_cores left out"),
    ({"partitioner": "floorline", "n_cores": 1}, "n_cores left out"),
    ({"partitioner": "metis", "n_cores": 1}, "partitioner='sequential' and n_cores left out"),
    ({"partitioner": "sequential", "n_cores": 2, "fixed_sites": {"fc1": [(0, 0, 0)]}}, "n_cores left out"),
    ({"partitioner": "sequential", "fixed_sites": {"fc1": [(0, 0, 1)]}}, "fixed_sites left out"),
    ({"partitioner": lambda *_: {"fc1": np.zeros(40, int)}}, "partitioner='sequential'"),
])  # fmt: skip
def test_choices_that_are_in_the_way_are_named_and_no_partitioner_that_is_chosen_already(choices, advice):
    chip = small_chip(core__max_neurons=[4, *[32] * 11], core__synapse_bits=[1 << 17, 1, *[1 << 17] * 10])
    with pytest.raises(FitError) as error:
        nw.compile(dense_net(2, 40), chip, options=Options(**choices))
    assert str(error.value).splitlines()[-1] == f"it fits with {advice}"
