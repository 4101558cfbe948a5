"""Any neuron as data: what a NeuronSpec cannot say.

noun or check                                  file                         what it is
NeuronProgram, Operation, StateVariable        program.py:NeuronProgram     the operations of a step on named states
how far each value can reach, proved           ranges.py:find_ranges        interval arithmetic on the operations
"""

ERROR_CODE = "NW3004"
