"""Cores that wait for their neighbors only, instead of a barrier (`cost.sync = "neighbors"`).

keys, checks                                        chip.py
whole samples, each core in its own step            kernel.py
tokens of a step, the lower bound of steps          cost.py
engine of the cycle backend                         engine.py
"""
