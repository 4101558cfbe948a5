"""Sub-mesh: NeuMap's placer, which anneals within the smallest corner square of the chip that holds all cores.

After NeuMap (Xiao et al., Sensors 22(19):7248, 2022), of which only the abstract was accessible: a meta-heuristic
searches for the best core of every cluster in a reduced space. Assumed: the space is such a square, the meta-heuristic
is simulated annealing, and it minimizes messages times route costs.
"""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.place.anneal import anneal_sites
from nwcompile.passes.place.problem import placement_problem, seat_cores


def place_by_neumap(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Anneal sites in the sub-mesh; cores that it cannot hold, or that `fixed_sites` fixes, stay outside."""
    problem = placement_problem(mapping, network, chip, activity, options)
    ring = chip.sites[:, :2].max(1)
    usable = np.asarray(problem.fits.any(0))[problem.site_kind]
    side = np.searchsorted(np.cumsum(np.bincount(ring, usable)), mapping.n_cores)
    outside = (ring > side).astype(float)
    start = seat_cores(problem, chip.site_index(mapping.site_of), np.arange(mapping.n_cores), lambda core: outside)
    closed = outside.astype(bool)
    closed[start] = False
    kinds = np.where(closed, problem.fits.shape[1], problem.site_kind)
    nobody = np.zeros((len(problem.fits), 1), bool)
    reduced = problem._replace(site_kind=kinds, fits=np.concatenate([problem.fits, nobody], 1))
    return Mapping(mapping.core_of, chip.sites[anneal_sites(reduced, start, options)], mapping.note)
