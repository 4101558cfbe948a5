"""The sequence-parallel backend on a GPU. Sums are proved exact before they are computed.

purpose                                              class or function        file
a network on the device, ready to run                Inference                inference.py
exact integer matrix products                        Product                  product.py
connections of every kind                            build_synapses           synapses.py
the neurons of a layer over time; with its own loop  GpuNeurons; loop_of      neurons.py
a layer of neuron programs over time                 GpuProgram               programs.py
the device, or the error that it is missing          find_gpu                 device.py
its memory, or the error that it is too small        room_on_gpu              device.py
"""
