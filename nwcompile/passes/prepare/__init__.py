"""Prepare: a network as the chip can run it, before its numbers are chosen.

stage       function                           what it does
input       input_layer.py:legalize_input      how input comes to the chip, and what the host computes of it
normalize   weight_bits.py:apply_weight_bits   how many bits the weights into each layer have
            prune_zeros.py:prune_zeros         pruned dense connections as lists of their synapses
            normalize.py:normalize             batch norm, pooling and chained linear maps into connections
            fold.py:compose                    products of linear maps
            recognize.py:built_in_neurons      neuron programs that are built-in neurons
legalize    unmet_taps.py:without_unmet_taps   kernels without the taps that only padding meets
schedule    schedule.py:schedule               when each layer works
"""
