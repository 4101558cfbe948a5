"""Neurons as people write them on chips whose neurons are programs: exact in every backend, and at their cost."""

from dataclasses import replace

import numpy as np
import pytest
import snntorch
import torch

import nwcompile as nw
from nwcompile.cost.neuron_program import extra_instructions
from nwcompile.cost.time.work import compute_work
from nwcompile.cost.traffic.link_flits import link_flits
from tests.made.nets import dense_net, integers

LOIHI2 = nw.Chip.load("loihi2")


class TwoLeakyLayers(torch.nn.Module):
    """A net of snnTorch's tutorials: two Leaky layers, unrolled over the steps of a spike train."""

    def __init__(self, **leaky):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = torch.nn.Linear(20, 32), torch.nn.Linear(32, 8)
        self.lif1, self.lif2 = (snntorch.Leaky(beta=beta, **leaky) for beta in (0.9, 0.8))

    def forward(self, x):
        v1, v2, out = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        for t in range(x.shape[1]):
            s, v1 = self.lif1(self.fc1(x[:, t]), v1)
            s, v2 = self.lif2(self.fc2(s), v2)
            out.append(s)
        return torch.stack(out, 1)


@pytest.mark.parametrize("chip", ["loihi2", "spinnaker2"])
@pytest.mark.parametrize("leaky", [{}, {"reset_delay": False}, {"reset_mechanism": "zero"}])
def test_snntorch_leaky_as_it_comes_runs_alike_in_all_backends(chip, leaky):
    x = (np.random.default_rng(0).random((2, 15, 20)) < 0.5).astype(np.float32)
    network = nw.from_torch(TwoLeakyLayers(**leaky), torch.tensor(x[:1]))
    program = nw.compile(network, nw.Chip.load(chip), x, nw.Options(optimize="cores"))
    for name in network.layers:
        wanted, has = network.node(name).neuron, program.network.node(name).neuron
        assert (has.reset, has.reset_timing, has.strict) == (wanted.reset, wanted.reset_timing, wanted.strict)
    result = nw.crosscheck(program, x, ("reference", "cycle", "sequence"))
    assert result.agree and all(row.fired["cycle"] for row in result.layers), str(result)


KINDS = {
    "reset one step late": {"reset": "subtract", "reset_timing": "next"},
    "reset by halves": {"reset": "subtract", "reset_timing": "both"},
    "late to a value": {"reset": "value", "reset_value": 70, "reset_timing": "next"},
    "at the threshold": {"strict": False, "reset": "none"},
    "several spikes": {"spikes": "multi", "reset": "subtract", "strict": False},
    "clamped": {"v_min": -64},
    "clamped as sinabs does": {"v_min": -100, "clamp": "shift", "spikes": "multi", "reset": "subtract",
                               "reset_timing": "next"},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_neuron_runs_alike_in_all_backends_and_its_instructions_take_time(kind):
    spec = nw.NeuronSpec(threshold=192, decay_u=4096, decay_v=400, fixed=LOIHI2.fixed_point, **KINDS[kind])
    network = dense_net(8, 12, 5, spec=spec)
    even = tuple(c.replace(weight=2 * np.asarray(c.weight)) for c in network.connections)  # the weights that it has
    network = nw.Network(network.inputs, network.nodes, even)
    chip = LOIHI2.replace({"cost.min_step_cycles": None})  # a shortest step would hide the work
    program = nw.compile(network, chip, options=nw.Options(optimize="cores"))
    x = integers((3, 12, 8), low=0, high=2)
    result = nw.crosscheck(program, x)
    assert result.agree and all(row.fired["cycle"] for row in result.layers), str(result)
    run = nw.simulate(program, x, "cycle")
    n = extra_instructions(spec)
    assert np.array_equal(run.counters["neuron_instructions"], n * run.counters["neuron_updates"])
    free = replace(program, chip=chip.replace({"cost.instruction_cycles": 0}))
    built_in = nw.simulate(free, x, "cycle")
    assert (run.step_cycles.sum() > built_in.step_cycles.sum()) == (n > 0)
    done = compute_work(program, run.counters, link_flits(program, run.activity), len(x))
    assert np.array_equal(done.cycles["update"], (150 + 229 * n) * run.counters["neuron_updates"])
    assert (done.bound_cycles <= run.step_cycles).all()
