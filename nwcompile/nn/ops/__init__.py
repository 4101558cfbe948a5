"""Operations of the trainable layers on whole `[B, T, N]` tensors, each with a CPU kernel and a GPU kernel.

purpose                                              function                 file
LIF neurons over time, with gradients                scan, fire               scan.py
spikes times weights                                 spike_matmul             spike_matmul.py
sums over delayed synapses; the surrogate of a delay delayed_sums, ...        delays.py
surrogate gradients of a spike                       atan, fast_sigmoid, ...  surrogate.py
operators registered with torch; kernels by device   lif_scan, ...            torch_ops.py
launching Numba kernels on torch tensors             forward, fire, ...       cpu.py
launching Triton kernels on torch tensors            forward, fire, ...       gpu.py
device names and the limits of the GPU kernels       torch_device             device.py
blocks of a tensor over threads                      run_on_threads           threads.py
reuse of the memory of large results                 allocate_tensor          cpu.py
"""

ERROR_CODE = "NW6103"
