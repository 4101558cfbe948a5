"""Additions to a training loop: losses, metrics, pruning, device mismatch.

purpose                                              function                          file
weight limits, one sign per block, firing rates      topology_loss, SignAnnealing, ... losses.py
accuracy; consumption of a chip                      accuracy, chip_consumption        metrics.py
the synaptic work of the busiest core, as a loss     busiest_core_loss                 busiest_core.py
weights that stay 0                                  prune, finish_pruning             sparse_training.py
dynamic sparse training within a chip's memory       SparseTraining                    sparse_training.py
device mismatch, drawn for every batch               inject_mismatch                   inject.py
"""

ERROR_CODE = "NW8003"
