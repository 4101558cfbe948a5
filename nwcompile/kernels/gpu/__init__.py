"""Kernels on a GPU, in Triton, with the names, arguments and bits of their CPU counterparts.

purpose                                              function                         file
LIF neurons over time, forward and backward          lif_forward, lif_backward        lif.py
LIF neurons with recurrent synapses                  recurrent_forward, ...           recurrent.py
EventProp in discrete time: spike record, adjoint    keep_spikes, spike_adjoint       eventprop.py
integer neurons over time                            scan                             neuron.py
integer neurons with recurrent synapses              scan_loop                        recurrent_neuron.py
neuron programs over time                            scan                             program.py
sums over lists of synapses                          gather                           sparse_sums.py
sums over synapses with delays, their gradients      delayed_sums, delayed_products   delays.py
surrogate derivatives                                slope_at                         surrogate.py
"""
