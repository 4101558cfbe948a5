"""Sums sent as numbers, exact, on chips whose neurons are programs and whose messages carry numbers of either sign.

All of it happens on integers, where sums lose nothing, behind quantizing.

stage       function                                     what it does
compare     compare_currents.py:comparable               the layers that get an exact maximum of currents
            compare_currents.py:compare_currents         a maximum of currents by neurons that compare two
split       split_fan_in.py:split_fan_in                 wide fan-ins by neurons that send partial sums
            parts.py:symbolic_part                       the same of large layers, without lists of their synapses
            send_sums.py:largest_message                 whether messages are wide enough, proved
"""
