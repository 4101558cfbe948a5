"""What is added to a training loop: losses, metrics, pruning, deviations of devices.

purpose                                              function                          file
weights within limits, one sign a block, rates       topology_loss, SignAnnealing, ... losses.py
right answers; what a chip would consume             accuracy, chip_consumption        metrics.py
the synaptic work of the busiest core, as a loss     busiest_core_loss                 busiest_core.py
weights that stay 0                                  prune, finish_pruning             pruning.py
synapses that move, within a chip's memory           SparseTraining                    sparse_training.py
the mismatch of devices, drawn for every batch       inject_mismatch                   inject.py
"""

ERROR_CODE = "NW8003"
