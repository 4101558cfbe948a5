"""Render report.html: the content of report.json as one page that loads nothing from the network.

what                                                            function
the page                                                        page.py:render_html
the floorline and the steps                                     plots.py:floorline_plot, step_plot
two runs side by side                                           diff_page.py:render_diff
the slider over hardware steps                                  page.py:step_bar
interactive parts: the script and its data                      report.js, data.py:page_data
cores and links seen from above                                 maps.py:core_map, link_map
tables of a profiled run                                        profile_tables.py:phase_tables, message_tables
the output of a notebook cell                                   notebook.py:html_of_network, html_of_chip, ...
the network, drawn from top to bottom                           notebook.py:network_graph
the style sheet                                                 style.py

Tables and escaped elements are in the parent folder, as other reports use them too.
"""
