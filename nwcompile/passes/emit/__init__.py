"""Emit: the tables that a chip is loaded with.

stage       function                           what it does
stages      stages.py:STAGES                   those of this folder, in order
interleave  visit_order.py:interleave_visits   the order of visits in which messages leave a core evenly
emit        emit.py:emit                       effective weights, folded biases and axons: the Program
"""
