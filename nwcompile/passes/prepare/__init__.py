"""Prepare: a network as the chip can run it, before its numbers are chosen.

stage       function                           what it does
legalize    legalize.py:legalize               the four rewritings below, in this order
            weight_bits.py:apply_weight_bits   how many bits the weights into each layer have
            prune_zeros.py:prune_zeros         pruned dense connections as lists of their synapses
            drop_signs.py:drop_signs           no negative spikes where messages carry no sign
            split_signs.py:split_signs         weights of both signs as two connections, where only those fit
normalize   normalize.py:normalize             batch norm, pooling and chained linear maps into connections
            fold.py:compose                    products of linear maps
schedule    schedule.py:schedule               when each layer works
"""
