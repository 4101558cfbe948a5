"""Quantization-aware training with Xylo's arithmetic: decays by shift, several spikes at once, one exponent a group."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from tests.made.pool_nets import pool_net
from tests.made.quantized import assert_equal_bits


@pytest.mark.filterwarnings("ignore::nwcompile.errors.NwWarning")
@pytest.mark.parametrize("extra", [(), [("h", "h", 1)]], ids=["feed forward", "recurrent"])
def test_quantize_aware_trains_what_xylo_runs(extra):
    x = np.random.default_rng(0).poisson(0.6, (8, 12, 4)).astype(np.float32)
    module = nn.quantize_aware(pool_net(4, 10, 3, extra), "xylo_imu", x)
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    labels = torch.arange(8) % 3
    before = [p.detach().clone() for p in module.parameters()]
    losses = []
    for _ in range(12):
        loss = torch.nn.functional.cross_entropy(module(x).sum(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert min(losses) < losses[0] and all(
        (p != b).any() for p, b in zip(module.parameters(), before, strict=True) if len(b)
    )
    program = assert_equal_bits(module, x)
    assert program.network.node("h").neuron.max_spikes == 31
    assert max(run.max() for run in nw.simulate(program, x).spikes.values()) > 1


def test_gradient_of_a_current_that_decays_after_the_sum():
    """A readout's membrane is linear in the weight: the gradient is its slope, up to rounding."""
    x = np.zeros((1, 20, 4), np.float32)
    x[0, 2, 1] = 1
    out = nw.NeuronSpec(fires=False, alpha=0.75, beta=0.5, current_order="add_then_decay", threshold=1.0)
    fed = nw.Network.from_arrays({"o": (out, (1,))}, [nw.Dense("in", "o", [[0.9, 0.7, 0.5, 0.3]])], {"in": (4,)})
    chip = nw.Chip.load("xylo_imu").replace({"core.max_outputs": None, "neuron.output_max_spikes": None})
    module = nn.quantize_aware(fed, chip, x)
    module(x)[:, 6].sum().backward()
    (weight,) = module.layers[0].weights
    with torch.no_grad():
        v = float(module(x)[0, 6, 0])
    assert float(weight.grad[0, 1]) == pytest.approx(v / 0.7, rel=0.05)
