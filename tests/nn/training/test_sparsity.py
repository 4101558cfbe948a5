"""Losses on the busiest core: equal to the counters of a run, and smaller when they are trained on."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.cost.time.work import compute_work
from nwcompile.errors import ModelError, OptionError
from nwcompile.nn import busiest_core_loss, spikes_of
from nwcompile.sim import simulate
from tests.made.chips import small_chip


def net() -> nn.Sequential:
    torch.manual_seed(0)
    lif = {"taus": 20e-3, "reset_mechanism": "zero", "dt": 5e-3}
    return nn.Sequential(torch.nn.Linear(4, 20), nn.LIFLayer(20, **lif), nn.LIFSynapse(20, 16), nn.LIFLayer(16, **lif))


def spikes_in(n_samples: int = 1) -> torch.Tensor:
    return (torch.rand(n_samples, 8, 4, generator=torch.Generator().manual_seed(1)) < 0.6).float()


def program_of(chip=None, n_cores: int = 3, **options) -> nw.Program:
    options = nw.Options(n_cores=n_cores, **options)
    return nw.compile(nw.from_torch(net(), spikes_in()), chip or small_chip(), spikes_in().numpy(), options)


def run_of(program: nw.Program, n_samples: int = 1) -> tuple[nw.Run, dict[str, torch.Tensor]]:
    x = spikes_in(n_samples)
    run = simulate(program, x.numpy(), "sequence")
    return run, {"input": x, **{name: torch.from_numpy(s) for name, s in run.spikes.items()}}


@pytest.mark.parametrize("execution", ["pipelined", "phased"])
def test_busiest_core_loss_is_the_mean_of_the_largest_counter(execution):
    program = program_of(execution=execution)
    run, spikes = run_of(program)
    assert run.counters["synops"].max(1).min() < run.counters["synops"].max()
    assert busiest_core_loss(spikes, program) == pytest.approx(run.counters["synops"].max(1).mean())
    assert busiest_core_loss(spikes, program, order=1) == pytest.approx(run.counters["synops"].sum(1).mean())


@pytest.mark.parametrize("units", ["overlap", "shared"])
@pytest.mark.parametrize("sites", [None, ["0,0,0"]])
def test_busiest_core_loss_in_cycles_is_the_floorline_with_every_neuron_updated(units, sites):
    chip = small_chip(cost__units=units, **({} if sites is None else {"io__sites": sites}))
    program = program_of(chip)
    run, spikes = run_of(program)
    counters = {**run.counters, "neuron_updates": run.counters["neuron_visits"]}
    busy = compute_work(program, counters, np.zeros((len(run.counters["synops"]), len(chip.link_cycles)), int), 1).busy
    assert busiest_core_loss(spikes, program, work="cycles") == pytest.approx(busy.max((0, 2)).mean())


def test_busiest_core_loss_of_samples_is_their_mean():
    program = program_of()
    _, spikes = run_of(program, 3)
    each = [busiest_core_loss({n: s[i : i + 1] for n, s in spikes.items()}, program) for i in range(3)]
    assert busiest_core_loss(spikes, program) == pytest.approx(torch.stack(each).mean())


def test_busiest_core_loss_counts_spikes_that_are_sent_one_by_one_as_often():
    program = program_of(on_multi_spike="repeat")
    once, twice = (busiest_core_loss({**run_of(program)[1], "input": n * spikes_in()}, program) for n in (1, 2))
    assert twice > once
    program = program_of(on_multi_spike="graded")
    once, twice = (busiest_core_loss({**run_of(program)[1], "input": n * spikes_in()}, program) for n in (1, 2))
    assert twice == once


def test_smooth_maximum_lies_between_the_maximum_and_the_sum():
    program = program_of()
    _, spikes = run_of(program)
    values = [busiest_core_loss(spikes, program, order=p).item() for p in (float("inf"), 8, 2, 1)]
    assert values == sorted(values) and values[0] < values[1] < values[-1]


def test_smooth_maximum_of_many_cycles_has_finite_gradients():
    chip = small_chip(cost__synop_dense_cycles=10**6)
    program = program_of(chip)
    _, spikes = run_of(program)
    leaf = spikes["1"].float().requires_grad_()
    loss = busiest_core_loss({**spikes, "1": leaf}, program, "cycles", order=8)
    assert loss > 1e7 and torch.autograd.grad(loss, leaf)[0].isfinite().all()
    silent = {name: torch.zeros_like(s, dtype=torch.float, requires_grad=True) for name, s in spikes.items()}
    assert torch.autograd.grad(busiest_core_loss(silent, program, order=8), silent["1"])[0].isfinite().all()


def test_busiest_core_loss_under_autocast_is_that_of_float32():
    program = program_of(small_chip(cost__synop_dense_cycles=10**6))
    _, spikes = run_of(program)
    expected = busiest_core_loss(spikes, program, "cycles")
    with torch.autocast("cpu", torch.float16):
        found = busiest_core_loss({name: s.half() for name, s in spikes.items()}, program, "cycles")
    assert found == expected and found > 1e6


def test_gradient_of_the_maximum_reaches_the_sources_of_the_busiest_core_alone():
    program = program_of()
    _, spikes = run_of(program)
    leaf = spikes["1"].float().requires_grad_()
    loss = busiest_core_loss({**spikes, "1": leaf}, program)
    (gradient,) = torch.autograd.grad(loss, leaf)
    reads = program.axons.synops.sum(1)
    counters = simulate(program, spikes["input"].numpy(), "sequence").counters["synops"]
    for t in range(8):
        busiest = int(counters[t + program.schedule.offset["1"]].argmax())
        for neuron in range(20):
            first = program.network.offsets["1"] + neuron
            axons = range(program.axons.offset[first], program.axons.offset[first + 1])
            expected = sum(reads[a] for a in axons if program.axons.core[a] == busiest) / len(counters)
            assert gradient[0, t, neuron] == pytest.approx(expected)


def test_training_on_the_busiest_core_makes_its_steps_shorter():
    model, x, program = net(), spikes_in(4), program_of()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        nn.prepare_net(model)
        (_, _), spikes = spikes_of(model, x)
        loss = busiest_core_loss(spikes, program, work="cycles", order=8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.98 * losses[0]
    after = nw.compile(nw.from_torch(model, x[:1]), small_chip(), x.numpy(), mapping=program.mapping)
    cycles = [simulate(p, x.numpy(), "cycle").step_cycles.sum() for p in (program, after)]
    assert cycles[1] < cycles[0]


def test_spikes_of_gives_layers_by_the_names_that_compiling_gives_them():
    model, x = net(), spikes_in(2)
    (out, _), spikes = spikes_of(model, x)
    assert list(spikes) == ["input", "1", "3"]
    assert spikes["input"] is x and spikes["3"] is out and spikes["1"].shape == (2, 8, 20)
    assert not any(m._forward_hooks for m in model.modules())


def test_wrong_use_is_one_sentence():
    program = program_of()
    _, spikes = run_of(program)
    chip = small_chip().to_dict()
    del chip["cost"]["spike_cycles"]
    without_times = program_of(nw.Chip.from_dict(chip))
    for call, error, text in (
        (lambda: busiest_core_loss(spikes, program, work="time"), OptionError,
         "unknown work 'time'; choose one of: cycles, synops"),
        (lambda: busiest_core_loss(spikes, program, order=0.5), OptionError,
         "order=0.5 must be 1 or more, up to infinity"),
        (lambda: busiest_core_loss({"input": spikes["input"]}, program), ModelError,
         "busiest_core_loss: spikes of '1' are missing; given: input"),
        (lambda: busiest_core_loss({**spikes, "1": spikes["3"]}, program), ModelError,
         "busiest_core_loss: spikes of '1' are [1, 8, 16], not [B, T, 20]"),
        (lambda: busiest_core_loss(spikes, without_times, work="cycles"), ModelError,
         "the chip file of small lacks the costs of events; use work='synops'"),
        (lambda: spikes_of(torch.nn.Linear(2, 3), torch.zeros(1, 1, 2)), ModelError,
         "Linear has no layers of nwcompile.nn"),
    ):  # fmt: skip
        with pytest.raises(error) as e:
            call()
        assert str(e.value) == text


def test_the_code_of_the_page_runs():
    page = (Path(__file__).parents[3] / "docs" / "sparsity.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    model = nn.Sequential(OrderedDict(fc1=torch.nn.Linear(4, 20), hidden=nn.LIFLayer(20, reset_mechanism="zero")))
    names = {
        "nw": nw, "net": model, "x": spikes_in().numpy(), "batches": [(spikes_in(2), None)],
        "loss_of": lambda out, labels: -out.mean(), "optimizer": torch.optim.SGD(model.parameters(), 10.0),
    }  # fmt: skip
    before = model.fc1.weight.detach().clone()
    exec(code, names)
    kept = model.fc1.weight != 0
    assert int(kept.sum()) == 20 and not torch.equal(model.fc1.weight[kept], before[kept])
