"""Costs in time, energy and traffic. The same formulas serve the choice of a mapping and the reports.

folder       content                                                   main function
traffic/     axons, messages, destinations and flits of links          events.py:count_events, link_flits.py:link_flits
time/        cycles of every unit, the bound of a step, advice         work.py:compute_work, floorline.py:floorline

all figures of a report about a program and a run                      summary.py:summarize
the run predicted from a program's activity                            energy.py:predict
lower bounds over all mappings: time, energy, their product            least.py:find_lower_bounds
energy of the events                                                   energy.py:step_energy_pj, energy_pj
the same with static power and the processors of the chips             energy.py:board_energy
basis of a run's time and energy, rows of silicon                       basis.py:find_basis, find_silicon
comparison of two mappings                                             compare.py
NeuroBench's complexity figures                                        neurobench.py
chip-independent operations, also as syops and SpikingJelly count them tool_counts.py:count_operations, syops, op_counts
instructions of neurons beyond the built-in one                        neuron_program.py:extra_instructions
several spikes per step; unicast and multicast                         summary.py:multi_spikes, compare_multicast
costs that differ between chip families                                family.py:find_cost
types of fan-in axons, for chips with axon types                       axon_colors.py
"""
