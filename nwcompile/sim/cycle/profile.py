"""Profiled runs: the probes that the cycle kernels fill, and the Profile built from them."""

from typing import Any, NamedTuple

import numpy as np

from nwcompile.ir.flat import locate_sources
from nwcompile.ir.network import Network
from nwcompile.ir.run import Profile
from nwcompile.kernels.cores.probes import (
    BUFFER_PROBE,
    CORE_PROBE,
    ENTRY,
    EXACT_BITS,
    N_BINS,
    N_POINTS,
    N_STATE,
    PATH,
    Probes,
)
from nwcompile.sim.cycle.engine import Engine

PATH_NAMES = ("step", "sample", "core")  # Fields of PATH that are numbers of something.
PATH_TIMES = {"total": "ticks"} | {name: name for name in ("ready", "stalled", "injected", "since", "end")}


class Ends(NamedTuple):
    """Physical cores at the ends of messages; sources are numbered as in `network`."""

    network: Network
    site: np.ndarray  # int32[core and io site]
    source: np.ndarray  # int64[source]: -1 for input lines
    entry: np.ndarray | None  # int64[core]: entry of input messages; None: they use no links


def probes_for(engine: Engine, n_steps: int, n_cores: int, n_sites: int, flight_steps: int, per_cycle: int) -> Probes:
    """Build empty probes for H = `n_steps` hardware steps, with flits in flight for the first `flight_steps`.

    `n_sites`: cores and io sites; `per_cycle`: ticks of a core cycle.
    """
    n_groups, depth = engine.queue_sizes()
    path = np.zeros(n_steps, PATH)
    path["source"] = path["blocked"] = -1
    flight_steps = min(flight_steps, n_steps)
    return Probes(
        stall=np.zeros((n_steps, n_cores), np.int64),
        done=np.zeros((n_steps, n_cores), np.int64),
        path=path,
        latency=np.zeros(N_BINS, np.int64),
        total=np.zeros(2, np.int64),
        group=np.zeros(n_groups, BUFFER_PROBE),
        flight=np.full((flight_steps, N_POINTS, 2), -1, np.int32),
        shift=np.zeros(flight_steps, np.int64),
        core=np.zeros(n_sites, CORE_PROBE),
        entry=np.zeros(n_groups * depth + n_sites, ENTRY),
        state=np.zeros(N_STATE, np.int64),
        ticks_per_cycle=per_cycle,
    )


def build_profile(engine: Engine, parts: list[Probes], flits: np.ndarray, ends: Ends, n_ticks: int) -> Profile:
    """Build the Profile from probes of consecutive samples; `flits` int64[H, link] and `n_ticks` cover all steps."""
    n_links, ticks = flits.shape[1], parts[0].ticks_per_cycle
    peak, mean = np.zeros(n_links, np.int64), np.zeros(n_links)
    link = engine.link_of_group()
    known = link >= 0
    peak[link[known]] = np.max([probes.group["peak"] for probes in parts], 0)[known]
    counts: Any = sum(probes.latency for probes in parts)
    area: Any = sum(probes.group["area"] for probes in parts)
    stall: Any = sum(probes.stall for probes in parts)
    done: Any = sum(probes.done for probes in parts)
    mean[link[known]] = area[known] / max(n_ticks, 1)
    taken = np.flatnonzero(counts)
    latest = max(int(probes.total[1]) for probes in parts)
    return Profile(
        stall_cycles=stall / ticks,
        done_cycles=done / ticks,
        link_peak=peak,
        link_mean=mean,
        latency_cycles=np.minimum(last_of_bin(taken), latest),
        latency_count=counts[taken],
        latency_sum=sum(int(probes.total[0]) for probes in parts),
        latency_max=latest,
        path=_critical_path(engine, parts, flits, ends),
        flight=_flight_curves(parts[0]),
    )


def sum_probes(probes: Probes) -> Probes:
    """Sum the probes of many steps into one step; the path is the longest phase of all."""
    longest = probes.path["ticks"].argmax()
    return probes._replace(
        stall=probes.stall.sum(0, keepdims=True),
        done=probes.done.sum(0, keepdims=True),
        path=probes.path[longest : longest + 1],
    )


def last_of_bin(index: np.ndarray) -> np.ndarray:
    """Return int64: the largest latency of each bin of `bin_of`."""
    half = 1 << (EXACT_BITS - 1)
    shift = np.maximum(index // half - 1, 0)
    return ((index - shift * half + 1) << shift) - 1


def _critical_path(engine: Engine, parts: list[Probes], flits: np.ndarray, ends: Ends) -> dict[str, np.ndarray]:
    """Return the PATH columns of each step's longest phase (the first of equals), and its message's busiest link."""
    rows = np.stack([probes.path for probes in parts])
    row = rows[rows["ticks"].argmax(0), np.arange(rows.shape[1])]
    columns = {name: row[name] for name in PATH_NAMES}
    columns |= {name: row[field] / parts[0].ticks_per_cycle for name, field in PATH_TIMES.items()}
    columns["link"] = np.full(len(row), -1, np.int64)
    is_message, blocked = row["source"] >= 0, row["blocked"]
    name, number = locate_sources(ends.network, row["source"])
    columns["source_layer"] = np.where(is_message, name, "")
    columns["source"] = np.where(is_message, number, row["source"])
    for h in np.flatnonzero(is_message | (blocked >= 0)):
        last = int(ends.site[row["core"][h]])
        if blocked[h] >= 0:  # the route behind the link that was blocked
            route = engine.links_between(last, int(blocked[h]))[1:]
        else:
            first = int(ends.source[row["source"][h]])
            if first < 0 and ends.entry is not None:  # an input line's message, through a site of io
                first = int(ends.entry[row["core"][h]])
            route = engine.links_between(first, last)
        columns["link"][h] = max(route, key=lambda link: flits[h, link[0]] * link[1])[0]
    return columns


def _flight_curves(probes: Probes) -> tuple[np.ndarray, ...]:
    """Return points (core cycles, flits) of each step: the maximum and the last value of each interval."""
    steps = []
    for points, shift in zip(probes.flight, probes.shift, strict=True):
        used = np.flatnonzero(points[:, 0] >= 0)
        rows = []
        for i in used:
            rows.append((i << shift, points[i, 0]))
            if points[i, 1] != points[i, 0] and not (i + 1 < len(points) and points[i + 1, 0] >= 0):
                rows.append(((i + 1) << shift, points[i, 1]))
        curve = np.array(rows, np.float64).reshape(-1, 2) / (probes.ticks_per_cycle, 1)
        steps.append(curve[np.diff(curve[:, 1], prepend=-1) != 0])
    return tuple(steps)
