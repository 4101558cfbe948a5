"""What is left of a module's step once it was followed: what changes nothing, and what nothing reads, is gone."""

import numpy as np
import pytest
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.kind import trace_step
from nwcompile.sim.reference.program_step import ProgramState


class Module(torch.nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.gain, self.one, self.zero = (torch.nn.Parameter(torch.as_tensor(v)) for v in (gain, 1.0, 0.0))


def program(step, gain=2.0, **initial):
    return trace_step(Module(gain), "layer", (3,), step, initial or {"v": 0})


def shown(step, **options):
    return [
        str(operation) for operation in program(lambda states, x: step(Module(2.0), states, x), **options).operations
    ]


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        (lambda m, s, x: ({"v": s["v"] + x * 1.0}, None), ["t2 = v + x"]),
        (lambda m, s, x: ({"v": (s["v"] - 0.0) / 1.0 + 0.0 * x}, None), []),
        (lambda m, s, x: ({"v": 0.0 - s["v"] + (x - x)}, None), ["t1 = 0.0 - v"]),
        (lambda m, s, x: ({"v": 1.0 / (s["v"] + 0.0)}, None), ["t2 = 1.0 / v"]),
    ],
)
def test_what_changes_no_number_is_left_out(step, kept):
    assert shown(step) == kept


def test_states_that_nothing_reads_are_left_out():
    def step(states, x):
        v = 0.5 * states["v"] + x
        return {"v": v, "seen": states["seen"] + v, "last": v, "late": states["last"]}, (v > 1).float()

    found = program(step, v=0.25, seen=0, last=0, late=0)
    assert found.state_names == ("v",)
    assert [str(operation) for operation in found.operations] == [
        "t1 = v * 0.5",
        "t2 = t1 + x",
        "t4 = 1 < t2",
        "t5 = number(t4)",
    ]
    assert (found.states[0].initial, found.sends) == (0.25, "binary")


@pytest.mark.parametrize("gain", [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1.0, 2.0, 3.0]])])
def test_parameters_keep_their_names_and_fit_the_layer(gain):
    module = Module(gain)
    found = trace_step(module, "layer", (3,), lambda s, x: ({"v": module.gain * x + module.one.exp()}, None), {"v": 0})
    assert list(found.parameters) == ["gain", "c1"]
    assert found.parameters["gain"].tolist() == [1.0, 2.0, 3.0]
    assert found.parameters["c1"] == float(torch.tensor(1.0).exp())


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (lambda x: x.flip(1), "torch's flip is no operation"),
        (lambda x: x[:, :1] * x, "torch's slice, which makes [1, 1] of [1, 3] is no operation"),
        (lambda x: x.mean() + x, "torch's mean, which makes [] of [1, 3] is no operation"),
        (lambda x: torch.cat((x, x)), "torch's cat, which makes [2, 3] of [1, 3] is no operation"),
        (lambda x: x[0].unsqueeze(0).double(), "torch's _to_copy, which makes torch.float64 of float32 numbers"),
    ],
)
def test_steps_over_several_neurons_are_refused(step, text):
    with pytest.raises(ModelError) as error:
        program(lambda states, x: ({"v": step(x)}, None))
    assert str(error.value).startswith(f"layer 'layer' (tests Module): {text}")


@pytest.mark.parametrize(("name", "exact"), [("exp", np.exp), ("tanh", np.tanh)])
def test_exponentials_of_float32_are_rounded_once(name, exact):
    found = program(lambda states, x: ({"v": getattr(torch, name)(x)}, None))
    x = np.random.default_rng(0).normal(0, 2, (1000, 3)).astype(np.float32)
    state = ProgramState.from_program(found, x.shape)
    state.step(x)
    assert (state.named["v"] == exact(x.astype(np.float64)).astype(np.float32)).all()
    assert (np.diff(state.named["v"]) != 0).any()
