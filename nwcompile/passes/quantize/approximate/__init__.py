"""Approximate: the nearest neurons that the chip has, fitted on integers, and their price.

function                       what it does
approximate.py:approximate     the nearest neurons, layer after layer
ideal.py:ideal_trace           the run on an ideal chip, which the price compares with
nearest.py:nearest             which features those are, and what words allow them
nearest_program.py:built_in    a built-in neuron for a neuron program
refit.py:refit                 the threshold and leak with which they fire most alike
driven.py:DrivenLayer          a layer run alone, with one neuron after another
price.py:price_of              how far from the same integers on an ideal chip, on samples held out
advice.py:approximations       the approximations with which a refused network would fit
"""
