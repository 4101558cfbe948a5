"""Maxima of spikes in the axons of their readers: the same spikes as by relay neurons, with none of them."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.traffic.axons import core_use
from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import Variation
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network, Node
from nwcompile.sim.variation import Devices
from tests.made.maxima import IF, pooled_spikes, square_spikes

SMALL = {"weights.axon_types": None, "noc.columns": 12, "noc.rows": 12, "core.max_neurons": 24}
NO_MERGE = {"core.axon_merge": None}


def truenorth(**more) -> Chip:
    """Small cores, so that layers lie on many, and any weights."""
    return Chip.load("truenorth").replace({**SMALL, **more})


def equal_spikes(one: nw.Run, other: nw.Run) -> bool:
    """Of the layers that both have: not copies."""
    return all((one.spikes[name] == other.spikes[name]).all() for name in one.spikes.keys() & other.spikes.keys())


def test_relay_neurons_that_merged_axons_replace_need_no_room():
    room = {"noc.columns": 1, "noc.rows": 1, "core.max_neurons": 160}  # 158 neurons, and 32 of the maximum
    program = nw.compile(pooled_spikes(is_dense=True), truenorth(**room), square_spikes())
    assert list(program.network.layers) == ["a", "out"]
    with pytest.raises(FitError, match="190 of 160"):
        nw.compile(pooled_spikes(is_dense=True), truenorth(**room, **NO_MERGE), square_spikes())


def test_merged_axons_that_do_not_fit_are_refused_with_what_would():
    chip = truenorth(**{"noc.columns": 7, "noc.rows": 1})
    with pytest.raises(FitError, match=r"8 of 7(.|\n)*it fits with"):
        nw.compile(pooled_spikes(is_dense=True), chip, square_spikes())


@pytest.mark.parametrize("size, is_dense", [(8, False), (9, False), (8, True)])
def test_windows_share_axons_and_every_backend_reads_them_once(size, is_dense):
    network, x = pooled_spikes(size, is_dense), square_spikes(size)
    program, relayed = (nw.compile(network, truenorth(**more), x) for more in ({}, NO_MERGE))
    assert "max" in relayed.network.layers and "max" not in program.network.layers
    assert program.schedule.depth < relayed.schedule.depth
    row = next(row for row in program.legalization if row["has"] == "axons of one bit")
    assert row["was"] == "32 relay neurons that pool spikes of a" and row["label"] == "exact"
    assert row["how"] == "128 neurons share 32 axons: no relay neurons, and one step less"
    assert nw.crosscheck(program, x).agree
    run, by_relays = (nw.simulate(p, x, backend="cycle") for p in (program, relayed))
    assert equal_spikes(run, by_relays) and run.spikes["a"].any() and run.spikes["out"].any()
    half = size // 2
    windows = run.spikes["a"][..., : 2 * half, : 2 * half].reshape(3, 8, 2, half, 2, half, 2)
    heard = program.network.node("a").merge_axon_spikes(run.spikes["a"])
    assert (heard[..., : 2 * half : 2, : 2 * half : 2] == windows.any((4, 6))).all()
    if is_dense:  # every set axon is read once by the 30 neurons, whichever core they are on
        assert run.counters["synops_sparse"].sum() == 30 * windows.any((4, 6)).sum()


def test_a_program_with_shared_axons_is_saved_and_read_as_it_is(tmp_path):
    program = nw.compile(pooled_spikes(), truenorth(), square_spikes())
    program.save(tmp_path / "net.nwc")
    again = nw.Program.load(tmp_path / "net.nwc")
    assert again.hash == program.hash and (again.network.node("a").axon_of == program.network.node("a").axon_of).all()
    assert equal_spikes(nw.simulate(again, square_spikes()), nw.simulate(program, square_spikes()))
    assert again.activity is not None and (again.activity.heard["a"] == program.activity.heard["a"]).all()


def test_shared_axons_are_one_axon_of_a_core_and_a_message_of_each_neuron():
    program = nw.compile(pooled_spikes(is_dense=True), truenorth(**{"core.max_neurons": 256}), square_spikes())
    x = square_spikes()
    core = program.mapping.core_of["out"][0]
    assert core_use(program.axons, program.core_of, program.mapping.n_cores)["in_axons"][core] == 32 + 64
    run = nw.simulate(program, x)
    assert run.counters["messages_out"].sum() == run.spikes["a"].sum() and run.counters["synops_sparse"].sum() > 0


@pytest.mark.parametrize("options, window", [
    ({"execution": "phased"}, "aligned"), ({}, "hardware"), ({"optimize": "cores"}, "aligned"),
])  # fmt: skip
def test_shared_axons_agree_in_phases_and_in_the_chips_window(options, window):
    program = nw.compile(pooled_spikes(), truenorth(), square_spikes(), nw.Options(**options))
    assert "max" not in program.network.layers
    runs = [nw.simulate(program, square_spikes(), backend=b, window=window) for b in ("reference", "sequence", "cycle")]
    for run in runs[1:]:
        assert equal_spikes(run, runs[0])
        assert all((run.counters[name] == runs[0].counters[name]).all() for name in runs[0].counters)


@pytest.mark.parametrize("backend", ["reference", "sequence", "cycle"])
def test_streams_read_shared_axons_once(backend):
    program, x = nw.compile(pooled_spikes(), truenorth(), square_spikes()), square_spikes()[:1]
    session = nw.Session(program, backend)
    chunks = [session.feed(x[0, t : t + 1]) for t in range(x.shape[1])] + [session.close()]
    run = nw.simulate(program, x, backend)
    for name in program.network.layers:
        assert (np.concatenate([chunk.spikes[name] for chunk in chunks], 1) == run.spikes[name]).all()
    assert run.spikes["out"].any()


def test_devices_with_other_weights_share_axons_too():
    program = nw.compile(pooled_spikes(), truenorth(), square_spikes())
    device = Devices(program, Variation(weight=0.2), seed=1).device(0)
    assert device.network.node("a").axon_of is not None
    assert nw.crosscheck(device, square_spikes()).agree


@pytest.mark.parametrize("window", [{"stride": 1}, {"kernel": 3, "stride": 2, "padding": 1}])
def test_overlapping_windows_keep_their_relay_neurons(window):
    program = nw.compile(pooled_spikes(**window), truenorth(), square_spikes())
    assert "max" in program.network.layers and program.network.node("a").axon_of is None
    assert nw.crosscheck(program, square_spikes()).agree


def test_a_layer_that_feeds_more_than_its_maximum_keeps_relay_neurons():
    network = pooled_spikes(is_dense=True)
    also = Dense("a", "out", np.ones((30, 128), np.float32))
    network = Network(network.inputs, network.nodes, (*network.connections, also))
    assert "max" in nw.compile(network, truenorth(), square_spikes()).network.layers


def test_a_maximum_that_reaches_its_own_source_keeps_relay_neurons():
    network = pooled_spikes(is_dense=True)
    back = Dense("out", "a", np.full((128, 30), -1, np.float32), delay=3)
    also = Dense("out", "readout", np.ones((1, 30), np.float32))  # out feeds a, so it is no output
    nodes = {**network.nodes, "readout": Node("readout", (1,), IF)}
    network = Network(network.inputs, nodes, (*network.connections, back, also))
    program = nw.compile(network, truenorth(**{"core.max_neuron_destinations": None}), square_spikes())
    assert "max" in program.network.layers and nw.crosscheck(program, square_spikes()).agree


def test_a_mapping_that_places_relay_neurons_keeps_them():
    relayed = nw.compile(
        pooled_spikes(), truenorth(**NO_MERGE, **{"core.max_neuron_destinations": None}), square_spikes()
    )
    chip = truenorth(**{"core.max_neuron_destinations": None})
    assert (
        nw.compile(pooled_spikes(), chip, square_spikes(), mapping=relayed.mapping).network.layers
        == relayed.network.layers
    )


def test_axons_of_others_are_named_wrongly():
    node = Node("a", (4,), IF.replace(threshold=1.0), axon_of=np.array([1, 2, 2, 3]))
    with pytest.raises(nw.ModelError) as error:
        Network({"in": Node("in", (4,))}, {"a": node}, (Dense("in", "a", np.ones((4, 4), np.float32)),)).verify()
    assert str(error.value) == "layer 'a': axon_of must name, for each neuron, one that has axons of its own"


def test_axons_of_one_bit_do_not_go_with_lost_messages():
    with pytest.raises(nw.ChipError) as error:
        truenorth(**{"noc.on_full": "drop"})
    text = "core.axon_merge: 'or' does not go with noc.on_full = \"drop\""
    assert text in str(error.value) and str(error.value).endswith('set noc.on_full = "stall", or leave it out')


def test_an_axon_of_one_bit_takes_no_repeated_spikes():
    program = nw.compile(
        pooled_spikes(is_dense=True), truenorth(), square_spikes(), nw.Options(on_multi_spike="repeat")
    )
    with pytest.raises(nw.ModelError) as error:
        nw.simulate(program, 2 * square_spikes())
    assert str(error.value) == (
        "input 'in' has values 0..2, but an axon of truenorth is one bit and takes one spike per step "
        "(core.axon_merge): encode them into single spikes, or choose another chip"
    )


def test_windows_share_axons_on_a_chip_whose_packets_can_be_lost():
    """Each axon hears only what was not lost; here nothing is."""
    network, x = pooled_spikes(), square_spikes()
    program = nw.compile(network, Chip.load("ranc_dense"), x)
    assert "max" not in program.network.layers
    result = nw.crosscheck(program, x)
    assert result.agree and nw.simulate(program, x, backend="cycle").n_dropped == 0, str(result)
