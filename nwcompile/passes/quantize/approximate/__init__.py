"""Approximate: the nearest neurons that the chip has, fitted on integers, and their price.

function                         what it does
approximate.py:approximate       replaces neurons by the nearest ones, layer by layer
ideal.py:ideal_trace             the run on an ideal chip, the reference of the price
nearest.py:nearest_neuron        which features are replaced, and which options allow them
nearest_program.py:built_in      a built-in neuron for a neuron program
refit.py:refit                   the threshold and leak with the most similar spikes
ideal.py:DrivenLayer             a layer run alone, with one neuron after another
price.py:measure_price           the difference from an ideal chip, on samples held out
nearest.py:suggest_items         approximations with which a refused network would fit
"""
