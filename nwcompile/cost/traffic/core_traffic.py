"""Core traffic: the messages of layers and inputs to every core, and over every link."""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import csr_counts, csr_groups, csr_offset
from nwcompile.ir.program import Program

OUTSIDE = -1  # In place of a core: messages of input lines, or messages that leave through an io site.


class CoreTraffic(NamedTuple):
    """Messages of all steps and samples by source and destination; rows without messages are omitted."""

    source: np.ndarray  # int64[row]: place of the layer or input in `Network.offsets`
    home: np.ndarray  # int64[row]: core of the neurons that send, or OUTSIDE
    to: np.ndarray  # int64[row]: core, or OUTSIDE
    messages: np.ndarray  # int64[row]
    flits: np.ndarray  # int64[row]


def core_traffic(program: Program, activity: Activity) -> CoreTraffic:
    """Return the single messages of `activity`; on chips with io sites, with rows for messages that leave the chip."""
    network, axons, n_cores = program.network, program.axons, program.mapping.n_cores
    axon_pair, pair = core_pairs(axons, program.core_of, n_cores)
    every_core, outside = np.arange(n_cores), np.full(n_cores, OUTSIDE)
    has_sites = io_routes(program) is not None
    rows = []
    for place, (name, first) in enumerate(network.offsets.items()):
        last = first + network.node(name).n_neurons
        sent, offset = activity.counts[name].sum(0, dtype=np.int64), axons.offset[first : last + 1]
        is_input = name in network.inputs
        way, n_ways = (axons.core, n_cores) if is_input else (axon_pair, len(pair))
        carried = sent @ csr_counts(offset, way, n_ways)
        home, to = (outside, every_core) if is_input else pair.T
        rows.append(_traffic_rows(program, name, place, home, to, carried))
        if has_sites and name in network.outputs:
            left = np.zeros(n_cores, np.int64)
            np.add.at(left, program.core_of[first:last], sent)
            rows.append(_traffic_rows(program, name, place, every_core, outside, left))
    return CoreTraffic(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def _traffic_rows(program: Program, name: str, place: int, home, to, messages: np.ndarray) -> tuple[np.ndarray, ...]:
    some = np.flatnonzero(messages)
    sent = messages[some]
    at = (np.full(len(some), place), home[some].astype(np.int64), to[some].astype(np.int64))
    return (*at, sent, sent * program.message_flits(name))


def largest_into(rows: CoreTraffic, n_cores: int, n_largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `n_largest` rows with most messages into every core, the largest first: CSR (int64[core + 1], row)."""
    inside = np.flatnonzero(rows.to != OUTSIDE)
    return _largest_rows(rows.to[inside], inside, rows.messages, n_cores, n_largest)


def largest_over(program: Program, rows: CoreTraffic, n_largest: int, routed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `n_largest` rows with most flits over every link between routers: CSR (int64[link + 1], row).

    Only the `routed` rows with most flits are followed along their routes. A tree takes the routes of single messages,
    so its rows are the same but share flits.
    """
    chip, site, io = program.chip, program.chip.site_index(program.mapping.site_of), io_routes(program)
    followed = np.argsort(-rows.flits, kind="stable")[:routed]
    if io is None:
        followed = followed[rows.home[followed] != OUTSIDE]
        here, there = site[rows.home[followed]], site[rows.to[followed]]
    else:
        home, to = rows.home[followed], rows.to[followed]
        here = np.where(home == OUTSIDE, io[0].site[to], site[home])
        there = np.where(to == OUTSIDE, io[1].site[home], site[to])
    offset, link = chip.family.links_on_route(chip, here, there)
    return _largest_rows(link, followed[csr_groups(offset)], rows.flits, len(chip.link_cycles), n_largest)


def _largest_rows(group: np.ndarray, row: np.ndarray, amount: np.ndarray, n_groups: int, n_largest: int):
    """Return the `n_largest` rows of each group by `amount`, the largest first."""
    order = np.lexsort((-amount[row], group))
    group, row = group[order], row[order]
    first = np.searchsorted(group, np.arange(n_groups))
    kept = np.arange(len(group)) - first[group] < n_largest
    return csr_offset(np.bincount(group[kept], minlength=n_groups)), row[kept]
