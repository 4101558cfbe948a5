"""Legalize: rewrite what a chip's neurons, weights and messages cannot be, with a row for each change.

function                              what it does
legalize.py:legalize                  the rewritings below, in this order
pool_spikes.py:pool_spikes            spikes pooled where currents were, if that is asked for
multiply_spikes.py:multiply_spikes    matrix products of spikes as neurons
split_signs.py:split_signs            weights of both signs as two connections, where only those fit
stateless.py:free_resets              the chip's resets for neurons that keep no state
self_connections.py:self_connections  subtractions as synapses to itself, on chips without resets
reset_timing.py:reset_now             resets one step late made at once, where spikes stay the same
bias_lines.py:bias_lines              biases as weights from a line that is on in every step
comparison.py:same_comparison         integers for the chip's comparison with the threshold
idle_clamps.py:idle_clamps            clamps that no reachable membrane touches
relay_neuron.py:relay_neuron          the chip's neuron that sends in a step what it receives in it
"""
