# %% [markdown]
# # Train quantized
#
# This page is for readers whose trained network loses accuracy when its weights become integers. It trains a small
# network in float, rounds its weights to 8, 4 and 2 bits, and then continues training with the chip's arithmetic. You
# need scikit-learn, matplotlib and pandas.

# %%
import copy

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits

import nwcompile as nw
from nwcompile import nn

torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## Data and network
#
# The digits of scikit-learn have 8 x 8 pixels of 16 gray values. A pixel of gray value g sends g spikes, spread evenly
# over 16 steps. The network has two layers of leaky integrate-and-fire neurons that reset to zero, like those of Loihi
# 1.

# %%
N_STEPS = 16
digits = load_digits()
levels = digits.data.astype(np.int64)[:, None] * np.arange(N_STEPS + 1)[:, None] // N_STEPS
x, y = np.diff(levels, axis=1).astype(np.float32), digits.target  # spikes [1797, 16, 64]
is_test = np.arange(len(x)) % 5 == 0
samples = x[~is_test][:100]

lif = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 2e-3, "surrogate": "atan"}
net = nn.Sequential(
    torch.nn.Linear(64, 32, bias=False), nn.LIFLayer(32, **lif),
    torch.nn.Linear(32, 10, bias=False), nn.LIFLayer(10, **lif),
)  # fmt: skip

# %% [markdown]
# `run(spikes)` returns output spikes `[B, T, 10]` of the float network or of the quantized one. The training loop is
# the same for both.


# %%
def train(module, run, n_epochs, rate):
    images, labels = torch.from_numpy(x[~is_test]), torch.from_numpy(y[~is_test])
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(images)).split(64):
            loss = torch.nn.functional.cross_entropy(10 * run(images[rows]).mean(1), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def in_float(module):
    def run(spikes):
        nn.prepare_net(module)  # forget the samples of before
        return module(spikes)[0]

    return run


def percent(output):
    return 100 * (np.asarray(output).sum(1).argmax(1) == y[is_test]).mean()


def on_chip(network, bits):
    program = nw.compile(network, "loihi1", samples, nw.Options(bits=bits))
    return program, percent(nw.simulate(program, x[is_test], backend="sequence").output)


train(net, in_float(net), n_epochs=12, rate=4e-3)
start = copy.deepcopy(net)
train(net, in_float(net), n_epochs=4, rate=2e-3)
with torch.no_grad():
    float_percent = percent(in_float(net)(torch.from_numpy(x[is_test])))
print(f"float: {float_percent:.1f} % of {is_test.sum()} test images")

# %% [markdown]
# ## Round after training, or train rounded
#
# `nw.compile(..., Options(bits=...))` rounds trained weights, at the scale that keeps the spikes closest.
# `nn.quantize_aware` returns a module whose forward pass is the chip's integers, bit for bit. It learns through a
# surrogate gradient. Both start with the same weights and are trained for the same number of epochs.

# %%
rows = []
for bits in (8, 4, 2):
    _, rounded = on_chip(nw.from_torch(net, samples[:2]), bits)
    tuned = nn.quantize_aware(start, "loihi1", samples, bits=bits)
    train(tuned, tuned, n_epochs=4, rate=2e-3)
    program, trained = on_chip(tuned.network(), bits)
    rows.append({"bits": bits, "rounded after training": rounded, "trained with these bits": trained})
table = pd.DataFrame(rows).set_index("bits")
table.round(1)

# %% alt="Accuracy against weight bits: rounded weights lose most at 2 bits, trained ones lose less."
table.plot(marker="o", figsize=(7, 3.2))
plt.axhline(float_percent, linestyle="--", color="gray", label="float")
plt.ylabel("right answers, %")
plt.gca().invert_xaxis()
plt.legend()
plt.tight_layout()

# %% [markdown]
# At 8 and 4 bits, rounding costs almost nothing. At 2 bits it does, and training wins accuracy back. 360 images are
# few: one of them is 0.28 %. The guide on [quantization-aware training](../quantization-aware.md#what-it-brings) gives
# means over five folds, for this network and larger ones.
#
# ## It is the chip's arithmetic
#
# The module and its compiled program give the same answer to every sample, and so do all backends.

# %%
with torch.no_grad():
    module_spikes = tuned(torch.from_numpy(x[is_test])).numpy()
chip_spikes = nw.simulate(program, x[is_test], backend="sequence").output
print("module and chip differ in", int((module_spikes != chip_spikes).sum()), "of", chip_spikes.size, "outputs")
print(nw.crosscheck(program, x[is_test][:20]))
