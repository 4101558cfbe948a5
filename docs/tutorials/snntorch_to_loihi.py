# %% [markdown]
# # From snnTorch to Loihi
#
# This page is for those who have trained a network. It trains a small one in snnTorch, puts it on the chip models
# `loihi2` and `loihi1`, and looks at what each of them makes of it. It needs snnTorch and scikit-learn. A larger
# network, with what trained accuracy becomes in five folds, is in the guide [from snnTorch](../from-snntorch.md).

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
# The module takes images `[B, 64]`, loops over time by itself and shows the same image in every step. Its neurons are
# `snn.Leaky` as they come. They subtract their threshold one step after a spike, which will matter below.

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
# ## Hand it over
#
# `layout="B"` says that the module takes `[B, 64]` and repeats it in time by itself. nwcompile runs the module on the
# samples that you give, follows it, and compares the spikes of what it found with those of the module.

# %%
samples = x[~is_test][:64]
network = nw.from_torch(net, samples, layout="B")
network

# %% [markdown]
# ## Loihi 2
#
# The samples are given once more, as *calibration*: they choose the scale of every layer's integers, and the mapping
# is made for the spikes that they cause.


# %%
def accuracy(program):
    answers = nw.simulate(program, x[is_test], backend="sequence").output.sum(1).argmax(1)
    return f"{(answers == y[is_test]).mean():.1%}"


loihi2 = nw.compile(network, "loihi2", samples)
print("loihi2:", accuracy(loihi2))
for row in loihi2.manifest["legalization"]:
    print(f"layer {row['layer']}: {row['was']} -> {row['has']}, {row['how']} ({row['label']})")

# %% [markdown]
# The table says what was changed on the way. The input is an image and not spikes, so the linear map of the first
# layer is computed on the host, once an image, and the chip adds its result to the first neurons in every step.
# Neurons of Loihi 2 are programs, so the late subtraction stays as it is.
#
# ## Loihi 1
#
# Loihi 1 resets a neuron to zero, in the step of its spike. So it refuses, and the error says what would do.

# %%
try:
    nw.compile(network, "loihi1", samples)
except nw.FitError as refusal:
    print(refusal)

# %% [markdown]
# With `approximate` the nearest neurons that the chip has are taken. Their thresholds and leaks are fitted to the
# samples, and the price is measured on samples that were not used for that.

# %%
loihi1 = nw.compile(network, "loihi1", samples, nw.Options(approximate="reset,timing"))
print("loihi1, nearest neurons:", accuracy(loihi1))
for row in loihi1.manifest["legalization"]:
    if row["label"] == "approximate":
        print(f"layer {row['layer']}: {row['price']['spikes_changed_percent']:.0f} % of its spikes are others")

# %% [markdown]
# ## Win it back
#
# `nn.quantize_aware` gives a module that takes what `net` takes and computes what Loihi 1 will: its integers and its
# resets. A few epochs of the same loop let the weights follow.

# %%
tuned = nw.nn.quantize_aware(net, "loihi1", samples, layout="B", approximate="reset,timing")
train(tuned, lambda images: tuned(images).transpose(0, 1), n_epochs=3, rate=1e-3)
program = nw.compile(tuned.network(), "loihi1", samples)
print("loihi1, three epochs of fine-tuning:", accuracy(program))

# %% [markdown]
# One split of so few images is good for a tutorial and not for a claim: the folds of the
# [guide](../from-snntorch.md#what-it-costs) are. What does not depend on the split is that all backends compute the
# same.

# %%
print(nw.crosscheck(program, x[is_test][:20]))
run = nw.simulate(program, x[is_test][:20], backend="cycle")
print(nw.report(program, run, "report")["verdict"])

# %% [markdown]
# `report/report.html` now holds the report: one file, which works without a network.
