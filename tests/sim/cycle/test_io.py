"""Input and output through io.sites: their messages travel, take time and energy, and are counted apart."""

import numpy as np
import pytest

from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.time.profile import core_phases, critical_paths
from nwcompile.errors import ChipError, ModelError
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.sim import BACKENDS, simulate
from tests.made.chips import small_chip
from tests.made.nets import FIXED

IO = ("messages_io", "messages_io_in", "messages_io_out", "hops_io_ew", "hops_io_ns")


def program_on(chip, sites, n_inputs=1, cores=(0,)):
    """Lines of weight 2 into neurons that each of them makes fire; neuron i lies on core cores[i]."""
    edges = [Dense("in", "a", np.full((len(cores), n_inputs), 2, np.int8))]
    network = Network.from_arrays({"a": (FIXED, (len(cores),))}, edges, {"in": n_inputs})
    return emit(network, schedule(network), Mapping.from_arrays({"a": cores}, sites), chip, None, {})


def totals(run):
    return {name: int(run.counters[name].sum()) for name in IO}


@pytest.mark.parametrize("backend", BACKENDS)
def test_messages_come_from_and_go_to_the_nearest_site(backend):
    chip = small_chip(io__sites=["0,0,1", "2,1,0"])
    program = program_on(chip, [[0, 0, 0], [1, 1, 0], [2, 0, 1]], n_inputs=2, cores=(0, 1, 1, 2))
    run = simulate(program, np.array([[[1, 1], [0, 0]]]), backend)
    # hops to the nearest: core 0 none (0,0); core 1 one along x (2,1); core 2 one along y (2,1)
    assert run.counters["messages_io_in"].tolist() == [[2, 2, 2], [0, 0, 0], [0, 0, 0]]
    assert run.counters["messages_io_out"].tolist() == [[0, 0, 0], [1, 2, 1], [0, 0, 0]]
    assert run.counters["hops_io_ew"].tolist() == [[0, 2, 0], [0, 2, 0], [0, 0, 0]]
    assert run.counters["hops_io_ns"].tolist() == [[0, 0, 2], [0, 0, 1], [0, 0, 0]]
    assert run.counters["messages_io"].sum() == 10
    assert run.counters["messages_in"].sum() == 6 and run.counters["deliveries"].sum() == 6
    assert run.counters["messages_out"].sum() == run.counters["hops"].sum() == 0
    energy = run.energy_pj
    assert energy["hop_ew"] == pytest.approx(4 * 3.0) and energy["hop_ns"] == pytest.approx(3 * 4.2)
    assert energy["message_out"] == pytest.approx(4 * 111.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_sites_reading_and_writing_cost_nothing(backend):
    run = simulate(program_on(small_chip(), [[1, 1, 0]]), np.ones((1, 3, 1)), backend)
    assert totals(run) == dict.fromkeys(IO, 0)
    assert run.energy_pj["message_out"] == run.energy_pj["hop_ew"] == 0
    if backend == "cycle":
        assert run.link_flits.sum() == 0


def test_of_sites_as_near_the_first_is_taken():
    for sites, link in ((["0,0,0", "2,0,0"], 0), (["2,0,0", "0,0,0"], 2)):
        run = simulate(program_on(small_chip(io__sites=sites), [[1, 0, 0]]), np.ones((1, 1, 1)), "cycle")
        assert np.flatnonzero(run.link_flits[0, 24:36]).tolist() == [2 * link]


@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_a_message_takes_the_way_from_and_to_its_site(units):
    chip = small_chip(io__sites=["0,0,0"], cost__units=units, cost__barrier_cycles={"1": 600})
    run = simulate(program_on(chip, [[2, 1, 0]]), np.array([[[1], [0]]]), "cycle")
    way = 2 + 2 * 4 + 6 + 3
    receive = 16 + 1 + 4  # one word, one synop
    send = 6 + 4 + 30 + 5
    assert run.step_cycles.tolist() == [600 + way + receive, 600 + send + way, 600 + 6]
    links = np.zeros(48)
    links[[0 * 4, 1 * 4, 2 * 4 + 2, 24, 36 + 10]] = 1  # east, east, north; core 0 in, core 10 out
    assert run.link_flits[0].tolist() == links.tolist()
    links[:] = 0
    links[[5 * 4 + 1, 4 * 4 + 1, 3 * 4 + 3, 24 + 10, 36]] = 1
    assert run.link_flits[1].tolist() == links.tolist()


def test_input_waits_for_its_only_link():
    """Twelve lines through one site take as long as its link does, and the bound knows it."""
    chip = small_chip(io__sites=["0,0,0"], noc__link_cycles_per_flit=50, cost__barrier_cycles={"1": 0})
    program = program_on(chip, [[1, 0, 0]], n_inputs=12)
    run = simulate(program, np.ones((1, 1, 12)), "cycle")
    assert run.step_cycles[0] == 11 * 50 + 2 + 4 + 50  # until the last link, into the core, is idle
    line = floorline(program, run.counters, run.link_flits, 1)
    assert line.bound_cycles[0] == 12 * 50
    assert line.bottlenecks[0].link == 0
    run.verify()


@pytest.mark.parametrize("flits", [1, 3])
def test_a_graded_input_takes_the_flits_of_a_payload(flits):
    chip = small_chip(io__sites=["0,0,0"], noc__payload_flits=2, neuron__spikes=["binary", "multi"] if flits == 3 else
                      ["binary"])  # fmt: skip
    run = simulate(program_on(chip, [[1, 0, 0]]), np.ones((1, 1, 1)), "cycle")
    assert run.link_flits[0, [0, 24]].tolist() == [flits, flits]


def test_a_profile_names_the_input_that_a_core_waited_for_and_how_long_output_took():
    chip = small_chip(io__sites=["0,0,0"], noc__hop_cycles_ew=500)
    program = program_on(chip, [[2, 0, 0]])
    run = simulate(program, np.array([[[1], [0]]]), "cycle", profile=True)
    leaves, comes, _ = critical_paths(program, run)
    assert (comes.step, comes.source_layer, comes.source_core, comes.core) == (0, "in", None, 0)
    assert comes.parts == {"send": 0, "stall": 0, "network": 2 + 1000 + 3, "receive": 21, "link": 0}
    assert (leaves.step, leaves.source_layer, leaves.core) == (1, None, 0)
    assert leaves.parts == {"send": 45, "stall": 0, "network": 0, "receive": 0, "link": 1005}
    doc = collect_report(program, run)
    assert doc["profile"]["critical_paths"][1]["text"] == (
        "step 0: a on core 0 ends after 1 026 cycles, waits for in over link (0, 0) port 0 inject: "
        "1 005 in the network, 21 receiving"
    )
    text = "input and output through 1 site: 1 messages in and 1 out per sample"
    assert text in render_text(doc).splitlines() and text in render_html(doc)
    assert (doc["io"]["sites"], doc["io"]["messages_in_per_sample"]) == (["0,0,0"], 1)
    assert doc["verdict"].startswith("fits small: 1 of 11 cores;")
    for table in core_phases(program, run).units.values():
        np.testing.assert_array_equal(sum(table.values()), run.step_cycles[:, None])


BAD = [
    (["0,0"], 'io.sites: expected sites like "0,0,1" (x, y, port), got \'0,0\''),
    (["3,0,0"], "io.sites: there is no site 3,0,0; the last one is 2,1,1"),
    (["0,0,1", "0,0,1"], "io.sites: 0,0,1 is there twice; name every site once"),
    ([f"{x},{y},{p}" for x in range(3) for y in range(2) for p in range(2)],
     "io.sites: no core is left for neurons; take some out"),
]  # fmt: skip


@pytest.mark.parametrize(("sites", "text"), BAD)
def test_sites_that_cannot_be_are_refused(sites, text):
    with pytest.raises(ChipError) as caught:
        small_chip(io__sites=sites)
    assert str(caught.value) == f"small: {text}"


def test_a_site_out_of_use_is_refused():
    with pytest.raises(ChipError) as caught:
        small_chip(noc__routing="up-down", noc__faults=["1,0"], io__sites=["1,0,0"])
    assert str(caught.value) == "small: io.sites: 1,0,0 is at a router of noc.faults; take one of both out"


def test_no_neuron_lies_at_a_site():
    chip = small_chip(io__sites=["1,0,0"])
    assert chip.limit("max_neurons").tolist() == [64, 64, 0, *[64] * 9]
    with pytest.raises(ModelError) as caught:
        program_on(chip, [[1, 0, 0]])
    assert str(caught.value) == "mapping: core 0 is at site (1, 0, 0), which small keeps for input and output"
