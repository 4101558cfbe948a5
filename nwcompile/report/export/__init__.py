"""Programs and runs as files of other tools.

to                                                              function
SANA-FE: arch.yaml and snn.yaml                                 sanafe.py:sanafe_files, sanafe_network.py:network_lines
ui.perfetto.dev: a timeline                                     perfetto.py:trace
"""
