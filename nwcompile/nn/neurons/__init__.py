"""Custom neurons: a step that is written as a torch function becomes a NeuronProgram.

purpose                                              function                 file
the decorator `nw.neuron` and its result             neuron, Neuron           neuron.py
spikes with a surrogate gradient                     spike                    neuron.py
tracing of a step's operations                       trace                    trace.py
torch's operations as program operations             RULES                    aten.py
notice when Python reads a tensor's memory           watch_reads              trace.py
"""

from nwcompile.nn.neurons.neuron import Neuron as Neuron
from nwcompile.nn.neurons.neuron import neuron as neuron
from nwcompile.nn.neurons.neuron import spike as spike

ERROR_CODE = "NW3005"
