"""Emit: the tables that a chip is loaded with.

stage       function                           what it does
interleave  visit_order.py:interleave_visits   an order of visits in which messages leave a core evenly
emit        emit.py:emit                       effective weights, folded biases and axons: the Program
"""

ERROR_CODE = "NW5011"
