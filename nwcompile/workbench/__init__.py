"""The workbench: compile and compare many chips, options or bit widths.

question                                                       function
which chip: cores, time and energy, side by side               estimate.py:estimate
which settings: many points, kept, searched, on a page         sweep/sweep.py:sweep
what does it look like: a trained network on a chip            demo.py:demo
the narrowest weights that keep an accuracy                    bit_width_search.py:find_narrowest
the figures of a point, or why it has none                     figures.py:collect_figures
"""

ERROR_CODE = "NW7004"
