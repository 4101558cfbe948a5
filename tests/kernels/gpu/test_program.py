"""The kernel of a neuron program compiles for the processors named, and computes in whole numbers only."""

import pytest

from tests.frontend.frameworks import framework

framework("triton")

from nwcompile.kernels.cores.programs.build import built_for_gpu  # noqa: E402
from nwcompile.kernels.gpu.program import scan  # noqa: E402
from tests.kernels.gpu.harness import PROCESSORS, compiled  # noqa: E402
from tests.kernels.gpu.test_neuron import is_whole  # noqa: E402
from tests.neuron_programs import adaptive, every_operation  # noqa: E402

SCALARS = ("n_lanes", "n", "n_steps", "drive_bits", "drive_sample", "drive_step", "touched_sample", "touched_step",
           "touched_neuron", "out_sample", "kept_sample")  # fmt: skip


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("number, all_of_it", [("*i32", False), ("*i64", True)])
def test_a_program_compiles_to_whole_numbers_in_registers(number, all_of_it, processor):
    program = every_operation() if all_of_it else adaptive.program()
    types = dict.fromkeys(("drive", "given", "initial", "state", "kept"), number)
    types |= {"touched": "*u8", "rests": "*u8", "spikes": "*i32", "updates": "*i32", **dict.fromkeys(SCALARS, "i32")}
    constants = {
        "STEP": built_for_gpu(program.structure).step, "N_GIVEN": len(program.parameters),
        "N_STATES": len(program.states), "AHEAD": 1 if all_of_it else 8, "BLOCK": 32,
        **dict.fromkeys(("KEEPS", "COUNTS", "TOUCHED", "RESUMES"), all_of_it),
    }  # fmt: skip
    found = compiled(scan, types, constants, processor, warps=1)
    assert all(map(is_whole, found.instructions)) and found.fused == [] and not found.spills
