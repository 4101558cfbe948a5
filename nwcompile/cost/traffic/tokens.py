"""Tokens: with `cost.sync = "neighbors"`, a core tells each neighbor at the end of a step what it sent there.

Neighbors are the cores to which it sends or from which it receives, which may include itself, and the io sites of its
input and output. Each sends a token to each in every hardware step, whatever spikes. A token is a separate message that
never forks. Its payload is the number of messages of the step to that neighbor.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.ir.noc.routing import count_hops
from nwcompile.ir.program import Program


class Tokens(NamedTuple):
    """The tokens of one hardware step; cores are numbered as in the program, followed by the io sites."""

    ends: np.ndarray  # int64[token, 2]: from, to; ascending
    site: np.ndarray  # int64[token, 2]: the same as physical cores
    hops: np.ndarray  # int64[token, 2]: east-west, north-south
    flits: int  # of each


def list_tokens(program: Program) -> Tokens:
    """List the tokens of a program, as if its chip's cores waited for their neighbors."""
    chip, n_cores = program.chip, program.mapping.n_cores
    axon_pair, pair = core_pairs(program.axons, program.core_of, n_cores)
    pairs = [pair.astype(np.int64)]
    if (routes := io_routes(program)) is not None:
        number = np.full(chip.n_cores, -1)  # of an io site among the ends
        number[chip.io_cores] = n_cores + np.arange(len(chip.io_cores))
        come, leave = (number[direction.site] for direction in routes)
        fed = np.unique(program.axons.core[axon_pair < 0]).astype(np.int64)
        firing = (name for name in program.network.outputs if program.network.node(name).neuron.fires)
        heard = np.unique(np.concatenate([np.zeros(0, np.int64), *(program.mapping.core_of[name] for name in firing)]))
        pairs += [np.stack([fed, come[fed]], 1), np.stack([heard, leave[heard]], 1)]
    one_way = np.concatenate(pairs)
    ends = np.unique(np.concatenate([one_way, one_way[:, ::-1]]), axis=0)
    site = np.concatenate([chip.site_index(program.mapping.site_of), chip.io_cores])[ends]
    along = count_hops(chip.grid, *(site // chip.noc.cores_per_router).T)
    return Tokens(ends, site, np.asarray(along, np.int64), chip.noc.flits_per_message + chip.noc.payload_flits)


def add_tokens(program: Program, counters: dict[str, np.ndarray], n_samples: int) -> None:
    """Add the tokens of every hardware step to counters int64[H, core], if the chip's cores wait for neighbors.

    They count like other messages between the same ends; one between a core and an io site counts at the core.
    """
    if not program.chip.waits_for_neighbors:
        return
    n_cores, sent = program.mapping.n_cores, list_tokens(program)
    here, there = sent.ends.T
    inside, comes, leaves = (here < n_cores) & (there < n_cores), here >= n_cores, there >= n_cores
    for names, those, core in (
        (("messages_out",), inside, here),
        (("messages_in", "deliveries"), inside | comes, there),
        (("messages_io", "messages_io_in"), comes, there),
        (("messages_io", "messages_io_out"), leaves, here),
    ):
        count = np.bincount(core[those], minlength=n_cores) * n_samples
        for name in names:
            counters[name] += count
    for i, direction in enumerate(("ew", "ns")):
        for prefix, those, core in (("hops", inside, here), ("hops_io", comes, there), ("hops_io", leaves, here)):
            count = np.zeros(n_cores, np.int64)
            np.add.at(count, core[those], sent.hops[those, i] * n_samples)
            counters[f"{prefix}_{direction}"] += count
            if prefix == "hops":
                counters["hops"] += count
