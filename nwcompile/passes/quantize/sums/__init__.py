"""Sums sent as numbers, exactly, on chips with programmable neurons and signed numbers in messages.

This works on integers, where sums lose nothing; only `send_maxima` begins in float, with weights that are then rounded.
`split_fan_in` in `passes/fit/` uses such neurons too.

    function                              what it does
    compare_currents.py:compare_currents  computes a maximum of currents by neurons that compare two
    send_maxima.py:send_maxima            computes a maximum once for all layers that read it, before quantization
    sender_scale.py:fixed_sender          quantizes neurons that send sums, and the weights that read them
    send_sums.py:largest_message          neurons that send their sum, and a proof that messages are wide enough
"""
