"""Analyze: what a chip holds and can do, and every limit that a network or a mapping exceeds.

stage       function                           what it does
estimate    check.py:estimate                  totals that cannot fit, before anything is mapped
            maxima.py:maximum_violations       pooling that is no sum; maxima that neurons can compare
            products.py:product_violations     matrix products that no neurons can be
check       check.py:check                     every violation of a mapped network at once
            capability.py:neuron_violations    what layers ask of the chip's neurons, weights and delays
            capacity.py:account                what neurons take on cores, whole or one by one
            core_rules.py:core_rule_violations layers and destinations of a core, where a chip limits them
            pool.py:pool_violations            chips whose hidden neurons are one pool, outputs apart
            axon_types.py:axon_type_violations whether the axons of a core can be typed
            fixed_sites.py:pins                cores that a person has put at sites
quantize    dynamics.py:dynamics               the neuron as the chip's two leaky sums u and v
            grids.py:WeightGrid                the numbers that a chip holds: weights, thresholds, biases
            state_range.py:state_range         how large u and v can become, proved

The limits themselves are in `nwcompile/ir/resources.py`.
"""
