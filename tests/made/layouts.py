"""Networks on chip with every layout: routings, tori, faults, several chips."""

import numpy as np

from tests.made.chips import small_chip

LAYOUTS = {
    "xy": {},
    "yx": {"routing": "yx"},
    "west-first": {"routing": "west-first"},
    "odd-even": {"routing": "odd-even"},
    "torus xy": {"topology": "torus", "virtual_channels": 2},
    "torus yx": {"topology": "torus", "routing": "yx", "virtual_channels": 3},
    "up-down": {"routing": "up-down"},
    "torus up-down": {"topology": "torus", "routing": "up-down"},
    "faults": {"routing": "up-down", "faults": ["2,1", "0,2-1,2", "3,3-3,4"]},
    "torus faults": {"topology": "torus", "routing": "up-down", "faults": ["2,1", "0,2-4,2", "0,0"]},
    "chips": {"chip_columns": 3, "chip_rows": 2, "chip_hop_cycles": 17, "chip_link_cycles_per_flit": 4},
    "torus of chips": {"topology": "torus", "virtual_channels": 2, "chip_columns": 2, "chip_hop_cycles": 9,
                       "chip_link_cycles_per_flit": 3},
}  # fmt: skip


def chip_of_layout(layout, **keys):
    size = {"columns": 5, "rows": 5, "cores_per_router": 2}
    return small_chip(**{f"noc__{key}": value for key, value in (size | LAYOUTS[layout] | keys).items()})


def usable(c):
    return np.flatnonzero(c.limit("max_neurons"))
