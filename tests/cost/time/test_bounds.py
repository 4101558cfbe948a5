"""Bounds of the literature on routed traffic hold for any mapping (M-HySMap, arXiv 2608.26223; mapping notes R9)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.cost.traffic.axons import build_axons
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.cost.traffic.multicast import spike_fanout
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import flat_cores
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.program import Program
from nwcompile.passes.prepare.schedule import schedule
from tests.long import n_drawn
from tests.made.chips import small_chip
from tests.made.nets import mixed_net


@settings(max_examples=n_drawn(40))
@given(
    seed=st.integers(0, 10**6),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    topology=st.sampled_from(["mesh", "torus"]),
)
def test_hops_are_no_fewer_than_remote_messages_and_the_hottest_link_no_cooler_than_the_mean(seed, size, topology):
    rng, network = np.random.default_rng(seed), mixed_net(seed)
    keys = {"noc__columns": size[0], "noc__rows": size[1], "noc__cores_per_router": 1, "noc__topology": topology,
            "noc__virtual_channels": 2}  # fmt: skip
    chip = small_chip(**keys, cost__barrier_cycles={"1": 600}, core__max_neurons=10_000)
    used, n = rng.integers(1, chip.n_cores + 1), sum(network.node(name).n_neurons for name in network.layers)
    flat = np.unique(rng.integers(0, used, n), return_inverse=True)[1].reshape(-1)
    ends = np.cumsum([network.node(name).n_neurons for name in network.layers])[:-1]
    core_of = dict(zip(network.layers, np.split(flat, ends), strict=True))
    mapping = Mapping.from_arrays(core_of, chip.sites[rng.permutation(chip.n_cores)[: flat.max() + 1]])
    axons = build_axons(network, flat_cores(network, mapping), mapping.n_cores, chip)
    counts = {name: rng.poisson(0.4, (3, network.node(name).n_neurons)).astype(np.int32) for name in network.offsets}
    program, activity = Program(network, schedule(network), mapping, chip, axons), Activity(counts, 1)
    spikes = np.concatenate([counts[name].sum(0, dtype=np.int64) for name in network.offsets])
    is_remote = (axons.core != program.core_of[axons.source]) & (program.core_of[axons.source] >= 0)
    remote_messages = int(spikes[axons.source[is_remote]].sum())
    hops = int(count_events(program, activity)["hops"].sum())
    tree_hops = int(spikes @ spike_fanout(program, "tree").hops.sum(1))
    hottest_link = int(link_flits(program, activity).sum(0).max())
    n_links = int((chip.grid.neighbor >= 0).sum())
    assert hops >= tree_hops >= remote_messages
    assert hottest_link * n_links >= hops
    assert (hops > 0) == (remote_messages > 0)
