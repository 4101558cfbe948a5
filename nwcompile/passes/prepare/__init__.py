"""Prepare: rewrite a network into the form that the chip runs, before integers are chosen.

stage       function                           what it does
input       programs.py:merge_inputs           inputs that a neuron program adds up -> one input
            input_layer.py:legalize_input      how input reaches the chip, and which layers run on the host
normalize   weights.py:apply_weight_bits       bits of the weights into each layer
            weights.py:prune_zeros             pruned dense connections -> lists of synapses
            normalize.py:normalize             batch norm, pooling and chained linear maps -> connections
            fold.py:compose                    products of linear maps
            programs.py:recognize_programs     neuron programs that equal a built-in neuron
legalize    weights.py:drop_unmet_taps         kernels without taps that only see padding
schedule    schedule.py:schedule               offsets of layers and delays of connections
"""
