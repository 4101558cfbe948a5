"""The segmented bus: cores at positions along parallel lanes of switches (`noc.topology = "segmented_bus"`).

keys, checks, links                                 chip.py
choice of a slot's messages; cores in a micro-step  kernel.py; kernel_cores.py
use of the bus, lower bound of its schedule         cost.py
engine of the cycle backend, replay of packets      engine.py
section of a report                                 report.py
"""
