# %% [markdown]
# # Design a chip in TOML
#
# This page is for those who design a chip. A chip is one small text file here; the compiler and the simulators know
# no chip by name. We write one, see what does not fit, change it, and ask which key makes steps shorter. It needs
# matplotlib and pandas.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import nwcompile as nw

demo = nw.demo()  # a trained network, 64-32-10 neurons, with 200 images of digits
network, samples, x, labels = demo.network, demo.x[:100], demo.x[100:], demo.labels[100:]

# %% [markdown]
# ## The least that a file must say
#
# A grid of routers, how many neurons a core holds, and what these neurons can do. Every figure needs a source.
# "assumed", with a reason, is one, and it is printed wherever the figure matters.

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
# The error lists every limit that is exceeded and not the first alone: what, where, how much of how much, and what to
# do.

# %%
try:
    nw.compile(network, chip, samples)
except nw.FitError as refusal:
    print(refusal)

# %% [markdown]
# The network has 64 inputs, and a core takes 48. We give it 64 axons. `replace` changes keys of a chip in memory; on
# the command line `--set core.max_in_axons=64` does the same.

# %%
larger = chip.replace({"core.max_in_axons": 64})
program = nw.compile(network, larger, samples)
print(program)
answers = nw.simulate(program, x, backend="sequence").output.sum(1).argmax(1)
print(f"{(answers == labels).mean():.1%} of {len(x)} images are right with {larger.value('weights.bits')}-bit weights")

# %% [markdown]
# ## How fast would it be?
#
# What a file does not say is unknown, never zero. This chip gives answers, but it has no times yet.

# %%
print(nw.simulate(program, x, backend="cycle").seconds)

# %% [markdown]
# Costs are cycles of the core clock for each event: visiting a neuron, updating it, reading a synapse, sending a
# message. `units` says whether receiving runs beside updating. The network on chip has its own clock. In the file
# they would be a section `[cost]`; here `replace` adds them.

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
# A loop over chips answers that. Cores of the same size, but faster at one thing or another, or more of them:

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
    rows.append({"change": what, "cores": program.mapping.n_cores, "us a step": us})
table = pd.DataFrame(rows).set_index("change")
table.round(3)

# %% alt="A bar for each change of the chip: its step time in microseconds."
table["us a step"].plot.barh(figsize=(7, 2.6))
plt.xlabel("us a step")
plt.gca().invert_yaxis()
plt.tight_layout()

# %% [markdown]
# More cores and cheaper synapses help this network most, as the word *memory* in the verdict says: reading synapses
# fills the busiest core. [Read a floorline](read_a_floorline.py) goes on from here. All keys are in [the chip
# file](../chip-file.md), and `nwcompile chips show loihi1` prints a file whose figures have published sources.
