"""The lower bound of steps without a barrier: the longest path over cores and steps, instead of a sum of maxima.

With `cost.sync = "neighbors"`, core c begins step h + 1 once it has sent its messages of step h, has accumulated those
that it received, and has a token from each neighbor n, which n sends after its messages (docs/decisions/noc.md):

`start(c, h+1) >= max( sent(c, h), received(c, h), max over n of sent(n, h) + latency(n, c) )`, where
`sent(c, h) = start(c, h) + send(c, h)`, and
`received(c, h) = max( received(c, h-1), sent(c, h-1) - tokens(c) ) + receive(c, h)`,

because nobody sends c a message of step h before c has sent its first token of step h - 1; the other tokens may take
`tokens(c)` more cycles. Each side of a core does one thing after another. `send` and `receive` are the busy cycles of
its sides for messages and work of step h; if both share one unit, `receive` is all of it. `latency` is that of an idle
network, minus the cycles of tokens that n sends later. For sums over samples this is a bound on the sum: no path of
sums is longer than the sum of the longest paths.
"""

from dataclasses import dataclass

import numpy as np


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
    """Find the longest path; `send` and `receive` [H, core] are the busy cycles of the two sides of each core."""
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
