"""Analyze: what a chip holds and can do, and every limit that a network or a mapping exceeds.

    stage       function                           what it does
    estimate    check.py:estimate                  totals that cannot fit, before anything is mapped
                nonlinear.py:maximum_violations    pooling that is not a sum; maxima that neurons can compare
                nonlinear.py:product_violations    matrix products that no neurons can compute
    check       check.py:check                     every violation of a mapped network at once
                capability.py:neuron_violations    features of neurons, weights and delays that the chip lacks
                capacity.py:count_usage                resources that a mapping or single neurons take on cores
                core_rules.py:core_rule_violations limits on the layers and destinations of a core
                pool.py:pool_violations            chips with one pool of hidden neurons, outputs apart
                axon_types.py:axon_type_violations cores whose axons need too many types
                fixed_sites.py:pins                cores that the user fixed at sites
    quantize    grids.py:layer_dynamics            the neuron as the chip's two leaky sums u and v
                grids.py:WeightGrid                the numbers that a chip holds: weights, thresholds, biases
                state_range.py:state_range         proven bounds of u and v

The limits themselves are in `nwcompile/ir/resources.py`.
"""
