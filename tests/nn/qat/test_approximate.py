"""Training with a chip's nearest neurons: begins where the compiler ends, and learns."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.options import Options
from nwcompile.sim import simulate
from tests.made.leaky_net import LEAKY, ONE_CORE, leaky_net, leaky_samples


@pytest.mark.parametrize(
    "spec", [LEAKY, pytest.param(LEAKY.replace(membrane="euler", k=0.1, r=10.0, beta=1.0), marks=pytest.mark.long)]
)
def test_quantize_aware_begins_with_the_nearest_neurons_as_the_compiler_fits_them(spec):
    network, x = leaky_net(spec), leaky_samples(10)
    module = nw.nn.quantize_aware(network, "loihi1", x, approximate="all")
    program = nw.compile(network, "loihi1", x, Options(approximate="all", **ONE_CORE))
    assert [change.to_dict() for change in module.legalization] == program.legalization
    rates = {name: spikes.mean() for name, spikes in simulate(program, x).spikes.items()}
    recorded = module.record(x)
    assert {name: recorded[name]["spikes"].mean() for name in rates} == pytest.approx(rates, rel=0.05)
    again = nw.compile(module.network(), "loihi1", x, Options(**ONE_CORE))
    for name, spikes in simulate(again, x).spikes.items():
        assert np.array_equal(spikes, recorded[name]["spikes"])


@pytest.mark.long
def test_quantize_aware_trains_with_the_chips_resets():
    network, x = leaky_net(), leaky_samples(10)
    module = nw.nn.quantize_aware(network, "loihi1", x, approximate="reset,timing")
    wanted = torch.from_numpy(np.random.default_rng(2).integers(0, 10, 10))
    optimizer, losses = torch.optim.Adam(module.parameters(), 0.01), []
    for _ in range(12):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x).sum(1) / 4, wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.85 * losses[0]


def test_quantize_aware_names_the_approximations_that_would_do():
    with pytest.raises(FitError) as error:
        nw.nn.quantize_aware(leaky_net(), "loihi1", leaky_samples(2))
    assert error.value.change.startswith("approximate='reset,timing' (--approximate reset,timing): the chip's")
