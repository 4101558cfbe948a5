"""Layers to build networks of: synapses turn spikes into currents, layers of neurons turn currents into spikes.

purpose                                              class                    file
leaky integrate-and-fire neurons and synapses        LIFLayer, LIFSynapse     lif.py
the same under the rules of two analog chips         H1v1Layer, H1v2Layer     h1.py
neurons of one's own (`nw.neuron`)                   ProgramLayer             program.py
delays of axons, synapses and convolutions           Delay, DelayedLinear, ... delays.py
layers one after the other, over time                Sequential               sequential.py
activations for conversion                           QuantizedReLU            quantized_relu.py
weights, thresholds and leaks that deviate           Mismatch                 mismatch.py
what layers compute with, made anew for each batch   prepare_net, Prepared    prepare.py
"""

ERROR_CODE = "NW8001"
