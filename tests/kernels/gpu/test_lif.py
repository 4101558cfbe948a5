import pytest
import torch

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import PROCESSORS, compiled, key

framework("triton")
from nwcompile.kernels.gpu import lif  # noqa: E402
from nwcompile.nn.ops import gpu  # noqa: E402

SIZES = dict.fromkeys(("n_samples", "n_steps", "n_units", "x_sample", "x_step"), "i32")
DISTANCES = dict.fromkeys(("h_sample", "h_step", "g_sample", "g_step"), "i32")
SMALL, LARGE = 0, 1  # rows of the tables of launches


def options_of(table, row, unit):
    options = table[row][1].options
    return {"UNIT": unit, **{k: v for k, v in options.items() if k.isupper()}}, options["num_warps"]


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(
    ("row", "current", "spikes", "mem"), [(SMALL, "*fp32", "*fp32", "*fp32"), (LARGE, "*bf16", "*i32", None)]
)
def test_forward_compiles_without_fused_operations(processor, row, current, spikes, mem):
    constants, warps = options_of(gpu.FORWARD, row, 16)
    types = {"current": current, "spikes": spikes, "mem": mem, **SIZES,
             **dict.fromkeys(("state", "beta", "threshold", "last"), "*fp32")}  # fmt: skip
    absent = {name: None for name, kind in types.items() if kind is None}
    types = {name: kind for name, kind in types.items() if kind is not None}
    constants |= {"RESET": "subtraction", "FLOOR": True, **absent}
    built = compiled(lif.lif_forward, types, constants, processor, warps)
    assert built.fused == [] and {"mul.rn.f32", "add.rn.f32"} <= built.instructions
    assert not built.spills


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(("row", "current", "learns"), [(SMALL, "*fp32", True), (LARGE, "*bf16", False)])
def test_backward_compiles_without_fused_operations(processor, row, current, learns):
    constants, warps = options_of(gpu.BACKWARD, row, 16)
    same = "mem", "state", "grad_spikes", "grad_mem", "beta", "threshold", "carried"
    types = {"current": current, "grad_current": current, **dict.fromkeys(same, "*fp32"), **SIZES, **DISTANCES}
    constants |= {"RESET": "subtraction", "FLOOR": False, "DETACH": False, "SURROGATE": "atan", "SLOPE": 2.0,
                  "SCALED": 3.1415927410125732, "H_EACH": 1, "G_EACH": 1}  # fmt: skip
    (types if learns else constants)["sums"] = "*fp64" if learns else None
    built = compiled(lif.lif_backward, types, constants, processor, warps)
    assert built.fused == [] and "div.rn.f32" in built.instructions
    assert not built.spills
    assert current != "*bf16" or any(i.startswith("cvt.rn.bf16") for i in built.instructions)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("n", [48, 13])
def test_no_length_compiles_anew(n, recurrent, monkeypatch):
    keys = set()
    monkeypatch.setattr(gpu, "_start_kernel", lambda kernel, x, n_programs, *arguments, **constants: keys.add(
        key(kernel, *arguments, **constants)))  # fmt: skip
    rule = "zero", True, False, "atan", 2.0
    w_rec, state, neuron = torch.zeros(n, n) if recurrent else None, torch.zeros(1 + recurrent, 3, n), torch.zeros(n)
    for n_steps in (1, 16, 17, 1000):
        current = torch.zeros(3, n_steps, n)
        gpu.forward(current, state, neuron, neuron, w_rec, *rule[:2])
        gpu.backward((current, None, None), current, current, current, state, neuron, neuron, w_rec, rule, True)
        gpu.fire(current, state, neuron, neuron, *rule[:2], "bits")
    assert len(keys) == 3
    gpu.fire(current.bfloat16(), state, neuron, neuron, *rule[:2], "bits")
    assert len(keys) == 4
