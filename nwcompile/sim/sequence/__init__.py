"""The sequence-parallel backend: all steps of a layer at once, bit for bit as the reference.

purpose                                              function                 file or folder
a network or a program, layer after layer            run_program              run.py
a sample without an end                              Stream                   stream.py
a network as the flat arrays that kernels take       neurons, synapses        tables.py
a float network that is not compiled                 run_network              float_run.py
the same on a GPU                                    Inference                cuda/
"""

ERROR_CODE = "NW6103"
