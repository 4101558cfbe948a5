"""The definition of what every backend computes: step by step, layer by layer, in NumPy.

purpose                                              function                 file
a network or a program over all steps                run_network, run_program run.py
a program between two steps; a sample without an end Machine; Stream          run.py; stream.py
one step of a layer's neurons; of neuron programs    LayerState; ProgramState neuron_step.py; program_step.py
sums that may depend on the order of spikes          order_dependent          order.py
what connections add for spikes                      apply                    synaptic_sums.py
"""
