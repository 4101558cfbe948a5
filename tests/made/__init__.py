"""Shared set-ups of tests: networks, spikes, chips and programs. No test module imports from another.

small networks of every kind of connection           nets.py
three layers of snnTorch's Leaky                     leaky_net.py
networks with a maximum over windows                 maxima.py
networks of ReLUs                                    relu_nets.py
networks for chips with a pool of neurons            pool_nets.py
neuron programs                                      neuron_programs.py, gated_neurons.py
network classes of NWAVE's tutorial 3                 tutorial.py
random spikes                                        spikes.py
random tensors                                       tensors.py
recordings of event cameras                          recordings.py
a small chip                                         chips.py
a chip with a segmented bus                          buses.py
networks on chip with every layout                   layouts.py
small mapped programs                                programs.py
networks and mappings for the mapper                 mapped.py
clusters on cores                                    clusters.py
partitioners that are installed                      partitioners.py
violations of a chip's limits                        violations.py
a program as a stream                                streams.py
modules of quantization-aware training               quantized.py
sweeps within this process                           sweeps.py
programs compared with their files                   saved.py
comparison of figures in reports                     figures.py
networks of other projects, compiled and compared    acceptance.py
files written by frameworks                          nir_files.py
files written by tests                               nir_graphs.py, lava_files.py
networks of other simulators                         sanafe.py, ranc_cases.py, xylo.py
random float networks (hypothesis)                   float_networks.py
random fixed-point programs (hypothesis)             random_programs.py
random neuron programs (hypothesis)                  random_neurons.py
random inputs of the whole compiler (hypothesis)     random_cases.py
"""
