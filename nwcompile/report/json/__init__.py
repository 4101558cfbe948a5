"""Collect the content of report.json as plain values, the only source of the text and HTML reports.

what                                                            function
the whole document                                              collect.py:collect_report
messages: single or as trees, and dropped ones                  traffic.py:collect_multicast, collect_dropped
the senders of every core, the traffic of every link            traffic.py:collect_traffic
the work of every core and link in every step                   collect.py:collect_by_step
the cycles of a profiled run                                    profile.py:collect_profile
NeuroBench's complexity figures                                 neurobench.py:collect_neurobench
"""

ERROR_CODE = "NW7003"
