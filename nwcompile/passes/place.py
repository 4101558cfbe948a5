"""Place: logical cores to sites, so that messages take short ways."""

import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from nwcompile.cost.traffic import build_axons, core_pairs, flat_cores, pair_messages, resources
from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels import cpu_anneal
from nwcompile.passes import capacity

MOVES_PER_SITE, LARGEST_MOVES = 100, 200_000  # at each temperature
COOLING, N_TEMPERATURES = 0.92, 84
LARGEST_WEIGHT = 10_000


def place(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """The mapping with its cores on the sites that `options.placer` finds, each at a site whose limits hold it.

    `options.placer` names one of `PLACERS` or is a callable of their signature: it takes the arguments of this
    function and gives a Mapping with the same `core_of`. Raises OptionError for an unknown placer.
    """
    method = options.placer if callable(options.placer) else PLACERS.get(options.placer)
    if method is None:
        raise OptionError(unknown_choice("placer", options.placer, PLACERS))
    mapping.verify(network, chip)
    activity.verify(network)
    placed = method(mapping, network, chip, activity, options)
    if not isinstance(placed, Mapping):
        raise ModelError(f"placer: gave {type(placed).__name__}, not a Mapping")
    placed.verify(network, chip)
    return placed


def row_major(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """The sites that `partition` gave: x fastest, then y, then port, as far as unequal cores allow."""
    return mapping


def anneal(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Sites by simulated annealing on messages times weighted hops of shortest ways, from row-major on, never worse.

    A move swaps the sites of two cores or takes a core to a free site; sites are exchanged only where both hold what
    comes. Kirkpatrick et al., Science 220, 1983; used for placement on chips by SNEAP (Li et al., GLSVLSI'20,
    arXiv 2004.01639). The same seed gives the same sites, unless `options.time_budget_s` is set: then annealing is
    repeated from the best sites until the time is up, or until an interrupt (Ctrl-C).
    """
    weights = hop_weights(chip, options.optimise)
    ground = _ground(mapping, network, chip, activity, weights)
    deadline = None if options.time_budget_s is None else time.monotonic() + options.time_budget_s
    start = best = chip.site_index(mapping.site_of)
    try:
        for best in _improvements(ground, start, options.seed, repeat=deadline is not None):  # noqa: B007
            if deadline is not None and time.monotonic() >= deadline:
                break
    except KeyboardInterrupt:
        if deadline is None:
            raise
    return Mapping(mapping.core_of, chip.sites[best], mapping.note)


PLACERS = {"row-major": row_major, "anneal": anneal}


def hop_weights(chip: Chip, optimise: str) -> tuple[int, int]:
    """Cost of a hop east-west and north-south as whole numbers in the right proportion, for an objective of Options.

    Raises OptionError for `energy` on a chip that gives no hop energies.
    """
    pairs = {"time": (chip.noc.hop_cycles_ew, chip.noc.hop_cycles_ns), "traffic": (1, 1),
             "energy": (chip.energy.hop_ew_pj, chip.energy.hop_ns_pj)}  # fmt: skip
    ew, ns = pairs[optimise]
    if ew is None or ns is None:
        raise OptionError(
            f"optimise='energy' needs energy.hop_ew_pj and energy.hop_ns_pj, which {chip.name} does not give; "
            "use optimise='time' or 'traffic'"
        )
    if not ew or not ns:
        return int(ew > 0), int(ns > 0)
    ratio = (Fraction(str(ew)) / Fraction(str(ns))).limit_denominator(LARGEST_WEIGHT)
    return ratio.numerator, ratio.denominator


def routed_cost(mapping: Mapping, network: Network, chip: Chip, activity: Activity, optimise: str) -> int:
    """Messages times weighted hops over all of `activity`, in `hop_weights`: what `anneal` makes small.

    Hops are those of the shortest way that there is without faults.
    """
    ground = _ground(mapping, network, chip, activity, hop_weights(chip, optimise))
    return int(cpu_anneal.routed_cost(ground, chip.site_index(mapping.site_of)))


def _ground(
    mapping: Mapping, network: Network, chip: Chip, activity: Activity, weights: tuple[int, int]
) -> cpu_anneal.Ground:
    n_cores, core_of = mapping.n_cores, flat_cores(network, mapping)
    axons = build_axons(network, core_of, n_cores, chip)
    axon_pair, pair = core_pairs(axons, core_of, n_cores)
    messages = pair_messages(network, axons, axon_pair, len(pair), activity)
    moving = (pair[:, 0] != pair[:, 1]) & (messages > 0)
    ends = np.concatenate([pair[moving], pair[moving][:, ::-1]]).astype(np.int64)
    key, inverse = np.unique(ends[:, 0] * n_cores + ends[:, 1], return_inverse=True)
    both = np.zeros(len(key), np.int64)
    np.add.at(both, inverse.reshape(-1), np.tile(messages[moving], 2))
    start = np.concatenate([[0], np.cumsum(np.bincount(key // n_cores, minlength=n_cores))])
    kinds, site_kind = np.unique(capacity.site_limits(chip), axis=0, return_inverse=True)
    held = resources(axons, core_of, n_cores)
    fits = np.all([held[name][:, None] <= kinds[:, i] for i, name in enumerate(capacity.LIMITS)], axis=0)
    noc = chip.noc
    around = (noc.columns, noc.rows) if noc.topology == "torus" else (2 * noc.columns, 2 * noc.rows)
    return cpu_anneal.Ground(
        start, key % n_cores, both, chip.sites[:, :2].astype(np.int64), np.array(around, np.int64),
        np.array(weights, np.int64), site_kind.reshape(-1), fits,
    )  # fmt: skip


def _improvements(ground: cpu_anneal.Ground, best: np.ndarray, seed: int, repeat: bool) -> Iterator[np.ndarray]:
    """The best sites so far, int64[core], after every temperature of one annealing, or of one after another for ever.

    Starts where a mean worsening is taken with probability 1/e, cools to a thousandth of that, and ends with moves that
    only go down. Each further annealing starts from the best sites.
    """
    n_sites, state = len(ground.site_xy), np.array([seed], np.uint64)
    n_moves = min(LARGEST_MOVES, MOVES_PER_SITE * n_sites)
    while len(ground.other):
        site_of, core_at = best.copy(), np.full(n_sites, -1)
        core_at[site_of] = np.arange(len(site_of))
        first = cpu_anneal.uphill_mean(ground, site_of, core_at, state, n_moves)
        above_best = 0
        for temperature in (*(first * COOLING**i for i in range(N_TEMPERATURES)), 0.0):
            found = site_of.copy()
            change, lowest = cpu_anneal.anneal(ground, site_of, core_at, state, temperature, n_moves, found)
            if above_best + lowest < 0:
                best, above_best = found, change - lowest
            else:
                above_best += change
            yield best
        if not repeat:
            return
