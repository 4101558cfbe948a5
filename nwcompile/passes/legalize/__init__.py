"""Legalize: what a chip's neurons, weights and messages cannot be is rewritten, with a row for each change.

stage       function                           what it does
legalize    legalize.py:legalize               the rewritings below, in this order
            pool_spikes.py:pool_spikes         spikes pooled where currents were, if that is asked for
            sums/                              fan-ins split, maxima of currents compared, see compare and split
            multiply_spikes.py:multiply_spikes matrix products of spikes as neurons
            split_signs.py:split_signs         weights of both signs as two connections, where only those fit
            stateless.py:free_resets           the chip's resets for neurons that keep no state
            reset_timing.py:reset_now          resets one step late made at once, where spikes stay the same
estimate    advice.py:approximations           the approximations with which a refused network would fit
delays      relay_delays.py:relay_delays       chains of relay neurons where a delay is longer than the chip's
            relays.py:relay_layer              relay neurons that pool or hold spikes
            self_connections.py:self_connections   subtractions as synapses to itself, on chips without resets
            bias_lines.py:bias_lines           biases as weights from a line that is on in every step
            prove.py:same_comparison           integers for the chip's comparison with the threshold
prove       prove.py:idle_clamps               clamps that no reachable membrane touches
            prove.py:compared                  quantized comparisons that say the same
            prove.py:lasting_currents          currents that neurons without one got, where decays are shifts
compare     sums/compare_currents.py:compare_currents  a maximum of currents by neurons that compare two
approximate approximate.py:approximate         on integers: the nearest neurons, layer after layer
            ideal.py:ideal_trace               the run on an ideal chip, which the price compares with
            nearest.py:nearest                 which features those are, and what words allow them
            nearest_program.py:built_in        a built-in neuron for a neuron program
            refit.py:refit                     the threshold and leak with which they fire most alike
            driven.py:DrivenLayer              a layer run alone, with one neuron after another
            price.py:price_of                  how far from the same integers on an ideal chip, on samples held out
split       sums/split_fan_in.py:split_fan_in  fan-ins beyond a core's, by neurons that send partial sums
"""
