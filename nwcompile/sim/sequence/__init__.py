"""The sequence-parallel backend: all steps of a layer at once, bit for bit equal to the reference.

purpose                                              function                 file or folder
simulate a program, layer after layer                SequenceMachine          run.py
flat arrays of a network for the kernels             synapse_tables           tables.py
simulate a float network that is not compiled        run_network              float_run.py
simulate on a GPU                                    Inference                cuda/
compute the module's answer from spikes and states   run_readout              readout.py
"""

ERROR_CODE = "NW6103"
