"""METIS: a partitioner that cuts neurons into parts with little spike traffic between them, then fits them exactly.

After SNEAP (Li et al., GLSVLSI'20, arXiv 2004.01639): METIS minimizes the edge cut; an edge is a synapse weighted by
the spikes of its source. METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998) balances neurons only; axons and
synapse memory are handled afterwards. The edge cut differs from the cost of a chip with one message per spike and core.
"""

from functools import partial

import numpy as np

from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.partition.graph_partition import partition_graph
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.synapse_graph import SynapseGraph

# Per mille by which a part may be too large: METIS's own default for k-way cuts.
LARGEST_IMBALANCE = 30


def partition_by_metis(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition with METIS and return cores int32[n] of every layer (see `graph_partition`).

    Input lines are vertices without weight: they take no room, but attract their targets to one part. Raises
    OptionError for more edges than METIS can take.
    """
    cut = partial(metis_parts, seed=options.seed)
    return partition_graph(network, chip, activity, options, "metis", cut)


def metis_parts(graph: SynapseGraph, room: np.ndarray, seed: int) -> np.ndarray:
    """Return int32[vertex]: METIS's part of each vertex, in proportion to the cores' `room` int64[part]."""
    import pymetis

    spare = 1000 * int(room.sum()) // int(graph.n_neurons.sum()) - 1000
    share = None if (room == room[0]).all() else (room / room.sum()).tolist()
    options = pymetis.Options(seed=seed, ufactor=max(1, min(spare, LARGEST_IMBALANCE)))
    edges = pymetis.CSRAdjacency(graph.start, graph.other)
    try:
        _, part = pymetis.part_graph(
            len(room), edges, vweights=graph.n_neurons, eweights=graph.weight, tpwgts=share, options=options
        )
    except RuntimeError as error:  # out of memory, and other failures of METIS
        raise OptionError(
            f"METIS gave up on {len(graph.other) // 2:,} edges and {len(room)} parts ({error}); "
            "use partitioner='sequential'"
        ) from None
    return np.asarray(part, np.int32)
