"""Quantize: float weights, thresholds and leaks become the chip's integers, layer after layer.

stage       function                           what it does
(before)    memory.py:verify_memory            what compiling takes of the memory of this machine
quantize    quantize.py:quantize               all layers, driven by the integers of those before them
            shared.py:once                     what chips have in common, once for all of them (in an estimate)
            scaled_layer.py:scale_layer        a layer at one scale, every number on its grid
            scale_search.py:choose             the scale whose spikes are closest to the float layer's
            channel_scale.py:per_channel       a scale for every output channel, where thresholds may differ
            program_scale.py:fixed_layer       a layer of neuron programs, by the files of that name:
            program_units.py, program_format.py   units of its values; bits after the point
            program_exact.py, program_curves.py, program_tables.py   exact states; curves; their tables
            table.py:scaled_row                the row of a layer in the quantization table
            layer_warnings.py:number_warnings  what a person should know of a layer
prove       prove.py:prove                     what is the same for these integers: idle clamps, comparisons
compare     sums/                              a maximum of currents by neurons that compare two
approximate approximate/                       the nearest neurons that the chip has, and their price
"""

ERROR_CODE = "NW5010"
