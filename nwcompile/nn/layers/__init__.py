"""Layers of trainable networks: synapses turn spikes into currents, neurons turn currents into spikes.

purpose                                              class                    file
leaky integrate-and-fire neurons and synapses        LIFLayer, LIFSynapse     lif.py
the same under the constraints of two analog chips   H1v1Layer, H1v2Layer     h1.py
custom neurons (`nw.neuron`)                         ProgramLayer             program.py
delays of axons, synapses and convolutions           Delay, DelayedLinear, ... delays.py
chains of layers over time                           Sequential               sequential.py
activations for conversion                           QuantizedReLU            quantized_relu.py
mismatch of weights, thresholds and leaks            Mismatch                 prepare.py
effective values, recomputed for each batch          prepare_net, Prepared    prepare.py
"""

ERROR_CODE = "NW8001"
