"""Programs and runs as files of other tools.

to                                                              function
SANA-FE: arch.yaml and snn.yaml                                 sanafe.py:sanafe_files, sanafe_network.py:network_lines
Xylo: the arguments that make a chip's configuration            xylo.py:xylo_files
ui.perfetto.dev: a timeline                                     perfetto.py:trace
"""
