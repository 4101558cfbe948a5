"""Hot loops: arrays and plain structures in and out, no nouns of `nwcompile.ir`. Numba on the CPU, Triton on a GPU.

room         what it serves                                            main function
noc/         the network on chip: event-driven, lockstep, and bus      event_cores.py:run_events
cores/       a chip's cores: neurons, synapses, tables, probes         neuron.py:step, synapse.py:deliver
mapping/     partition and placement: moves, loads, annealing          moves.py:anneal_clusters, placement.py
layers/      trainable layers: scans over time and their gradients     lif.py:lif_forward, lif.py:lif_backward
gpu/         the same for GPUs, in Triton                              gpu/lif.py, gpu/neuron.py

cycle.py     whole samples on the cycle-level chip                     cycle.py:run_samples
neighbors.py the same on cores that wait for neighbors, not barriers   neighbors.py:run_neighbors
jit.py       how kernels are compiled and kept between processes       jit.py:kernel
bits.py      sets of small numbers as bits of a word
"""
