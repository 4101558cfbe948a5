"""Your own model in ten lines: a torch module becomes a program, the backends agree, and a report is written."""

import numpy as np
import torch

import nwcompile as nw
from nwcompile import nn

lif = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 1e-3}
model = nn.Sequential(torch.nn.Linear(40, 32), nn.LIFLayer(32, **lif), torch.nn.Linear(32, 4), nn.LIFLayer(4, **lif))
x = (np.random.default_rng(0).random((16, 50, 40)) < 0.2).astype(np.float32)  # spikes [B, T, n], not [T, B, n]
network = nw.from_torch(model, x[:2])
program = nw.compile(network, nw.Chip.load("loihi1"), calibration=x)
print(nw.crosscheck(program, x))
run = nw.simulate(program, x, backend="cycle")
print(nw.report(program, run, "build/report")["verdict"])
