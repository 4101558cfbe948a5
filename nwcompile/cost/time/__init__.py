"""Time: the core cycles of every unit, the bound of a step that follows from them, and where measured time went.

what it tells                                                   function
cycles by event, unit and core; the formula of the bound        work.py:compute_work
the bound of every step and what fills it                       floorline.py:floorline
the bound without a barrier: a path over cores and steps        longest_path.py:longest_path
what the barrier costs                                          sync.py:other_sync
how layers share the work of a core                             layers.py:layer_share
the one change that shortens the step most                      advice.py:advise
what a single spike costs every core                            spike_cost.py:spike_cost
half cycles of a step where hidden neurons are one pool         pool.py:pool_times, mean_step_cycles
what every core does in every step, waiting included            phases.py:core_phases
what the slowest steps waited for                               critical_path.py:critical_paths
how long messages took, and which links they crowded            message_latency.py:summarize_latency
how long output of a stream waits, and what load a chip bears   stream.py:StreamTimes
"""
