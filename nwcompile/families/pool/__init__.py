"""A pool of hidden neurons with the times of its steps, as in Xylo (section `pool` of a chip file).

keys, checks                                        chip.py
half cycles of a step and of every spike            cost.py

What depends on `core.max_outputs`, a limit of any chip, is not here: passes/analyze/pool.py, report/export/xylo.py.
"""
