"""What work costs: the same formulas choose a mapping and report about it.

room         what it tells                                             main function
traffic/     axons, messages, destinations and flits of links          events.py:count_events, link_flits.py:link_flits
time/        cycles of every unit, the bound of a step, advice         work.py:compute_work, floorline.py:floorline

every figure of a report about a program and one run of it             summary.py:summarize
the run that a program's activity predicts                             prediction.py:predict
what no mapping can undercut: time, energy, their product              least.py:find_lower_bounds
picojoules                                                             energy.py:step_energy_pj, energy_pj
two mappings side by side                                              compare.py
NeuroBench's complexity figures                                        neurobench.py
accumulates and multiplications that no chip has a part in             operations.py:count_operations
the same as syops and SpikingJelly count them                          tool_counts.py:syops, op_counts
instructions of neurons that are not the built-in one                  neuron_program.py:extra_instructions
several spikes a step; single messages beside trees                    multi_spike.py, unicast_vs_tree.py
fan-in axons of a core typed, for chips with axon types                axon_colors.py
how a segmented bus was used                                           bus.py
"""
