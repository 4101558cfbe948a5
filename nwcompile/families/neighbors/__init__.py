"""Cores that wait for their neighbors only, instead of a barrier (`cost.sync = "neighbors"`).

keys, checks                                        chip.py
whole samples, each core in its own step            kernel.py
tokens of a step, their counters and latencies      cost.py
lower bound of steps without a barrier              longest_path.py
engine of the cycle backend                         engine.py
"""
