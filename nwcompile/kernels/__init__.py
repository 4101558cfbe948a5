"""Hot loops on arrays and plain structures, without classes of `nwcompile.ir`; in Numba on CPUs, in Triton on GPUs.

folder       purpose                                                   main function
noc/         networks on chip: event-driven, lockstep                  event_cores.py:run_events
cores/       cores of a chip: neurons, synapses, tables, probes        neuron.py:step, synapse.py:deliver
mapping/     partition and placement: moves, loads, annealing          moves.py:anneal_clusters, placement.py
layers/      trainable layers: scans over time and their gradients     lif.py:lif_forward, lif.py:lif_backward
gpu/         layers and neurons on GPUs, in Triton                     gpu/lif.py, gpu/neuron.py

cycle.py     whole samples on the cycle-level chip                     cycle.py:run_samples
jit.py       compilation of kernels, and their cache                   jit.py:kernel
bits.py      sets of small numbers as bits of a word
"""
