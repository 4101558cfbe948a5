# %% [markdown]
# # The first minute
#
# This page is for everybody. It looks at a small trained network on a chip, and at what nwcompile can say about it.
# Every cell was run when this page was built; `pip install 'nwcompile[frames]'` is all that it needs.

# %%
import nwcompile as nw

demo = nw.demo()
print(demo)

# %% [markdown]
# `nw.demo()` compiles a network of 42 spiking neurons for the chip model `loihi1` and runs it on 200 images of digits
# that it was not trained on. The last line is the verdict: it says whether the network fits, how long a step takes,
# and what that time goes into. In a notebook, `nw.demo()` as the last line of a cell shows all of it at once. Here
# are its parts.
#
# ## The network
#
# A layer of neurons is a node, a connection is an arrow. Hover over a layer for the numbers of its neurons.

# %%
demo.network

# %% [markdown]
# ## The program
#
# What `nw.compile` makes of a network and a chip is a *program*: integer weights, the core of every neuron, the place
# of every core, and the tables that the chip would be loaded with. Shown in a notebook, a program is a report.

# %%
demo.program

# %%
core, site = demo.program.mapping.where("digit", 7)
print(f"the neuron of digit 7 is on core {core}, which lies at column {site[0]}, row {site[1]}, port {site[2]}")

# %% [markdown]
# ## The run
#
# `nw.simulate` runs a program. The backend `cycle` simulates cores and routers and measures time; `sequence` is the
# fast one; `reference` is the plain definition. They agree on every spike, every state and every counter, and
# `nw.crosscheck` shows it.

# %%
print(nw.crosscheck(demo.program, demo.x[:20]))

# %% [markdown]
# Results are arrays that you can compute with. The answer of this network is the digit whose neuron fires most often.

# %%
run = nw.simulate(demo.program, demo.x, backend="cycle")
answers = run.output.sum(1).argmax(1)
print(f"{(answers == demo.labels).mean():.1%} of {len(answers)} images are right")
print(f"a step takes {1e6 * run.seconds / run.step_cycles.size / run.n_samples:.2f} us on average")

# %% [markdown]
# ## Tables
#
# Counters come as pandas DataFrames: by layer, by core, by step or by spike.

# %%
run.to_frame("cores")

# %% [markdown]
# ## Another chip
#
# One word changes the chip. `nwcompile chips list` prints the models that are shipped.

# %%
print(nw.demo("speck").report["verdict"])

# %%
nw.estimate(demo.network, ["loihi1", "loihi2", "spinnaker2", "truenorth"], demo.x[:20])

# %% [markdown]
# Where to go from here: [your own snnTorch network](snntorch_to_loihi.py), [a chip of your own](design_a_chip.py), or
# [what mapping does](compare_placers.py).
