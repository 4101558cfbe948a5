"""Quantization-aware training: a network that computes the chip's integers and learns float parameters.

purpose                                              class or function        file
the network: scales chosen, run, compiled again      QuantizedNetwork         network.py
one layer's parameters, rounded to the chip's grid   QuantizedLayer           layer.py
integer neurons over time, with gradients            run                      scan.py
synaptic sums that floats hold exactly               sums, IntegerWeights     sums.py
"""
