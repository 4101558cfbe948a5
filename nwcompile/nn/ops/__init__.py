"""The operations that layers are made of, on whole `[B, T, N]` tensors, each with kernels for the CPU and for a GPU.

purpose                                              function                 file
LIF neurons over time, with gradients                scan, fire               scan.py
spikes times weights                                 spike_matmul             spike_matmul.py
sums over synapses with delays; a delay's surrogate  delayed_sums, taps_of    delays.py
surrogate gradients of a spike                       atan, fast_sigmoid, ...  surrogate.py
operations known to torch by name; kernels by device lif_scan, kernels        torch_ops.py
launching the Numba kernels on torch's tensors       forward, program, ...    cpu.py
launching the Triton kernels on torch's tensors      forward, program, ...    gpu.py
device names and what a GPU's kernels can hold       torch_device             device.py
blocks of tensors over threads                       run_on_threads           threads.py
memory of large results, used again                  new                      buffers.py
"""

ERROR_CODE = "NW6103"
