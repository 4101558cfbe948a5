"""Sums sent as numbers, exactly, on chips with programmable neurons and signed numbers in messages.

This works on integers, where sums lose nothing. `split_fan_in` in `passes/fit/` uses such neurons too.

    function                              what it does
    compare_currents.py:compare_currents  computes a maximum of currents by neurons that compare two
    send_sums.py:largest_message          neurons that send their sum, and a proof that messages are wide enough
"""
