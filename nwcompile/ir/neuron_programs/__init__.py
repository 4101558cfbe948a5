"""Neuron programs: any neuron as data, beyond what a NeuronSpec can describe.

noun or check                                  file                         what it is
NeuronProgram, Operation, StateVariable        program.py:NeuronProgram     the operations of a step on named states
proved range of each value                     ranges.py:find_ranges        interval arithmetic on the operations
"""

ERROR_CODE = "NW3004"
