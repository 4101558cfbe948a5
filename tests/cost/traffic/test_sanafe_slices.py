"""The counting that judges mappings, on the net and slicings whose figures SANA-FE gave, and hops counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.energy import energy_pj, step_energy_pj
from nwcompile.cost.time.work import compute_work
from nwcompile.cost.traffic.axons import build_axons
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.cost.traffic.multicast import spike_fanout
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import flat_cores
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.noc.routing import list_route_links
from nwcompile.ir.program import Program
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate
from tests.made.chips import small_chip
from tests.made.nets import dense_net
from tests.made.sanafe import dvs_program

PARTS = (1, 4, 16, 16, 4, 1)  # cores of each layer


def remapped(program: Program, core_of: dict, sites=None) -> Program:
    mapping = Mapping.from_arrays(core_of, program.mapping.site_of if sites is None else sites)
    axons = build_axons(program.network, flat_cores(program.network, mapping), mapping.n_cores, program.chip)
    return Program(program.network, program.schedule, mapping, program.chip, axons)


def figures(program: Program, activity: Activity) -> tuple[int, float, float]:
    """Messages, seconds by the floorline and picojoules of an activity."""
    counters = count_events(program, activity)
    done = compute_work(program, counters, link_flits(program, activity), activity.n_samples)
    seconds = float(done.bound_cycles.sum()) * program.chip.core.cycle_ns * 1e-9
    return int(counters["messages_out"].sum()), seconds, energy_pj(step_energy_pj(counters, program.chip))["total"]


def test_layer_slices_of_the_dvs_net_send_what_sanafe_counts(reference):
    program = dvs_program(reference)
    activity = simulate(program, None, "sequence", steps=1000).activity
    messages, seconds, energy = figures(program, activity)
    assert messages == 2_482_643
    assert seconds == pytest.approx(23.95134e-3, rel=1e-6)
    assert energy == pytest.approx(3.440571e9, rel=1e-6)
    core_of, first = {}, 0
    for name, parts in zip(program.network.layers, PARTS, strict=True):
        channels, *size = (*program.network.node(name).shape, 1, 1)[:3]
        place = np.arange(channels * int(np.prod(size))).reshape(channels, -1).T.reshape(-1)
        core_of[name] = np.empty(len(place), int)
        core_of[name][place] = first + np.minimum(np.arange(len(place)) // (len(place) // parts), parts - 1)
        first += parts
    by_position, longer, _ = figures(remapped(program, core_of), activity)
    assert by_position == 690_530 and longer > 2 * seconds


@given(seed=st.integers(0, 10**6))
def test_hops_and_links_are_those_of_each_messages_route(seed):
    rng, chip = np.random.default_rng(seed), small_chip()
    network = dense_net(3, 9, 7, seed=seed, recurrent=True)
    cores = {name: rng.integers(0, 6, network.node(name).n_neurons) for name in network.layers}
    used, flat = np.unique(np.concatenate([*cores.values()]), return_inverse=True)
    cores = {"fc1": flat[:9], "fc2": flat[9:]}
    mapping = Mapping.from_arrays(cores, chip.sites[rng.permutation(chip.n_cores)[: len(used)]])
    axons = build_axons(network, flat_cores(network, mapping), len(used), chip)
    counts = {n: rng.poisson(0.5, (4, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    program, activity = Program(network, schedule(network), mapping, chip, axons), Activity(counts, 1)
    router = chip.site_index(mapping.site_of) // chip.noc.cores_per_router
    hops = tree = 0
    load = np.zeros(len(chip.link_cycles), np.int64)
    for name in network.layers:
        for i, n in enumerate(counts[name].sum(0).tolist()):
            reach = [cores[c.target] for c in network.connections if c.source == name]
            reach = {int(core) for part in reach for core in part}
            at = router[cores[name][i : i + 1]]
            links = [list_route_links(chip.grid, at, router[[c]])[1].tolist() for c in reach]
            hops += n * sum(map(len, links))
            tree += n * len(set(sum(links, [])))
            for route in links:
                load[route] += n
    assert count_events(program, activity)["hops"].sum() == hops
    spikes = np.concatenate([counts[name].sum(0) for name in network.offsets])
    assert spikes @ spike_fanout(program, "tree").hops.sum(1) == tree
    n_mesh = len(load) - 2 * chip.n_cores
    assert np.array_equal(link_flits(program, activity).sum(0)[:n_mesh], load[:n_mesh])
