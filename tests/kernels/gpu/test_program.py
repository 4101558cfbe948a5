"""The kernel of a neuron program compiles for the processors named, and computes in whole numbers only."""

import pytest

from tests.frontend.frameworks import framework

framework("triton")

from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable  # noqa: E402
from nwcompile.kernels.cores.programs.build import build_gpu_module  # noqa: E402
from nwcompile.kernels.gpu.program import scan  # noqa: E402
from tests.kernels.gpu.harness import PROCESSORS, compiled, is_whole  # noqa: E402
from tests.made.gated_neurons import multiplied  # noqa: E402
from tests.made.neuron_programs import adaptive, every_operation  # noqa: E402
from tests.made.random_neurons import FLOAT  # noqa: E402

SCALARS = ("n_lanes", "n", "n_steps", "drive_bits", "drive_sample", "drive_step", "touched_sample", "touched_step",
           "touched_neuron", "out_sample", "kept_sample")  # fmt: skip


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("number, all_of_it", [("*i32", False), ("*i64", True), ("*i32", None)])
def test_a_program_compiles_to_whole_numbers_in_registers(number, all_of_it, processor):
    """All operations and all that a scan can do; neither; a program of three inputs."""
    program = multiplied() if all_of_it is None else every_operation() if all_of_it else adaptive.program()
    types = dict.fromkeys(("drive", "given", "entries", "initial", "state", "kept"), number)
    types |= {"touched": "*u8", "rests": "*u8", "spikes": "*i32", "updates": "*i32", **dict.fromkeys(SCALARS, "i32")}
    constants = {
        "STEP": build_gpu_module(program.structure).step, "N_GIVEN": len(program.parameters),
        "N_STATES": len(program.states), "N_INPUTS": len(program.inputs), "AHEAD": 1 if all_of_it else 2, "BLOCK": 32,
        **dict.fromkeys(("KEEPS", "COUNTS", "TOUCHED", "RESUMES"), bool(all_of_it)),
    }  # fmt: skip
    found = compiled(scan, types, constants, processor, warps=1)
    assert all(map(is_whole, found.instructions)) and found.fused == [] and not found.spills


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_float_program_compiles_without_fused_operations(processor):
    program = float_program()
    types = dict.fromkeys(("drive", "given", "entries", "initial", "state", "kept", "spikes"), "*fp32")
    types |= {"touched": "*fp32", "rests": "*fp32", "updates": "*fp32", **dict.fromkeys(SCALARS, "i32")}
    constants = {
        "STEP": build_gpu_module(program.structure).step, "BLOCK": 32, "AHEAD": 2, "RESUMES": True,
        **dict.fromkeys(("N_GIVEN", "N_STATES", "N_INPUTS"), 1), **dict.fromkeys(("KEEPS", "COUNTS", "TOUCHED"), False),
    }  # fmt: skip
    found = compiled(scan, types, constants, processor, warps=1)
    assert found.fused == [] and not found.spills
    assert {"div.rn.f32", "sqrt.rn.f32"} <= found.instructions
    assert not any(i.startswith(("div.full", "div.approx", "sqrt.approx")) for i in found.instructions)


def float_program() -> NeuronProgram:
    """A program that uses every operation on float numbers that has a kernel."""
    steps = [
        ("kept", "mul", "v", 0.9),
        ("v2", "add", "kept", "x"),
        ("low", "min", "v2", "k"),
        ("high", "max", "low", -2.5),
        ("size", "abs", "high"),
        ("side", "sign", "high"),
        ("back", "neg", "high"),
        ("part", "div", "back", "k"),
        ("root", "sqrt", "size"),
        ("down", "floor", "part"),
        ("cut", "trunc", "root"),
        ("lt", "lt", "down", "cut"),
        ("le", "le", "side", 0.5),
        ("eq", "eq", "cut", 1),
        ("ne", "ne", "down", 0),
        ("both", "and", "lt", "le"),
        ("any", "or", "both", "eq"),
        ("no", "not", "ne"),
        ("one", "number", "no"),
        ("chosen", "select", "any", "one", "root"),
        ("sent", "sub", "chosen", "part"),
    ]
    operations = tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps)
    assert {operation.kind for operation in operations} == {*FLOAT}
    return NeuronProgram("float", (StateVariable("v", "v2"),), operations, "sent", "graded", False, {"k": 1.5})
