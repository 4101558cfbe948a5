"""A small chip with every cost known."""

from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import SECTIONS

COST = {"units": "overlap", "visit_cycles": 6, "update_cycles": 4, "spike_cycles": 30, "message_out_cycles": 5,
        "message_in_cycles": 16, "word_cycles": 1, "synop_dense_cycles": 4, "synop_sparse_cycles": 5,
        "synop_conv_cycles": 3, "barrier_cycles": {"1": 600, "2": 1000}}  # fmt: skip
ENERGY = {"visit_pj": 51.2, "update_pj": 21.6, "spike_pj": 69.3, "message_out_pj": 111.0, "message_in_pj": 0.0,
          "synop_dense_pj": 35.5, "synop_sparse_pj": 33.6, "synop_conv_pj": 24.0, "hop_ew_pj": 3.0,
          "hop_ns_pj": 4.2}  # fmt: skip


def small_chip(**overrides) -> Chip:
    """Build a 3 x 2 mesh, 2 cores per router, 64 neurons per core, all costs; `noc__columns=4` sets `noc.columns`."""
    table = {
        "name": "small",
        "noc": {"columns": 3, "rows": 2, "cores_per_router": 2, "hop_cycles_ew": 4, "hop_cycles_ns": 6},
        "core": {"max_neurons": 64, "max_in_axons": 256, "max_out_axons": 256, "synapse_bits": 1 << 17,
                 "block_overhead_bits": 10},
        "weights": {"bits": 8},
        "neuron": {"reset": ["zero", "subtract", "none"], "refractory_max_steps": 15, "delay_max_steps": 15},
        "cost": COST,
        "energy": ENERGY,
        "sources": dict.fromkeys(SECTIONS, "assumed: for tests"),
    }  # fmt: skip
    chip = Chip.from_dict(table)
    return chip.replace({key.replace("__", "."): value for key, value in overrides.items()})
