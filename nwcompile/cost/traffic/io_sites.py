"""Io sites: where messages of input lines enter a chip and spikes of output layers leave it."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_counts
from nwcompile.ir.noc.routing import count_hops
from nwcompile.ir.program import Program


class IoRoutes(NamedTuple):
    """The route of every logical core to or from its nearest io site by hops, the first of equals.

    In some chip families messages enter elsewhere, at the port of another core; that core is the site then.
    """

    site: np.ndarray  # int64[core]: physical core of the site
    hops: np.ndarray  # int64[core, 2]: east-west, north-south


def io_routes(program: Program) -> tuple[IoRoutes, IoRoutes] | None:
    """Return the routes from io sites to each core, and those from each core to io sites; None without io.sites."""
    chip = program.chip
    if not len(chip.io_cores):
        return None
    router_of_core = chip.site_index(program.mapping.site_of) // chip.noc.cores_per_router
    come, leave = (sites[:, None] for sites in io_ends(chip))
    per, to_and_from = chip.noc.cores_per_router, []
    for sites, along in ((come, count_hops(chip.grid, come // per, router_of_core)),
                         (leave, count_hops(chip.grid, router_of_core, leave // per))):  # fmt: skip
        nearest = along.sum(-1).argmin(0)
        to_and_from.append(IoRoutes(sites[nearest, 0], along[nearest, np.arange(len(router_of_core))]))
    return to_and_from[0], to_and_from[1]


def io_ends(chip: Chip) -> tuple[np.ndarray, np.ndarray]:
    """Return int64[site] each: physical cores at whose ports messages enter and leave."""
    return chip.family.entries(chip), chip.io_cores


def io_messages(program: Program, activity: Activity, n_steps: int, place_rows, flits: bool = False) -> np.ndarray:
    """Return int64[2, H, core]: messages (or their flits) from an io site to each core, and from each core to one.

    `n_steps` is H; `place_rows(name, rows)` gives the activity of an input or layer by hardware step (`events.py`).
    """
    network, axons = program.network, program.axons
    messages = np.zeros((2, n_steps, program.mapping.n_cores), np.int64)
    for name in (*network.inputs, *network.outputs):
        message_flits = program.message_flits(name) if flits else 1
        first, (counts, h0) = network.offsets[name], place_rows(name, activity.counts[name])
        last = first + network.node(name).n_neurons
        is_input = name in network.inputs
        offset = axons.offset if is_input else np.arange(len(program.core_of) + 1)
        core = axons.core if is_input else program.core_of
        to_cores = csr_counts(offset[first : last + 1], core, messages.shape[2])
        sent = (csr_array(counts) @ to_cores).toarray() * message_flits
        messages[0 if is_input else 1, h0 : h0 + len(counts)] += sent
    return messages
