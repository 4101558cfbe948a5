"""What the cycle kernels note while they are watched: the empty notes, and the Profile that is made of full ones."""

from typing import NamedTuple

import numpy as np

from nwcompile.ir.profile import Profile
from nwcompile.kernels.cores import probes
from nwcompile.kernels.cores.probes import N_BINS, N_COLUMNS, N_CORE_COLUMNS, N_POINTS, Watch
from nwcompile.kernels.noc.bus import Bus
from nwcompile.kernels.noc.mesh import PORT_BITS, Mesh
from nwcompile.sim.cycle.bus import links_on_bus

PATH = {"step": probes.OF_STEP, "sample": probes.SAMPLE, "core": probes.CORE, "source": probes.SOURCE}
PATH_TIMES = {"total": probes.TICKS, "ready": probes.READY, "stalled": probes.STALLED,
              "injected": probes.INJECTED, "since": probes.SINCE, "end": probes.END}  # fmt: skip


class Ends(NamedTuple):
    """Between which physical cores messages go."""

    site: np.ndarray  # int32[logical core and gate]
    source: np.ndarray  # int64[source]: -1 for input lines
    entry: np.ndarray | None  # int64[logical core]: where those of input lines come from; None: they use no links


def watch(m: Mesh | Bus, n_steps: int, n_cores: int, n_ends: int, flight_steps: int | None) -> Watch:
    """Empty notes for H = `n_steps` hardware steps, flits in flight for the first of them; None: nothing is watched.

    `n_ends`: cores and gates.
    """
    is_on = flight_steps is not None
    steps, cores, ends = (n_steps, n_cores, n_ends) if is_on else (0, 0, 0)
    n_groups, depth = queue_sizes(m) if is_on else (0, 0)
    flight = min(flight_steps or 0, steps)
    path = np.zeros((steps, N_COLUMNS), np.int64)
    path[:, [probes.SOURCE, probes.BLOCKED]] = -1
    return Watch(
        is_on, *(np.zeros((steps, cores), np.int64) for _ in range(2)), path,
        np.zeros(N_BINS if is_on else 0, np.int64), np.zeros(2, np.int64),
        *(np.zeros(n_groups, np.int64) for _ in range(4)), np.full((flight, N_POINTS, 2), -1, np.int32),
        np.zeros(flight, np.int64), np.zeros((ends, N_CORE_COLUMNS), np.int64),
        np.zeros((n_groups * depth + ends, 4), np.int64), np.zeros(8, np.int64),
    )  # fmt: skip


def profile(m: Mesh | Bus, parts: list[Watch], flits: np.ndarray, ends: Ends, n_ticks: int, ticks: int) -> Profile:
    """The Profile of notes on consecutive samples.

    `flits` int64[H, link] and `n_ticks` are of all steps; `ticks` is the length of a core cycle.
    """
    n_links = flits.shape[1]
    peak, mean = np.zeros(n_links, np.int64), np.zeros(n_links)
    link = link_of_group(m)
    known = link >= 0
    peak[link[known]] = np.max([w.peak for w in parts], 0)[known]
    mean[link[known]] = sum(w.area for w in parts)[known] / max(n_ticks, 1)
    found = sum(w.latency for w in parts)
    taken = np.flatnonzero(found)
    latest = max(int(w.total[1]) for w in parts)
    return Profile(
        *(sum(getattr(w, name) for w in parts) / ticks for name in ("stall", "done")), peak, mean,
        np.minimum(last_of_bin(taken), latest), found[taken], sum(int(w.total[0]) for w in parts), latest,
        _path(m, parts, flits, ends, ticks), _flight(parts[0], ticks),
    )  # fmt: skip


def summed(w: Watch) -> Watch:
    """The notes of many steps as those of one: sums, and the longest phase of all."""
    longest = w.path[:, probes.TICKS].argmax()
    return w._replace(
        stall=w.stall.sum(0, keepdims=True), done=w.done.sum(0, keepdims=True), path=w.path[longest : longest + 1]
    )


def queue_sizes(m: Mesh | Bus) -> tuple[int, int]:
    """How many groups of buffers there are, and flits that each of them holds."""
    if isinstance(m, Bus):
        return 2 * len(m.tap), m.depth
    return len(m.output) + len(m.inject_link), m.n_vcs * m.depth


