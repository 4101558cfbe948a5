"""Legalize: rewrite features that a chip's neurons, weights and messages lack, with a row for each change.

function                              what it does
legalize.py:legalize                  the rewritings from fold_filters to idle_clamps, in this order
fold_filters.py:fold_filters          filters in front of weights -> states of the neurons behind them
pool_spikes.py:pool_spikes            pools spikes instead of currents, if requested
multiply_spikes.py:multiply_spikes    matrix products of spikes -> neurons
write_programs.py:fold_exponents      weights with exponents below the chip's -> the whole numbers they round to
write_programs.py:write_programs      integers of another width -> neuron programs, on chips that run them
split_signs.py:split_signs            weights of both signs -> two connections, if only those fit
resets.py:free_resets                 uses any reset of the chip for neurons without state
resets.py:self_connections            subtractions -> synapses of a neuron to itself, on chips without resets
resets.py:reset_now                   resets that are one step late -> immediate, if spikes stay the same
bias_lines.py:bias_lines              biases -> weights of an input line that is always on
prove.py:same_comparison              integer thresholds for the chip's comparison
prove.py:idle_clamps                  uses the chip's clamp, or none, where no membrane reaches it
resets.py:relay_neuron                the chip's neuron that sends in a step what it receives in it
prove.py:prove                        after quantization: what its integers prove
"""
