"""report.html: the content of report.json as one page that needs nothing from the network.

what                                                            function
the page                                                        page.py:render_html
the floorline and the steps                                     plots.py:floorline_plot, step_plot
two runs side by side                                           diff_page.py:render_diff
the slider over hardware steps                                  step_bar.py:step_bar
what can be clicked: the script, and the data that it needs     report.js, data.py:page_data
cores and links seen from above                                 maps.py:core_map, link_map
tables of a profiled run                                        profile_tables.py:phase_tables, message_tables
what a cell of a notebook shows                                 notebook.py:html_of_network, html_of_program
the network, drawn from top to bottom                           network_graph.py:network_graph
the style sheet                                                 style.py

Tables, and elements with everything escaped, are beside this folder: other reports take them too.
"""
