"""The sequence-parallel backend on a GPU, with sums that are proved exact before they are computed.

purpose                                              class or function        file
a network on the device, run as often as wished      Inference                inference.py
products of whole numbers on matrix units            Product                  product.py
connections of every kind                            synapses                 synapses.py
the neurons of a layer over time                     GpuNeurons               neurons.py
those that are neuron programs                       GpuProgram               programs.py
sizes of launches, events of both                    block_of, given_events   launch.py
layers that feed themselves, in one kernel           loop_of                  loop.py
which device, and what it lacks                      gpu                      device.py
"""
