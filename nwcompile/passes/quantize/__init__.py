"""Quantize: convert float weights, thresholds and leaks to the chip's integers, layer by layer.

stage       function                           what it does
(before)    memory.py:verify_memory            memory that compilation needs on this machine
quantize    quantize.py:quantize               all layers, driven by the quantized layers before them
            quantize.py:make_once              results that several chips share (in an estimate)
            scaled_layer.py:scale_layer        a layer at one scale, every number on its grid
            scale_search.py:choose_scale       the scale whose spikes are closest to the float layer's
            scaled_layer.py:scale_channels     a scale per output channel, if thresholds may differ
            program_scale.py:fixed_layer       a layer of neuron programs, by the program_* files:
            program_units.py, program_format.py   units of its values, exact states; bits after the point
            program_curves.py, program_tables.py  curves; their tables
            program_scale.py:fixed_sender      neurons that send sums, and the weights that read them
            table.py:scaled_row                the row of a layer in the quantization table
            layer_warnings.py:number_warnings  warnings for the user about a layer
legalize    compare_currents.py:send_maxima    a maximum of currents, once for all layers that read it
            gate_currents.py:gate_currents     products of currents and spikes by neurons that send numbers
compare     compare_currents.py:compare_currents  a maximum of currents by neurons that compare two of them
            send_sums.py:count_safe_spikes     neurons that send sums; a proof that messages are wide enough
approximate approximate/                       the nearest neurons that the chip has, and their price
"""

ERROR_CODE = "NW5010"
