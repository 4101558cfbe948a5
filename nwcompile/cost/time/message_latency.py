"""Message latencies of a profiled run, and its crowded links."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nwcompile.ir.run import Profile, Run

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Latency:
    """Core cycles from when a message is ready for injection until the receiving core takes it; None: no messages.

    `percentiles[p]` is the nearest-rank percentile: the least latency that p % of the messages do not exceed. Above
    1024 cycles it may be too long by up to 1/512.
    """

    n_messages: int
    mean: float | None
    percentiles: Mapping[int, int | None]
    largest: int | None


@dataclass(frozen=True)
class LinkLoad:
    """One link: flits of all steps and samples, the most in one step, and flits in the buffers behind it.

    `flits_max_step` is summed over the samples, and None if only totals were recorded.
    """

    link: int
    flits: int
    flits_max_step: int | None
    peak: int
    mean: float


def summarize_latency(profile: Profile) -> Latency:
    """Summarize the message latencies of a profiled run."""
    n = int(profile.latency_count.sum())
    if n == 0:
        return Latency(0, None, dict.fromkeys(PERCENTILES), None)
    upto = np.cumsum(profile.latency_count)
    ranks = {p: -(-n * p // 100) for p in PERCENTILES}
    percentiles = {p: int(profile.latency_cycles[np.searchsorted(upto, rank)]) for p, rank in ranks.items()}
    return Latency(n, profile.latency_sum / n, percentiles, profile.latency_max)


def congested_links(run: Run, n: int | None = None) -> tuple[LinkLoad, ...]:
    """Return the links of a profiled run with flits, most crowded first: by mean flits in their buffers, then flits.

    `n`: maximum number of links; None: all.
    """
    assert run.profile is not None and run.link_flits is not None, "simulate with profile=True"
    flits, peak_flits = run.link_flits.sum(0), run.link_flits.max(0)
    order = np.lexsort((-flits, -run.profile.link_mean))
    order = order[flits[order] > 0][:n]
    peak, mean = run.profile.link_peak, run.profile.link_mean
    return tuple(
        LinkLoad(i, int(flits[i]), None if run.totals else int(peak_flits[i]), int(peak[i]), float(mean[i]))
        for i in order.tolist()
    )
