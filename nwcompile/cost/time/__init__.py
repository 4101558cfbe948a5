"""Time: the core cycles of every unit, the bound of a step, and a breakdown of measured time.

content                                                         function
cycles by event, unit and core; the formula of the bound        work.py:compute_work
the bound of every step, and its causes                         floorline.py:floorline
the cost of the barrier                                         floorline.py:other_sync
the share of each layer in a core's work                        layers.py:layer_share
the one change that shortens the step most                      advice.py:advise
the activity of every core in every step, waiting included      profile.py:core_phases
the causes of the slowest steps                                 profile.py:critical_paths
latencies of messages, and crowded links                        profile.py:summarize_latency
output latency and sustainable load of a stream                 stream.py:StreamTimes
"""
