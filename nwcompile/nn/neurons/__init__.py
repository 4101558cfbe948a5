"""Neurons of a user's own: a step written as a torch function becomes a NeuronProgram.

purpose                                              function                 file
the decorator `nw.neuron`, and what it makes         neuron, Neuron           neuron.py
spikes with a surrogate gradient                     spike                    neuron.py
the operations of a step, by following it            trace                    trace.py
torch's operations as those of a program             RULES                    aten.py
"""

from nwcompile.nn.neurons.neuron import Neuron as Neuron
from nwcompile.nn.neurons.neuron import neuron as neuron
from nwcompile.nn.neurons.neuron import spike as spike

ERROR_CODE = "NW3005"
