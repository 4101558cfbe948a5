"""Fit: rewrite a network in integers so that its fan-ins, delays and destinations fit the chip, spikes unchanged.

stage       function                           what it does
split       split_fan_in.py:split_fan_in       fan-ins beyond a core's, by neurons that send partial sums
            parts.py:symbolic_part             the same for large layers, without lists of their synapses
delays      relay_delays.py:relay_delays       chains of relay neurons where a delay is longer than the chip's
            relays.py:relay_layer              a layer of relay neurons, which hold or pool spikes
merge       merge_axons.py:merge_axons         maxima of spikes in shared axons
copies      copy_neurons.py:copy_neurons       copies of neurons, for few destinations
            copy_plan.py:copy_plan             how many copies, and where
            copied_network.py:copied_network   copies as layers of their own
"""
