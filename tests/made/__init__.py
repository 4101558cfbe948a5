"""Made networks, spikes, chips and programs that several tests share. No test module imports from another.

small networks of every kind of connection           nets.py
three layers of snnTorch's Leaky                     leaky_net.py
networks with a maximum over windows                 maxima.py
networks of ReLUs                                    relu_nets.py
networks for chips with a pool of neurons            pool_nets.py
neuron programs                                      neuron_programs.py
NWAVE's tutorial 3                                   tutorial.py
drawn spikes                                         spikes.py
drawn tensors                                        tensors.py
recordings of event cameras                          recordings.py
a small chip                                         chips.py
a chip with a segmented bus                          buses.py
networks on chip of every layout                     layouts.py
small mapped programs                                programs.py
networks and mappings for the mapper                 mapped.py
clusters on cores                                    clusters.py
the partitioners that can run here                   partitioners.py
what a chip refuses                                  violations.py
a program as a stream                                streams.py
modules of quantization-aware training               quantized.py
sweeps in this very process                          sweeps.py
programs compared with what their files hold         saved.py
figures of a report compared                         figures.py
networks of others, compiled and compared            acceptance.py
files that frameworks wrote                          nir_files.py
files made in a test                                 nir_graphs.py, lava_files.py
networks of other simulators                         sanafe.py, ranc_cases.py, xylo.py
drawn by hypothesis: float networks                  float_networks.py
drawn by hypothesis: fixed-point programs            random_programs.py
drawn by hypothesis: neuron programs                 random_neurons.py
drawn by hypothesis: whole cases                     random_cases.py
"""
