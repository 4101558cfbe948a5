"""Link flits: the flits of an activity over every link of the network on chip, step by step."""

from functools import partial

import numpy as np
from scipy.sparse import csr_array

from nwcompile.cost.family import find_cost
from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.cost.traffic.events import place_rows
from nwcompile.cost.traffic.io_sites import io_messages, io_routes
from nwcompile.cost.traffic.multicast import multicast_trees
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_counts
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run


def link_flits(
    program: Program, activity: Activity, window: str = "aligned", multicast: str | None = None
) -> np.ndarray:
    """Return int64[H, link]: flits over each link in each hardware step, on the routes of the chip's routing.

    Links: `router * 4 + direction`, router = y * columns + x, direction 0 E (+x), 1 W (-x), 2 N (+y), 3 S (-y); then
    the injection and then the ejection link of every physical core. Chip families number their links in their
    own chip.py. Messages of input lines and of outputs use links only if the chip has io.sites. `multicast`: "unicast"
    or "tree"; default: the chip's.
    """
    chip, io_ends = program.chip, io_routes(program)
    n_steps = program.schedule.n_hardware_steps(activity.n_steps, window)
    flits = np.zeros((n_steps, len(chip.link_cycles)), np.int64)
    is_tree = (multicast or chip.noc.multicast) == "tree"
    (_tree_flits if is_tree else _pair_flits)(program, activity, window, flits)
    if io_ends is not None:
        site = chip.site_index(program.mapping.site_of)
        by_site = io_messages(program, activity, n_steps, partial(place_rows, program, window=window), flits=True)
        ends = np.concatenate([[io_ends[0].site, site], [site, io_ends[1].site]], 1)
        _along_routes(chip, np.concatenate([*by_site], 1), ends, flits)
    if (sent := find_cost(chip).list_tokens(program)) is not None:
        carried = np.full((n_steps, len(sent.ends)), sent.flits * activity.n_samples)
        _along_routes(chip, carried, sent.site.T, flits)
    return flits


def flits_of_run(program: Program, run: Run) -> np.ndarray:
    """Return int64[H, link]: the measured flits of a run, or those that its activity causes."""
    if run.link_flits is not None:
        return run.link_flits
    assert run.activity is not None, "runs of totals measure flits"
    return link_flits(program, run.activity, run.window)


def _pair_flits(program: Program, activity: Activity, window: str, flits: np.ndarray) -> None:
    """Add one message per spike and destination core to `flits` int64[H, link]."""
    mapping, axons, network = program.mapping, program.axons, program.network
    axon_pair, pair = core_pairs(axons, program.core_of, mapping.n_cores)
    carried = np.zeros((len(flits), len(pair)), np.int64)
    for name in network.layers:
        first, (counts, h0) = network.offsets[name], place_rows(program, name, activity.counts[name], window)
        offset = axons.offset[first : first + network.node(name).n_neurons + 1]
        sent = csr_array(counts) * np.int64(program.message_flits(name))
        carried[h0 : h0 + len(counts)] += (sent @ csr_counts(offset, axon_pair, len(pair))).toarray()
    _along_routes(program.chip, carried, program.chip.site_index(mapping.site_of)[pair].T, flits)


def _along_routes(chip: Chip, carried: np.ndarray, ends: np.ndarray, flits: np.ndarray) -> None:
    """Add `carried` int64[H, pair] flits between physical cores `ends` int64[2, pair] to `flits` int64[H, link]."""
    used = carried.any(0)
    carried, ends = carried[:, used], ends[:, used]
    offset, link = chip.family.links_on_route(chip, *ends)
    ends = ends + np.array([[len(chip.link_cycles) - 2 * chip.n_cores], [len(chip.link_cycles) - chip.n_cores]])
    flits += carried @ csr_counts(offset, link, len(chip.link_cycles))
    for end in ends:
        flits += carried @ csr_counts(np.arange(len(end) + 1), end, len(chip.link_cycles))


def _tree_flits(program: Program, activity: Activity, window: str, flits: np.ndarray) -> None:
    """Add one message per spike, forking on its tree, to `flits` int64[H, link]."""
    chip, network, fan_out = program.chip, program.network, multicast_trees(program, activity)
    carried = np.zeros((len(flits), len(fan_out.home)), np.int64)
    for name in network.layers:
        first, (counts, h0) = network.offsets[name], place_rows(program, name, activity.counts[name], window)
        tree = fan_out.tree_of[first : first + network.node(name).n_neurons]
        for t, count in enumerate(counts):
            np.add.at(carried[h0 + t], tree[tree >= 0], count[tree >= 0])
    site = chip.site_index(program.mapping.site_of)
    inject, eject = len(chip.link_cycles) - 2 * chip.n_cores, len(chip.link_cycles) - chip.n_cores
    for h in np.flatnonzero(carried.any(1)):
        np.add.at(flits[h], fan_out.trees.link, np.repeat(carried[h], np.diff(fan_out.trees.offset)))
        np.add.at(flits[h], inject + site[fan_out.home], carried[h])
        np.add.at(flits[h], eject + site[fan_out.core], np.repeat(carried[h], np.diff(fan_out.offset)))
