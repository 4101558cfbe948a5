"""Kernels of the trainable layers on a CPU, in Numba, on vectors of numbers.

purpose                                              function                         file
LIF neurons over time, forward and backward          lif_forward, lif_backward        lif.py
LIF neurons with recurrent synapses                  recurrent_forward, ...           recurrent.py
integer neurons over time, forward and backward      integer_forward, ...             integer_backward.py
spikes times weights                                 spike_matmul                     spike_matmul.py
spike times and their adjoint                        spike_times, spike_time_adjoint  spike_times.py
EventProp in discrete time: spike record, adjoint    keep_spikes, spike_adjoint       eventprop.py
sums over synapses with delays, their gradients      delayed_sums, delayed_products   delays.py
operations of float neuron programs                  smaller, sign, ...               program.py
surrogate derivatives                                slope_at                         surrogate.py
vectors in Numba, and the LLVM code behind them      load, store, ...                 simd.py, simd_code.py
"""
