"""Export programs and runs as files of other tools.

to                                                              function
SANA-FE: arch.yaml and snn.yaml                                 sanafe.py:sanafe_files, sanafe_network.py:network_lines
Xylo: the arguments of the vendor's configuration tool          xylo.py:xylo_files
all that export a program, by name                              formats.py:EXPORTS
ui.perfetto.dev: a timeline                                     perfetto.py:format_trace
"""
