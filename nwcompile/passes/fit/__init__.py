"""Fit: rewrite an integer network so that its fan-ins, delays and destinations fit the chip, with equal spikes.

stage       function                                what it does
split       split_fan_in.py:split_fan_in            splits fan-ins beyond a core's into neurons that send partial sums
            split_fan_in.py:symbolic_parts          the same for large layers, without lists of their synapses
delays      relay_delays.py:relay_delays            chains of relay neurons for delays longer than the chip's
            relay_delays.py:relay_layer             a layer of relay neurons, which hold or pool spikes
merge       merge_axons.py:merge_axons              maxima of spikes in shared axons
signs       copy_signs.py:copy_signs                copies of sources with synapses of both signs
copies      copy_neurons.py:copy_neurons            copies of neurons, if their destinations are limited
            copy_neurons.py:plan_copies             how many copies, and on which cores
            copy_neurons.py:build_copied_network    copies as layers of their own
"""
