"""Quantization-aware training: a network that computes the chip's integers and learns float parameters.

purpose                                              class or function        file
the network: scales chosen, run, compiled again      QuantizedNetwork         network.py
a layer's connections, whatever its neurons are      ConnectedLayer           connected.py
maps that the host computes before the first layers  HostMaps                 host.py
built-in neurons, rounded to the chip's grid         QuantizedLayer           layer.py
neuron programs, likewise                            QuantizedProgram         program.py
integer neurons over time, with gradients            run                      scan.py
neuron programs over time, with gradients            run                      program_scan.py
synaptic sums that floats hold exactly               sums, IntegerWeights     sums.py
"""

ERROR_CODE = "NW2306"
