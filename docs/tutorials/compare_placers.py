# %% [markdown]
# # Compare placers
#
# This page is for readers who study mapping. Partitioning decides which core computes which neuron. Placement decides
# where each core is on the chip. We keep the partition and run every placer on the same network, under the same
# limits. The cycle-level simulator measures the results. You need matplotlib and pandas.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import nwcompile as nw
from nwcompile.passes.place.place import PLACERS

# %% [markdown]
# ## A network with neighborhoods
#
# Placement matters if cores send more messages to some cores than to others. This network has four layers of 128
# neurons on a ring. Each neuron receives about 20 inputs from the same region of the ring in the previous layer.

# %%
N_LAYERS, N_NEURONS, FAN_IN, REACH = 4, 128, 24, 8
rng = np.random.default_rng(0)


def neighbors(source, target):
    """Synapses to neurons at about the same place, with normally distributed weights."""
    post = np.repeat(np.arange(N_NEURONS), FAN_IN)
    distance = np.rint(rng.normal(0, REACH, post.size)).astype(int)
    pairs = np.unique(np.stack([(post + distance) % N_NEURONS, post]), axis=1)
    weight = rng.normal(0.13, 0.15, pairs.shape[1]).astype(np.float32)
    return nw.Sparse(source, target, pre=pairs[0], post=pairs[1], weight=weight)


names = [f"layer{i}" for i in range(N_LAYERS)]
lif = nw.NeuronSpec(threshold=1.0, beta=0.9, reset="zero")
connections = [neighbors(*pair) for pair in zip(["in", *names], names, strict=False)]
network = nw.Network.from_arrays(dict.fromkeys(names, (lif, N_NEURONS)), connections, {"in": N_NEURONS})
x = (rng.random((4, 20, N_NEURONS)) < 0.1).astype(np.float32)
nw.simulate(network, x).to_frame()

# %% [markdown]
# ## The same partition, every placer
#
# `partitioner="sequential"` cuts the layers into slices, here on 16 cores. The chip is the fictional chip `tiny` with
# 4 x 4 routers. One version has links as wide as a message; the other has serial links, which take 32 cycles per
# message. `PLACERS` contains the placers by name. You can also pass your own function with the same signature
# (`nw.Options(placer=mine)`).

# %%
wide = nw.Chip.load("tiny").replace({"noc.columns": 4, "noc.rows": 4})
serial = wide.replace({"noc.link_cycles_per_flit": 32})


def measured(chip, options):
    """The program and its run, and the time of a mean step in us."""
    program = nw.compile(network, chip, x, options)
    run = nw.simulate(program, x, backend="cycle")
    return program, run, 1e6 * run.seconds / (run.n_samples * len(run.step_cycles))


# %% [markdown]
# For each placement we measure three figures, as means per step: the total distance of all messages (hops), the flits
# on the busiest link between two routers, and the step time with each kind of links.

# %%
rows = []
for placer in PLACERS:
    options = nw.Options(partitioner="sequential", n_cores=16, placer=placer, seed=0)
    program, run, us_wide = measured(wide, options)
    _, _, us_serial = measured(serial, options)
    links = program.links_frame(run)
    between = links[~links.kind.str.contains("port")]
    row = {
        "placer": placer,
        "hops": run.counters["hops"].sum() / (run.n_samples * len(run.step_cycles)),
        "busiest link": between.flits_per_step.max(),
        "us, wide links": us_wide,
        "us, serial links": us_serial,
    }
    rows.append(row)
table = pd.DataFrame(rows).set_index("placer").sort_values("us, serial links")
table.round(2)

# %% alt="Flits of the busiest link against step time with serial links, a point for each placer: they rise together."
plt.figure(figsize=(7, 3.6))
plt.scatter(table["busiest link"], table["us, serial links"])
upright = {"xytext": (2, 6), "textcoords": "offset points", "rotation": 60, "rotation_mode": "anchor"}
for where, same in table.groupby(["busiest link", "us, serial links"]):
    plt.annotate(", ".join(same.index), where, **upright)
plt.xlabel("flits of the busiest link in a step")
plt.ylabel("us per step, serial links")
plt.margins(x=0.1, y=0.35)
plt.tight_layout()

# %% [markdown]
# A step takes as long as its slowest part: the busiest core, the busiest link, or the barrier at the end. Placement
# changes only the links. With wide links it hardly affects the time, though fewer hops still save energy. With serial
# links it determines the time, and the busiest link predicts it better than the sum of hops.
#
# ## And the partition?
#
# The partition, which decides which neurons share a core, matters more. The default partitioner, `floorline`, balances
# the work of the cores instead of cutting slices of equal size. Here it uses as many cores as the slices, placed by
# the default `anneal`.

# %%
options = nw.Options(n_cores=16)
program, run, us_wide = measured(wide, options)
_, _, us_serial = measured(serial, options)
print(f"floorline: {us_wide:.2f} us with wide links, {us_serial:.2f} us with serial ones")

# %% [markdown]
# With wide links, this gains more than any placement. With serial links it does not: here, balanced cores send more
# messages than slices of neighbors. So compare methods on your target chip. All backends agree bit for bit on every
# figure of this page:

# %%
print(nw.crosscheck(program, x[:1]))

# %% [markdown]
# The guide on [mapping](../mapping.md#methods) lists the methods and their papers, and measures six larger networks.
# `nw.Mapping.from_arrays` imports a mapping from elsewhere, and the same simulator measures it.
