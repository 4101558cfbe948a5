"""The segmented bus: cores at positions along parallel lanes of switches (`noc.topology = "segmented_bus"`).

| content | layer | file |
|---|---|---|
| the family: keys, checks, links and their times | ir | chip.py |
| choice of the messages of each slot | kernels | kernel.py |
| the cores in one micro-step | kernels | kernel_cores.py |
| use of the bus, and a lower bound of its schedule | cost | cost.py |
| tables and engine of the cycle backend; replay of packets | sim | engine.py |
| section of a report | report | report.py |
"""
