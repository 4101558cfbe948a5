"""The workbench: questions about many points at once, each answered by compiling it.

question                                                       function
which chip: cores, time and energy, side by side               estimate.py:estimate
what does it look like: a trained network on a chip            demo.py:demo
"""
