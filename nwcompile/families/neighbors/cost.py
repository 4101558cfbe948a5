"""Tokens: with `cost.sync = "neighbors"`, a core tells each neighbor at the end of a step what it sent there.

Neighbors are the cores to which it sends or from which it receives, which may include itself, and the io sites of its
input and output. Each sends a token to each in every hardware step, whatever spikes. A token is a separate message that
never forks. Its payload is the number of messages of the step to that neighbor.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.family import FamilyCost
from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.families.neighbors.longest_path import TokenPaths
from nwcompile.ir.flat import csr_offset, csr_sums
from nwcompile.ir.noc.routing import count_hops
from nwcompile.ir.program import Program


class Tokens(NamedTuple):
    """The tokens of one hardware step; cores are numbered as in the program, followed by the io sites."""

    ends: np.ndarray  # int64[token, 2]: from, to; ascending
    site: np.ndarray  # int64[token, 2]: the same as physical cores
    hops: np.ndarray  # int64[token, 2]: east-west, north-south
    flits: int  # of each


def list_tokens(program: Program) -> Tokens:
    """List the tokens of a program."""
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


class NeighborCost(FamilyCost):
    """Tokens, and the paths that they take instead of a barrier."""

    def list_tokens(self, program: Program) -> Tokens:
        return list_tokens(program)

    def add_tokens(self, program: Program, counters: dict[str, np.ndarray], n_samples: int) -> None:
        """Tokens count like other messages between the same ends; one between a core and an io site at the core."""
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

    def find_paths(self, program: Program, n_samples: int) -> TokenPaths:
        """Without tokens to and from io sites it is still a bound."""
        chip, sent, n_cores = program.chip, list_tokens(program), program.mapping.n_cores
        of_end = np.bincount(sent.ends[:, 0], minlength=n_cores)
        n_later = csr_offset(of_end)[sent.ends[:, 0] + 1] - 1 - np.arange(len(sent.ends))  # tokens are sent in order
        inside = (sent.ends < n_cores).all(1)
        here, there = sent.ends[inside].T
        offset, link = chip.family.links_on_route(chip, *sent.site[inside].T)
        core_ticks, noc_ticks = chip.ticks
        noc = chip.noc
        on_way = csr_sums(offset, chip.link_latency[link]) + noc.inject_cycles + noc.eject_cycles
        on_way += (sent.flits - 1) * noc.link_cycles_per_flit  # until the last flit has left the core
        message_out = chip.cost.message_out_cycles or 0
        cycles = on_way * noc_ticks // core_ticks + (chip.cost.message_in_cycles or 0) - n_later[inside] * message_out
        others = np.maximum(of_end[:n_cores] - 1, 0) * message_out
        return TokenPaths(here, there, cycles * n_samples, others * n_samples)


COST = NeighborCost()
