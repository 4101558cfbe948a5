"""Sums sent as numbers, exact, on chips whose neurons are programs and whose messages carry numbers of either sign.

It happens on integers, where sums lose nothing. `split_fan_in` in `passes/fit/` uses such neurons too.

function                              what it does
compare_currents.py:compare_currents  a maximum of currents by neurons that compare two
send_sums.py:largest_message          neurons that send their sum, and whether messages are wide enough, proved
"""
