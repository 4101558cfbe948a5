"""Legalize: what a chip's neurons, weights and messages cannot be is rewritten, with a row for each change.

stage       function                           what it does
normalize   weight_bits.py:apply_weight_bits   how many bits the weights into each layer have
            prune_zeros.py:prune_zeros         pruned dense connections as lists of their synapses
legalize    legalize.py:legalize               the rewritings below, in this order
            drop_signs.py:drop_signs           no negative spikes where messages carry no sign
            split_signs.py:split_signs         weights of both signs as two connections, where only those fit
"""
