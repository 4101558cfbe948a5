# %% [markdown]
# # The first minute
#
# This page is for all readers. It looks at a small trained network on a chip, and at the results that nwcompile gives.
# All cells were run when this page was built. You only need `pip install 'nwcompile[frames,plot]'`.

# %%
import nwcompile as nw

demo = nw.demo()
print(demo)

# %% [markdown]
# `nw.demo()` compiles a network of 42 spiking neurons for the chip model `loihi1` and runs it on 200 test images of
# digits. The last line is the verdict. It says whether the network fits, how long a step takes, and what limits it. In
# a notebook, `nw.demo()` as the last line of a cell shows everything at once. The next sections show the parts.
#
# ## The network
#
# Layers are nodes, and connections are arrows. Hover over a layer to see the numbers of its neurons.

# %%
demo.network

# %% [markdown]
# ## The program
#
# `nw.compile` turns a network and a chip into a *program*: integer weights, the core of every neuron, the site of
# every core, and the tables for the chip. A notebook shows a program as a report.

# %%
demo.program

# %% [markdown]
# Its mapping shows which cores of the chip are in use.

# %%
demo.program.mapping

# %%
core, site = demo.program.mapping.where("digit", 7)
print(f"the neuron of digit 7 is on core {core}, which lies at column {site[0]}, row {site[1]}, port {site[2]}")

# %% [markdown]
# ## The run
#
# `nw.simulate` runs a program. The backend `cycle` simulates cores and routers and measures time. `sequence` is the
# fast backend, and `reference` is the definition. They agree on every spike, every state and every counter.
# `nw.crosscheck` checks this.

# %%
print(nw.crosscheck(demo.program, demo.x[:20]))

# %% [markdown]
# Results are arrays. The answer of this network is the digit whose neuron fires most often.

# %%
run = nw.simulate(demo.program, demo.x, backend="cycle")
answers = run.output.sum(1).argmax(1)
print(f"{(answers == demo.labels).mean():.1%} of {len(answers)} images are right")
print(f"a step takes {1e6 * run.seconds / run.step_cycles.size / run.n_samples:.2f} us on average")

# %% [markdown]
# A run plots itself: a mark for each neuron and step with a spike, here of the first image. `run.plot_states()` plots
# membranes, if `record="all"` kept them.

# %% alt="Spikes of the hidden layer and of the ten digits over 16 steps; the neuron of one digit fires in most steps."
run.plot_raster()

# %% [markdown]
# ## Tables
#
# Counters are available as pandas DataFrames: by layer, by core, by step or by spike.

# %%
run.to_frame("cores")

# %% [markdown]
# ## Another chip
#
# One argument changes the chip. `nwcompile chips list` prints the included chip models. A chip shows
# its key figures; hover over a basis for the source.

# %%
nw.Chip.load("speck")

# %%
print(nw.demo("speck").report["verdict"])

# %%
nw.estimate(demo.network, ["loihi1", "loihi2", "spinnaker2", "truenorth"], demo.x[:20])

# %% [markdown]
# Continue with [your own snnTorch network](snntorch_to_loihi.py), [a chip of your own](design_a_chip.py), or [what
# mapping does](compare_placers.py).
