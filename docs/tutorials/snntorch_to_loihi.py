# %% [markdown]
# # From snnTorch to Loihi
#
# This page is for readers who have trained a network. It trains a small network in snnTorch, compiles it for the chip
# models `loihi2` and `loihi1`, and looks at the changes for each chip. You need snnTorch and scikit-learn. The guide
# [from snnTorch](../from-snntorch.md) has a larger network, with accuracies in five folds.

# %%
import numpy as np
import snntorch as snn
import torch
from sklearn.datasets import load_digits

import nwcompile as nw

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
x = (digits.data / 16).astype(np.float32)  # 1,797 images of 8 x 8 pixels, 0..1
y = digits.target
is_test = np.arange(len(x)) % 5 == 0

# %% [markdown]
# ## A network as snnTorch's tutorials write it
#
# The module takes images `[B, 64]`, contains its own loop over time, and shows the same image in every step. Its
# neurons are unchanged `snn.Leaky` neurons. They subtract their threshold one step after a spike, which will matter
# below.

# %%
N_STEPS = 15


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.lif1 = torch.nn.Linear(64, 64), snn.Leaky(beta=0.9)
        self.fc2, self.lif2 = torch.nn.Linear(64, 10), snn.Leaky(beta=0.9)

    def forward(self, images):
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spikes = []
        for _ in range(N_STEPS):
            spk1, mem1 = self.lif1(self.fc1(images), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
        return torch.stack(spikes)  # [T, B, 10]


def train(module, steps_first, n_epochs, rate):
    """Cross entropy of spike counts; `steps_first(images)` gives output spikes [T, B, 10]."""
    images, labels = torch.from_numpy(x[~is_test]), torch.from_numpy(y[~is_test])
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(images)).split(64):
            counts = steps_first(images[rows]).sum(0)
            loss = torch.nn.functional.cross_entropy(counts, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


net = Net()
train(net, net, n_epochs=12, rate=5e-3)
with torch.no_grad():
    counts = net(torch.from_numpy(x[is_test])).sum(0).numpy()
print(f"snnTorch: {(counts.argmax(1) == y[is_test]).mean():.1%} of {is_test.sum()} test images")

# %% [markdown]
# ## Import it
#
# `layout="B"` says that the module takes `[B, 64]` and repeats it over time itself. nwcompile runs the module on your
# samples, traces it, and compares the spikes of the imported network with those of the module.

# %%
samples = x[~is_test][:64]
network = nw.from_torch(net, samples, layout="B")
network

# %% [markdown]
# ## Loihi 2
#
# The same samples are the *calibration*. They determine the scale of every layer's integers, and the mapping is
# optimized for the spikes that they cause.


# %%
def accuracy(program):
    answers = nw.simulate(program, x[is_test], backend="sequence").output.sum(1).argmax(1)
    return f"{(answers == y[is_test]).mean():.1%}"


loihi2 = nw.compile(network, "loihi2", samples)
print("loihi2:", accuracy(loihi2))
for row in loihi2.manifest["legalization"]:
    print(f"layer {row['layer']}: {row['was']} -> {row['has']}, {row['how']} ({row['label']})")

# %% [markdown]
# The table lists the changes. The input is an image, not spikes. The host therefore computes the linear map of the
# first layer once per image, and the chip adds its result to the first neurons in every step. Neurons of Loihi 2 are
# programs, so the late subtraction does not change.
#
# ## Loihi 1
#
# Loihi 1 resets a neuron to zero, in the step of its spike. It therefore refuses the network, and the error says what
# would make it fit.

# %%
try:
    nw.compile(network, "loihi1", samples)
except nw.FitError as refusal:
    print(refusal)

# %% [markdown]
# With `approximate`, the compiler uses the nearest neurons of the chip. It fits their thresholds and leaks to the
# samples, and measures the price on samples that were held out.

# %%
loihi1 = nw.compile(network, "loihi1", samples, nw.Options(approximate="reset,timing"))
print("loihi1, nearest neurons:", accuracy(loihi1))
for row in loihi1.manifest["legalization"]:
    if row["label"] == "approximate":
        print(f"layer {row['layer']}: {row['price']['spikes_changed_percent']:.0f} % of its spikes are others")

# %% [markdown]
# ## Win it back
#
# `nn.quantize_aware` returns a module that takes the same input as `net` and computes with the integers and resets of
# Loihi 1. A few epochs of the same training loop adapt the weights.

# %%
tuned = nw.nn.quantize_aware(net, "loihi1", samples, layout="B", approximate="reset,timing")
train(tuned, lambda images: tuned(images).transpose(0, 1), n_epochs=3, rate=1e-3)
program = nw.compile(tuned.network(), "loihi1", samples)
print("loihi1, three epochs of fine-tuning:", accuracy(program))

# %% [markdown]
# One split of a few images is enough for a tutorial, but not for a claim: see the folds in the
# [guide](../from-snntorch.md#what-it-costs). One result does not depend on the split: all backends compute the same.

# %%
print(nw.crosscheck(program, x[is_test][:20]))
run = nw.simulate(program, x[is_test][:20], backend="cycle")
print(nw.report(program, run, "report")["verdict"])

# %% [markdown]
# `report/report.html` is the report: one file that works offline.
