"""What work costs: the same formulas choose a mapping and report about it.

room         what it tells                                             main function
traffic/     axons, messages, destinations and flits of links          events.py:count_events, link_flits.py:link_flits
time/        cycles of every unit, the bound of a step, advice         work.py:work, floorline.py:floorline

every figure of a report about a program and one run of it             summary.py:summarize
the run that a program's activity predicts                             prediction.py:predict
picojoules                                                             energy.py:energy_pj
two mappings side by side                                              compare.py
NeuroBench's complexity figures                                        neurobench.py
accumulates and multiplications that no chip has a part in             operations.py:operations
instructions of neurons that are not the built-in one                  neuron_program.py:extra_instructions
several spikes a step; single messages beside trees                    multi_spike.py, unicast_vs_tree.py
how a segmented bus was used                                           bus.py
"""
