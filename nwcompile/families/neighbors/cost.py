"""Tokens: with `cost.sync = "neighbors"`, a core tells each neighbor at the end of a step what it sent there.

Neighbors are the cores to which it sends or from which it receives, which may include itself, and the io sites of its
input and output. A core sends a token to each of them in every hardware step, even if nothing spikes. A token is a
separate message that never forks. Its payload is the number of messages of the step to that neighbor.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nwcompile.cost.family import FamilyCost
from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.ir.flat import csr_offset, csr_sums
from nwcompile.ir.noc.routing import count_hops
from nwcompile.ir.program import Program


@dataclass(frozen=True, eq=False)
class TokenPaths:
    """Source and destination core of each token, int64[token], and least `latency` in core cycles, summed over samples.

    `tokens`: int64[core], core cycles in which a core sends all its tokens except the first.
    """

    here: np.ndarray
    there: np.ndarray
    latency: np.ndarray
    tokens: np.ndarray

    def find_longest(self, send: np.ndarray, receive: np.ndarray) -> "LongestPath":
        """Find the longest path for the busy cycles [H, core] of the two sides of each core."""
        return longest_path(send, receive, self)


@dataclass(frozen=True, eq=False)
class LongestPath:
    """Cycles [H] from the start until all cores can have finished each step, and the path to the end of the last step.

    The path has one busy side of a core per step: `core` int64[H], and whether it `sends`, bool[H].
    """

    end: np.ndarray
    core: np.ndarray
    sends: np.ndarray


def longest_path(send: np.ndarray, receive: np.ndarray, paths: TokenPaths) -> LongestPath:
    """Find the longest path over cores and steps: the lower bound of steps without a barrier.

    Core c begins step h + 1 once it has sent its messages of step h, has accumulated those that it received, and has a
    token from each neighbor n, which n sends after its messages (docs/decisions/noc.md):

    `start(c, h+1) >= max( sent(c, h), received(c, h), max over n of sent(n, h) + latency(n, c) )`, where
    `sent(c, h) = start(c, h) + send(c, h)`, and
    `received(c, h) = max( received(c, h-1), sent(c, h-1) - tokens(c) ) + receive(c, h)`,

    because nobody sends c a message of step h before c has sent its first token of step h - 1; the other tokens may
    take `tokens(c)` more cycles. Each side of a core does one thing after another. `send` and `receive` [H, core] are
    the busy cycles of its sides for messages and work of step h; if both share one unit, `receive` is all of it.
    `latency` is that of an idle network, minus the cycles of tokens that n sends later. For sums over samples this is a
    bound on the sum: no path of sums is longer than the sum of the longest paths.
    """
    n_steps, n_cores = send.shape
    cycles = np.result_type(send, receive)  # in an estimate, only one side may be integer
    start = np.zeros((n_steps + 1, n_cores), cycles)
    sent, received = np.zeros((2, n_steps, n_cores), cycles)
    told = received_before = np.zeros(n_cores, cycles)
    for h in range(n_steps):
        sent[h] = start[h] + send[h]
        received[h] = np.maximum(received_before, told) + receive[h]
        start[h + 1] = np.maximum(sent[h], received[h])
        np.maximum.at(start[h + 1], paths.there, sent[h][paths.here] + paths.latency)
        told, received_before = sent[h] - paths.tokens, received[h]
    core, sends = _trace_back(start, sent, received, paths)
    return LongestPath(start[1:].max(1), core, sends)


def _trace_back(start, sent, received, paths: TokenPaths) -> tuple[np.ndarray, np.ndarray]:
    """Follow the path back from the core that finishes last: `core` and `sends` of LongestPath."""
    n_steps = len(sent)
    core, sends = np.zeros(n_steps, np.int64), np.zeros(n_steps, bool)
    c = int(start[n_steps].argmax())
    reached = "start"  # of step h + 1; otherwise `sent` or `received` of step h
    for h in range(n_steps - 1, -1, -1):
        if reached == "start":
            value = start[h + 1, c]
            reached = "sent" if value == sent[h, c] else "received"
            if reached == "received" and value != received[h, c]:
                comes = np.flatnonzero(paths.there == c)
                c = int(paths.here[comes[(sent[h, paths.here[comes]] + paths.latency[comes]).argmax()]])
                reached = "sent"
        core[h], sends[h] = c, reached == "sent"
        if reached == "sent":
            reached = "start"
        else:
            reached = "received" if h == 0 or received[h - 1, c] >= sent[h - 1, c] - paths.tokens[c] else "sent"
    return core, sends


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
