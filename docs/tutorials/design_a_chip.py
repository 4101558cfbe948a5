# %% [markdown]
# # Design a chip in TOML
#
# This page is for readers who design a chip. A chip is one small text file. The compiler and the simulators know no
# chip by name. We write a file, see what does not fit, change it, and find the key that makes steps shorter. You need
# matplotlib and pandas.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import nwcompile as nw

demo = nw.demo()  # a trained network, 64-32-10 neurons, with 200 images of digits
network, samples, x, labels = demo.network, demo.x[:100], demo.x[100:], demo.labels[100:]

# %% [markdown]
# ## The smallest file
#
# A file needs a grid of routers, the number of neurons per core, and the features of these neurons. Every figure needs
# a source. "assumed", with a reason, is a valid source, and it is printed wherever the figure matters.

# %%
Path("mine.toml").write_text("""
name = "mine"
description = "four small cores"

[noc]
columns = 2
rows = 2

[core]
max_neurons = 16
max_in_axons = 48
synapse_bits = 8192

[neuron]
reset = ["zero"]

[weights]
bits = 4

[sources]
noc = "assumed: the smallest mesh"
core = "assumed: as small as the network allows"
neuron = "assumed: the simplest circuit"
weights = "assumed: as the synapse memory"
""")
chip = nw.Chip.load("mine.toml")
print(chip)

# %% [markdown]
# ## What does not fit
#
# The error lists every limit that is exceeded, not only the first one. Each line says what, where, how much of which
# limit, and what to do.

# %%
try:
    nw.compile(network, chip, samples)
except nw.FitError as refusal:
    print(refusal)

# %% [markdown]
# The network has 64 inputs, and a core accepts 48. We give it 64 axons. `replace` changes keys of a chip in memory. On
# the command line, `--set core.max_in_axons=64` does the same.

# %%
larger = chip.replace({"core.max_in_axons": 64})
program = nw.compile(network, larger, samples)
print(program)
answers = nw.simulate(program, x, backend="sequence").output.sum(1).argmax(1)
print(f"{(answers == labels).mean():.1%} of {len(x)} images are right with {larger.value('weights.bits')}-bit weights")

# %% [markdown]
# ## How fast would it be?
#
# A figure that is not in the file is unknown, never zero. This chip computes answers, but it has no times yet.

# %%
print(nw.simulate(program, x, backend="cycle").seconds)

# %% [markdown]
# Costs are cycles of the core clock for each event: visiting a neuron, updating it, reading a synapse, sending a
# message. `units` says whether receiving overlaps with updating. The network on chip has its own clock. In a file
# these keys would be in a section `[cost]`; here `replace` adds them.

# %%
COSTS = {
    "core.cycle_ns": 1.0,  # 1 GHz
    "noc.cycle_ns": 1.0,
    "cost.units": "overlap",
    "cost.visit_cycles": 2,
    "cost.update_cycles": 8,
    "cost.spike_cycles": 4,
    "cost.message_out_cycles": 4,
    "cost.message_in_cycles": 8,
    "cost.synop_dense_cycles": 2,
    "cost.synop_sparse_cycles": 4,
    "cost.synop_conv_cycles": 2,
    "cost.word_cycles": 0,
    "cost.barrier_cycles": {"1": 40, "4": 80},
}
timed = larger.replace(COSTS)
program = nw.compile(network, timed, samples)
run = nw.simulate(program, x, backend="cycle")
print(nw.report(program, run, "report")["verdict"])

# %% [markdown]
# ## Which key matters?
#
# A loop over chips answers this question. We compare cores of the same size that are faster at one kind of work, and
# more cores:

# %%
CHANGES = {
    "as it is": {},
    "synapses at half the cost": {"cost.synop_dense_cycles": 1},
    "messages taken in at half the cost": {"cost.message_in_cycles": 4},
    "updates at half the cost": {"cost.update_cycles": 4},
    "barrier at half the cost": {"cost.barrier_cycles": {"1": 20, "4": 40}},
    "twice as many cores": {"noc.columns": 4},
}
rows = []
for what, keys in CHANGES.items():
    program = nw.compile(network, timed.replace(keys), samples)
    run = nw.simulate(program, x, backend="cycle")
    time = nw.report(program, run, "report")["time"]
    us = time["rows"]["measured"]["step_us"]
    rows.append({"change": what, "cores": program.mapping.n_cores, "us per step": us})
table = pd.DataFrame(rows).set_index("change")
table.round(3)

# %% alt="A bar for each change of the chip: its step time in microseconds."
table["us per step"].plot.barh(figsize=(7, 2.6))
plt.xlabel("us per step")
plt.gca().invert_yaxis()
plt.tight_layout()

# %% [markdown]
# More cores and cheaper synapses help this network most. The word *memory* in the verdict says the same: the busiest
# core spends most of its time reading synapses. [Read a floorline](read_a_floorline.py) continues from here. [The chip
# file](../chip-file.md) lists all keys, and `nwcompile chips show loihi1` prints a file whose figures have published
# sources.
