"""Networks that Intel's tools did not map, by reports of their users, land on one chip; weights are drawn.

- lava-nc/lava, issue 826: two planes of LIF neurons and a convolution (3 x 3, stride 2, 4 channels) "run forever" on
  Loihi 2 from 58 x 58 x 2 neurons on; here the report's largest size, and that of a DVS camera.
- NeuromorphicProcessorProject/snn_toolbox, issue 111: three layers of 1,000 neurons and one of 24 fail in NxSDK's
  partitioning. The input's size is not told; 1,024 here.
"""

import pytest
import snntorch
import torch
from torch import nn

import nwcompile as nw
from tests.made.spikes import spike_tensor


def lif() -> nn.Module:
    return snntorch.Leaky(beta=0.9, threshold=0.2, init_hidden=True, reset_mechanism="zero", reset_delay=False)


def planes() -> list[nn.Module]:
    first, second = nn.Conv2d(2, 2, 1, groups=2), nn.Conv2d(2, 4, 3, stride=2)
    for part in (first, second):
        nn.init.uniform_(part.weight, 0, 1)  # so that all layers spike
    return [first, lif(), second, lif()]


def layers() -> list[nn.Module]:
    sizes = [1024, 1000, 1000, 1000, 24]
    return [part for pair in zip(sizes, sizes[1:], strict=False) for part in (nn.Linear(*pair), lif())]


CASES = {
    "lava 98": (planes, (2, 98, 98), "loihi2"),
    "lava 240": (planes, (2, 240, 180), "loihi2"),
    "snn_toolbox": (layers, (1024,), "loihi1"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_networks_that_other_tools_did_not_map_land_on_one_chip(case):
    make, shape, chip = CASES[case]
    torch.manual_seed(0)
    x = spike_tensor(1, 6, *shape, rate=0.3)
    program = nw.compile(nw.from_torch(nn.Sequential(*make()).eval(), x), chip, x.numpy())
    result = nw.crosscheck(program, x.numpy())
    assert result.agree and all(row.fired["cycle"] for row in result.layers), str(result)
