"""The tables of the router kernels say what nwcompile.ir.noc.routing says."""

import numpy as np
import pytest

from nwcompile.ir.chip import Chip
from nwcompile.ir.noc.routing import HERE, ROUTINGS, find_ports, vc_classes
from nwcompile.kernels.noc.mesh import PORT_BITS
from nwcompile.sim.cycle.noc_tables import route_table
from tests.made.chips import small_chip

FAULTS = {"faults": ["1,0", "0,1-0,2"]}
SHAPES = [(5, 4, 2, {"routing": routing}) for routing in (*ROUTINGS, "up-down")]
SHAPES += [(4, 5, 1, {"topology": "torus", "virtual_channels": 2, "routing": routing}) for routing in ("xy", "yx")]
SHAPES += [(1, 7, 3, {}), (6, 1, 1, {}), (4, 4, 2, {"routing": "up-down", **FAULTS})]


@pytest.mark.parametrize(("columns", "rows", "per_router", "keys"), SHAPES)
def test_routes_are_the_ports_and_channels_of_every_router_and_core(columns, rows, per_router, keys):
    keys = {"columns": columns, "rows": rows, "cores_per_router": per_router, **keys}
    chip = small_chip(**{f"noc__{key}": value for key, value in keys.items()})
    table = route_table(chip)
    assert table.route.dtype == np.uint8
    home, own = np.divmod(np.arange(chip.n_cores), per_router)
    for router in range(columns * rows):
        port = find_ports(chip.grid, router, home)
        wanted = np.where(port == HERE, HERE + own, port) | vc_classes(chip.grid, router, home) << PORT_BITS
        assert table.route[table.from_router[router] + table.to_core].tolist() == wanted.tolist()


def test_routes_of_a_large_board_take_a_few_bytes_a_core():
    chip = Chip.load("loihi2_hala")
    assert sum(array.nbytes for array in route_table(chip)) < 16 * chip.n_cores
