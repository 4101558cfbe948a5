"""The content of report.json as plain values; terminal and HTML are made from this alone.

what                                                            function
the whole document                                              collect.py:collect
messages: single or as trees, and those that were dropped       messages.py:collect_multicast, collect_dropped
who sends to every core, and what crosses every link            traffic.py:collect_traffic
what every core and link did in every step                      by_step.py:collect_by_step
where the cycles of a profiled run went                         profile.py:collect_profile
NeuroBench's complexity figures                                 neurobench.py:collect_neurobench
"""

ERROR_CODE = "NW7003"
