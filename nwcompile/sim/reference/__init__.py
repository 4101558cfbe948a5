"""The reference backend: NumPy, step by step, layer by layer. It defines the result of every other backend.

purpose                                              function                 file
simulate a network or a program                      run_network, run_program run.py
state of a program between two steps; a stream       Machine; Stream          run.py; stream.py
one step of a layer's neurons; of neuron programs    LayerState; ProgramState neuron_step.py; program_step.py
sums that may depend on the order of spikes          order_dependent          order.py
synaptic sums of each kind of connection             apply_connection         synaptic_sums.py
"""
