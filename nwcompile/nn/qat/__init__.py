"""Quantization-aware training: a network that computes the chip's integers and learns float parameters.

purpose                                              class or function        file
the network: choose scales, run, export for compile  QuantizedNetwork         network.py
a layer's connections, for every kind of neuron      ConnectedLayer           connected.py
linear maps on the host before the first layers      HostMaps                 host.py
built-in neurons, rounded to the grid, and over time QuantizedLayer           layer.py
neuron programs, rounded, and over time              QuantizedProgram         program.py
synaptic sums that floats hold exactly               IntegerWeights, ...      sums.py
"""

ERROR_CODE = "NW2306"