def link_of_group(m: Mesh | Bus) -> np.ndarray:
    """int64[group]: the link that leads to the buffers of each input of a router, then of each core; -1 none.

    On a bus a group is a core's queue before its injection port, or behind its ejection port.
    """
    if isinstance(m, Bus):
        return m.port_link.T.reshape(-1)
    n_cores = len(m.inject_link)
    link = np.full(len(m.output) + n_cores, -1, np.int64)
    there = m.output["down"] >= 0
    link[m.output["down"][there] // m.n_vcs] = m.output["link"][there]
    router, own = np.divmod(np.arange(n_cores), m.per_router)
    link[router * m.n_ports + 4 + own] = m.inject_link
    return link


def last_of_bin(index: np.ndarray) -> np.ndarray:
    """int64: the largest latency of each bin of `probes.bin_of`."""
    half = 1 << (probes.EXACT_BITS - 1)
    shift = np.maximum(index // half - 1, 0)
    return ((index - shift * half + 1) << shift) - 1


def _path(m: Mesh | Bus, parts, flits, ends: Ends, ticks: int) -> dict[str, np.ndarray]:
    """The row of the longest phase of each step, the first of equal ones; the busiest link that its message took."""
    rows = np.stack([w.path for w in parts])
    longest = rows[:, :, probes.TICKS].argmax(0)
    row = rows[longest, np.arange(rows.shape[1])]
    found = {n: row[:, i] for n, i in PATH.items()} | {n: row[:, i] / ticks for n, i in PATH_TIMES.items()}
    found["link"] = np.full(len(row), -1, np.int64)
    blocked = row[:, probes.BLOCKED]
    for h in np.flatnonzero((found["source"] >= 0) | (blocked >= 0)):
        last = int(ends.site[found["core"][h]])
        if blocked[h] >= 0:  # what is behind the link that it could not use
            way = links_between(m, last, int(blocked[h]))[1:]
        else:
            first = int(ends.source[found["source"][h]])
            way = links_between(m, first if first >= 0 else int(ends.entry[found["core"][h]]), last)
        found["link"][h] = max(way, key=lambda link: flits[h, link[0]] * link[1])[0]
    return found


def links_between(m: Mesh | Bus, here: int, there: int) -> list[tuple[int, int]]:
    """The links that a message takes from a physical core to another, the cores' own included, and ticks a flit.

    `there` may be a branch, as in mesh.SLOT: then all links of the tree.
    """
    if isinstance(m, Bus):
        return links_on_bus(m, here, there)
    way, todo = [(int(m.inject_link[here]), m.link_ticks)], [(here // m.per_router, there)]
    while todo:
        router, to = todo.pop()
        for route, onward in _branches(m, router, to):
            output = m.output[router * m.n_ports + (route & ((1 << PORT_BITS) - 1))]
            way.append((int(output["link"]), int(output["held"])))
            if output["down_node"] < m.n_routers:
                todo.append((int(output["down_node"]), onward))
    return way


def _branches(m: Mesh, router: int, to: int) -> list[tuple[int, int]]:
    """How a message goes on from a router: (as Mesh.route, `to` of the copy), one or several."""
    if to < m.n_cores:
        return [(int(m.route[router, to]), to)]
    rows = m.branch[to - m.n_cores :]
    return [(int(row["route"]), int(row["to"])) for row in rows[: 1 + int(np.argmax(rows["is_last"]))]]


def _flight(w: Watch, ticks: int) -> tuple[np.ndarray, ...]:
    """Points (core cycles, flits) of each step; between the most of a while and its end nothing is kept."""
    steps = []
    for points, shift in zip(w.flight, w.shift, strict=True):
        used = np.flatnonzero(points[:, 0] >= 0)
        rows = []
        for i in used:
            rows.append((i << shift, points[i, 0]))
            if points[i, 1] != points[i, 0] and not (i + 1 < len(points) and points[i + 1, 0] >= 0):
                rows.append(((i + 1) << shift, points[i, 1]))
        curve = np.array(rows, np.float64).reshape(-1, 2) / (ticks, 1)
        steps.append(curve[np.diff(curve[:, 1], prepend=-1) != 0])
    return tuple(steps)
