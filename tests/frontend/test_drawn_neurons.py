"""Neurons written by hand, drawn at random: states, elementwise expressions, and the style of the code."""

import random
import warnings

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import NwWarning

N_IN, N, STEPS = 5, 7, 10
STYLES = ("loop", "time_first", "item", "time_last", "attributes", "function", "dictionary", "steps_first")


def draw_expression(draw: random.Random, names: list[str], depth: int = 2) -> str:
    """Return Python code of an elementwise expression of `names`."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(names)

    def inner() -> str:
        return draw_expression(draw, names, depth - 1)

    number = round(draw.uniform(0.2, 1.3), 2)
    return draw.choice(
        (
            f"({inner()} + {inner()})",
            f"({inner()} - {inner()})",
            f"{number} * {inner()}",
            f"{inner()} / {number}",
            f"torch.tanh({inner()})",
            f"torch.clamp({inner()}, -{number}, {2 * number})",
            f"({inner()}).abs()",
            f"torch.where({inner()} > {number}, {inner()}, {inner()})",
            f"torch.sigmoid({inner()})",
            f"F.relu({inner()})",
        )
    )


def draw_step(draw: random.Random, n_states: int) -> list[str]:
    """Return the lines of one step: from the states `s0`, ... and the current `x` to new states and `spike`."""
    states = [f"s{i}" for i in range(n_states)]
    threshold = round(draw.uniform(0.2, 0.8), 2)
    told = draw.choice(("s0", *(f"(s0 - 0.3 * {s})" for s in states[1:])))
    spike = draw.choice(
        (
            f"spike = ({told} > {threshold}).float()",
            f"spike = ({told} - {threshold} >= 0).to(x.dtype)",
            f"spike = torch.where({told} > {threshold}, 1.0, 0.0)",
            f"spike = torch.heaviside({told} - {threshold}, torch.zeros(()))",
            f"spike = Step.apply({told} - {threshold})",
            f"spike = torch.zeros_like(x)\nspike[{told} > {threshold}] = 1.0",
        )
    ).split("\n")
    leak = round(draw.uniform(0.3, 0.95), 2)
    charge = [f"s0 = {leak} * s0 + " + draw.choice(("x", "0.9 * x", f"x - 0.2 * {draw.choice(states)}"))]
    for name in states[1:]:
        charge.append(
            f"{name} = {round(draw.uniform(0.2, 0.8), 2)} * torch.tanh({draw_expression(draw, ['x', *states])})"
        )
    draw.shuffle(charge)
    reset = [
        draw.choice(
            (
                "s0 = s0 * (1 - spike)",
                f"s0 = s0 - {threshold} * spike",
                "s0 = torch.where(spike > 0, torch.zeros_like(s0), s0)",
                "s0 = s0.masked_fill(spike.bool(), 0.1)",
                "pass",
            )
        )
    ]
    if n_states > 1 and draw.random() < 0.5:
        reset.append(f"{states[-1]} = {states[-1]} + 0.4 * spike")
    return [*spike, *charge, *reset] if draw.random() < 0.3 else [*charge, *spike, *reset]


def write_module(draw: random.Random) -> tuple[str, str]:
    """Return the code of a module with two layers of drawn neurons, and its style."""
    style = draw.choice(STYLES)
    lines = ["class Net(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [
        f"        self.fc1 = torch.nn.Linear({N_IN}, {N}, bias={draw.random() < 0.5})",
        f"        self.fc2, self.rec = torch.nn.Linear({N}, {N}), torch.nn.Linear({N}, {N}, bias=False)",
        "        self.memory = None",
    ]
    steps, counts = [], []
    for _ in range(2):
        counts.append(draw.randint(1, 4))
        steps.append(draw_step(draw, counts[-1]))
    is_recurrent = draw.random() < 0.3
    for k, (step, n_states) in enumerate(zip(steps, counts, strict=True)):
        names = ", ".join(f"s{i}" for i in range(n_states))
        body = [f"({names},) = state", *step, f"return spike, ({names},)"]
        lines += [f"    def step{k}(self, x, state):", *("        " + line for line in body)]
    zeros = ["(" + f"torch.zeros(batch, {N}), " * n + ")" for n in counts]
    current = "self.fc1({x})" + (" + self.rec(spikes[0])" if is_recurrent else "")

    def one(x: str) -> list[str]:
        return [
            f"spikes[0], a = self.step0({current.format(x=x)}, a)",
            "spikes[1], b = self.step1(self.fc2(spikes[0]), b)",
        ]

    start = [f"a, b = {zeros[0]}, {zeros[1]}", f"spikes = [torch.zeros(batch, {N}), torch.zeros(batch, {N})]"]
    if style == "attributes":
        body = [
            "batch = len(x)",
            f"if self.memory is None: self.memory = ({zeros[0]}, {zeros[1]}, [torch.zeros(batch, {N})] * 2)",
            "a, b, spikes = self.memory",
            "spikes = list(spikes)",
            *one("x"),
            "self.memory = (a, b, spikes)",
            "return spikes[1]",
        ]
    elif style == "steps_first":  # one layer after the other, over all steps
        body = [
            "batch, first, second = len(x), [], []",
            *start,
            "for t in range(x.shape[1]):",
            f"    {one('x[:, t]')[0]}",
            "    first.append(spikes[0])",
            "currents = self.fc2(torch.stack(first, 1))",
            "for t in range(x.shape[1]):",
            "    spikes[1], b = self.step1(currents[:, t], b)",
            "    second.append(spikes[1])",
            "return torch.stack(second, 1)",
        ]
    else:
        axis, pick, put = {
            "time_first": (0, "x[t]", None),
            "time_last": (1, "last[..., t]", "out[..., t] = spikes[1]"),
            "item": (1, "x[:, t]", "out[:, t] = spikes[1]"),
        }.get(style, (1, "x[:, t]", None))
        shape = f"batch, {N}, x.shape[1]" if style == "time_last" else f"batch, x.shape[1], {N}"
        body = [f"batch = x.shape[{1 if axis == 0 else 0}]", *start, "record = []"]
        body += [f"last, out = x.permute(0, 2, 1), torch.zeros({shape})"] if put else []
        if style == "dictionary":
            body += ["memory = {'a': a, 'b': b}"]
        body += [f"for t in range(x.shape[{axis}]):"]
        body += ["    a, b = memory['a'], memory['b']"] if style == "dictionary" else []
        body += ["    " + line for line in one(pick)]
        body += ["    memory.update(a=a, b=b)"] if style == "dictionary" else []
        body += ["    " + (put or "record.append(spikes[1])")]
        body += [
            "return " + ("out.transpose(1, 2)" if style == "time_last" else "out")
            if put
            else f"return torch.stack(record, {axis})"
        ]
    lines += ["    def forward(self, x):", *("        " + line for line in body)]
    return "\n".join(lines), style


class Step(torch.autograd.Function):
    """A spike with a surrogate gradient."""

    @staticmethod
    def forward(ctx, v):
        return (v > 0).float()


def run_module(module: torch.nn.Module, x: torch.Tensor, style: str) -> torch.Tensor:
    """Return the spikes `[B, T, n]` of the last layer for `x` `[B, T, n_in]`."""
    with torch.no_grad():
        if style == "attributes":
            module.memory = None
            spikes = torch.stack([module(step) for step in x.unbind(1)], 1)
            module.memory = None
            return spikes
        if style == "time_first":
            return module(x.transpose(0, 1)).transpose(0, 1)
        return module(x)


def verify_drawn(seed: int) -> str:
    """Import a drawn module and compare its spikes; return "equal", or the refusal or warning."""
    draw = random.Random(seed)
    code, style = write_module(draw)
    scope = {"torch": torch, "F": torch.nn.functional, "Step": Step}
    exec(compile(code, "drawn.py", "exec"), scope)
    torch.manual_seed(seed)
    module = scope["Net"]().eval()
    for weights in module.parameters():
        weights.data *= 2.5
    x = (torch.rand(3, STEPS, N_IN) < 0.5).float()
    expected = run_module(module, x, style)
    layout = "TB" if style == "time_first" else "BT"
    example = x.transpose(0, 1) if layout == "TB" else x
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", NwWarning)
            network = nw.from_torch(module, example, layout=layout)
    except (nw.ModelError, NwWarning) as e:
        return f"{style}: {e}"
    run = nw.simulate(network, example.numpy())
    spikes = torch.as_tensor(run.spikes[network.outputs[0]])
    spikes = spikes.transpose(0, 1) if len(spikes) == STEPS else spikes
    np.testing.assert_array_equal(spikes.reshape(3, STEPS, N), expected.numpy(), err_msg=f"seed {seed}\n{code}")
    return "equal"


@pytest.mark.parametrize("seed", (*range(1, 9), 31, 341))  # 31: a mask of the first step; 341: spikes of the last one
def test_drawn_neurons_spike_like_the_module(seed):
    assert verify_drawn(seed) == "equal"


REFUSED = [(0, "computes something else in step 0 of the example"), (288, "computes something else than step")]


@pytest.mark.parametrize(("seed", "text"), REFUSED)
def test_drawn_neurons_that_cannot_be_imported_are_refused(seed, text):
    assert text in verify_drawn(seed)


@pytest.mark.long
def test_many_drawn_neurons_are_equal_or_refused():
    results = [verify_drawn(seed) for seed in range(500)]
    assert sum(result == "equal" for result in results) >= 460
