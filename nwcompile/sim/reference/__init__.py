"""The reference backend: NumPy, step by step, layer by layer. It defines the result of every other backend.

purpose                                              function                 file
simulate a network; a program                        NetworkMachine; ProgramMachine run.py
one step of a layer's neurons; of neuron programs    LayerState; ProgramState neuron_step.py; program_step.py
sums that may depend on the order of spikes          order_dependent          synaptic_sums.py
synaptic sums of each kind of connection             apply_connection         synaptic_sums.py
"""
