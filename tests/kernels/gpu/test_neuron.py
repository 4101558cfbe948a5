"""The kernels of exact integer inference compile for the processors named and compute in whole numbers only."""

import pytest

from tests.frontend.frameworks import framework

framework("triton")

from nwcompile.ir.neuron import OVERFLOWS  # noqa: E402
from nwcompile.kernels.gpu.neuron import scan  # noqa: E402
from nwcompile.kernels.gpu.recurrent_neuron import scan_loop  # noqa: E402
from nwcompile.kernels.gpu.sparse_sums import gather  # noqa: E402
from tests.kernels.gpu.harness import PROCESSORS, compiled, is_whole  # noqa: E402

SCALARS = ("n_lanes", "n", "n_steps", "drive_sample", "drive_step", "drive_bits", "touched_sample", "touched_step",
           "touched_neuron", "out_sample")  # fmt: skip
PLAIN = {"STATE_BITS": 24, "DECAY_BITS": 12, "SHIFT": 6, "OVERFLOW": 0, "STRICT": True, "FIRES": True, "SPIKE_KIND": 0,
         "RESET": 0, "TIMING": 0, "LEAKS": False, "REFRACTS": False, "CLAMPS": False, "RESATURATES": False,
         "SHIFTS": False, "MOST": 0,
         "WIDE": False, "KEEPS": False, "COUNTS": False, "TOUCHED": False, "RESUMES": False, "AHEAD": 8,
         "BLOCK": 128}  # fmt: skip
COUNTED = {**PLAIN, "SPIKE_KIND": 2, "RESET": 2, "TIMING": 2, "COUNTS": True, "TOUCHED": True, "OVERFLOW": 2,
           "LEAKS": True, "REFRACTS": True, "CLAMPS": True, "RESATURATES": True}  # fmt: skip
SEVERAL = {
    **COUNTED,
    "SPIKE_KIND": 1,
    "TIMING": 1,
    "WIDE": True,
    "KEEPS": True,
    "RESUMES": True,
    "AHEAD": 1,
    "BLOCK": 32,
}
BY_SHIFT = {"SPIKE_KIND": 1, "TIMING": 0, "DECAY_BITS": 4, "OVERFLOW": 1 + OVERFLOWS.index("clip"), "LEAKS": True,
            "SHIFTS": True, "MOST": 31}  # fmt: skip
SHIFTED = {**COUNTED, **BY_SHIFT}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("constants", [PLAIN, COUNTED, SEVERAL, SHIFTED], ids=lambda c: f"kind{c['SPIKE_KIND']}")
def test_scan_compiles_to_whole_numbers(constants, processor):
    number = "*i64" if constants["WIDE"] else "*i32"
    types = {"drive": number, "touched": "*u8", "rule": number, "state": number, "spikes": "*i8", "u_out": number,
             "v_out": number, "updates": "*i32", **dict.fromkeys(SCALARS, "i32")}  # fmt: skip
    found = compiled(scan, types, constants, processor, warps=constants["BLOCK"] // 32)
    assert all(map(is_whole, found.instructions)) and found.fused == [] and not found.spills
    assert any(i.startswith(("red.", "atom.")) for i in found.instructions) == constants["COUNTS"]


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(
    "counts, size, warps, drive, rules",
    [(False, 128, 8, "*i32", {}), (True, 64, 4, "*i64", {}),
     (True, 64, 4, "*i32", BY_SHIFT)],
)  # fmt: skip
def test_loop_compiles_to_whole_numbers_and_keeps_its_weights_in_registers(
    counts, size, warps, drive, rules, processor
):
    types = {"drive": drive, "touched": "*u8", "rule": "*i32", "weight": "*i32", "synapse": "*u8", "spikes": "*i8",
             "u_out": "*i32", "v_out": "*i32", "updates": "*i32",
             **dict.fromkeys(set(SCALARS) - {"n_lanes", "out_sample"}, "i32")}  # fmt: skip
    left_out = ("WIDE", "RESUMES", "BLOCK")
    constants = {name: value for name, value in PLAIN.items() if name not in left_out}
    constants |= {"COUNTS": counts, "TOUCHED": counts, "AHEAD": 4, "SIZE": size} | rules
    found = compiled(scan_loop, types, constants, processor, warps=warps)
    assert all(map(is_whole, found.instructions)) and found.fused == [] and not found.spills


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("number", ["*i32", "*i64", "*u8"])
def test_gather_compiles_to_whole_numbers(number, processor):
    types = {"row": "*i64", "source": "*i32", "weight": "*i64", "payload": "*i8", "out": number, "n_rows": "i32",
             "n_source": "i32", "n_target": "i32"}  # fmt: skip
    found = compiled(gather, types, {"EVENTS": number == "*u8", "ROWS": 16, "BLOCK": 64}, processor)
    assert all(map(is_whole, found.instructions)) and found.fused == [] and not found.spills
