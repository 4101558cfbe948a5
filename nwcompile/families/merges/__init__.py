"""Routers of FIFOs joined by merges, without channels, as in RANC (`noc.router = "merges"`).

definition of the routers, keys, checks             chip.py
routers and cores in a micro-step                   kernel.py
engine of the cycle backend; packets of a sample    engine.py; packets.py
files for RANC, an FPGA design                      export.py
contents of its cores; bits of their memories       export_design.py; export_memory.py
"""
