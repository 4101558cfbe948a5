import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError
from nwcompile.nn.training import metrics


def test_accuracy_sums_spikes_over_the_steps():
    spikes = torch.tensor([[[1, 0], [1, 1]], [[0, 1], [0, 1]], [[0, 1], [1, 0]]])
    assert metrics.accuracy(spikes, torch.tensor([0, 0, 0])) == pytest.approx(2 / 3)
    assert metrics.accuracy(torch.tensor([[0.1, 0.2]]), torch.tensor([1])) == 1.0


def test_accuracy_names_shapes_that_do_not_go_together():
    with pytest.raises(ModelError) as error:
        metrics.accuracy(torch.ones(3, 4), torch.ones(2))
    assert str(error.value) == (
        "accuracy takes output [B, n_classes] or [B, T, n_classes] and labels [B], not output (3, 4) and labels (2,)"
    )


@pytest.mark.parametrize("chip", ["tiny", "h1v2"])
def test_chip_consumption_counts_events_of_a_sample(chip):
    torch.manual_seed(0)
    synapse = nn.H1v2Synapse(4, 10, init=torch.rand(4, 10))
    model = nn.Sequential(synapse, nn.H1v2Layer(10), nn.H1v2Synapse(10, 3), nn.H1v2Layer(3))
    x = (np.random.default_rng(0).random((6, 20, 4)) < 0.4).astype(np.float32)
    program = nw.compile(nw.from_torch(model, x[:2]), chip, calibration=x)
    found = metrics.chip_consumption(program, x)
    run = nw.simulate(program, x)
    assert found["spikes"] == sum(int(s.sum()) for s in run.spikes.values()) / 6 > 0
    assert found["synops"] == run.counters["synops"].sum() / 6
    assert found["messages"] == run.counters["messages_out"].sum() / 6
    assert found["neuron_updates"] == run.counters["neuron_updates"].sum() / 6
    assert found["energy_pj"] == (None if chip == "h1v2" else run.energy_pj["total"] / 6)
