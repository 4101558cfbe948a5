"""report.html: the content of report.json as one page that needs nothing from the network.

what                                                            function
the page                                                        page.py:render_html
the floorline and the steps                                     plots.py:floorline_plot, step_plot
cores and links seen from above                                 maps.py:core_map, link_map
tables; of a profiled run; of the quantization                  tables.py, profile_tables.py, ../quantization.py
elements with everything escaped; the style sheet               markup.py:tag, style.py
"""
