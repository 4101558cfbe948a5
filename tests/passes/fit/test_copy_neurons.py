"""Copied neurons: on chips with few destinations the spikes of a network stay the same, and all copies spike alike."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.activity import Activity
from nwcompile.passes.fit.copy_neurons import Wanted, build_copied_network, plan_copies
from tests.made.chips import small_chip
from tests.made.nets import integers

LIF = nw.NeuronSpec(threshold=1.0, reset="zero", beta=0.75)


def dense(source, target, n_in, n_out, seed, **more) -> nw.Dense:
    return nw.Dense(source, target, integers((n_out, n_in), seed, -6, 9).astype(np.float32) / 16, **more)


def chain() -> nw.Network:
    edges = [dense("in", "a", 12, 20, 1), dense("a", "b", 20, 30, 2), dense("b", "c", 30, 25, 3)]
    return nw.Network.from_arrays({"a": (LIF, 20), "b": (LIF, 30), "c": (LIF, 25)}, edges, {"in": 12})


def maps() -> nw.Network:
    """Convolutions with biases, of which neurons at the borders of cores need more copies than those within."""
    kernels = [integers((3, n, 3, 3), n, -3, 5).astype(np.float32) / 8 for n in (2, 3)]
    edges = [
        nw.Conv2d("in", "a", kernels[0], np.array([0.1, -0.1, 0.0], np.float32), padding=1),
        nw.Conv2d("a", "b", kernels[1], np.array([0.0, 0.1, 0.2], np.float32), padding=1),
        dense("b", "c", 72, 6, 3),
    ]
    layers = {"a": (LIF, (3, 6, 4)), "b": (LIF.replace(beta=np.array([0.5, 0.75, 0.9])), (3, 6, 4)), "c": (LIF, 6)}
    return nw.Network.from_arrays(layers, edges, {"in": (2, 6, 4)})


def recurrent() -> nw.Network:
    edges = [dense("in", "a", 12, 10, 1), dense("a", "a", 10, 10, 2), dense("a", "b", 10, 30, 3)]
    return nw.Network.from_arrays({"a": (LIF, 10), "b": (LIF, 30)}, edges, {"in": 12})


def assert_copied(network, chip, limits) -> nw.Program:
    """Spikes with and without the limits are equal, those of copies too, and all backends agree."""
    shape = network.node("in").shape
    x = (np.random.default_rng(3).random((2, 12, *shape)) < 0.4).astype(np.int8)
    options = nw.Options(placer="row-major")
    free = nw.simulate(nw.compile(network, chip, x, options), x).spikes
    program = nw.compile(network, chip.replace(limits), x, options)
    assert nw.crosscheck(program, x).agree
    spikes = nw.simulate(program, x).spikes
    for name in network.layers:
        assert np.array_equal(spikes[name], free[name]) and free[name].any(), name
    for name in program.network.layers:
        layer = name.split("/")[0]
        copy, of = (s.reshape(2, 12, -1).transpose(2, 0, 1) for s in (spikes[name], free[layer]))
        if "splitter" not in name and copy.shape == of.shape:
            assert np.array_equal(copy, of), name
        assert {neuron.tobytes() for neuron in copy} <= {neuron.tobytes() for neuron in of}, name
    assert program.network.outputs == network.outputs
    return program


@pytest.mark.parametrize("limits", [{"core.max_neuron_destinations": 1}, {"core.max_neuron_destinations": 2},
                                    {"core.max_destinations": 2}], ids=str)  # fmt: skip
@pytest.mark.parametrize("make", [chain, maps, recurrent])
def test_copies_spike_as_the_network_does_without_the_limit(make, limits):
    chip = small_chip(core__max_neurons=10, noc__columns=12, noc__rows=12)
    if make is recurrent and limits == {"core.max_neuron_destinations": 1}:
        with pytest.raises(FitError, match="destination cores of a neuron  a -> core"):
            nw.compile(make(), chip.replace(limits))
        return
    program = assert_copied(make(), chip, limits)
    rows = program.manifest["legalization"]
    assert {row["label"] for row in rows} == {"exact"}
    n_more = sum(node.n_neurons for node in program.network.nodes.values()) - sum(
        node.n_neurons for node in make().nodes.values()
    )
    assert sum(int(row["how"].split()[0]) for row in rows) == n_more


def test_copies_go_upwards_as_far_as_their_inputs_need_them():
    """c is on two cores: b stands twice, on two cores each time, so that a stands four times, on one core each time."""
    chip = small_chip(core__max_neurons=10, core__max_neuron_destinations=1)
    edges = [dense("in", "a", 12, 10, 1), dense("a", "b", 10, 20, 2), dense("b", "c", 20, 20, 3)]
    network = nw.Network.from_arrays({"a": (LIF, 10), "b": (LIF, 20), "c": (LIF, 20)}, edges, {"in": 12})
    core_of = np.repeat(np.arange(5), 10)
    plan = plan_copies(network, chip, core_of, np.zeros(50, bool))
    assert plan.copies.tolist() == [4] * 10 + [2] * 20 + [1] * 20
    assert plan.n_cores == 4 + 4 + 2
    timing = nw.ir.schedule.Schedule("pipelined", 1, {"in": 0, "a": 1, "b": 2, "c": 3}, (1, 1, 1))
    copied = build_copied_network(Wanted(network, timing, Activity.uniform(network), plan), [])
    assert copied.network.layers == ("a", "a/copy2", "a/copy3", "a/copy4", "b", "b/copy2", "c")
    assert {name: sorted(set(cores.tolist())) for name, cores in copied.core_of.items()} == {
        "a": [0], "a/copy2": [5], "a/copy3": [6], "a/copy4": [7], "b": [1, 2], "b/copy2": [8, 9], "c": [3, 4],
    }  # fmt: skip


def test_a_splitter_stands_where_copies_upwards_would_take_more_cores():
    """The four cores of c want four copies of b and sixteen of a; a splitter behind b spares those."""
    chip = small_chip(core__max_neurons=20, core__max_neuron_destinations=1, noc__columns=10, noc__rows=10)
    edges = [dense("in", "a", 12, 20, 1), dense("a", "b", 20, 20, 2), dense("b", "c", 20, 80, 3)]
    network = nw.Network.from_arrays({"a": (LIF, 20), "b": (LIF, 20), "c": (LIF, 80)}, edges, {"in": 12})
    wide = chip.replace({"core.max_neuron_destinations": 16})
    program = assert_copied(network, wide, {"core.max_neuron_destinations": 1})
    free = nw.compile(network, wide)
    assert program.schedule.depth == free.schedule.depth + 1
    rows = {row["layer"]: row for row in program.manifest["legalization"]}
    assert rows["b"]["how"] == "80 relay neurons of a splitter, up to 4 for each of b, one step later"


@pytest.mark.parametrize("share, settles", [(1, False), (2, True), (3, True)])
def test_copies_that_would_grow_without_end_are_given_up_at_once(share, settles, monkeypatch):
    """Each neuron of a ring of two feeds a core beside it; without the test of loops this never ends."""
    monkeypatch.setattr("nwcompile.passes.fit.copy_neurons.MOST_COPIES", 1 << 62)
    edges = [dense("in", "a", 3, 1, 1), dense("a", "b", 1, 1, 2), dense("b", "a", 1, 1, 3, delay=2)]
    edges += [dense("a", "c", 1, 1, 4)]
    network = nw.Network.from_arrays(dict.fromkeys("abc", (LIF, 1)), edges, {"in": 3})
    chip = small_chip(core__max_neuron_destinations=share)
    plan = plan_copies(network, chip, np.arange(3), np.zeros(3, bool))
    assert (plan is not None) == settles


def test_copies_on_a_common_core_are_one_destination_of_their_own_spikes():
    edges = [dense("in", "a", 3, 1, 1), dense("a", "a", 1, 1, 2, delay=1), dense("a", "b", 1, 1, 3)]
    network = nw.Network.from_arrays(dict.fromkeys("ab", (LIF, 1)), edges, {"in": 3})
    chip = small_chip(core__max_neuron_destinations=1)
    plan = plan_copies(network, chip, np.arange(2), np.array([True, False]))
    assert plan.copies.tolist() == [2, 1]  # one for the core of all copies of a, one for that of b


def test_copies_of_a_loop_that_reaches_one_core_settle():
    edges = [dense("in", "a", 3, 2, 1), dense("a", "b", 2, 2, 2), dense("b", "a", 2, 2, 3, delay=2)]
    network = nw.Network.from_arrays(dict.fromkeys("ab", (LIF, 2)), edges, {"in": 3})
    chip = small_chip(core__max_neuron_destinations=1)
    plan = plan_copies(network, chip, np.array([0, 0, 1, 1]), np.zeros(4, bool))
    assert plan.copies.tolist() == [1, 1, 1, 1]


def test_a_delay_that_a_splitter_shortens_is_judged_after_it():
    """`b -> x` is one step too late for the chip until a splitter of p1 puts b, the output, one step later."""
    n, rng = 100, np.random.default_rng(0)

    def weights(n_target, n_source):
        return (rng.random((n_target, n_source)) < 0.1).astype(np.float32) * 0.5

    spec = nw.NeuronSpec(threshold=1.0, reset="zero")
    sizes = {"x": n, "y": n, "p0": n, "p1": n, "p2": n, "b": 300}
    pairs = [("in", "p0"), ("p0", "p1"), ("p1", "p2"), ("p2", "b"), ("in", "x"), ("x", "y")]
    edges = [nw.Dense(a, b, weights(sizes[b], sizes.get(a, 20))) for a, b in pairs]
    edges.append(nw.Dense("y", "x", weights(n, n), delay=3))
    edges.append(nw.Sparse("b", "x", np.arange(n), np.arange(n), np.full(n, 0.5, np.float32), delay=19))
    network = nw.Network.from_arrays({name: (spec, size) for name, size in sizes.items()}, edges, {"in": 20})
    program = nw.compile(network, "truenorth")
    assert "p1/splitter" in program.network.layers and max(program.schedule.delay) == 15
