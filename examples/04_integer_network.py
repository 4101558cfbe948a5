"""A network written in integers, mapped by hand: two layers with recurrence and a delay, on the 2 x 2 chip `tiny`.

Shows the pipeline: in the window `hardware` each layer's spikes stand in the hardware step in which they were fired.
"""

import numpy as np

import nwcompile as nw

chip = nw.Chip.load("tiny")
spec = nw.NeuronSpec(threshold=3 * 64, fixed=chip.fixed_point, decay_v=512, refractory=2)
rng = np.random.default_rng(0)
network = nw.Network.from_arrays(
    layers={"a": spec, "b": spec},
    connections=[
        nw.Dense("in", "a", rng.integers(-3, 5, (6, 4)).astype(np.int8)),
        nw.Dense("a", "a", -np.eye(6, dtype=np.int8)),  # onto itself: acts one step later
        nw.Dense("a", "b", rng.integers(-3, 5, (3, 6)).astype(np.int8)),
        nw.Sparse("in", "b", pre=[0, 1], post=[0, 2], weight=np.array([2, -2], np.int8), delay=3),
    ],
    inputs={"in": 4},
)
mapping = nw.Mapping.from_arrays(
    core_of={"a": [0, 0, 0, 1, 1, 1], "b": [2, 2, 2]}, site_of=[(0, 0, 0), (1, 0, 0), (1, 1, 0)]
)
program = nw.compile(network, chip, mapping=mapping)
x = (rng.random((1, 12, 4)) < 0.5).astype(np.int8)
print(nw.crosscheck(program, x))
for window in ("aligned", "hardware"):
    run = nw.simulate(program, x, backend="cycle", window=window)
    print(f"\n{window}: neuron 0 of each layer, and messages sent in each hardware step")
    for layer, spikes in run.spikes.items():
        print(f"  {layer}  {''.join('.|'[s] for s in spikes[0, :, 0])}")
    print("    ", run.counters["messages_out"].sum(1))
print("\nwhere is neuron 4 of layer a?", program.mapping.where("a", 4))
